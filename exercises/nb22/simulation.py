"""Simulate a design clock by clock, and an array whose sums stay in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from amaranth.sim import Simulator
from numpy.typing import NDArray


def simulated(design: Any, drive: Callable[[Any], Any]) -> None:
    """Run an Amaranth component while the coroutine `drive(simulation)` sets its inputs
    and lets clocks pass.
    """
    simulator = Simulator(design)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()


def clock_by_clock(
    array: Any,
    left: NDArray[np.int64],
    above: NDArray[np.int64],
    k: int,
    look: Callable[[Any], Any],
) -> NDArray[np.int64]:
    """What `look(simulation)` sees of an n x n array after each clock.

    In each clock a line of `left` (clocks, n) enters from the left and one of `above`
    from above, then zeros until all have passed. A new sum begins every k clocks.
    """
    n = len(array.grid)
    empty = ((0, 3 * n), (0, 0))
    lines = zip(np.pad(left, empty), np.pad(above, empty), strict=True)
    seen: list[Any] = []

    async def drive(simulation: Any) -> None:
        for clock, (from_left, from_above) in enumerate(lines):
            simulation.set(array.first, clock % k == 0)
            for i in range(n):
                simulation.set(array.a[i], int(from_left[i]))
                simulation.set(array.b[i], int(from_above[i]))
            await simulation.tick()
            seen.append(look(simulation))

    simulated(array, drive)
    return np.array(seen)
