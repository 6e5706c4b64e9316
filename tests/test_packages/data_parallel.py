"""Ways to train on several ranks. They stand apart from their tests, since every rank
imports this file.
"""

import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

from labkit.measure import contention, dist as lab_dist
from labkit.measure.dist import interleaved
from test_ranks.ranks_faults import report_inside

IMAGES = 24
STEPS = 3


def network():
    """BatchNorm is left out: it would see a share alone."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 5)
    ).double()


def batch():
    draw = torch.Generator().manual_seed(1)
    return torch.randn(IMAGES, 20, generator=draw, dtype=torch.float64), torch.randint(
        5, (IMAGES,), generator=draw
    )


def train(way):
    """(losses of the whole batch, weights, bytes held by weights, gradients and states)
    after three steps of Adam.
    """
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    n = dist.get_world_size()
    model = network()
    net, optimizer = way(model)
    x, y = (part.tensor_split(n)[rank] for part in batch())
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = cross_entropy(net(x), y)
        loss.backward()
        if way is by_hand:
            for weight in model.parameters():
                dist.all_reduce(weight.grad)
                weight.grad /= n
        optimizer.step()
        mean = loss.detach() / n
        dist.all_reduce(mean)
        losses.append(mean.item())
    weights = list(net.parameters())
    states = [
        t
        for state in getattr(optimizer, "optim", optimizer).state.values()
        for t in state.values()
    ]
    held = [
        sum(map(n_bytes, tensors))
        for tensors in (weights, [w.grad for w in weights], states)
    ]
    whole = [w.full_tensor() if hasattr(w, "full_tensor") else w for w in weights]
    return losses, torch.cat([w.detach().ravel() for w in whole]), held


def n_bytes(tensor):
    own = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return own.numel() * own.element_size()


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def by_hand(model):
    return model, adam(model)


def ddp(model):
    return nn.parallel.DistributedDataParallel(model), adam(model)


def ddp_in_small_buckets(model):
    return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001), adam(model)


def zero_1(model):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = nn.parallel.DistributedDataParallel(model)
    return net, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)


def fsdp2(model):
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (*(layer for layer in model if isinstance(layer, nn.Linear)), model):
        fully_shard(layer, mesh=mesh)
    return model, adam(model)


def receives_first(x):
    other = 1 - dist.get_rank()
    report_inside("recv")
    dist.recv(torch.empty_like(x), other)
    dist.send(x, other)
    return x


def two_ways(rounds):
    """Of a short and a long way on this rank, where rank 1 takes longer: timings,
    calls, readings of the clock.

    All ranks of a machine have one clock. The calls have the moment at which they
    ended.
    """
    dist.init_process_group("gloo")
    late_s = 0.02 * dist.get_rank()
    calls = []
    read_s = []

    def perf_counter():
        read_s.append(time.perf_counter())
        return read_s[-1]

    def way(name, seconds):
        time.sleep(seconds)
        calls.append((name, time.perf_counter()))

    lab_dist.time = SimpleNamespace(perf_counter=perf_counter)  # type: ignore[assignment]
    return (
        interleaved(
            {"short": lambda: way("short", 0.0), "long": lambda: way("long", late_s)},
            rounds,
        ),
        calls,
        read_s,
    )


def beside_others(rounds):
    """The same timings, where other programs take half of the time."""
    contention.between = lambda first, last: contention.Contention(
        0.5, "this machine was busy: 50 % of the time"
    )
    return two_ways(rounds)[0]
