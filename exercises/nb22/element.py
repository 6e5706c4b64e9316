"""What exercise 22.4 asks of a hardware description: its sums, clock by clock, and its
paths between registers.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from typing import Any

from labkit.lesson.checks import NotYet, call

_CLOCKS = 60
_NAME = re.compile(r"\\\S+|\$\d+")


def judge_element(element: Any) -> None:
    """Raise NotYet unless an element adds up as it should, a clock late, with a
    register after the product.
    """
    from amaranth.back import rtlil

    made = call(element)
    _judge_sums(made)
    netlist = call(rtlil.convert, call(element))
    if "cell $mul " not in netlist:
        raise NotYet(
            "There is no product in this description: expected self.a * self.b in"
            " elaborate."
        )
    if _reaches_sum(netlist):
        raise NotYet(
            "The sums are right, but a path still leads through the multiplier and the"
            " adder in one clock: no register lies between them, so Fmax stays as it"
            " was. Put a * b into a register, and add that."
        )


def _judge_sums(element: Any) -> None:
    """Simulate it beside a model: random and extreme pairs, new sums after 1 to 9, and
    sums from below.
    """
    draw = random.Random(224)
    begins = set()
    clock = 0
    while clock < _CLOCKS:
        begins.add(clock)
        clock += draw.choice((1, 2, 5, 9))
    pairs = [
        (draw.randrange(-128, 128), draw.randrange(-128, 128)) for _ in range(_CLOCKS)
    ]
    pairs[2::5] = [(-128, -128)] * len(pairs[2::5])  # the largest product needs 16 bits
    pairs += [(-128, -128)] * 520  # and their sum more than 24
    inputs = [
        (*pair, clock in begins, draw.randrange(999))
        for clock, pair in enumerate(pairs)
    ]
    seen = call(_simulated, element, inputs)
    total = 0
    late = False
    product = 0
    out = 0
    for clock, ((a, b, first, below), got) in enumerate(zip(inputs, seen, strict=True)):
        out = total if late else below
        total = product if late else total + product
        product = a * b
        late = first
        expected = {
            "a_right": a,
            "b_down": b,
            "first_right": int(first),
            "total": total,
            "out": out,
        }
        wrong = [name for name in _WORDS if got[name] != expected[name]]
        if wrong and clock > 1:
            name = wrong[0]
            raise NotYet(
                f"After clock {clock}, {name} should be {expected[name]}, but is"
                f" {got[name]}. {_WORDS[name]}"
            )


_BEFORE = "The neighbor needs it as before, one clock after it came in."
_WORDS = {
    "a_right": _BEFORE,
    "b_down": _BEFORE,
    "first_right": _BEFORE,
    "total": (
        "A product is added one clock after it was made: does `first` arrive with the"
        " product that it belongs to? Are 16 bits there for a product, and 32 for a"
        " sum?"
    ),
    "out": (
        "A finished sum leaves when the next one begins, now a clock later, with the"
        " product that `first` belongs to; at all other times out takes `below`."
    ),
}


def _simulated(
    element: Any, inputs: list[tuple[int, int, bool, int]]
) -> list[dict[str, int]]:
    from amaranth.sim import Simulator

    seen: list[dict[str, int]] = []

    async def drive(simulation: Any) -> None:
        for a, b, first, below in inputs:
            for port, value in (
                (element.a, a),
                (element.b, b),
                (element.first, first),
                (element.below, below),
            ):
                simulation.set(port, value)
            await simulation.tick()
            names = "a_right", "b_down", "first_right", "total", "out"
            seen.append(
                {name: simulation.get(getattr(element, name)) for name in names}
            )

    simulator = Simulator(element)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()
    return seen


def _reaches_sum(netlist: str) -> bool:
    """Whether a product reaches an addition without a register in between, in
    Amaranth's RTLIL.
    """
    onward: defaultdict[str, set[str]] = defaultdict(set)
    products: set[str] = set()
    sums: set[str] = set()
    for cell in re.finditer(
        r"^  cell (\$\w+) .*?^  end$", netlist, re.DOTALL | re.MULTILINE
    ):
        ports = {
            port: _NAME.findall(wires)
            for port, wires in re.findall(r"connect \\(\w+) (.*)", cell[0])
        }
        taken = {
            name
            for port, wires in ports.items()
            if port not in ("Y", "Q")
            for name in wires
        }
        if cell[1] == "$mul":
            products.update(ports["Y"])
        elif cell[1] in ("$add", "$sub"):
            sums |= taken
        if "Q" not in ports:
            for name in taken:
                onward[name].update(ports.get("Y", ()))
    processes = re.findall(r"^  process .*?^  end$", netlist, re.DOTALL | re.MULTILINE)
    assigned = re.findall(r"assign (.*?\]|\S+) (.*)", "\n".join(processes))
    connected = re.findall(r"^  connect (.*?\]|\S+) (.*)", netlist, re.MULTILINE)
    for left, right in assigned + connected:
        for name in _NAME.findall(right):
            onward[name].update(_NAME.findall(left))
    reached = set(products)
    fresh = set(products)
    while fresh:
        fresh = set().union(*(onward[name] for name in fresh)) - reached
        reached |= fresh
    return bool(reached & sums)
