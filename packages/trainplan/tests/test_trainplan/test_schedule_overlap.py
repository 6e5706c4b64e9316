"""Bucketed all-reduces beside the backward pass: closed forms, and the buckets that
DistributedDataParallel makes.
"""

import itertools
import random

import pytest

from trainplan._units import MIB
from trainplan.costs.collectives import Link, all_reduce_s
from trainplan.schedule import overlap

LINK = Link(1e-5, 1e10)


def at_rate(bytes_per_s):
    """Two ranks whose ring takes bytes / bytes_per_s."""
    return {"link": Link(0, bytes_per_s), "ranks": 2}


def test_a_fast_network_exposes_the_last_bucket_alone_and_a_slow_one_all_but_the_first_layer():
    fast = overlap([1.0] * 8, [10] * 8, **at_rate(20), bucket_bytes=10)
    assert fast.exposed_s == pytest.approx(0.5)
    assert fast.communication_s == pytest.approx(8 * 0.5)
    slow = overlap([1.0] * 8, [10] * 8, **at_rate(5), bucket_bytes=10)
    # it never pauses after its first bucket
    assert slow.total_s == pytest.approx(1 + 8 * 2)


def test_a_bucket_takes_the_time_of_its_all_reduce():
    played = overlap([1.0], [8e9], link=LINK, ranks=8)
    assert played.communication_s == pytest.approx(all_reduce_s(8e9, 8, LINK))
    assert overlap([1.0], [8e9], link=LINK, ranks=1).exposed_s == 0
    assert overlap([1.0], [0], **at_rate(1)).exposed_s == 0


def test_the_first_bucket_is_small_unless_a_size_is_said():
    sizes = [0.5 * MIB, 0.6 * MIB, 10 * MIB, 16 * MIB, 3 * MIB]
    played = overlap([1] * 5, sizes, **at_rate(MIB))
    assert played.buckets == ((0, 1), (2, 3), (4,))
    assert overlap([1] * 5, sizes, **at_rate(MIB), bucket_bytes=24 * MIB).buckets == (
        (0, 1, 2, 3),
        (4,),
    )


@pytest.mark.slow
def test_the_buckets_are_those_of_torch():
    import torch

    draw = random.Random(3)
    elements = [draw.choice([100, 70_000, 300_000, 3_000_000]) for _ in range(40)]
    tensors = [torch.empty(n) for n in elements]
    theirs, _ = torch.distributed._compute_bucket_assignment_by_size(
        tensors, [MIB, 25 * MIB]
    )
    ours = overlap([1.0] * 40, [4 * n for n in elements], **at_rate(1e9)).buckets
    assert [list(bucket) for bucket in ours] == theirs


@pytest.mark.parametrize("seed", range(8))
def test_what_must_hold_for_any_layers(seed):
    rng = random.Random(seed)
    n = rng.randint(1, 30)
    seconds = [rng.choice([0.0, rng.random()]) for _ in range(n)]
    sizes = [rng.choice([0, rng.randint(1, 100)]) for _ in range(n)]
    played = overlap(
        seconds,
        sizes,
        **at_rate(rng.uniform(20, 200)),
        bucket_bytes=rng.randint(1, 300),
    )
    assert [layer for bucket in played.buckets for layer in bucket] == list(range(n))
    assert max(played.backward_s, played.communication_s) - 1e-9 <= played.total_s
    assert played.total_s <= played.backward_s + played.communication_s + 1e-9
    sent = [span for span in played.spans if span.kind == "communication"]
    ends = {span.label: span.end_s for span in played.spans if span.kind == "B"}
    for before, after in itertools.pairwise(sent):
        assert after.start_s >= before.end_s - 1e-9
    for bucket, span in zip(played.buckets, sent, strict=True):
        assert span.start_s >= ends[str(bucket[-1])] - 1e-9
    assert played.exposed_s == pytest.approx(played.total_s - sum(seconds))


def test_the_words_say_how_much_is_exposed():
    played = overlap([1.0, 1.0], [10, 10], **at_rate(20), bucket_bytes=10)
    assert (
        str(played)
        == "backward 2.00 s, communication 1.00 s in 2 buckets, of which 500 ms"
        " exposed: 2.50 s (simulated)"
    )
