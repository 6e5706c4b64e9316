"""Model parallelism on real ranks: after three steps losses and weights are those of one process, to rounding."""

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import labkit as lab
from exercises import several_ranks
from exercises.nb13.collective_traffic import Traffic
from exercises.nb13.tensor_parallel import TransformerBlock
from exercises.nb13.wrong_operators import COPY, SUM, operator, passed_on, sleeps
from labkit.core.errors import RankFailed
from labkit.lesson import checks
from steptime import saved_activation_bytes

WIDTH, HEADS, BLOCKS, VOCAB, STEPS = 16, 4, 3, 20, 3
BATCH, SEQ = 2, 5
CLOSE = {"rtol": 1e-9, "atol": 1e-12}  # double precision: what differs is the order of sums
MATRICES = ("query", "key", "value", "out", "up", "down")


def network():
    torch.manual_seed(13)
    blocks = [TransformerBlock(WIDTH, HEADS) for _ in range(BLOCKS)]
    return nn.Sequential(nn.Embedding(VOCAB, WIDTH), *blocks, nn.Linear(WIDTH, VOCAB)).double()


def batches():
    draw = torch.Generator().manual_seed(1)
    return torch.randint(VOCAB, (STEPS, BATCH, SEQ + 1), generator=draw)


def loss_of(logits, tokens):
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=1e-2, foreach=False)


def full(weight):
    return (weight.full_tensor() if hasattr(weight, "full_tensor") else weight).detach().clone()


def train(model, forward=None):
    """Losses and whole weights after three steps."""
    optimizer, losses = adam(model), []
    for tokens in batches():
        optimizer.zero_grad()
        loss = loss_of((forward or model)(tokens[:, :-1]), tokens)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: full(weight) for name, weight in model.named_parameters()}


@functools.cache
def single():
    return train(network())


def assert_same(losses, weights):
    expected_losses, expected = single()
    assert losses == pytest.approx(expected_losses, rel=1e-9)
    assert weights.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.allclose(weights[name], weight, **CLOSE), name


def test_the_comparison_can_fail():
    losses, weights = train(network())
    weights["1.up.weight"] = weights["1.up.weight"] * (1 + 1e-6)
    with pytest.raises(AssertionError, match=r"1\.up\.weight"):
        assert_same(losses, weights)


# Layers split over ranks: activations go forward from rank to rank, gradients back.


def layers_on(bounds):
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    stage = network()[bounds[rank] : bounds[rank + 1]]
    optimizer, losses = adam(stage), []
    for tokens in batches():
        optimizer.zero_grad()
        x = tokens[:, :-1]
        if rank > 0:
            x = torch.empty(BATCH, SEQ, WIDTH, dtype=torch.float64)
            dist.recv(x, rank - 1)
            x.requires_grad_()
        y = stage(x)
        if rank < last:
            dist.send(y.detach(), rank + 1)
            gradient = torch.empty_like(y)
            dist.recv(gradient, rank + 1)
            y.backward(gradient)
        else:
            loss = loss_of(y, tokens)
            loss.backward()
            losses.append(loss.item())
        if rank > 0:
            dist.send(x.grad, rank - 1)
        optimizer.step()
    weights = {name: full(weight) for name, weight in stage.named_parameters()}  # a slice keeps its layers' names
    return losses, weights


@pytest.mark.parametrize("bounds", [[0, 3, 5], [0, 1, 5], [0, 2, 3, 5], [0, 1, 2, 3, 5]], ids=str)
def test_a_layer_split_trains_as_one_process_and_each_rank_holds_its_layers(bounds):
    ranks = lab.launch(layers_on, len(bounds) - 1, bounds)
    weights = {name: weight for _, held in ranks for name, weight in held.items()}
    assert sum(len(held) for _, held in ranks) == len(weights)  # no layer is held twice
    assert_same(ranks[len(ranks) - 1][0], weights)


# Tensor parallelism by hand.


def part(tensor, dim):
    return nn.Parameter(tensor.detach().chunk(dist.get_world_size(), dim)[dist.get_rank()].clone())


