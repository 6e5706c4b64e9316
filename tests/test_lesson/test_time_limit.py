"""What ends an answer that never returns, on a clock that only the tests move."""

import contextlib
import functools
import signal
import threading

import pytest

from labkit.lesson import checks, time_limit
from labkit.lesson.time_limit import Spent, TimeLimit, TimeUp


class Clock:
    """A timer whose ticks are the calls of `spend`, one each second."""

    def __init__(self):
        self.now = Spent(0.0, 0.0, 0.0)
        self.tick = None

    def start(self, tick):
        self.tick = tick

    def stop(self):
        self.tick = None

    def spent(self):
        return self.now

    def spend(self, *, busy=0.0, others=0.0):
        """Let a second pass, for shares of which this thread ran, and other threads ran
        or waited for a core.
        """
        at_s, thread_s, all_s = self.now
        self.now = Spent(at_s + 1, thread_s + busy, all_s + busy + others)
        if self.tick is not None:
            self.tick()


def limited(make_timer, work):
    with TimeLimit(make_timer):
        work()


def ticks_until_stopped(**share):
    clock = Clock()

    def work():
        for _ in range(1000):
            clock.spend(**share)

    with pytest.raises(TimeUp) as stopped:
        limited(lambda: clock, work)
    assert clock.tick is None, "the timer goes on"
    return clock.now.at_s, str(stopped.value)


def test_a_loop_is_stopped_by_its_own_time_and_not_by_that_of_others():
    ran_s, words = ticks_until_stopped(busy=1.0)
    assert 20 <= ran_s <= 22
    assert "running for 20 seconds. Does a loop never end?" in words
    crowded_s, words = ticks_until_stopped(busy=0.1)
    assert 200 <= crowded_s <= 212
    assert "running for 20 seconds" in words


def test_a_wait_is_stopped_unless_something_happens():
    waited_s, words = ticks_until_stopped(busy=0.01)
    assert 60 <= waited_s <= 62
    assert "60 seconds in which nothing happened" in words
    clock = Clock()
    with TimeLimit(lambda: clock):
        for _ in range(100):
            clock.spend(others=0.5)  # processes that it started, or its own threads
        for second in range(100):
            clock.spend(busy=0.05 * (second % 10 == 0))
        with time_limit.other_limit():
            for _ in range(100):
                clock.spend(busy=1.0)
    clock.spend(busy=100.0)  # it has ended


def test_an_answer_that_catches_everything_is_stopped_again():
    clock = Clock()

    def catch_everything():
        for _ in range(30):
            with contextlib.suppress(BaseException):
                clock.spend(busy=1.0)
        clock.spend(busy=1.0)

    with pytest.raises(TimeUp):
        limited(lambda: clock, catch_everything)


def test_a_check_says_which_call_does_not_return(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(
        checks, "TimeLimit", functools.partial(TimeLimit, lambda: clock)
    )

    def efficiency_percent(one_thread_s, all_threads_s, threads):
        while True:
            clock.spend(busy=1.0)

    outcome = checks.judged("00.3", efficiency_percent)
    assert outcome.state == "not yet"
    assert outcome.message.startswith("efficiency_percent(")
    assert "doesn't return. It was stopped after running" in outcome.message


def stuck(_self):
    stuck.looks += 1
    return Spent(0.0, 100.0 * (stuck.looks - 1), 0.0)


def loop():
    while True:
        pass


@pytest.mark.parametrize("name", ["SignalTimer", "ThreadTimer"])
def test_both_timers_stop_a_loop_and_leave_no_trace(monkeypatch, name):
    stuck.looks = 0
    kind = getattr(time_limit, name)
    monkeypatch.setattr(kind, "spent", stuck)
    monkeypatch.setattr(time_limit, "TICK_S", 0.05)
    before = signal.getsignal(signal.SIGALRM)
    was_set = signal.getitimer(signal.ITIMER_REAL)[0] > 0  # by pytest's own limit
    with pytest.raises(TimeUp):
        limited(kind, loop)
    assert signal.getsignal(signal.SIGALRM) == before
    left_s, interval_s = signal.getitimer(signal.ITIMER_REAL)
    assert ((left_s > 0), interval_s) == (was_set, 0.0)


def test_what_used_the_signal_before_goes_on_afterwards():
    rang = []
    former = signal.signal(signal.SIGALRM, lambda *_: rang.append(1))
    former_s, _ = signal.setitimer(signal.ITIMER_REAL, 1000.0)
    try:
        with TimeLimit(time_limit.SignalTimer):
            assert signal.getitimer(signal.ITIMER_REAL)[0] <= 1.0
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000.0
        signal.raise_signal(signal.SIGALRM)
        assert rang == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, former)
        signal.setitimer(signal.ITIMER_REAL, former_s)


def test_outside_of_the_main_thread_another_thread_watches():
    kinds = []
    thread = threading.Thread(target=lambda: kinds.append(time_limit.timer()))
    thread.start()
    thread.join()
    assert isinstance(kinds[0], time_limit.ThreadTimer)
    assert isinstance(time_limit.timer(), time_limit.SignalTimer)
