"""Loops whose first epoch is slow, and whose later ones find what it has kept."""

import torch
from torch.utils.data import DataLoader, IterableDataset

from test_steptime.loop_parts import Images, small_batch, small_step


class Kept:
    """Batches that are prepared in the first pass."""

    def __init__(self, time, n, each_s):
        self.time = time
        self.n = n
        self.each_s = each_s
        self.kept = {}

    def prepare(self, i):
        self.time.work(self.each_s)
        return small_batch()

    def __len__(self):
        return self.n

    def __iter__(self):
        for i in range(self.n):
            if i not in self.kept:
                self.kept[i] = self.prepare(i)
            yield self.kept[i]


def prepared_once(time):
    return small_step(), Kept(time, 12, 0.3)


def longer_than_the_watch(time):
    """Batches that can't be loaded again: the page can only be in doubt."""
    return small_step(), Kept(time, 900, 0.05)


def keeping(time, n, each_s, batch_size, shuffle):
    """A loader of images that are resized once."""
    resized = set()

    def resize(i):
        if i not in resized:
            resized.add(i)
            time.work(each_s)

    return DataLoader(Images(n, resize), batch_size, shuffle)


def short_and_shuffled(time):
    return small_step(), keeping(time, 96, 0.01, batch_size=16, shuffle=True)


def long_and_shuffled(time):
    return small_step(), keeping(time, 30_000, 6e-3, batch_size=8, shuffle=True)


class Downloaded(IterableDataset):
    """A file for each batch of 10, downloaded by the first epoch."""

    def __init__(self, time):
        self.time = time
        self.files = set()

    def download(self, name):
        self.time.wait(0.3)
        self.files.add(name)

    def __iter__(self):
        for name in range(12):
            if name not in self.files:
                self.download(name)
            yield from ((torch.ones(64), i % 10) for i in range(10))


def downloaded_once(time):
    return small_step(), DataLoader(Downloaded(time), batch_size=10)


def cached_transforms(time):
    """A whole training: the first of its epochs resizes."""
    train = small_step()
    loader = keeping(time, 224, 6e-3, batch_size=16, shuffle=True)
    for _epoch in range(40):
        for batch in loader:
            train(batch)
