"""What model parallelism sends between real ranks, and what a block keeps."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from exercises.nb13.collective_traffic import Traffic
from exercises.nb13.tensor_parallel import TransformerBlock
from ranks import launch
from steptime import saved_activation_bytes

WIDTH = 16
HEADS = 4
BLOCKS = 3
BATCH = 2
SEQ = 5


def collectives():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ranks = dist.get_world_size()
    x = torch.ones(6, dtype=torch.float32)
    with Traffic() as traffic:
        dist.all_reduce(x)
        dist.all_gather_into_tensor(torch.empty(6 * ranks), x)
        dist.all_gather([torch.empty(6) for _ in range(ranks)], x)
        dist.reduce_scatter_tensor(torch.empty(6 // ranks), x)
        if rank == 0:
            dist.send(x[:2], 1)
        elif rank == 1:
            dist.recv(x[:2], 0)
    dist.all_reduce(x)  # after the with: not counted
    return traffic.calls, traffic.sent_bytes(), traffic.counts


def test_traffic_counts_full_tensors_and_what_a_ring_sends():
    first, second, third = launch(collectives, 3)
    same = [
        ("all_reduce", 24),
        ("all_gather", 72),
        ("all_gather", 72),
        ("reduce_scatter", 24),
    ]
    by_ring = pytest.approx(2 / 3 * (2 * 24 + 72 + 72 + 24))
    counts = {"all_reduce": 1, "all_gather": 2, "reduce_scatter": 1}
    assert first[:2] == (
        [*same, ("send", 8)],
        pytest.approx(2 / 3 * (2 * 24 + 72 + 72 + 24) + 8),
    )
    assert second[:2] == ([*same, ("recv", 8)], by_ring)
    assert third == (same, by_ring, counts)


def by_fsdp():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    blocks = nn.Sequential(
        *(TransformerBlock(WIDTH, HEADS) for _ in range(BLOCKS))
    ).double()
    numbers = sum(weight.numel() for weight in blocks.parameters())
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(blocks, mesh=mesh)  # what is outermost stays gathered after forward
    with Traffic() as traffic:
        blocks(torch.ones(BATCH, SEQ, WIDTH, dtype=torch.float64)).sum().backward()
    return traffic.counts, traffic.sent_bytes(), numbers * 8


def test_fsdp_sends_three_times_its_parameters_whatever_the_batch():
    for counts, sent, n_bytes in launch(by_fsdp, 2):
        assert counts == {"all_gather": 2 * BLOCKS, "reduce_scatter": BLOCKS}
        # shards are padded to equal sizes
        assert sent == pytest.approx(3 * n_bytes / 2, rel=0.01)


def test_a_block_keeps_what_the_formula_says_and_small_numbers_of_its_norms():
    batch = 2
    seq = 16
    width = 32
    kept = saved_activation_bytes(
        TransformerBlock(width, 4), torch.ones(batch, seq, width, requires_grad=True)
    )
    assert kept == pytest.approx(64 * batch * seq * width, rel=0.03)
