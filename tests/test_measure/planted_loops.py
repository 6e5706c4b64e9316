"""Training loops that each have one limit planted at five times or more, and one in which nothing dominates.

They run on a virtual clock, which only operators and the given waits move: what is found depends on no other program.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from labkit.measure.ceilings import Ceilings
from labkit.measure.probe import Ceiling
from labkit.measure.profiling import operator_timing

LAUNCH_S, FLOP_PER_S, BYTES_PER_S = 5e-6, 1e9, 1e9
_COPY, _MATMUL = (
    Ceiling(rate, rate, rate, unit, at="planted", n=1, runs=1)
    for rate, unit in ((BYTES_PER_S, "B/s"), (FLOP_PER_S, "FLOP/s"))
)
CEILINGS = Ceilings("planted", 1, _COPY, {"float32": _MATMUL}, (), {}, {}, {}, "")


class VirtualTime:
    """A clock that each operator moves by its launch, and by its FLOP or its bytes, whichever take longer."""

    def __init__(self):
        self.now_s = 0.0

    def clock(self):
        return self.now_s

    def operator(self, func, args, kwargs):
        out = func(*args, **kwargs)
        call = operator_timing.described(func, args, kwargs, out, 0.0)
        self.now_s += LAUNCH_S + max(call.flop / FLOP_PER_S, call.n_bytes / BYTES_PER_S)
        return out


def training(model, optimizer=torch.optim.SGD):
    used = optimizer(model.parameters(), lr=1e-4)

    def step(batch):
        used.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        used.step()

    return step


def labels(n):
    return torch.arange(n) % 10


def small_step():
    return training(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))


def slow_source(time):
    batch = torch.randn(16, 64), labels(16)

    def fetch():
        time.now_s += 0.05
        return batch

    return small_step(), fetch


class Decoded(torch.utils.data.Dataset):
    """Images that Python prepares one by one."""

    def __init__(self, time):
        self.time = time

    def __getitem__(self, i):
        self.time.now_s += 2e-3
        return torch.full((64,), 0.1 * i), i % 10

    def __len__(self):
        return 64


def slow_decoding(time):
    return small_step(), torch.utils.data.DataLoader(Decoded(time), batch_size=16)


def many_small_layers(time):
    layers = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(20)]
    return training(nn.Sequential(*layers, nn.Linear(8, 10))), (torch.randn(4, 8), labels(4))


def one_sample_at_a_time(time):
    model = nn.Linear(16, 10)

    def step(batch):
        for image, label in zip(*batch, strict=True):
            cross_entropy(model(image[None]), label[None]).backward()

    return step, (torch.randn(16, 16), labels(16))


def element_by_element(time):
    bias = torch.zeros(1, requires_grad=True)

    def step(batch):
        out = torch.empty_like(batch[0])
        with torch.no_grad():
            for _ in range(8):
                torch.add(batch[0], 0.5, out=out)
        (out[:1] * bias).sum().backward()

    return step, (torch.randn(64, 1024),)


def large_weights_one_row(time):
    model = nn.Linear(512, 512)
    return training(model, torch.optim.Adam), (torch.randn(1, 512), labels(1))


def large_matmuls(time):
    model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    return training(model), (torch.randn(256, 128), labels(256))


def balanced(time):
    """A third of the time each for input, for moving numbers and for products."""
    a, big, weight = torch.randn(128, 128), torch.randn(64, 1024), torch.zeros(1, requires_grad=True)
    out, product = torch.empty_like(big), torch.empty_like(a)
    third_s = 0.02
    # what is given as `out` counts as given and as made
    move_s, multiply_s = LAUNCH_S + 3 * out.nbytes / BYTES_PER_S, LAUNCH_S + 2 * 128**3 / FLOP_PER_S

    def step(batch):
        with torch.no_grad():
            for _ in range(round(third_s / move_s)):
                torch.add(big, 0.5, out=out)
            for _ in range(round(third_s / multiply_s)):
                torch.mm(a, a, out=product)
        (batch[0] * weight).sum().backward()

    def fetch():
        time.now_s += third_s
        return (torch.ones(4),)

    return step, fetch


def exchange(rank, meeting, path):
    """One of two ranks that exchange 64 MiB for a step of almost nothing; rank 0 writes what limits it to `path`.

    They meet in a file `meeting`: a port that is free now may be taken when they start.
    """
    import torch.distributed as dist

    from labkit.measure import profiling

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    shared, weight = torch.zeros(2**24), torch.zeros(16, requires_grad=True)

    def step(batch):
        (batch[0] * weight).sum().backward()
        dist.all_reduce(shared)

    found = profiling.find_bottleneck(step, (torch.ones(16),), budget_s=2, ceilings=CEILINGS)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        with open(path, "w") as file:
            file.write(str(found.dominant))
