"""What profiling costs: profile_step, watching steps of 1 to 100 ms, and the time that find_bottleneck takes.

usage: python -m benchmarks.profiles
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import torch

import labkit as lab
from labkit.measure.bootstrap import median_ratio_interval
from steptime.watched_steps import StepWatch

ROUNDS = 9
STEPS = 5
_READING_S = 0.2  # of steps in a row


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
        for each_s in (1e-3, 5e-3, 20e-3, 100e-3):
            value, low, high = (100 * (ratio - 1) for ratio in _watching(_step_of(each_s), each_s))
            yield f"what watching adds to a step of {1e3 * each_s:g} ms (95 %: {low:.1f} to {high:.1f})", 2, value, "%"
        images, labels = (part[:64] for part in lab.data.digits(size=32, channels=3))
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=64)
        train = _training()
        lab.measure_ceilings()
        start = time.perf_counter()
        lab.profiling.find_bottleneck(train, loader)
        yield "profiling.find_bottleneck", 20, time.perf_counter() - start, "s"


def _watching(step: Callable[[], None], each_s: float) -> tuple[float, float, float]:
    """Seconds of watched steps over those of others, in turn: the ratio of medians, and its 95 % interval."""
    watched, plain = list[float](), list[float]()
    for _ in range(5 * ROUNDS):
        watch = StepWatch("cpu")

        def unwatched_turn() -> None:
            step()

        def watched_turn(watch: StepWatch = watch) -> None:
            watch.begin()
            watch.input_begins()
            watch.input_ends()
            step()

        plain.append(_seconds(unwatched_turn, turns := max(round(_READING_S / each_s), 2)))
        with watch.watching():
            watched.append(_seconds(watched_turn, turns))
            watch.end()
    return statistics.median(watched) / statistics.median(plain), *median_ratio_interval(watched, plain)


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
        print(f"{name}: {value:.3g} {unit}, target at most {target:g} {unit}", flush=True)
