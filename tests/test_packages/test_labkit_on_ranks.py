"""What labkit adds to ranks: stand-in devices, timed collectives and ways to train
timed in turn.
"""

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist

import labkit as lab
from exercises import several_ranks
from labkit.core.errors import BadArgument
from labkit.lesson import checks, journal
from labkit.measure import standin
from labkit.measure.bench import speedup
from labkit.measure.dist import interleaved
from test_ranks.ranks_faults import hangs_end_at_once
from tests.test_packages.data_parallel import beside_others, receives_first, two_ways

# ---- stand-in devices ----


class SleepClock:
    """In place of the module time: a clock that only sleeping moves, 60 µs further than
    asked.
    """

    def __init__(self):
        self.now_s = 0.0
        self.asleep_s = []

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.asleep_s.append(seconds)
        self.now_s += seconds + 6e-5


@pytest.fixture
def clock(monkeypatch):
    clock = SleepClock()
    monkeypatch.setattr(standin, "time", clock)
    standin.oversleep_s.cache_clear()
    yield clock
    standin.oversleep_s.cache_clear()


def sleeping_card(flop):
    card = lab.StandIn(1e12)
    standin.time = SleepClock()  # type: ignore[assignment]
    standin.oversleep_s.cache_clear()
    card.compute(1e9)
    dist.init_process_group("gloo")
    seconds = []
    for _ in range(5):
        dist.barrier()
        start_s = standin.time.now_s
        card.compute(flop)
        seconds.append(standin.time.now_s - start_s)
    return seconds


def test_stand_in_devices_sleep_as_long_as_they_would_compute():
    results = lab.launch(sleeping_card, 3, 50e9, timeout_s=120)
    assert results.origin == "simulated"
    assert "simulated" in str(results)
    assert np.array(list(results)) == pytest.approx(np.full((3, 5), 0.05))
    assert len([span for span in results.spans if span.kind == "compute"]) == 3 * (
        1 + 5
    )


def test_a_stand_in_meets_its_deadline(clock):
    card = lab.StandIn(1e9)
    card.compute(1e6)
    start_s = clock.now_s
    card.compute(5e6)
    assert clock.now_s - start_s == pytest.approx(5e-3)
    assert clock.asleep_s[-1] == pytest.approx(5e-3 - 6e-5), (
        "so much late is each sleep"
    )


def test_a_stand_in_layer_takes_time_forward_and_backward(clock):
    linear = torch.nn.Linear(3, 1)
    model = torch.nn.Sequential(
        lab.StandIn(1e9).layer(10e6), linear, lab.StandIn(1e9).layer(5e6, 0)
    )
    x = torch.randn(2, 3)
    standin.oversleep_s()
    start_s = clock.now_s
    out = model(x)
    forward_s = clock.now_s
    out.sum().backward()
    assert forward_s - start_s == pytest.approx(0.015)
    assert clock.now_s - forward_s == pytest.approx(0.02)
    assert torch.equal(out, linear(x))
    with torch.no_grad():
        assert not model(x).requires_grad


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lab.StandIn().compute(-1), "Expected flop"),
        (lambda: lab.StandIn(0), "Expected flop_per_s"),
        (
            lambda: lab.StandIn(1e9).compute(10**13),
            r"Expected flop to take at most an hour, got 1e\+13 at 1e\+09 FLOP/s\.",
        ),
        (
            lambda: lab.dist.all_reduce_seconds([], 2),
            "Expected sizes to be a list of at least 1 item",
        ),
        (
            lambda: lab.dist.all_reduce_seconds([4], 2, over="mpi"),
            "Expected over to be one of 'gloo', 'nccl' or None, got 'mpi'",
        ),
        (lambda: interleaved({"a": print}, 1), "Expected"),
        (lambda: interleaved({"a": 3}, 5), "Expected"),
    ],
)
def test_what_cannot_be_timed_is_refused(call, words):
    with pytest.raises(BadArgument, match=words):
        call()


# ---- timing ----


def test_all_reduce_is_timed_by_size():
    seconds = lab.dist.all_reduce_seconds([4, 4_000_000], 2, over="gloo")
    assert list(seconds) == [4, 4_000_000]
    assert min(seconds.values()) > 0


def test_a_reading_lasts_until_the_slowest_rank_is_done():
    ranks = list(lab.launch(two_ways, 2, 4))
    for timings, calls, _ in ranks:
        # a round to warm up, which is no sample
        assert [name for name, _ in calls] == ["short", "long"] * 5
        assert list(timings) == ["short", "long"]
        assert [len(timing.samples_s) for timing in timings.values()] == [4, 4]
    (_, _, read_s), (_, ended, _) = ranks
    for over_s, (_, late_s) in zip(read_s[1::2], ended, strict=True):
        assert late_s < over_s, "a reading of rank 0 ends when rank 1 is done"


def test_no_verdict_rests_on_turns_that_other_programs_disturbed(home):
    short, long = lab.launch(beside_others, 2, 5)[0].values()
    ratio = speedup(long, short)
    assert ratio.verdict == "not judged"
    assert "not measured: this machine was busy" in str(
        journal.verdict("C20", ratio, section="12.5")
    )


# ---- checks of exercises on ranks ----


def test_the_check_of_a_hang_says_who_waits_for_whom():
    with hangs_end_at_once():
        outcome = checks.check("12.3", receives_first)
    assert outcome.state == "not yet"
    assert "it was not done after" in outcome.message
    assert "rank 0 waits in recv" in outcome.message


@pytest.mark.parametrize(("waiting", "limit_s"), [(0, 12), (3, 36), (100, 120)])
def test_answers_have_longer_where_programs_wait_for_each_core(
    waiting, limit_s, monkeypatch
):
    limits_s = []
    monkeypatch.setattr(
        "psutil.getloadavg", lambda: (waiting * psutil.cpu_count(), 0.0, 0.0)
    )
    monkeypatch.setattr(
        several_ranks, "launch", lambda *args, timeout_s=0.0: limits_s.append(timeout_s)
    )
    several_ranks._launched(2, int)
    assert limits_s[-1] == limit_s
