"""A loop scheduled as a tool for high-level synthesis schedules it, and the hardware
that follows.

The loop is notebook 22's product. A step takes a column of A and a row of B, n numbers
each, and adds n x n products to as many sums:

    for k in range(steps):
        for i in range(n):
            for j in range(n):
                sums[i][j] += a[i][k] * b[k][j]

The loops over i and j are unrolled. `schedule` decides in which clock and on which unit
each operation of a step runs; `scheduled.Scheduled` adds registers and control. This is
list scheduling into a table of `interval` clocks: each operation as early as its
numbers and a free unit allow, and a longer interval where that fails.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes

from labkit.core.display import Shown
from labkit.core.errors import BadArgument
from labkit.core.parameters import Size, checked
from labkit.plot.core import Drawing, FigureSpec, name_rows
from labkit.plot.style import CYCLE, patches_of

READ_A = "read A"
READ_B = "read B"
MULTIPLY = "multiply"
ADD = "add"
# kinds of a picture -> name, color and texture
_LOOKS = {
    "read": ("read", CYCLE[5], ""),
    MULTIPLY: (MULTIPLY, CYCLE[1], "///"),
    ADD: (ADD, CYCLE[2], "xxx"),
}
_STEPS_DRAWN = 4
_THIRD = 0.28  # height of a bar; a row has three


@dataclass(frozen=True)
class Operation:
    """An operation of a step, the kind of unit that it needs, and those whose results
    it takes.
    """

    name: str
    kind: str
    takes: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Schedule(Shown):
    """Of each operation of a step the clock in which it runs, and its unit's number.

    `interval` is the number of clocks from one step's beginning to the next one's. Both
    memories give `ports` numbers a clock, there are `multipliers` of them, and an adder
    for each sum that takes `add_clocks`.
    """

    n: int
    ports: int
    multipliers: int
    add_clocks: int
    interval: int
    clock_of: Mapping[str, int]
    unit_of: Mapping[str, int]

    @property
    def depth(self) -> int:
        """Clocks from a step's first read until its last sum is there."""
        return max(self.clock_of.values()) + self.add_clocks

    def clocks(self, steps: int) -> int:
        """Clocks of that many steps, at least one."""
        return self.depth + (steps - 1) * self.interval

    def __str__(self) -> str:
        memories = "1 number" if self.ports == 1 else f"{self.ports} numbers"
        units = (
            "1 multiplier"
            if self.multipliers == 1
            else f"{self.multipliers} multipliers"
        )
        every = "clock" if self.interval == 1 else f"{self.interval} clocks"
        return (
            f"{self.n} x {self.n} sums, {memories} a clock from each memory, {units}: a"
            f" step begins every {every} and takes {self.depth} clocks"
        )


def operations(n: int) -> list[Operation]:
    """The operations of a step for n x n sums, each after those that it takes."""
    reads = [Operation(f"a{i}", READ_A) for i in range(n)]
    reads += [Operation(f"b{j}", READ_B) for j in range(n)]
    pairs = list(itertools.product(range(n), repeat=2))
    # the pairs whose numbers are read first come first
    pairs.sort(key=lambda pair: (max(pair), pair))
    products = [
        Operation(f"product{i},{j}", MULTIPLY, (f"a{i}", f"b{j}")) for i, j in pairs
    ]
    sums = [Operation(f"sum{i},{j}", ADD, (f"product{i},{j}",)) for i, j in pairs]
    return reads + products + sums


@checked
def schedule(n: Size, ports: Size, multipliers: Size, add_clocks: Size = 1) -> Schedule:
    """The schedule of a step for n x n sums with the shortest interval that list
    scheduling finds.

    Raises BadArgument where one of the numbers is 0.
    """
    if not min(n, ports, multipliers, add_clocks):
        raise BadArgument(
            "Expected at least 1 sum, port, multiplier and clock of an adder, got"
            f" n={n}, ports={ports}, multipliers={multipliers},"
            f" add_clocks={add_clocks}."
        )
    units = {READ_A: ports, READ_B: ports, MULTIPLY: multipliers, ADD: n * n}
    # an adder takes its own last sum: no step can begin before that is there
    for interval in itertools.count(add_clocks):
        placed = _placed(operations(n), units, interval)
        if placed is not None:
            clock_of, unit_of = placed
            return Schedule(
                n, ports, multipliers, add_clocks, interval, clock_of, unit_of
            )
    raise AssertionError("an interval of n * n clocks is always enough")


def _placed(
    step: list[Operation], units: Mapping[str, int], interval: int
) -> tuple[dict[str, int], dict[str, int]] | None:
    """Clock and unit of each operation, each as early as it can be; None where a step
    needs more units than `interval` clocks have.
    """
    clock_of: dict[str, int] = {}
    unit_of: dict[str, int] = {}
    busy = dict.fromkeys(itertools.product(units, range(interval)), 0)
    for operation in step:
        # reading and multiplying take a clock
        ready = max((clock_of[name] + 1 for name in operation.takes), default=0)
        for clock in range(ready, ready + interval):
            slot = operation.kind, clock % interval
            if busy[slot] < units[operation.kind]:
                clock_of[operation.name] = clock
                unit_of[operation.name] = busy[slot]
                busy[slot] += 1
                break
        else:
            return None
    return clock_of, unit_of


@Drawing
def picture(ax: Axes, planned: Schedule) -> FigureSpec:
    """The first steps of a scheduled loop, a row each: in which clocks it reads,
    multiplies and adds.
    """
    kinds = {"read": (READ_A, READ_B), MULTIPLY: (MULTIPLY,), ADD: (ADD,)}
    kind_of = {operation.name: operation.kind for operation in operations(planned.n)}
    for step in range(_STEPS_DRAWN):
        for place, (kind, members) in enumerate(kinds.items()):
            clocks = [
                clock
                for name, clock in planned.clock_of.items()
                if kind_of[name] in members
            ]
            begin = min(clocks) + step * planned.interval
            last = planned.add_clocks if kind == ADD else 1
            length = max(clocks) - min(clocks) + last
            _, color, texture = _LOOKS[kind]
            ax.barh(
                step + (place - 1) * _THIRD,
                length,
                left=begin,
                height=_THIRD,
                color=color,
                hatch=texture,
                edgecolor="black",
                linewidth=0.5,
            )
    name_rows(ax, [f"step {step}" for step in range(_STEPS_DRAWN)])
    ax.set_xlim(0, planned.clocks(_STEPS_DRAWN))
    ax.set_xlabel("clocks (calculated)")
    return FigureSpec(
        f"{planned}.",
        height_in=2.6,
        legend="above",
        handles=patches_of(_looks()),
        columns=len(_LOOKS),
    )


@functools.cache
def _looks() -> dict[str, tuple[str, str]]:
    return {name: (color, texture) for name, color, texture in _LOOKS.values()}
