"""What profiling costs: profile_step, watching steps of 1 to 100 ms, and the time that
find_bottleneck takes.

usage: python -m benchmarks.profiles
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator

import torch

import labkit as lab
import steptime
from labkit.measure.bootstrap import median_ratio_interval

ROUNDS = 9
STEPS = 5
# of steps in a row, two or more; of all readings of one length of step
_READING_S = 0.05
_ALL_S = 20.0
# turns from a watch's first batch until all that follow are watched: those between are
# timed operator by operator, once a watch
_STARTING = 35
_JUDGED_FROM_S = 2e-3  # a shorter step has no target
# a busy machine moves the first
_CLOCKS = {"a step": time.perf_counter, "the CPU time of a step": time.process_time}


def rows() -> Iterator[tuple[str, float | None, float, str]]:
    """Name, target (None: it has none), value and unit of each figure, all on one
    thread.
    """
    with lab.threads(1):
        step = _step_of(20e-3)
        plain: list[float] = []
        profiled: list[float] = []
        for _ in range(ROUNDS):  # in turn
            plain += [_seconds(step) for _ in range(STEPS)]
            profiled += lab.profiling.profile_step(step, steps=STEPS, warmup=1).step_s
        added = statistics.median(profiled) / statistics.median(plain) - 1
        yield "what profile_step adds to a step of 20 ms", 10, 100 * added, "%"
        for each_s in (1e-3, 2e-3, 5e-3, 20e-3, 100e-3):
            for what, (value, low, high) in _watching(_step_of(each_s), each_s).items():
                words = (
                    f"what watching adds to {what} of {1e3 * each_s:g} ms (95 %:"
                    f" {low:.1f} to {high:.1f})"
                )
                yield words, 2 if each_s >= _JUDGED_FROM_S else None, value, "%"
        images, labels = (part[:64] for part in lab.data.digits(size=32, channels=3))
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(images, labels), batch_size=64
        )
        train = _training()
        lab.measure_ceilings()
        start = time.perf_counter()
        lab.profiling.find_bottleneck(train, loader)
        yield "profiling.find_bottleneck", 20, time.perf_counter() - start, "s"


def _watching(step: Callable[[], None], each_s: float) -> dict[str, tuple[float, ...]]:
    """What a script's loop takes more while it is watched, in percent, with its 95 %
    interval, by each of _CLOCKS.

    Readings are taken in pairs, with the watched loop first in every second one.
    """
    turns = max(round(_READING_S / each_s), 2)
    readings = {what: (list[float](), list[float]()) for what in _CLOCKS}

    def read(batches: Iterator[None]) -> list[float]:
        start = [clock() for clock in _CLOCKS.values()]
        for _ in range(turns):
            next(batches)
            step()
        return [
            clock() - began
            for clock, began in zip(_CLOCKS.values(), start, strict=True)
        ]

    def watched() -> list[float]:
        batches = steptime.watch(itertools.repeat(None), steps=100_000, device="cpu")
        with contextlib.closing(batches.loop):
            handed = iter(batches)
            for _ in range(_STARTING):
                next(handed)
                step()
            return read(handed)

    for pair in range(round(_ALL_S / 2 / turns / each_s)):
        sides = [watched, lambda: read(itertools.repeat(None))]
        taken = [side() for side in (sides if pair % 2 else sides[::-1])]
        for kept, *both in zip(
            readings.values(), *(taken if pair % 2 else taken[::-1]), strict=True
        ):
            for side, seconds in zip(kept, both, strict=True):
                side.append(seconds)
    ratios = {
        w: (statistics.median(a) / statistics.median(b), a, b)
        for w, (a, b) in readings.items()
    }
    return {
        what: tuple(
            100 * (ratio - 1) for ratio in (value, *median_ratio_interval(a, b))
        )
        for what, (value, a, b) in ratios.items()
    }


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
    n = 1
    while n < len(images):
        batch = images[:n], labels[:n]
        train(batch)
        if _seconds(lambda batch=batch: train(batch)) >= target_s:  # type: ignore[misc]
            break
        n = int(1.3 * n) + 1
    return lambda: train(batch)


def _seconds(step: Callable[[], None], times: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(times):
        step()
    return time.perf_counter() - start


if __name__ == "__main__":
    for name, target, value, unit in rows():
        words = "no target" if target is None else f"target at most {target:g} {unit}"
        print(f"{name}: {value:.3g} {unit}, {words}", flush=True)
