"""Loops with irregular or several causes, written after the rules that judge them, on the clocks of planted_loops.

`LOOPS` is name -> (limit that takes more than half of the time, None if none does; function to be named; maker).
`OWN` are loops of a script's own, which take a loader and a clock: name -> (limit, loop).
"""

import random

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from tests.test_steptime.planted_loops import Decoded, labels, small_batch, small_step, training


def best_is_saved(time):
    """A checkpoint whenever the loss is the best yet: at irregular steps."""
    train, chance = small_step(), random.Random(3)

    def save_best():
        time.wait(0.4)

    def step(batch):
        train(batch)
        if chance.random() < 0.12:
            save_best()

    return step, small_batch()


def evaluation_and_log(time):
    train, calls = small_step(), []

    def evaluate():
        time.work(0.5)

    def log():
        time.work(0.05)

    def step(batch):
        train(batch)
        calls.append(1)
        if len(calls) % 3 == 0:
            log()
        if len(calls) % 10 == 0:
            evaluate()

    return step, small_batch()


def uneven_source(time):
    chance = random.Random(5)

    def fetch():
        time.wait(0.1 * chance.random())
        return small_batch()

    return small_step(), fetch


def shards(time):
    """Each eighth batch opens a file."""
    calls = []

    def open_shard():
        time.wait(0.6)

    def fetch():
        calls.append(1)
        if len(calls) % 8 == 0:
            open_shard()
        return small_batch()

    return small_step(), fetch


def lengths(time):
    """Batches of 20 to 200 rows, in no order."""
    chance = random.Random(7)
    train = training(nn.Sequential(nn.Linear(384, 384), nn.Linear(384, 10)))

    def fetch():
        n = chance.randrange(20, 200)
        return torch.randn(n, 384), labels(n)

    return train, fetch


def three_metrics(time):
    train = small_step()

    def precision():
        time.work(0.02)

    def recall():
        time.work(0.01)

    def confusion():
        time.work(0.04)

    def step(batch):
        train(batch)
        precision(), recall(), confusion()

    return step, small_batch()


class Kept:
    """Batches that are prepared in the first pass."""

    def __init__(self, time):
        self.time, self.kept = time, {}

    def prepare(self, i):
        self.time.work(0.3)
        return small_batch()

    def __len__(self):
        return 12

    def __iter__(self):
        for i in range(len(self)):
            if i not in self.kept:
                self.kept[i] = self.prepare(i)
            yield self.kept[i]


def prepared_once(time):
    return small_step(), Kept(time)


def warmed_up_by_compiling(time):
    """New shapes in the first tenth of the steps only, dearly."""
    from torch._dynamo.utils import counters

    train, calls = small_step(), []

    def compile_anew():
        counters["stats"]["unique_graphs"] += 1
        time.work(2.0)

    def step(batch):
        calls.append(1)
        if len(calls) % 4 == 0 and len(calls) < 40:
            compile_anew()
        train(batch)

    return step, small_batch()


def half_and_half(time):
    """As much input as work of the host."""
    train = small_step()

    def rate():
        time.work(0.05)

    def step(batch):
        train(batch)
        rate()

    def fetch():
        time.wait(0.05)
        return small_batch()

    return step, fetch


def new_activations(time):
    bias = torch.zeros(1, requires_grad=True)

    def step(batch):
        (torch.tanh(batch[0] + bias)[0]).sum().backward()

    return step, (torch.randn(2048, 8192),)


def one_token(time):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(16, 10))
    return training(model), (torch.randn(1, 1, 16), labels(1))


def tokenizing_collate(time):
    def to_tokens(rows):
        time.work(0.08)
        return torch.utils.data.default_collate(rows)

    return small_step(), DataLoader(Decoded(time, 1e-4), batch_size=16, collate_fn=to_tokens)


def two_tasks(time):
    """Every second step works on another task, which resizes images in Python."""
    first, second, calls = small_step(), small_step(), []

    def resize():
        time.work(0.1)

    def step(batch):
        calls.append(1)
        if len(calls) % 2:
            first(batch)
        else:
            resize()
            second(batch)

    return step, small_batch()


def some_input(time):
    train = training(nn.Sequential(nn.Linear(256, 512), nn.Linear(512, 10)))

    def fetch():
        time.wait(0.1)
        return torch.randn(256, 256), labels(256)

    return train, fetch


def casts(time):
    x = torch.ones(2**20)

    def step(batch):
        batch[0].add(1)
        for _ in range(4):
            x.double().float()

    return step, (torch.ones(4),)


def averaged_weights(time):
    weight, mean = torch.ones(2**21), torch.ones(2**21)
    train = small_step()

    def step(batch):
        train(batch)
        mean.mul_(0.999).add_(weight, alpha=0.001)

    return step, small_batch()


def late_drift(time):
    """Work of the host that grows slowly, as with a list that is searched."""
    train, calls = small_step(), []

    def search():
        time.work(2e-3 + 1e-4 * len(calls))

    def step(batch):
        train(batch)
        calls.append(1)
        search()

    return step, small_batch()


LOOPS = {
    "best is saved": ("occasional work", "save_best", best_is_saved),
    "evaluation and log": ("occasional work", "evaluate", evaluation_and_log),
    "uneven source": ("input", "fetch", uneven_source),
    "shards": ("input", "open_shard", shards),
    "lengths": ("arithmetic", "", lengths),
    "three metrics": ("other host work", "confusion", three_metrics),
    "prepared once": ("first epoch", "prepare", prepared_once),
    "warmed up by compiling": ("compiling", "compile_anew", warmed_up_by_compiling),
    "half and half": (None, "", half_and_half),
    "new activations": ("page faults", "", new_activations),
    "one token": ("launch overhead", "", one_token),
    "tokenizing collate": ("input", "to_tokens", tokenizing_collate),
    "two tasks": ("occasional work", "resize", two_tasks),
    "some input": ("arithmetic", "", some_input),
    "casts": ("memory bandwidth", "", casts),
    "averaged weights": ("memory bandwidth", "", averaged_weights),
    "late drift": ("other host work", "search", late_drift),
}


def adversarial(batches, time):
    """Two optimizers take turns in each iteration; the second part of it is dearer."""
    one, other = nn.Linear(64, 10), nn.Linear(64, 10)
    first, second = (torch.optim.Adam(model.parameters()) for model in (one, other))

    def penalty():
        time.work(0.05)

    for x, y in batches:
        cross_entropy(one(x), y).backward()
        first.step()
        first.zero_grad()
        cross_entropy(other(x), y).backward()
        penalty()
        second.step()
        second.zero_grad()


def accumulated(batches, time):
    """A step after four batches."""
    model = nn.Linear(64, 10)
    optimizer = torch.optim.AdamW(model.parameters())
    for i, (x, y) in enumerate(batches):
        cross_entropy(model(x), y).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def tested_each_tenth(batches, time):
    """Another loader serves an evaluation after each tenth step."""
    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def evaluate():
        for x, _y in DataLoader(Decoded(time, 0.02), batch_size=16):
            model(x)

    for i, (x, y) in enumerate(batches):
        cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % 10 == 9:
            evaluate()


def slow_batches(time):
    for _ in range(400):
        time.wait(0.05)
        yield small_batch()


OWN = {
    "adversarial": ("other host work", adversarial, lambda time: [small_batch()] * 400),
    "accumulated": ("input", accumulated, slow_batches),
    "tested each tenth": ("occasional work", tested_each_tenth, lambda time: [small_batch()] * 400),
}
