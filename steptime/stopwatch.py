"""Seconds that a thread has worked and slept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter, sleep, thread_time

from steptime.machine import no_sync

try:
    from resource import RUSAGE_SELF, RUSAGE_THREAD, getrusage
except ImportError:  # only Linux has counters for each thread
    RUSAGE_SELF = RUSAGE_THREAD = 0  # type: ignore[misc]


class Stopwatch:
    """Seconds that this thread has worked and slept from `start` to `stop`.

    On a CPU it has worked for its CPU time, however long other programs had its core. It has slept if it gave the core
    up itself, to wait for a time, a lock, a disk or another thread: for all the rest of the time then, else not at all.
    Where `sync` waits for a device, which works on meanwhile, and where blocking isn't counted, all time is work.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._by_cpu_time = sync is no_sync and _blocking_is_counted()
        self._start_s, self._cpu_s, self._blocked = 0.0, 0.0, 0

    def start(self) -> None:
        """Begin."""
        self._blocked, self._cpu_s, self._start_s = _times_blocked(), thread_time(), perf_counter()

    def stop(self) -> tuple[float, float]:
        """Seconds of work and of sleep since the start."""
        seconds, cpu_s = perf_counter() - self._start_s, thread_time() - self._cpu_s
        if not self._by_cpu_time:
            return seconds, 0.0
        return cpu_s, seconds - cpu_s if _times_blocked() > self._blocked else 0.0


def _times_blocked() -> int:
    """How often this thread has given up its core by itself; 0 where the system doesn't say."""
    return getrusage(RUSAGE_THREAD).ru_nvcsw if RUSAGE_THREAD else 0


def page_faults() -> int:
    """How often this process has touched memory that the system had yet to provide; 0 where it isn't counted."""
    return getrusage(RUSAGE_SELF).ru_minflt if RUSAGE_THREAD else 0


@functools.cache
def _blocking_is_counted() -> bool:
    before = _times_blocked()
    sleep(1e-3)
    return _times_blocked() > before


def worked_and_slept(work: Callable[[], object], sync: Callable[[], None], runs: int = 1) -> tuple[float, float]:
    """Mean seconds of work and of sleep of `runs` calls in a row."""
    watch = Stopwatch(sync)
    sync()  # what was queued before isn't this work's
    watch.start()
    for _ in range(runs):
        work()
    sync()
    worked_s, slept_s = watch.stop()
    return worked_s / runs, slept_s / runs
