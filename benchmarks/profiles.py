"""What profiling costs: profile_step, watching a step of 2 ms, and the time that find_bottleneck takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import torch

import labkit as lab
from steptime.watched_steps import StepWatch

ROUNDS = 9
STEPS = 5


def rows() -> Iterator[tuple[str, float, float, str]]:
    """Name, target, value and unit of each figure, all on one thread."""
    with lab.threads(1):
        step = _step_of(20e-3)
        plain: list[float] = []
        profiled: list[float] = []
        for _ in range(ROUNDS):  # in turn
            plain += [_seconds(step) for _ in range(STEPS)]
            profiled += lab.profiling.profile_step(step, steps=STEPS, warmup=1).step_s
        added = statistics.median(profiled) / statistics.median(plain) - 1
        yield "what profile_step adds to a step of 20 ms", 10, 100 * added, "%"
        yield "what watching adds to a step of 2 ms", 2, 100 * _watching(_step_of(2e-3)), "%"
        images, labels = (part[:64] for part in lab.data.digits(size=32, channels=3))
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=64)
        train = _training()
        lab.measure_ceilings()
        start = time.perf_counter()
        lab.profiling.find_bottleneck(train, loader)
        yield "profiling.find_bottleneck", 20, time.perf_counter() - start, "s"


def _watching(step: Callable[[], None]) -> float:
    """The share that a watch of 100 steps adds to their time: the median of pairs, one after the other."""
    added = []
    for _ in range(5 * ROUNDS):
        watch = StepWatch("cpu")

        def unwatched() -> None:
            for _ in range(100):
                step()

        def watched(watch: StepWatch = watch) -> None:
            for _ in range(100):
                watch.begin()
                watch.input_begins()
                watch.input_ends()
                step()

        plain = _seconds(unwatched)
        with watch.watching():
            added.append(_seconds(watched) / plain - 1)
            watch.end()
    return statistics.median(added)


def _training() -> Callable[[tuple[torch.Tensor, torch.Tensor]], None]:
    model = lab.models.SimpleCNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()

    return step


def _step_of(target_s: float) -> Callable[[], None]:
    """A training step of SimpleCNN of about `target_s` seconds."""
    train = _training()
    images, labels = lab.data.digits(size=32, channels=3)
    n = 16
    while n < len(images):
        batch = images[:n], labels[:n]
        train(batch)
        if _seconds(lambda batch=batch: train(batch)) >= target_s:  # type: ignore[misc]
            break
        n = int(1.3 * n)
    return lambda: train(batch)


def _seconds(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start
