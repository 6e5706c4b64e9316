"""Training loops that each have one limit planted at five times or more, and one in which nothing dominates."""

import time
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.functional import cross_entropy

CEILINGS = SimpleNamespace(matmul_flop_per_s={"float32": 60e9}, copy_bytes_per_s=15e9)  # of one common core


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
    return training(nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10)))


def slow_source():
    batch = torch.randn(64, 1024), labels(64)

    def fetch():
        time.sleep(0.05)
        return batch

    return small_step(), fetch


class Decoded(torch.utils.data.Dataset):
    """Images that Python prepares one by one, in double precision."""

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        image = torch.rand(1024, generator=generator, dtype=torch.float64)
        for _ in range(60):
            image = (image - image.mean()) / (image.std() + 1)
        return image.float(), i % 10

    def __len__(self):
        return 256


def slow_decoding():
    return small_step(), torch.utils.data.DataLoader(Decoded(), batch_size=32)


def many_small_layers():
    layers = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(60)]
    return training(nn.Sequential(*layers, nn.Linear(8, 10))), (torch.randn(4, 8), labels(4))


def one_sample_at_a_time():
    model = nn.Linear(64, 10)

    def step(batch):
        for image, label in zip(*batch, strict=True):
            cross_entropy(model(image[None]), label[None]).backward()

    return step, (torch.randn(64, 64), labels(64))


def element_by_element():
    bias = torch.zeros(1, requires_grad=True)

    def step(batch):
        out = torch.empty_like(batch[0])
        with torch.no_grad():
            for _ in range(8):
                torch.add(batch[0], 0.5, out=out)
        (out[:1] * bias).sum().backward()

    return step, (torch.randn(256, 16384),)


def large_weights_one_row():
    model = nn.Linear(2048, 2048)
    return training(model, torch.optim.Adam), (torch.randn(1, 2048), labels(1))


def large_matmuls():
    model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return training(model), (torch.randn(2048, 1024), labels(2048))


def balanced():
    """A third input, a third moving numbers, a third products; each is timed here, and repeated to fit."""
    a, big = torch.randn(512, 512), torch.randn(256, 16384)
    out, product = torch.empty_like(big), torch.empty_like(a)
    weight = torch.zeros(1, requires_grad=True)

    def seconds(work):
        work()
        start = time.perf_counter()
        for _ in range(5):
            work()
        return (time.perf_counter() - start) / 5

    def move():
        torch.add(big, 0.5, out=out)

    def multiply():
        torch.mm(a, a, out=product)

    third_s = 0.06
    moves, products = (max(1, round(third_s / seconds(work))) for work in (move, multiply))

    def step(batch):
        with torch.no_grad():
            for _ in range(moves):
                move()
            for _ in range(products):
                multiply()
        (batch[0] * weight).sum().backward()

    def fetch():
        time.sleep(third_s)
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
