"""The check of exercise 02.7: a benchmark meets one trap at a time.

It runs on simulated workstations with drawn parameters, each of which has one trap and no other. So a fault is found
whatever the other faults are and however the code is written, and an answer that is hard-coded is found too. The draw
is the same in every check.

What is judged is what is reported. A fault that doesn't reach it passes by design: without a warm-up, the median of 15
readings hides the cold one. A single reading is no report, and nor is the least of them: the spread that stands
beside it says nothing about it. The log of the blurs that were run is the judge's, not the workstation's.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, as_number, call, function
from labkit.measure.simulated import Blur, Workstation

Benchmark = Callable[[Workstation, int], object]

_KEYS = ("cpu_s", "gpu_s", "gpu_spread")
_NO_TRAP: Mapping[str, Any] = {
    "waits": True,
    "compile_s": 0.0,
    "cached_share": 1.0,
    "random_s": 0.0,
    "bus_bytes_per_s": math.inf,
    "jitter": 0.0,
}
_TOLERANCE = 0.02
_FEWEST_READINGS = 5
_JITTERY_TRIALS = 8  # one reading lies in the middle half of them every other time
_CPU_OVER_GPU_JITTER = 4
# of the interquartile range: a standard deviation is 0.7 of it, the range of 15 readings 2.6, the CPU's spread 4
_LEAST_SPREAD, _LARGEST_SPREAD = 0.4, 1.6
_NAMES = {"cpu": "the CPU", "gpu": "the GPU"}


@dataclass(frozen=True)
class Trial:
    """What a benchmark returned on one workstation, and the blurs of the size asked for that it had it do."""

    cpu_s: float
    gpu_s: float
    gpu_spread: float
    runs: tuple[Blur, ...]

    def of(self, processor: str) -> list[Blur]:
        """The blurs of one processor."""
        return [run for run in self.runs if run.processor == processor]

    def off(self) -> list[str]:
        """The processors whose time is not that of the blurs which it did, transfers counted."""
        found = []
        for processor in _NAMES:
            true_s = [run.seconds + run.transfer_s for run in self.of(processor)]
            if not (1 - _TOLERANCE) * min(true_s) <= self.reported_s(processor) <= (1 + _TOLERANCE) * max(true_s):
                found.append(processor)
        return found

    def reported_s(self, processor: str) -> float:
        """What the benchmark says one blur takes."""
        return self.cpu_s if processor == "cpu" else self.gpu_s

    def readings_s(self, processor: str) -> list[float]:
        """True seconds of one blur in each reading: the mean of those between two looks at the clock."""
        together: dict[int, list[float]] = {}
        for run in self.of(processor):
            together.setdefault(run.reading, []).append(run.seconds)
        return [statistics.mean(found) for found in together.values()]

    def in_the_middle(self, processor: str) -> bool:
        """Whether the reported time lies in the middle half of the readings, or near their mean."""
        readings_s, seconds = self.readings_s(processor), self.reported_s(processor)
        low_s, _, high_s = statistics.quantiles(readings_s, n=4, method="inclusive")
        by_order = low_s * 0.995 <= seconds <= high_s * 1.005
        return by_order or abs(seconds - statistics.mean(readings_s)) <= 0.25 * (high_s - low_s)

    def spread_share(self) -> float:
        """The reported spread over the GPU's (the mean of two definitions of quartiles); infinite without any."""
        readings_s = self.readings_s("gpu")
        if len(readings_s) < 2:
            return math.inf
        wide, narrow = statistics.quantiles(readings_s, n=4), statistics.quantiles(readings_s, n=4, method="inclusive")
        return self.gpu_spread * narrow[1] / statistics.mean((wide[2] - wide[0], narrow[2] - narrow[0]))


def benchmark(answer: object) -> str:
    """The mended benchmark; NotYet names the faults that remain."""
    fn = function(answer, Workstation(), 1_000_000)
    draw = random.Random(2207)
    _right_without_traps(fn, draw)
    faults = [words for find in _FAULTS for words in find(fn, draw)]
    if faults:
        count = "1 fault remains" if len(faults) == 1 else f"{len(faults)} faults remain"
        listed = "\n".join(f"({i}) {words}" for i, words in enumerate(faults, start=1))
        raise NotYet(f"{count}:\n{listed}")
    return "None of the six faults remains: right on workstations without traps and on those with each trap alone."


def _trial(fn: Benchmark, draw: random.Random, **trap: Any) -> Trial:
    """Run the benchmark on a workstation of random speed that has this trap only."""
    rates: dict[str, Any] = {"cpu_bytes_per_s": draw.uniform(0.5e9, 2e9), "gpu_bytes_per_s": draw.uniform(3e9, 6e9)}
    runs: list[Blur] = []
    station = Workstation(**rates, **{**_NO_TRAP, **trap}, seed=draw.randrange(10**6), on_run=runs.append)
    n = draw.randrange(4_000_000, 8_000_000)  # some ms on the GPU, so that timers need not put many into one reading
    result = call(fn, station, n)
    if not isinstance(result, dict) or not set(_KEYS) <= set(result):
        raise NotYet(f"Expected a dict with the keys {', '.join(_KEYS)}, got {brief_repr(result)}.")
    cpu_s, gpu_s, gpu_spread = (as_number(result[key], "(no unit)" if "spread" in key else "seconds") for key in _KEYS)
    return Trial(cpu_s, gpu_s, gpu_spread, tuple(_counted(runs, n)))


