"""Diagnose loops of several kinds many times in one process, and print what it holds.

usage: python -m test_steptime.many_diagnoses TIMES [KIND ...]    in packages/steptime/tests
"""

import gc
import itertools
import json
import multiprocessing
import os
import queue
import sys
import threading
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import steptime

CEILINGS = steptime.Ceilings("planted", {"float32": 1e11}, 1e10, 1)
OPTIONS = {"ceilings": CEILINGS, "budget_s": 0.1}


class Rows(Dataset):
    """Rows that take no time."""

    def __len__(self):
        return 160

    def __getitem__(self, i):
        return torch.ones(16), i % 4


def training(model=None):
    if model is None:
        model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    adam = torch.optim.Adam(model.parameters())

    def step(batch):
        adam.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        adam.step()

    return step


def plain():
    steptime.diagnose(training(), DataLoader(Rows(), batch_size=8), **OPTIONS)


def workers():
    loader = DataLoader(Rows(), batch_size=8, num_workers=2)
    steptime.diagnose(training(), loader, **OPTIONS)


def workers_that_stay():
    loader = DataLoader(Rows(), batch_size=8, num_workers=1, persistent_workers=True)
    steptime.diagnose(training(), loader, **OPTIONS)


def compiled():
    steptime.diagnose(compiled_step(), DataLoader(Rows(), batch_size=8), **OPTIONS)


def compiled_step(kept=[]):  # noqa: B006  # compiled once
    if not kept:
        kept.append(training(torch.compile(nn.Linear(16, 4))))
    return kept[0]


def own_thread():
    """Batches from a thread that the loop has, and ends."""
    batches = queue.Queue(2)
    ended = threading.Event()

    def fill():
        while not ended.is_set():
            batch = torch.randn(8, 16) @ torch.ones(16, 16), torch.ones(8).long()
            while not ended.is_set():
                try:
                    batches.put(batch, timeout=0.05)
                    break
                except queue.Full:
                    pass

    thread = threading.Thread(target=fill)
    thread.start()
    steptime.diagnose(training(), batches.get, **OPTIONS)
    ended.set()
    thread.join()


def whole_training():
    step = training()

    def train():
        for _epoch in itertools.count():
            for batch in DataLoader(Rows(), batch_size=8):
                step(batch)

    steptime.diagnose(train, steps=4, ceilings=CEILINGS)


def watched():
    step = training()
    loader = DataLoader(Rows(), batch_size=4)
    for batch in steptime.watch(loader, steps=4, ceilings=CEILINGS, say=str):
        step(batch)


KINDS = (
    plain,
    workers,
    workers_that_stay,
    own_thread,
    whole_training,
    watched,
    compiled,
)


def held():
    """What the process holds: what should stay the same, and its memory in MiB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "tasks": len([*Path("/proc/self/task").iterdir()]),
        "files": len([*Path("/proc/self/fd").iterdir()]),
        "processes": len(multiprocessing.active_children()),
        "modules": sum(issubclass(type(x), nn.Module) for x in gc.get_objects()),
        "MiB": pages * os.sysconf("SC_PAGE_SIZE") // 2**20,
    }


def main(times, *names):
    """Diagnose so many loops, and print after each tenth part what is held."""
    kinds = [kind for kind in KINDS if kind.__name__ in names] or KINDS
    part = max(times // 10, 1)
    for i in range(times):
        kinds[i % len(kinds)]()
        if (i + 1) % part == 0:
            print(json.dumps({"diagnoses": i + 1} | held()), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
