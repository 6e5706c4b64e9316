"""Models, steps and batches that many planted loops share."""

import itertools

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset


def mlp(*widths):
    layers = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def lenet():
    """For images of 3 x 32 x 32: LeNet-5's layers, with ReLU and max pooling."""
    return nn.Sequential(
        nn.Conv2d(3, 6, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *mlp(400, 120, 84, 10),
    )


class Images(Dataset):
    """So many images; `prepare(i)` is called for each."""

    def __init__(self, n, prepare=lambda i: None):
        self.n = n
        self.prepare = prepare

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.prepare(i)
        return torch.full((64,), 0.01 * i), i % 10


class Environment:
    """A simulator that takes a moment for each action."""

    def __init__(self, time, each_s):
        self.time = time
        self.each_s = each_s

    def simulate(self, action):
        self.time.work(self.each_s)
        return torch.randn(8)


def labels(n):
    return torch.arange(n) % 10


def small_batch():
    return torch.randn(16, 64), labels(16)


def training(model, optimizer=torch.optim.SGD, **options):
    """A step that trains a classifier."""
    used = optimizer(model.parameters(), lr=1e-4, **options)

    def step(batch):
        used.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        used.step()

    return step


def small_step():
    return training(mlp(64, 32, 10))


def with_host_work(work):
    """A small step, then work(batch)."""
    train = small_step()

    def step(batch):
        train(batch)
        work(batch)

    return step, small_batch()


def every(n, work, train=None):
    """A step that calls `work` in each n-th step."""
    train = train or small_step()
    steps = itertools.count(1)

    def step(batch):
        train(batch)
        if next(steps) % n == 0:
            work()

    return step, small_batch()
