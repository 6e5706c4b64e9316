"""Loops in which nothing dominates, and loops whose largest limit is unknown."""

import functools

import torch

from steptime.measure.machine import one_thread
from test_steptime.loop_parts import small_batch, with_host_work


def often(time, work, seconds):
    """A function that calls `work` as often as takes `seconds` on this clock."""
    each_s = []
    with one_thread():  # on a busy machine, several wait for each other
        for _ in range(30):
            start = time.clock()
            work()
            each_s.append(time.clock() - start)
    n = max(round(seconds / min(each_s)), 1)  # other programs only lengthen it

    def repeated():
        for _ in range(n):
            work()

    return repeated


def mixture(time, *kinds, part_s=0.02):
    """A loop that spends the same time on each kind of work."""
    a = torch.randn(128, 128)
    product = torch.empty_like(a)
    big = torch.randn(64, 1024)
    out = torch.empty_like(big)
    one = torch.ones(1)
    works = {
        "arithmetic": lambda: torch.mm(a, a, out=product),
        "memory bandwidth": lambda: torch.add(big, 0.5, out=out),
        "launch overhead": lambda: one * 2,
    }
    parts = [often(time, works[kind], part_s) for kind in kinds if kind in works]
    parts += [functools.partial(time.wait, part_s)] * kinds.count("other host work")

    def step(batch):
        for part in parts:
            part()
        return batch[0] + 1

    def fetch():
        time.wait(part_s)
        return (one,)

    return step, fetch if "input" in kinds else (one,)


BALANCED = (
    ("input", "memory bandwidth", "arithmetic"),
    ("other host work", "memory bandwidth", "arithmetic"),
    ("input", "other host work", "arithmetic"),
    ("input", "other host work", "memory bandwidth"),
    ("input", "other host work", "memory bandwidth", "arithmetic", "launch overhead"),
)


def input_and_rate(time):
    """As much input as work of the host."""

    def rate(batch):
        time.work(0.05)

    def fetch():
        time.wait(0.05)
        return small_batch()

    return with_host_work(rate)[0], fetch


def input_and_metrics(time):
    """Input takes 51 %: the page can only be in doubt."""

    def metrics(batch):
        time.work(0.04)

    def next_batch():
        time.work(0.042)
        return small_batch()

    return with_host_work(metrics)[0], next_batch


# unknown: torch's operators for which no ceiling is known


def sorting(time):
    scale = torch.ones(1, requires_grad=True)

    def step(batch):
        (batch[0] * scale).sort().values[:, 0].sum().backward()

    return step, (torch.randn(256, 2048),)


def largest_sought(time):
    """`sorting`, mended."""
    scale = torch.ones(1, requires_grad=True)

    def step(batch):
        (batch[0] * scale).amin(1).sum().backward()

    return step, (torch.randn(256, 2048),)


def factored(time):
    weight = torch.randn(192, 192)

    def step(batch):
        q = torch.linalg.qr(weight)[0]
        (batch[0] @ q).sum()

    return step, (torch.randn(8, 192),)
