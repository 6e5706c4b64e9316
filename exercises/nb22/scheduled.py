"""The hardware that follows from a schedule, in Amaranth: units that several operations
share, registers for what waits, and a counter that tells the clocks apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib.wiring import Component, In, Out
from amaranth.sim import Simulator
from numpy.typing import NDArray

from exercises.nb22.schedule import MULTIPLY, Schedule, operations
from labkit.core.arguments import as_array
from labkit.core.errors import BadArgument
from labkit.core.parameters import Array, checked


class Scheduled(Component):  # type: ignore[misc]
    """n x n sums of products, by a schedule.

    `a` and `b` have what the memories' ports give in each clock, `first` marks the
    clock in which the first step of a new sum begins. The sums before it leave row by
    row: row i is at `out` i clocks after the new sum's first step is through.
    Elaborating it raises BadArgument for adders of several clocks.
    """

    def __init__(self, planned: Schedule) -> None:
        self.planned = planned
        numbers = In(signed(8)).array(planned.ports)
        sums = Out(signed(32)).array(planned.n)
        super().__init__({"a": numbers, "b": numbers, "first": In(1), "out": sums})

    def elaborate(self, _: Any) -> Any:
        """Registers, units that are shared, and the counter of an interval's clocks."""
        plan = self.planned
        if plan.add_clocks != 1:
            raise BadArgument(
                "Expected adders of 1 clock, as whole numbers have, got"
                f" {plan.add_clocks} clocks."
            )
        m = Module()
        active = self._phases(m)
        late = [self.first]  # late[c] is `first` of c clocks ago
        for _clock in range(plan.depth + plan.n):
            late.append(Signal())
            m.d.sync += late[-1].eq(late[-2])
        products = self._products(m, active, self._numbers(m, active))
        moving = Cat(late[plan.depth : plan.depth + plan.n - 1]).any()
        below: list[Any] = [Const(0, signed(32))] * plan.n
        for i in reversed(range(plan.n)):
            below = [
                self._sum(m, active, late, products, (i, j), moving, below[j])
                for j in range(plan.n)
            ]
        m.d.comb += [out.eq(total) for out, total in zip(self.out, below, strict=True)]
        return m

    def _phases(self, m: Any) -> list[Any]:
        """For each clock of an interval a signal that is 1 in that clock."""
        interval = self.planned.interval
        if interval == 1:
            return [Const(1)]
        now = Signal(range(interval))
        following = Signal(range(interval))
        m.d.comb += now.eq(Mux(self.first, 0, following))
        m.d.sync += following.eq(Mux(now == interval - 1, 0, now + 1))
        return [now == phase for phase in range(interval)]

    def _numbers(self, m: Any, active: list[Any]) -> dict[str, list[Any]]:
        """Registers of each number that is read: the first keeps it for an interval, a
        second one for another, as long as a product needs it.
        """
        plan = self.planned
        last_use: dict[str, int] = {}
        for operation in operations(plan.n):
            if operation.kind == MULTIPLY:
                for name in operation.takes:
                    clock = plan.clock_of[operation.name]
                    last_use[name] = max(last_use.get(name, 0), clock)
        kept: dict[str, list[Any]] = {}
        for name, last in last_use.items():
            clock = plan.clock_of[name]
            ports = self.a if name.startswith("a") else self.b
            source = ports[plan.unit_of[name]]
            kept[name] = []
            for copy in range(1 + (last - clock - 1) // plan.interval):
                register = Signal(signed(8), name=f"{name}_{copy}")
                with m.If(active[clock % plan.interval]):
                    m.d.sync += register.eq(source)
                kept[name].append(register)
                source = register
        return kept

    def _products(
        self, m: Any, active: list[Any], numbers: dict[str, list[Any]]
    ) -> dict[str, Any]:
        """The register of each product: its multiplier's, which several may share."""
        plan = self.planned
        sharing: dict[int, list[Any]] = {}
        for operation in operations(plan.n):
            if operation.kind == MULTIPLY:
                sharing.setdefault(plan.unit_of[operation.name], []).append(operation)
        products: dict[str, Any] = {}
        for unit, shared in sharing.items():
            factors = [Signal(signed(8), name=f"factor_{unit}_{side}") for side in "ab"]
            register = Signal(signed(16), name=f"product_{unit}")
            m.d.sync += register.eq(factors[0] * factors[1])
            for operation in shared:
                clock = plan.clock_of[operation.name]
                products[operation.name] = register
                taken = [self._held(numbers, name, clock) for name in operation.takes]
                if len(shared) == 1:
                    m.d.comb += [f.eq(t) for f, t in zip(factors, taken, strict=True)]
                else:
                    with m.If(active[clock % plan.interval]):
                        m.d.comb += [
                            f.eq(t) for f, t in zip(factors, taken, strict=True)
                        ]
        return products

    def _held(self, numbers: dict[str, list[Any]], name: str, clock: int) -> Any:
        """The register that has a step's number in a clock of that step."""
        waited = clock - self.planned.clock_of[name] - 1
        return numbers[name][waited // self.planned.interval]

    def _sum(
        self,
        m: Any,
        active: list[Any],
        late: list[Any],
        products: dict[str, Any],
        place: tuple[int, int],
        moving: Any,
        below: Any,
    ) -> Any:
        """The register in which a finished sum waits and moves up."""
        i, j = place
        clock = self.planned.clock_of[f"sum{i},{j}"]
        product = products[f"product{i},{j}"]
        total = Signal(signed(32), name=f"total_{i}_{j}")
        out = Signal(signed(32), name=f"out_{i}_{j}")
        with m.If(active[clock % self.planned.interval]):
            m.d.sync += total.eq(Mux(late[clock], product, total + product))
        with m.If(late[clock]):
            m.d.sync += out.eq(total)
        with m.Elif(moving):
            m.d.sync += out.eq(below)
        return out


@checked
def computed(planned: Schedule, a: Array, b: Array) -> NDArray[np.int64]:
    """The product of a (n, steps) and b (steps, n), numbers of 8 bits, as the hardware
    that follows from a schedule computes it in a simulation.
    """
    a = as_array(a)
    b = as_array(b)
    design = Scheduled(planned)
    steps = a.shape[1]
    # the next sum begins here, and moves this one out
    end = steps * planned.interval
    top_row = end + planned.depth
    seen: list[list[int]] = []

    async def drive(simulation: Any) -> None:
        for clock in range(top_row + planned.n):
            simulation.set(design.first, clock in (0, end))
            for port, numbers in ((design.a, a), (design.b, b.T)):
                given = _given(
                    planned, numbers, "a" if port is design.a else "b", clock
                )
                for unit in range(planned.ports):
                    simulation.set(port[unit], given.get(unit, 0))
            if clock >= top_row:
                seen.append([simulation.get(out) for out in design.out])
            await simulation.tick()

    simulator = Simulator(design)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()
    return np.array(seen)


def _given(
    planned: Schedule, numbers: NDArray[Any], matrix: str, clock: int
) -> dict[int, int]:
    """What each port of a matrix's memory gives in a clock; numbers are (n, steps)."""
    given: dict[int, int] = {}
    for row in range(planned.n):
        step, phase = divmod(
            clock - planned.clock_of[f"{matrix}{row}"], planned.interval
        )
        if phase == 0 and 0 <= step < numbers.shape[1]:
            given[planned.unit_of[f"{matrix}{row}"]] = int(numbers[row, step])
    return given
