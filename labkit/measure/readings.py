"""Readings of the clock around calls of a function: synchronized, and short calls
several to a reading.
"""

from __future__ import annotations

from collections.abc import Callable

from labkit.core.errors import BadMeasurement
from labkit.core.units import format_seconds

Clock = Callable[[], float]

# Reading a clock costs about a microsecond, so shorter calls share one reading.
SHORT_CALL_S = 50e-6
# Launching work and waiting for it takes tens of microseconds on a GPU, and up to a
# millisecond through WSL2, so shorter calls share one wait.
SHORT_ASYNC_CALL_S = 10e-3
# warm after the cold call, so that the one that tells how long it takes is the first
# reading
LONG_CALL_S = 0.5
_MOST_REPEATS = 1_000_000


def no_sync() -> None:
    """Return at once: the `sync` of a CPU, which finishes its work before a call
    returns.
    """


class Series:
    """Synchronized readings of one function's calls; the constructor makes the cold
    call.
    """

    def __init__(
        self,
        label: str,
        fn: Callable[[], object],
        sync: Callable[[], None],
        clock: Clock,
    ) -> None:
        self.label = label
        self.fn = fn
        self.sync = sync
        self.clock = clock
        self.first_s = self.seconds(1)
        self.samples_s: list[float] = []

    def seconds(self, repeats: int) -> float:
        """Mean seconds of a call over `repeats` calls inside one reading."""
        fn = self.fn
        sync = self.sync
        sync()
        start = self.clock()
        for _ in range(repeats):
            fn()
        sync()
        return (self.clock() - start) / repeats


def choose_repeats(series: Series) -> tuple[int, float]:
    """Return the calls per reading, 1 or as many as take 1 ms (10 ms on a GPU), and an
    estimate of a call's seconds.
    """
    if series.sync is no_sync:
        short_s = SHORT_CALL_S
        reading_s = 1e-3
    else:
        short_s = reading_s = SHORT_ASYNC_CALL_S
    for _ in range(3):  # a call after the cold one may still warm something up
        warm_s = series.seconds(1)
        if warm_s >= LONG_CALL_S:
            series.samples_s.append(warm_s)
        if warm_s >= reading_s:
            return 1, warm_s
    if warm_s >= short_s:
        return 1, warm_s
    repeats = 10
    while (total_s := series.seconds(repeats) * repeats) < reading_s:
        if repeats > _MOST_REPEATS:
            raise BadMeasurement(
                f"{repeats:,} calls took {format_seconds(total_s)} by this clock: it"
                " does not advance."
            )
        repeats = max(2 * repeats, int(repeats * reading_s / max(total_s, 1e-6)))
    return repeats, total_s / repeats
