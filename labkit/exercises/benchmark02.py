"""The check of exercise 02.7: a benchmark meets one trap at a time.

It runs on simulated workstations with random parameters, each of which has one trap and no other. So a fault is found
whatever the other faults are and however the code is written, and an answer that is hard-coded is found too.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from labkit.checks import NotYet, as_number, call, function
from labkit.simulated import Run, Workstation

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
_NAMES = {"cpu": "the CPU", "gpu": "the GPU"}


@dataclass(frozen=True)
class Trial:
    """What a benchmark returned on one workstation, and what it had the workstation do."""

    cpu_s: float
    gpu_s: float
    gpu_spread: float
    runs: tuple[Run, ...]

    def of(self, processor: str) -> list[Run]:
        """The blurs of one processor."""
        return [run for run in self.runs if run.processor == processor]

    def off(self) -> list[str]:
        """The processors whose time is not that of the blurs which it did, transfers counted."""
        found = []
        for processor, seconds in (("cpu", self.cpu_s), ("gpu", self.gpu_s)):
            true_s = [run.seconds + run.transfer_s for run in self.of(processor)]
            if not (1 - _TOLERANCE) * min(true_s) <= seconds <= (1 + _TOLERANCE) * max(true_s):
                found.append(processor)
        return found


def benchmark(answer: object) -> str:
    """The mended benchmark; NotYet names the faults that remain."""
    fn = function(answer, Workstation(), 1000)
    draw = random.Random()
    _right_without_traps(fn, draw)
    faults = [words for find in _FAULTS for words in find(fn, draw)]
    if faults:
        count = "1 fault remains" if len(faults) == 1 else f"{len(faults)} faults remain"
        listed = "\n".join(f"({i}) {words}" for i, words in enumerate(faults, start=1))
        raise NotYet(f"{count}:\n{listed}")
    return "None of the six faults remains: right on one workstation without traps and on six with one trap each."


def _trial(fn: Benchmark, draw: random.Random, **trap: Any) -> Trial:
    """Run the benchmark on a workstation of random speed that has this trap only."""
    rates: dict[str, Any] = {"cpu_bytes_per_s": draw.uniform(0.5e9, 2e9), "gpu_bytes_per_s": draw.uniform(3e9, 6e9)}
    station = Workstation(**rates, **{**_NO_TRAP, **trap}, seed=draw.randrange(10**6))
    n = draw.randrange(1_000_000, 5_000_000)
    result = call(fn, station, n)
    if not isinstance(result, dict) or not set(_KEYS) <= set(result):
        raise NotYet(f"Expected a dict with the keys {', '.join(_KEYS)}, got {result!r}.")
    cpu_s, gpu_s, gpu_spread = (as_number(result[key], "(no unit)" if "spread" in key else "seconds") for key in _KEYS)
    trial = Trial(cpu_s, gpu_s, gpu_spread, station.runs)
    for processor, name in _NAMES.items():
        if not trial.of(processor):
            raise NotYet(f"Nothing was blurred on {name}, so there is nothing to report about it.")
    if {run.n for run in trial.runs} != {n}:
        raise NotYet(f"Asked for {n:,} numbers a blur, but other sizes were blurred: use n, on both processors.")
    return trial


def _right_without_traps(fn: Benchmark, draw: random.Random) -> None:
    trial = _trial(fn, draw)
    for processor in trial.off():
        true_s = statistics.median(run.seconds for run in trial.of(processor))
        got_s = trial.cpu_s if processor == "cpu" else trial.gpu_s
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
    if causes:
        yield f"different work compared: {'; '.join(causes)}."


def _transfer(fn: Benchmark, draw: random.Random) -> Iterator[str]:
    if _trial(fn, draw, bus_bytes_per_s=draw.uniform(1e9, 3e9)).off():
        yield "transfer left out: a slow bus does not show in the GPU's number as it should."


def _one_run(fn: Benchmark, draw: random.Random) -> Iterator[str]:
    sigma = draw.uniform(0.1, 0.2)
    trial, calm = _trial(fn, draw, jitter=sigma), _trial(fn, draw)
    few = [p for p in _NAMES if len(trial.of(p)) < _FEWEST_READINGS]
    causes = []
    if few:
        causes.append(f"{_both(few)} got fewer than {_FEWEST_READINGS} runs")
    elif off := trial.off():
        causes.append(f"the number of {_both(off)} lies outside of what was run")
    # quartiles, halves of them and standard deviations lie inside; a constant and a single run do not
    if not 0.05 * sigma < trial.gpu_spread < 10 * sigma or not calm.gpu_spread < 0.01:
        causes.append("gpu_spread does not follow how much the GPU's blurs differ")
    if causes:
        yield f"one run and no spread: {'; '.join(causes)}."


_FAULTS = (_no_synchronisation, _cold_call, _cached, _different_work, _transfer, _one_run)


def _both(processors: list[str]) -> str:
    return " and ".join(_NAMES[processor] for processor in processors)
