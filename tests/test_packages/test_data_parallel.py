"""By hand, DDP, ZeRO-1 and FSDP2 on real gloo ranks give one process's loss and
weights, to rounding.
"""

import pytest
import torch

from exercises.nb12.parallel_training import backward_by_buckets
from labkit.core.errors import BadArgument
from ranks import launch
from tests.selection import sampled
from tests.test_packages.data_parallel import (
    by_hand,
    ddp,
    ddp_in_small_buckets,
    fsdp2,
    network,
    train,
    zero_1,
)

# The share of weights, gradients and Adam's states that the fuller of two ranks holds
# at least and at most; ZeRO-1 hands out whole tensors.
HELD = {
    by_hand: ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
    ddp: ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
    ddp_in_small_buckets: ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
    zero_1: ((1.0, 1.0), (1.0, 1.0), (0.35, 0.65)),
    fsdp2: ((0.5, 0.5), (0.5, 0.5), (0.5, 0.5)),
}


@pytest.fixture(scope="module")
def alone():
    """One process that reads the whole batch."""
    return launch(train, 1, by_hand)[0]


def assert_trains_as(alone, losses, weights):
    assert losses == pytest.approx(alone[0], rel=1e-12)
    torch.testing.assert_close(weights, alone[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("way", HELD, ids=lambda way: way.__name__)
def test_two_ranks_train_as_one_process_does_and_hold_their_share(way, alone):
    whole = 8 * sum(weight.numel() for weight in network().parameters())
    for losses, weights, held in launch(train, 2, way):
        assert_trains_as(alone, losses, weights)
        for n_bytes, full, (least, most) in zip(
            held, (whole, whole, 2 * whole), HELD[way], strict=True
        ):
            # Adam counts its steps, FSDP pads odd rows
            assert 0.97 * least * full <= n_bytes <= 1.03 * most * full + 200


@pytest.mark.parametrize(
    ("way", "nproc"),
    sampled(
        [(fsdp2, 3), (fsdp2, 4), (zero_1, 3), (ddp, 4), (ddp_in_small_buckets, 3)], 1
    ),
)
def test_more_ranks_train_as_one_process_does(way, nproc, alone):
    for losses, weights, _ in launch(train, nproc, way):
        assert_trains_as(alone, losses, weights)


def test_buckets_travel_beside_the_backward_pass():
    """The order is that of one thread, which sends a bucket before it goes on to the
    next layer.
    """
    layers = [0.02] * 4, [4096] * 4
    many, single = (
        backward_by_buckets(*layers, bucket_bytes=size, steps=2)
        for size in (4096, 1 << 20)
    )
    assert (many.buckets, single.buckets) == (4, 1)
    assert [span.kind for span in many.spans] == ["B"] * 4 + ["communication"] * 4
    computed = many.spans[:4]
    sent = many.spans[4:]
    assert computed[0].end_s - 1e-3 <= sent[0].start_s < computed[-1].start_s
    # a bucket for all layers has to wait for the first of them
    assert single.spans[-1].start_s >= single.spans[3].end_s - 1e-3
    assert "simulated" in str(many)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (([], []), "Expected backward_s to be a list of at least 1 item"),
        (([0.1], [1, 2]), "Expected a number for each layer, got 1 seconds, 2 bytes"),
    ],
)
def test_layers_that_are_none_are_refused(layers, words):
    with pytest.raises(BadArgument, match=words):
        backward_by_buckets(*layers, bucket_bytes=4096)
