"""Stop an answer that never returns, after seconds: an endless loop, or a wait for what
doesn't come.

What counts is the time that the checking thread spends on a core, and the time in
which nothing happens: no thread of this process, or of one that it started, runs or
waits for a core. So a busy machine stops no answer that is right.

In the main thread of Linux and macOS a signal stops whatever Python can leave: loops,
`time.sleep`, locks, queues, sockets and `input`. On Windows, and in other threads,
another thread asks Python to raise the error, which it does at the next line: a loop
ends, and a wait only when it is over. Nowhere does Python leave a call into compiled
code that never comes back, such as `sum(itertools.count())`.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from time import monotonic, thread_time
from types import FrameType
from typing import Any, NamedTuple, Protocol, Self

import psutil

from labkit.measure import contention

RUN_S = 20.0
"""Seconds on a core, of the thread that checks, after which an answer is stopped."""
WAIT_S = 60.0
"""Seconds in which nothing happens after which it is stopped."""
TICK_S = 1.0
"""Seconds between two looks."""
# of a core; a loop that sleeps and looks again takes about a hundredth of one
_IDLE = 0.03


class TimeUp(BaseException):
    """An answer was stopped; the message says after what.

    No Exception, so that an answer's `except Exception` doesn't catch it.
    """

    def __str__(self) -> str:
        return super().__str__() or "It took too long."


class Spent(NamedTuple):
    """Seconds at one moment: on a clock; on a core, by the thread that checks; on a
    core or waiting for one, by all threads of this process and those it started.
    """

    at_s: float
    thread_s: float
    all_s: float


class Timer(Protocol):
    """What calls a function again and again while a thread works."""

    def start(self, tick: Callable[[], None]) -> None:
        """Call `tick` every TICK_S seconds from now on; the TimeUp that it raises stops
        what the present thread is doing.
        """

    def stop(self) -> None:
        """Call it no more."""

    def spent(self) -> Spent:
        """The seconds now, of the thread that started."""


class SignalTimer:
    """SIGALRM, in the main thread of Linux and macOS. What used the signal before goes
    on afterwards.
    """

    def start(self, tick: Callable[[], None]) -> None:
        """Let the signal come every TICK_S seconds."""

        def handle(_number: int, _frame: FrameType | None) -> None:
            tick()

        self._began_s = monotonic()
        self._former_timer = signal.setitimer(signal.ITIMER_REAL, 0.0)
        self._former = signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, TICK_S, TICK_S)

    def stop(self) -> None:
        """Give the signal and its timer back."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, self._former)
        left_s, interval_s = self._former_timer
        if left_s:
            left_s = max(left_s - (monotonic() - self._began_s), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left_s, interval_s)

    def spent(self) -> Spent:
        """The seconds now; signals are handled in the thread that is timed."""
        return Spent(monotonic(), thread_time(), _all_s())


class ThreadTimer:
    """A thread that watches another, where signals can't stop that one."""

    def start(self, tick: Callable[[], None]) -> None:
        """Begin to watch the present thread."""
        self._number = ctypes.c_ulong(threading.get_ident())
        self._native = threading.get_native_id()
        self._ended = threading.Event()

        def look() -> None:
            while not self._ended.wait(TICK_S):
                try:
                    tick()
                except TimeUp:
                    error = ctypes.py_object(TimeUp)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(self._number, error)

        self._watching = threading.Thread(target=look, daemon=True)
        self._watching.start()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self._watching.join()
        # what hasn't been raised yet is raised no more
        ctypes.pythonapi.PyThreadState_SetAsyncExc(self._number, None)

    def spent(self) -> Spent:
        """The seconds now, by the system's list of threads."""
        threads = {thread.id: thread for thread in psutil.Process().threads()}
        watched = threads.get(self._native)
        thread_s = watched.user_time + watched.system_time if watched else 0.0
        return Spent(monotonic(), thread_s, _all_s())


def timer() -> Timer:
    """The timer that stops most in the present thread."""
    is_main = threading.current_thread() is threading.main_thread()
    return SignalTimer() if is_main and hasattr(signal, "setitimer") else ThreadTimer()


def _all_s() -> float:
    """Seconds of all threads of this process and of those that it started: on a core
    and, where the system says so, waiting for one.
    """
    reading = contention.read()
    if reading.threads is None:
        return reading.own_s
    return sum(ran_s + waited_s for ran_s, waited_s in reading.threads.values())


class TimeLimit:
    """A `with` that raises TimeUp in its block once that has run for RUN_S or waited
    for WAIT_S, and again every TICK_S while the block catches it.
    """

    def __init__(self, make_timer: Callable[[], Timer] = timer) -> None:
        self._timer = make_timer()
        self._first: Spent | None = None
        self._waited_s = 0.0
        self.is_paused = False

    def __enter__(self) -> Self:
        self._outer = _present.set(self)
        self._timer.start(self._look)
        return self

    def __exit__(self, *_: Any) -> None:
        self._timer.stop()
        _present.reset(self._outer)

    def _look(self) -> None:
        """TimeUp where the limit is reached; the first look begins the count."""
        if self.is_paused:
            self._first = None
            return
        now = self._timer.spent()
        if self._first is None:
            self._first = self._last = now
            self._waited_s = 0.0
        passed_s = now.at_s - self._last.at_s
        # less than before where a thread has ended, which is no waiting either
        is_idle = abs(now.all_s - self._last.all_s) < _IDLE * passed_s
        self._waited_s = self._waited_s + passed_s if is_idle else 0.0
        self._last = now
        if now.thread_s - self._first.thread_s >= RUN_S:
            raise TimeUp(
                f"It was stopped after running for {RUN_S:.0f} seconds. Does a loop"
                " never end?"
            )
        if self._waited_s >= WAIT_S:
            raise TimeUp(
                f"It was stopped after {WAIT_S:.0f} seconds in which nothing happened."
                " Does it wait for a lock, a message or an input that doesn't come?"
            )


_present: ContextVar[TimeLimit | None] = ContextVar("limit", default=None)


@contextlib.contextmanager
def other_limit() -> Iterator[None]:
    """Count nothing inside the `with`: what runs there has a time limit of its own."""
    limit = _present.get()
    if limit is not None:
        limit.is_paused = True
    try:
        yield
    finally:
        if limit is not None:
            limit.is_paused = False
