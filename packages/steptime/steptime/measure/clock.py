"""The clock of all measurements: seconds in which other programs have this thread's
core don't count.
"""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from time import perf_counter

from steptime.measure.machine import no_sync

if sys.platform != "win32":
    import resource

# Linux, Documentation/scheduler/sched-stats.rst
_CORE_WAITS = "/proc/thread-self/schedstat"


class Clock:
    """Returns, when called by the thread that made it, the seconds on a clock that
    stops while it waits for a core.

    Where `sync` waits for a device, which works on meanwhile, and where the system
    isn't Linux, all time counts.
    """

    def __init__(self, sync: Callable[[], None] = no_sync) -> None:
        # a file of the nanoseconds that this thread has run, and waited for a core
        self._waits: int | None = None
        if sync is no_sync:
            with contextlib.suppress(OSError):
                self._waits = os.open(_CORE_WAITS, os.O_RDONLY)
                weakref.finalize(self, os.close, self._waits)

    def __call__(self) -> float:
        """Seconds now."""
        while True:
            waited_s = self.waited_s()
            now_s = perf_counter()
            # A wait between the two readings would count twice, or not at all.
            if self.waited_s() == waited_s:
                return now_s - waited_s

    def waited_s(self) -> float:
        """Seconds for which it stood still so far."""
        if self._waits is None:
            return 0.0
        _ran, waited, *_ = os.pread(self._waits, 64, 0).split()
        return 1e-9 * int(waited)


def faults_and_switches() -> tuple[int, int]:
    """How often this process has touched memory that the system had yet to provide, and
    a thread of it left a core.
    """
    if sys.platform == "win32":  # it doesn't count them so
        return 0, 0
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt, usage.ru_nvcsw + usage.ru_nivcsw


def above_0(readings: Iterable[float]) -> list[float]:
    """The readings above 0 s; [0.0] without any.

    In others the clock stood still: it may take a moment of this thread's for a wait.
    """
    return [seconds for seconds in readings if seconds > 0] or [0.0]


def mean_s(
    work: Callable[[], object], sync: Callable[[], None], runs: int = 1
) -> float:
    """Mean seconds of `runs` calls in a row; 0 where the clock stood still."""
    clock = Clock(sync)
    sync()  # what was queued before isn't this work's
    start_s = clock()
    for _ in range(runs):
        work()
    sync()
    return max(clock() - start_s, 0.0) / runs
