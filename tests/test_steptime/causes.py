# ruff: noqa: E501  # a row for each cause
"""Loops of the usual causes of slow training, three or more of each, with what has to be named.

Each maker takes a clock, as those of planted_loops. `CAUSES` is cause -> (limit, function to be named, makers).
"""

from functools import partial

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from steptime import gains
from tests.test_steptime.planted_loops import (
    Decoded,
    labels,
    on_kept_memory,
    small_batch,
    small_step,
    training,
    updates,
    with_host_work,
)


def loader(time, each_s, rows):
    return small_step(), DataLoader(Decoded(time, each_s), batch_size=rows)


def small_files(time, n, each_s):
    def read_files():
        for _ in range(n):
            time.wait(each_s)
        return small_batch()

    return small_step(), read_files


def augmented(time, each_s, rows):
    def augment(samples):
        for _ in samples:
            time.work(each_s)
        return torch.utils.data.default_collate(samples)

    return small_step(), DataLoader(Decoded(time, 0.0), batch_size=rows, collate_fn=augment)


def every(n, work, train=None):
    """A step that calls `work` in each n-th step."""
    train, calls = train or small_step(), []

    def step(batch):
        train(batch)
        calls.append(1)
        if len(calls) % n == 0:
            work()

    return step, small_batch()


def checkpoint(time, n, seconds):
    def save_checkpoint():
        time.wait(seconds)

    return every(n, save_checkpoint)


def inline_checkpoint(time, n, seconds):
    train, calls = small_step(), []

    def step(batch):
        train(batch)
        calls.append(1)
        if len(calls) % n == 0:
            time.wait(seconds)

    return step, small_batch()


def evaluation(time, n, rows):
    model, held = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10)), torch.randn(rows, 64)

    def evaluate():
        with torch.no_grad():
            model(held)

    return every(n, evaluate)


def host(time, name, each_s, calls=1):
    """Work of the host in each step, in a function of this name."""

    def work(batch):
        for _ in range(calls):
            time.work(each_s)

    work.__code__ = work.__code__.replace(co_name=name)
    return with_host_work(work)


def reading_each_loss(time, width, layers):
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)), nn.Linear(width, 10))
    used, losses = torch.optim.SGD(model.parameters(), lr=1e-4), []

    def step(batch):
        used.zero_grad()
        loss = cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        used.step()
        losses.append(loss.item())

    return step, (torch.randn(4, width), labels(4))


def table_gradient(time, rows, width):
    table = nn.Embedding(rows, width)

    def step(batch):
        table.zero_grad()
        table(batch[0]).sum().backward()

    return step, (torch.arange(8),)


def new_memory(time, work, n):
    x = torch.ones(n)

    def step(batch):
        batch[0].add(1)
        work(x)

    return step, (torch.ones(4),)


def new_memory_of_numpy(time, pages):
    def fill(batch):
        time.fault(pages)

    return with_host_work(fill)


def elementwise(time, work):
    return on_kept_memory(work)


def products(time, side, rows):
    return training(nn.Sequential(nn.Linear(side, side), nn.Linear(side, 10))), (torch.randn(rows, side), labels(rows))


def naive_attention(time, heads, length, width):
    scale = torch.ones(1, requires_grad=True)

    def step(batch):
        q = batch[0] * scale
        ((q @ q.transpose(-1, -2)).softmax(-1) @ q).sum().backward()

    return step, (torch.randn(heads, length, width),)


def recompiled(time, n, seconds):
    """Each n-th batch has a shape that is new, and is compiled for."""

    def compile_anew():
        counters["stats"]["unique_graphs"] += 1
        time.work(seconds)

    return every(n, compile_anew)


def collected(time, n, seconds):
    class Slow:
        def __init__(self):
            self.itself = self

        def __del__(self):
            time.work(seconds)

    def collect():
        import gc

        Slow()
        gc.collect()

    return every(n, collect)


class Cached(Decoded):
    """Images that take a moment the first time."""

    def __init__(self, time, each_s):
        super().__init__(time, each_s)
        self.known = {}

    def __getitem__(self, i):
        if i not in self.known:
            self.known[i] = super().__getitem__(i)
        return self.known[i]


def cached(time, each_s, rows):
    return small_step(), DataLoader(Cached(time, each_s), batch_size=rows)


def clipped(time, layers, width):
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)), nn.Linear(width, 10))

    def step(batch):
        model.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        for p in model.parameters():
            if p.grad.norm().item() > 1:
                p.grad.mul_(0.5)

    return step, (torch.randn(4, width), labels(4))