class SplitBlock(nn.Module):
    """A TransformerBlock's part on this rank: its own heads, its own hidden numbers."""

    def __init__(self, block):
        super().__init__()
        self.per_head = block.per_head
        self.norm_1, self.norm_2 = block.norm_1, block.norm_2
        for name in ("query", "key", "value", "up"):
            layer = getattr(block, name)
            setattr(self, name, nn.ParameterDict({"weight": part(layer.weight, 0), "bias": part(layer.bias, 0)}))
        for name in ("out", "down"):
            layer = getattr(block, name)
            setattr(self, name, nn.ParameterDict({"weight": part(layer.weight, 1), "bias": layer.bias}))

    def forward(self, x):
        normed = COPY.apply(self.norm_1(x))
        q, k, v = (
            functional.linear(normed, layer["weight"], layer["bias"]).unflatten(-1, (-1, self.per_head)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + SUM.apply(functional.linear(mixed, self.out["weight"])) + self.out["bias"]
        hidden = functional.linear(COPY.apply(self.norm_2(x)), self.up["weight"], self.up["bias"])
        return x + SUM.apply(functional.linear(functional.gelu(hidden), self.down["weight"])) + self.down["bias"]


def by_hand():
    dist.init_process_group("gloo")
    whole = network()
    model = nn.Sequential(whole[0], *map(SplitBlock, whole[1:-1]), whole[-1])
    with Traffic() as traffic:
        losses, weights = train(model)
    return losses, weights, traffic.calls


@pytest.mark.parametrize("ranks", [2, 4])
def test_hand_made_tensor_parallelism_trains_as_one_process(ranks):
    found = lab.launch(by_hand, ranks)
    weights = {}
    for name in single()[1]:
        parts = [held[name] for _, held, _ in found]
        layer = name.split(".")[1] if "." in name else ""
        if layer in ("query", "key", "value", "up"):
            weights[name] = torch.cat(parts)
        elif layer in ("out", "down") and name.endswith("weight"):
            weights[name] = torch.cat(parts, dim=1)
        else:
            assert all(torch.allclose(one, parts[0], **CLOSE) for one in parts), name
            weights[name] = parts[0]
    for losses, _, _ in found:
        assert_same(losses, weights)


def test_a_block_all_reduces_four_times_a_step():
    _, _, calls = lab.launch(by_hand, 2)[1]
    assert calls == [("all_reduce", BATCH * SEQ * WIDTH * 8)] * (4 * BLOCKS * STEPS)


def test_an_answer_that_never_comes_back_is_an_outcome_too(monkeypatch):
    monkeypatch.setattr(several_ranks, "TIMEOUT_S", 3.0)
    outcome = checks.check("13.4", (operator(passed_on, sleeps), SUM))
    assert outcome.state == "not yet"
    assert "On 2 ranks it was not done after 3 s" in outcome.message


# Tensor parallelism by torch's DTensor.


def by_dtensor(one_copy, recompute):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleOutput,
        RowwiseParallel,
        parallelize_module,
    )

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = network()
    for block in model[1:-1]:
        plan: dict[str, Any] = {
            name: RowwiseParallel() if name in ("out", "down") else ColwiseParallel() for name in MATRICES
        }
        if one_copy:
            whole = {"output_layouts": Replicate(), "desired_output_layouts": Replicate()}
            plan["norm_1"] = PrepareModuleOutput(**whole, use_local_output=False)
        parallelize_module(block, mesh, plan)

    def forward(x):
        for layer in model:
            again = recompute and isinstance(layer, TransformerBlock)
            x = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        return x

    held = sum(getattr(weight, "_local_tensor", weight).numel() for weight in model.parameters())
    with Traffic() as traffic:
        loss_of(forward(batches()[0][:, :-1]), batches()[0]).backward()
    return *train(model, forward), held, traffic.counts


@pytest.mark.parametrize(("ranks", "one_copy", "recompute"), [(2, False, False), (4, True, False), (2, True, True)])
def test_dtensors_tensor_parallelism_trains_as_one_process(ranks, one_copy, recompute):
    whole = network()
    split = sum(getattr(block, name).weight.numel() for block in whole[1:-1] for name in MATRICES)
    split += sum(getattr(block, name).bias.numel() for block in whole[1:-1] for name in ("query", "key", "value", "up"))
    total = sum(weight.numel() for weight in whole.parameters())
    for losses, weights, held, counts in lab.launch(by_dtensor, ranks, one_copy, recompute):
        assert_same(losses, weights)
        assert held == total - split + split // ranks
        again = (
            1 if recompute else 0
        )  # torch stops recomputing when backward has all it needs: before `down` is reduced
        assert counts == {"all_reduce": BLOCKS * ((4 if one_copy else 6) + again)}


def test_heads_that_do_not_divide_end_the_launch_with_the_layers_own_words():
    with pytest.raises(RankFailed, match="sizes"):
        lab.launch(by_dtensor, 3, False, False)


# Counting.


def collectives():
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
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
    found = lab.launch(collectives, 3)
    same = [("all_reduce", 24), ("all_gather", 72), ("all_gather", 72), ("reduce_scatter", 24)]
    by_ring = 2 / 3 * (2 * 24 + 72 + 72 + 24)
    assert found[0][0] == [*same, ("send", 8)]
    assert found[0][1] == pytest.approx(by_ring + 8)
    assert found[1][0] == [*same, ("recv", 8)]
    assert found[1][1] == found[2][1] == pytest.approx(by_ring)
    assert found[2][0] == same
    assert found[2][2] == {"all_reduce": 1, "all_gather": 2, "reduce_scatter": 1}


def by_fsdp():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    blocks = network()[1:-1]
    numbers = sum(weight.numel() for weight in blocks.parameters())
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(blocks, mesh=mesh)  # what is outermost stays gathered after forward
    with Traffic() as traffic:
        blocks(torch.ones(BATCH, SEQ, WIDTH, dtype=torch.float64)).sum().backward()
    return traffic.counts, traffic.sent_bytes(), numbers * 8


def test_fsdp_sends_three_times_its_parameters_whatever_the_batch():
    for counts, sent, n_bytes in lab.launch(by_fsdp, 2):
        assert counts == {"all_gather": 2 * BLOCKS, "reduce_scatter": BLOCKS}
        assert sent == pytest.approx(3 * n_bytes / 2, rel=0.01)  # shards are padded to equal sizes


def test_no_traffic_without_a_collective():
    with Traffic() as traffic:
        torch.ones(3) + 1
    assert (traffic.calls, traffic.counts) == ([], {})


def test_kept_bytes_are_what_backward_needs_without_the_weights():
    x = torch.ones(10, 8, requires_grad=True)
    assert saved_activation_bytes(nn.Linear(8, 4), x) == x.nbytes
    assert saved_activation_bytes(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), x) == x.nbytes + 10 * 4 * 4
    assert saved_activation_bytes(lambda y: y * y, x) == x.nbytes  # twice the same place
    assert saved_activation_bytes(nn.Identity(), x) == 0


def test_a_block_keeps_what_the_formula_says_and_small_numbers_of_its_norms():
    batch, seq, width = 2, 16, 32
    kept = saved_activation_bytes(TransformerBlock(width, 4), torch.ones(batch, seq, width, requires_grad=True))
    assert kept == pytest.approx(64 * batch * seq * width, rel=0.03)
