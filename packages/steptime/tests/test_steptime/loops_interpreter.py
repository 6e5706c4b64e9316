"""Loops that garbage collection, torch.compile, or too many threads hold up."""

import gc
import random

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader

from steptime.judge.tried_changes import cores
from test_steptime.loop_parts import (
    Images,
    every,
    labels,
    mlp,
    small_batch,
    small_step,
    training,
    with_host_work,
)

# garbage collection


class Cycle:
    """Part of a cycle, and slow to be collected."""

    def __init__(self, time, each_s):
        self.time = time
        self.each_s = each_s
        self.itself = self

    def __del__(self):
        self.time.work(self.each_s)


def collected_each_step(time):
    kept = [[i] for i in range(100_000)]

    def collect(batch):
        Cycle(time, 0.2)
        gc.collect()
        return kept

    return with_host_work(collect)


def collected_each_twentieth(time):
    def collect():
        Cycle(time, 0.6)
        gc.collect(0)

    return every(20, collect)


def collected_by_the_dataset(time):
    def parse(i):
        Cycle(time, 4e-3)
        gc.collect(0)

    return small_step(), DataLoader(Images(200, parse), batch_size=4)


def nothing_collected(time):
    """The same loops, mended: their steps make no garbage."""
    return with_host_work(lambda batch: None)


# compiling


def compile_anew(time, seconds):
    counters["stats"]["unique_graphs"] += 1
    time.work(seconds)


def compiled_each_ninth(time):
    return every(9, lambda: compile_anew(time, 0.45))


def compiled_in_the_first_steps(time):
    """New shapes in the first tenth of the steps only, dearly."""
    left = [2.0] * 9

    def compile_if_new():
        if left:
            compile_anew(time, left.pop())

    return every(4, compile_if_new)


def ragged_batches(time):
    """A third of the batches has a length that is new to torch.compile."""
    chance = random.Random(2)
    compiled = set()
    train = small_step()

    def step(batch):
        length = chance.randrange(10_000) if chance.random() < 0.33 else 0
        if length and length not in compiled:
            compiled.add(length)
            compile_anew(time, 0.8)
        train(batch)

    return step, small_batch()


# too many threads


def crowded_layers(time):
    torch.set_num_threads(4 * cores())
    return training(mlp(64, 64, 10)), (torch.randn(64, 64), labels(64))


def a_thread_per_core(time):
    """`crowded_layers`, mended."""
    step, batch = crowded_layers(time)
    torch.set_num_threads(cores())
    return step, batch


def crowded_convolutions(time):
    torch.set_num_threads(10 * cores())
    model = nn.Sequential(
        nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 14 * 14, 10)
    )
    return training(model), (torch.randn(8, 8, 16, 16), labels(8))