def crowded_threads(time, times):
    torch.set_num_threads(times * gains.cores())
    return products(time, 64, 64)


N = 2**22
CAUSES = {
    "slow loader": ("input", "__getitem__", [partial(loader, each_s=s, rows=n) for s, n in ((3e-3, 8), (2e-3, 16), (1e-3, 32))]),
    "small files": ("input", "read_files", [partial(small_files, n=n, each_s=s) for n, s in ((50, 1e-3), (5, 8e-3), (200, 2e-4))]),
    "augmentation": ("input", "augment", [partial(augmented, each_s=s, rows=n) for s, n in ((5e-3, 4), (2e-3, 16), (4e-3, 8))]),
    "checkpoint": (
        "occasional work", "save_checkpoint", [partial(checkpoint, n=n, seconds=0.02 * n) for n in (7, 20, 50)],
    ),
    "checkpoint in the step": (
        "occasional work", "step", [partial(inline_checkpoint, n=n, seconds=0.02 * n) for n in (5, 11, 30)],
    ),
    "evaluation": ("occasional work", "", [partial(evaluation, n=n, rows=400 * n) for n in (5, 10, 25)]),
    "log": ("other host work", "log", [partial(host, name="log", each_s=s, calls=n) for s, n in ((0.02, 1), (1e-3, 15), (5e-3, 6))]),
    "metric in Python": (
        "other host work", "accuracy", [partial(host, name="accuracy", each_s=s, calls=n) for s, n in ((0.03, 1), (1e-4, 200), (2e-3, 8))],
    ),
    "scheduler": (
        "other host work", "update_rate", [partial(host, name="update_rate", each_s=s) for s in (0.01, 0.03, 0.1)],
    ),
    "shuffling": ("other host work", "shuffle", [partial(host, name="shuffle", each_s=s) for s in (0.015, 0.05, 0.2)]),
    "item in each step": (
        "launch overhead", "", [partial(reading_each_loss, width=w, layers=n) for w, n in ((8, 10), (4, 20), (16, 6))],
    ),
    "clipping": ("launch overhead", "", [partial(clipped, layers=n, width=w) for n, w in ((10, 8), (20, 4), (6, 12))]),
    "gradient of a table": (
        "memory bandwidth", "", [partial(table_gradient, rows=n, width=w) for n, w in ((2**15, 64), (2**12, 512), (50_000, 32))],
    ),
    "new memory": (
        "page faults", "",
        [partial(new_memory, work=w, n=2 * N) for w in (lambda x: x * 2, torch.clone, torch.zeros_like)]
        + [partial(new_memory_of_numpy, pages=n) for n in (8_192, 20_000, 3_000)],
    ),
    "optimizer": (
        "memory bandwidth", "", [partial(updates, foreach=False), partial(updates, foreach=True), partial(updates, fused=True)],
    ),
    "copies": (
        "memory bandwidth", "", [partial(elementwise, work=w) for w in (
            lambda x, out: out.copy_(x), lambda x, out: out.view(2048, 2048).copy_(x.view(2048, 2048).t()), lambda x, out: out.fill_(1),
        )],
    ),
    "strides": (
        "memory bandwidth", "", [partial(elementwise, work=lambda x, out, n=n: x[::n].add_(1)) for n in (2, 8, 16)],
    ),
    "elementwise": (
        "memory bandwidth", "", [partial(elementwise, work=w) for w in (
            lambda x, out: torch.add(x, 1, out=out), lambda x, out: torch.exp(x, out=out), lambda x, out: x.mul_(1.0),
        )],
    ),
    "products": ("arithmetic", "", [partial(products, side=s, rows=n) for s, n in ((256, 512), (512, 256), (384, 384))]),
    "attention": (
        "arithmetic", "", [partial(naive_attention, heads=h, length=n, width=w) for h, n, w in ((2, 256, 64), (1, 384, 128), (4, 192, 96))],
    ),
    "new shapes": ("compiling", "compile_anew", [partial(recompiled, n=n, seconds=0.05 * n) for n in (5, 9, 16)]),
    "garbage": ("garbage collection", "", [partial(collected, n=n, seconds=0.03 * n) for n in (1, 4, 10)]),
    "cache": ("first epoch", "__getitem__", [partial(cached, each_s=s, rows=n) for s, n in ((5e-3, 16), (0.01, 8), (0.02, 16))]),
    "threads": ("too many threads", "", [partial(crowded_threads, times=n) for n in (4, 8, 16)]),
}  # fmt: skip
LOOPS = [
    (f"{cause} {i}", make, limit, place)
    for cause, (limit, place, makers) in CAUSES.items()
    for i, make in enumerate(makers)
]
