"""By hand, DDP, ZeRO-1 and FSDP2 on real gloo ranks give one process's loss and weights, to rounding."""

import psutil
import pytest
import torch

from exercises import several_ranks
from exercises.nb12.parallel_training import backward_by_buckets
from labkit import dist
from labkit.core.errors import BadArgument
from labkit.lesson import checks, journal
from labkit.measure.bench import speedup
from labkit.measure.dist import interleaved
from tests.test_ranks.data_parallel import (
    beside_others,
    by_hand,
    ddp,
    ddp_in_small_buckets,
    fsdp2,
    network,
    receives_first,
    skips_the_exchange,
    train,
    two_ways,
    zero_1,
)

TIMEOUT_S = 60.0
WAYS = (by_hand, ddp, ddp_in_small_buckets, zero_1, fsdp2)


@pytest.fixture(scope="module")
def alone():
    """One process that reads the whole batch."""
    return dist.launch(train, 1, by_hand, timeout_s=TIMEOUT_S)[0]


@pytest.mark.parametrize("nproc", [2, 3, 4])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_ranks_train_as_one_process_does(way, nproc, alone):
    for losses, weights, _ in dist.launch(train, nproc, way, timeout_s=TIMEOUT_S):
        assert losses == pytest.approx(alone[0], rel=1e-12)
        torch.testing.assert_close(weights, alone[1], rtol=1e-10, atol=1e-12)


def test_without_the_exchange_they_do_not(alone):
    weights = [found[1] for found in dist.launch(train, 2, skips_the_exchange, timeout_s=TIMEOUT_S)]
    assert not torch.allclose(weights[0], alone[1], rtol=1e-4)
    assert not torch.allclose(weights[0], weights[1], rtol=1e-4)


@pytest.mark.parametrize(
    ("way", "share"),
    [(ddp, (1.0, 1.0, 1.0)), (zero_1, (1.0, 1.0, 0.65)), (fsdp2, (0.5, 0.5, 0.5))],
    ids=["ddp", "zero_1", "fsdp2"],
)
def test_memory_of_a_rank(way, share):
    """Adam keeps twice the weights; ZeRO-1 hands out whole tensors, so the fuller of two ranks may have over half."""
    whole = 8 * sum(weight.numel() for weight in network().parameters())
    full = (whole, whole, 2 * whole)
    for _, _, held in dist.launch(train, 2, way, timeout_s=TIMEOUT_S):
        for found, expected, part in zip(held, full, share, strict=True):
            assert found <= expected * part * 1.03 + 200  # Adam counts its steps, FSDP pads odd rows
            assert found >= expected * (part if part != 0.65 else 0.35) * 0.97


def test_the_check_of_a_hang_says_who_waits_for_whom(monkeypatch):
    monkeypatch.setattr(several_ranks, "TIMEOUT_S", 3.0)
    outcome = checks.check("12.3", receives_first)
    assert outcome.state == "not yet"
    assert "it was not done after 3 s" in outcome.message
    assert "rank 0 waits in recv" in outcome.message


@pytest.mark.parametrize(("waiting", "limit_s"), [(0, 12), (1, 12), (3, 36), (100, 120)])
def test_answers_have_longer_where_programs_wait_for_each_core(waiting, limit_s, monkeypatch):
    given = []
    monkeypatch.setattr("psutil.getloadavg", lambda: (waiting * psutil.cpu_count(), 0.0, 0.0))
    monkeypatch.setattr(several_ranks, "launch", lambda *args, timeout_s=0.0: given.append(timeout_s))
    several_ranks._launched(2, int)
    assert given[-1] == limit_s


def test_a_reading_lasts_until_the_slowest_rank_is_done():
    ranks = list(dist.launch(two_ways, 2, 4, timeout_s=TIMEOUT_S))
    for timings, calls, _ in ranks:
        assert [name for name, _ in calls] == ["short", "long"] * 5  # a round to warm up, which is no sample
        assert list(timings) == ["short", "long"]
        assert [len(timing.samples_s) for timing in timings.values()] == [4, 4]
    (_, _, read_s), (_, ended, _) = ranks
    for done_s, (_, late_s) in zip(read_s[1::2], ended, strict=True):
        assert late_s < done_s, "a reading of rank 0 ends when rank 1 is done"


def test_no_verdict_rests_on_turns_that_other_programs_disturbed(home):
    short, long = dist.launch(beside_others, 2, 5, timeout_s=TIMEOUT_S)[0].values()
    ratio = speedup(long, short)
    assert ratio.verdict == "not judged"
    assert "not measured: this machine was busy" in str(journal.verdict("C20", ratio, section="12.5"))


@pytest.mark.parametrize(("ways", "rounds"), [({"a": print}, 1), ({"a": 3}, 5), ({"a": print}, 2.5)])
def test_what_cannot_be_timed_in_turn_is_refused(ways, rounds):
    with pytest.raises(BadArgument):
        interleaved(ways, rounds)


def test_buckets_travel_beside_the_backward_pass():
    layers = [0.02] * 4, [4096] * 4
    many, one = (backward_by_buckets(*layers, bucket_bytes=size, steps=2) for size in (4096, 1 << 20))
    assert (many.buckets, one.buckets) == (4, 1)
    assert [span.kind for span in many.spans] == ["B"] * 4 + ["communication"] * 4
    first, *_, last = (span for span in many.spans if span.kind == "B")
    sent = [span for span in many.spans if span.kind == "communication"]
    assert first.end_s - 1e-3 <= sent[0].start_s < last.start_s  # the first bucket leaves long before backward ends
    assert (
        one.spans[-1].start_s >= one.spans[3].end_s - 1e-3
    )  # a bucket for all layers has to wait for the first of them
    assert min(many.seconds) >= 0.08
    assert "simulated" in str(many)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (([], []), "Expected backward_s to be a list of at least 1 item"),
        (([0.1], [1, 2]), "Expected a number for each layer, got 1 seconds, 2 bytes"),
        ((0.1, 4), "Expected backward_s to be a list of at least 1 item"),
        (([0.1], [-1]), r"Expected n_bytes\[0\] to be a finite number of at least 0, got -1. It is in bytes."),
    ],
)
def test_layers_that_are_none_are_refused(layers, words):
    with pytest.raises(BadArgument, match=words):
        backward_by_buckets(*layers, bucket_bytes=4096)
