"""The check of exercise 02.7: a benchmark meets one trap at a time.

It runs on simulated workstations with drawn parameters, each of which has one trap and
no other. So a fault is found whatever the other faults are and however the code is
written, and so is a hard-coded answer. The draw is the same in every check.

What is judged is what is reported. A fault that doesn't reach it passes by design:
without a warm-up, the median of 15 readings hides the cold one. A single reading is no
report, and nor is the least of them: the spread beside it says nothing about it. The
log of the blurs is the judge's, not the workstation's, so that no benchmark can read
it.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from exercises.nb02.workstation import Blur, Workstation
from labkit.core.display import brief_repr
from labkit.lesson.checks import (
    NotYet,
    as_number,
    call,
    function,
    in_factors,
    remaining,
)

Benchmark = Callable[[Workstation, int], object]

_UNITS = {"cpu_s": "seconds", "gpu_s": "seconds", "gpu_spread": "(no unit)"}
_NO_TRAP: dict[str, Any] = {
    "waits": True,
    "compile_s": 0.0,
    "cached_share": 1.0,
    "random_s": 0.0,
    "bus_bytes_per_s": math.inf,
    "jitter": 0.0,
}
# the trap -> its values, and the fault that shows where it changes a number
_TRAPS: dict[str, tuple[Callable[[random.Random], object], str]] = {
    "waits": (
        lambda draw: False,
        (
            "no synchronization: on a GPU that works on its own, the clock is not read"
            " when its work is done."
        ),
    ),
    "compile_s": (
        lambda draw: draw.uniform(1.0, 2.0),
        "cold call: a slow first call changes the number of {both}.",
    ),
    "cached_share": (
        lambda draw: draw.uniform(0.01, 0.1),
        "work skipped: {both} met the same numbers again and answered from a cache.",
    ),
    "bus_bytes_per_s": (
        lambda draw: draw.uniform(1e9, 3e9),
        "transfer left out: a slow bus does not show in the GPU's number as it should.",
    ),
}
_TOLERANCE = 0.02
_FEWEST_READINGS = 5
_JITTERY_TRIALS = 8  # one reading lies in the middle half of them every other time
_CPU_OVER_GPU_JITTER = 4
# of the interquartile range: a standard deviation is 0.7 of it, the range of 15
# readings 2.6, the CPU's spread 4
_LEAST_SPREAD = 0.4
_LARGEST_SPREAD = 1.6
_NAMES = {"cpu": "the CPU", "gpu": "the GPU"}


@dataclass(frozen=True)
class _Report:
    """What a benchmark returned on one workstation, and the blurs of the given size
    that it ran, by processor.
    """

    seconds: dict[str, float]
    gpu_spread: float
    runs: dict[str, list[Blur]]

    def off(self) -> list[str]:
        """The processors whose reported time is not that of their blurs, transfers
        included.
        """
        processors = []
        for processor, runs in self.runs.items():
            true_s = [run.seconds + run.transfer_s for run in runs]
            if (
                not (1 - _TOLERANCE) * min(true_s)
                <= self.seconds[processor]
                <= (1 + _TOLERANCE) * max(true_s)
            ):
                processors.append(processor)
        return processors

    def readings_s(self, processor: str) -> list[float]:
        """True seconds of one blur in each reading: the mean of those between two looks
        at the clock.
        """
        together = defaultdict(list)
        for run in self.runs[processor]:
            together[run.reading].append(run.seconds)
        return [statistics.mean(seconds) for seconds in together.values()]

    def in_the_middle(self, processor: str) -> bool:
        """Whether the reported time lies in the middle half of the readings, or near
        their mean.
        """
        readings_s = self.readings_s(processor)
        seconds = self.seconds[processor]
        low_s, _, high_s = statistics.quantiles(readings_s, n=4, method="inclusive")
        by_order = low_s * 0.995 <= seconds <= high_s * 1.005
        return by_order or abs(seconds - statistics.mean(readings_s)) <= 0.25 * (
            high_s - low_s
        )

    def spread_share(self) -> float:
        """The reported spread over the GPU's (the mean of two definitions of
        quartiles); infinite without any.
        """
        readings_s = self.readings_s("gpu")
        if len(readings_s) < 2:
            return math.inf
        wide = statistics.quantiles(readings_s, n=4)
        narrow = statistics.quantiles(readings_s, n=4, method="inclusive")
        return (
            self.gpu_spread
            * narrow[1]
            / statistics.mean((wide[2] - wide[0], narrow[2] - narrow[0]))
        )


def benchmark(answer: object) -> str:
    """The fixed benchmark; NotYet names the faults that remain."""
    fn = function(answer)
    draw = random.Random(2207)
    report = _report(fn, draw)
    for processor in report.off():
        true_s = statistics.median(run.seconds for run in report.runs[processor])
        got_s = report.seconds[processor]
        raise NotYet(
            f"Even on a workstation without traps {_NAMES[processor]}'s number is"
            f" wrong: {got_s:.4g} s is {in_factors(got_s / true_s)} what one blur"
            " takes. Seconds, of one blur, on the right processor?"
        )
    faults = []
    for trap, (value, words) in _TRAPS.items():
        if off := _report(fn, draw, **{trap: value(draw)}).off():
            faults.append(words.format(both=_both(off)))
    faults += [*_different_work(fn, draw), *_one_run(fn, draw)]
    if faults:
        raise NotYet(remaining(faults, of=6))
    return (
        "None of the six faults remains: right on workstations without traps and on"
        " those with each trap alone."
    )


def _report(fn: Benchmark, draw: random.Random, **trap: Any) -> _Report:
    """Run the benchmark on a workstation of random speed that has this trap only."""
    rates: dict[str, Any] = {
        "cpu_bytes_per_s": draw.uniform(0.5e9, 2e9),
        "gpu_bytes_per_s": draw.uniform(3e9, 6e9),
    }
    runs: list[Blur] = []
    station = Workstation(
        **rates, **{**_NO_TRAP, **trap}, seed=draw.randrange(10**6), on_run=runs.append
    )
    # some ms on the GPU, so that timers need not put many into one reading
    n = draw.randrange(4_000_000, 8_000_000)
    result = call(fn, station, n)
    if not isinstance(result, dict) or not set(_UNITS) <= set(result):
        raise NotYet(
            f"Expected a dict with the keys {', '.join(_UNITS)}, got"
            f" {brief_repr(result)}."
        )
    cpu_s, gpu_s, gpu_spread = (
        as_number(result[key], unit) for key, unit in _UNITS.items()
    )
    counted = {processor: _counted(runs, n, processor) for processor in _NAMES}
    return _Report({"cpu": cpu_s, "gpu": gpu_s}, gpu_spread, counted)


def _counted(runs: list[Blur], n: int, processor: str) -> list[Blur]:
    """The blurs of n numbers. Those before them may have been of another size: they
    warm up a processor.
    """
    own = [run for run in runs if run.processor == processor]
    if not own:
        raise NotYet(
            f"Nothing was blurred on {_NAMES[processor]}, so there is nothing to report"
            " about it."
        )
    counted = list(itertools.dropwhile(lambda run: run.n != n, own))
    if not counted or any(run.n != n for run in counted):
        raise NotYet(
            f"Asked for {n:,} numbers a blur, but other sizes were blurred on"
            f" {_NAMES[processor]}, and not only in its cold call: use n, on both"
            " processors."
        )
    return counted


def _different_work(fn: Benchmark, draw: random.Random) -> Iterator[str]:
    report = _report(fn, draw, random_s=draw.uniform(50e-9, 90e-9))
    causes = []
    if off := report.off():
        causes.append(f"random numbers are drawn while the clock of {_both(off)} runs")
    dtypes = {
        processor: " and ".join(sorted({run.dtype for run in runs}))
        for processor, runs in report.runs.items()
    }
    if dtypes["cpu"] != dtypes["gpu"]:
        listed = ", ".join(
            f"{dtype} on {_NAMES[processor]}" for processor, dtype in dtypes.items()
        )
        causes.append(f"not the same numbers on both ({listed})")
    elif dtypes["gpu"] != "float32":
        causes.append(f"{dtypes['gpu']} on both; the docstring asks for float32")
    if causes:
        yield f"different work compared: {'; '.join(causes)}."


def _one_run(fn: Benchmark, draw: random.Random) -> Iterator[str]:
    sigmas = [draw.uniform(0.05, 0.12) for _ in range(_JITTERY_TRIALS)]
    reports = [
        _report(fn, draw, jitter=sigma, cpu_jitter=_CPU_OVER_GPU_JITTER * sigma)
        for sigma in sigmas
    ]
    calm = _report(fn, draw)
    causes = []
    if few := [
        p
        for p in _NAMES
        if min(len(report.readings_s(p)) for report in reports) < _FEWEST_READINGS
    ]:
        causes.append(f"{_both(few)} got fewer than {_FEWEST_READINGS} readings")
    elif off := [
        p for p in _NAMES if not all(report.in_the_middle(p) for report in reports)
    ]:
        causes.append(
            f"the number of {_both(off)} is not in the middle of the readings, as a"
            " median or a mean is"
        )
    # by the median report, since the spread of a few readings is uncertain itself
    share = statistics.median(report.spread_share() for report in reports)
    if not _LEAST_SPREAD < share < _LARGEST_SPREAD or not abs(calm.gpu_spread) < 0.01:
        causes.append("gpu_spread does not follow how much the GPU's readings differ")
    if causes:
        yield f"one run and no spread: {'; '.join(causes)}."


def _both(processors: list[str]) -> str:
    return " and ".join(_NAMES[processor] for processor in processors)