def _counted(runs: list[Blur], n: int) -> Iterator[Blur]:
    """The blurs of n numbers. Those before them may have been of another size: they warm up a processor."""
    for processor, name in _NAMES.items():
        own = [run for run in runs if run.processor == processor]
        if not own:
            raise NotYet(f"Nothing was blurred on {name}, so there is nothing to report about it.")
        counted = list(itertools.dropwhile(lambda run: run.n != n, own))
        if not counted or any(run.n != n for run in counted):
            raise NotYet(
                f"Asked for {n:,} numbers a blur, but other sizes were blurred on {name}, and not in its cold call "
                "alone: use n, on both processors."
            )
        yield from counted


def _right_without_traps(fn: Benchmark, draw: random.Random) -> None:
    trial = _trial(fn, draw)
    for processor in trial.off():
        true_s = statistics.median(run.seconds for run in trial.of(processor))
        got_s = trial.reported_s(processor)
        raise NotYet(
            f"Even on a workstation without traps {_NAMES[processor]}'s number is wrong: {got_s:.4g} s is "
            f"{got_s / true_s:.3g}x what one blur takes. Seconds, of one blur, on the right processor?"
        )


def _no_synchronisation(fn: Benchmark, draw: random.Random) -> Iterator[str]:
    if _trial(fn, draw, waits=False).off():
        yield "no synchronisation: on a GPU that works on its own, the clock is not read when its work is done."


def _cold_call(fn: Benchmark, draw: random.Random) -> Iterator[str]:
    if off := _trial(fn, draw, compile_s=draw.uniform(1.0, 2.0)).off():
        yield f"cold call: a slow first call changes the number of {_both(off)}."


def _cached(fn: Benchmark, draw: random.Random) -> Iterator[str]:
    if off := _trial(fn, draw, cached_share=draw.uniform(0.01, 0.1)).off():
        yield f"work skipped: {_both(off)} met the same numbers again and answered from a cache."


def _different_work(fn: Benchmark, draw: random.Random) -> Iterator[str]:
    trial = _trial(fn, draw, random_s=draw.uniform(50e-9, 90e-9))
    causes = []
    if off := trial.off():
        causes.append(f"random numbers are drawn while the clock of {_both(off)} runs")
    kinds = {name: {run.dtype for run in trial.of(processor)} for processor, name in _NAMES.items()}
    if kinds["the CPU"] != kinds["the GPU"]:
        listed = ", ".join(f"{' and '.join(sorted(found))} on {name}" for name, found in kinds.items())
        causes.append(f"not the same numbers on both ({listed})")
    elif kinds["the GPU"] != {"float32"}:
        causes.append(f"{' and '.join(sorted(kinds['the GPU']))} on both; the docstring asks for float32")
    if causes:
        yield f"different work compared: {'; '.join(causes)}."


def _transfer(fn: Benchmark, draw: random.Random) -> Iterator[str]:
    if _trial(fn, draw, bus_bytes_per_s=draw.uniform(1e9, 3e9)).off():
        yield "transfer left out: a slow bus does not show in the GPU's number as it should."


def _one_run(fn: Benchmark, draw: random.Random) -> Iterator[str]:
    sigmas = [draw.uniform(0.05, 0.12) for _ in range(_JITTERY_TRIALS)]
    trials = [_trial(fn, draw, jitter=sigma, cpu_jitter=_CPU_OVER_GPU_JITTER * sigma) for sigma in sigmas]
    calm = _trial(fn, draw)
    causes = []
    if few := [p for p in _NAMES if min(len(trial.readings_s(p)) for trial in trials) < _FEWEST_READINGS]:
        causes.append(f"{_both(few)} got fewer than {_FEWEST_READINGS} readings")
    elif off := [p for p in _NAMES if not all(trial.in_the_middle(p) for trial in trials)]:
        causes.append(f"the number of {_both(off)} is not in the middle of the readings, as a median or a mean is")
    # by the median trial, since the spread of a few readings is uncertain itself
    share = statistics.median(trial.spread_share() for trial in trials)
    if not _LEAST_SPREAD < share < _LARGEST_SPREAD or not abs(calm.gpu_spread) < 0.01:
        causes.append("gpu_spread does not follow how much the GPU's readings differ")
    if causes:
        yield f"one run and no spread: {'; '.join(causes)}."


_FAULTS = (_no_synchronisation, _cold_call, _cached, _different_work, _transfer, _one_run)


def _both(processors: list[str]) -> str:
    return " and ".join(_NAMES[processor] for processor in processors)
