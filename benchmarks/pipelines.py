"""The input pipeline of notebook 08 against its ceiling and against the naive one,
interleaved in one run.

usage: pipelines.py    the two ratios, without their targets, which run.py has
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch

import labkit
from labkit.lesson import exercise_files
from labkit.measure.machine import machine
from labkit.train import data, models

BATCH = 64
SIZE = 32
SHIFT = 4
ROUNDS = 9
Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


def shares() -> tuple[float, float]:
    """Of the ceiling that notebook 08's solution reaches (0 to 1), and how many times
    as fast as the naive one it is.

    All three train SimpleCNN with all of torch's threads on the 1,437 digits as 224 x
    224 JPEGs: on a batch that is there already; with the solution of exercise 08.7; and
    in one process that reads, decodes, moves and collates image by image. The median of
    the ratios of `ROUNDS` rounds, in which the three take turns.
    """
    with tempfile.TemporaryDirectory() as folder:
        shards = data.jpeg_shards(split="train", folder=Path(folder))
        files = data.JpegFiles(
            data.jpeg_files(shards, Path(folder)), data.Prepare(SIZE, shift=SHIFT)
        )
        epoch = _solution()(shards, BATCH)
        images, labels = next(iter(epoch()))
        full, rest = divmod(len(files), BATCH)
        ready = [(images, labels)] * full + [(images[:rest], labels[:rest])]
        naive = data.loader(files, BATCH, shuffle=True)
        step = _step()
        ways: dict[str, Callable[[], Batches]] = {
            "ceiling": lambda: ready,
            "mine": epoch,
            "naive": lambda: naive,
        }
        rounds = []
        # every other round backwards, and the first one only to warm up
        for number in range(1 + ROUNDS):
            order = list(ways)[:: 1 - 2 * (number % 2)]
            rounds.append({name: _seconds(ways[name](), step) for name in order})
    ceiling = _median(seconds["ceiling"] / seconds["mine"] for seconds in rounds[1:])
    naive_share = _median(seconds["naive"] / seconds["mine"] for seconds in rounds[1:])
    return ceiling, naive_share


def _solution() -> Callable[..., Callable[[], Batches]]:
    """The function of exercise 08.7, from the solutions, with what it uses."""
    space = {"lab": labkit, "torch": torch, "machine": machine()}
    for number in ("08.6", "08.7"):
        exec(exercise_files.solutions("08")[number], space)
    pipeline: Callable[..., Callable[[], Batches]] = space["pipeline"]  # type: ignore[assignment]
    return pipeline


def _step() -> Callable[[torch.Tensor, torch.Tensor], None]:
    device = machine().device
    model = models.SimpleCNN().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(
            model(images.to(device)), labels.to(device)
        ).backward()
        optimizer.step()

    return step


def _seconds(
    batches: Batches, step: Callable[[torch.Tensor, torch.Tensor], None]
) -> float:
    sync = machine().sync
    sync()
    start = time.perf_counter()
    for images, labels in batches:
        step(images, labels)
    sync()
    return time.perf_counter() - start


def _median(ratios: Iterator[float]) -> float:
    ordered = sorted(ratios)
    return ordered[len(ordered) // 2]


if __name__ == "__main__":
    print(shares())
