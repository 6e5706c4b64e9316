"""Time callables: synchronized, the cold call kept apart, the spread reported,
alternatives interleaved.

The clock and `sync` are arguments, so that tests and lessons can time a simulated
asynchronous device. By the real clock, notebooks on one machine measure in turn, and a
timing knows how much of its time other programs took.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from labkit.core import results
from labkit.core.arguments import lookup
from labkit.core.display import Shown, brief_repr
from labkit.core.errors import BadMeasurement, LabError
from labkit.core.parameters import (
    Count,
    Items,
    Kind,
    NonNegative,
    Number,
    Positive,
    checked,
)
from labkit.core.units import format_seconds, significant
from labkit.measure.bootstrap import median_ratio_interval
from labkit.measure.contention import CELLS, Contention, Watch
from labkit.measure.readings import Clock, Series, choose_repeats, no_sync
from labkit.measure.turns import turn

_MOST_READINGS = 2000
_MOST_RUNS = 1_000_000
_OLD_DRIVER = (
    "The GPU's driver is older than the compiler: update it, or do what `make doctor`"
    " says. The driver said: "
)


def _has_items(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) > 0


# not item by item: a live board makes a timing of all its samples after each of them
Samples = Annotated[tuple[float, ...], Kind("a list of at least 1 item", _has_items)]
Budget = Annotated[float, Number(least=0, most=86_400)]


@checked
def sync_of(device: str) -> Callable[[], None]:
    """Return a function that waits for all queued work of "cuda" or "cuda:1"; for other
    devices, `no_sync`.
    """
    if not device.startswith("cuda"):
        return no_sync
    import torch

    if device == "cuda":
        return torch.cuda.synchronize
    return partial(torch.cuda.synchronize, device)


@checked
@dataclass(frozen=True, repr=False)
class Timing(Shown):
    """Durations of one function's calls, in seconds, in the order taken.

    `first_s` is the cold call: compilation, allocation, cache misses. Each sample is
    the mean of `repeats` calls between two readings of the clock. `repeats` is 1 unless
    a call takes under 50 µs, or under 10 ms on a device that has to be waited for.
    `contention` is what other programs took meanwhile, None if nobody looked.
    """

    label: str
    first_s: NonNegative
    samples_s: Samples
    repeats: Count = 1
    contention: Contention | None = None

    @property
    def median_s(self) -> float:
        """Median seconds of a call."""
        CELLS.note(self.contention)
        return statistics.median(self.samples_s)

    @property
    def busy(self) -> str:
        """How busy the machine was, if no verdict may rest on this
        timing; else empty.
        """
        return "" if self.contention is None else self.contention.reason

    @property
    def quartiles_s(self) -> tuple[float, float]:
        """First and third quartile, in seconds."""
        if len(self.samples_s) < 2:
            return self.samples_s[0], self.samples_s[0]
        low, _, high = statistics.quantiles(self.samples_s, n=4, method="inclusive")
        return low, high

    @property
    def spread(self) -> float:
        """Interquartile range over the median: 0.02 means 'repeatable to about 2 %'."""
        low, high = self.quartiles_s
        return (high - low) / self.median_s

    @checked
    def rate(self, items: Positive) -> float:
        """Items per second if one call handles `items` of them. Raises BadMeasurement
        if a call took no time.
        """
        _check_took_time(self)
        return items / self.median_s

    def __str__(self) -> str:
        calls = f", {self.repeats} calls a reading" if self.repeats > 1 else ""
        busy = f"; {self.busy}" if self.busy else ""
        return (
            f"{self.label}: {format_seconds(self.median_s)} (the middle half of"
            f" {len(self.samples_s)} readings spans {self.spread:.0%} of it{calls};"
            f" first call {format_seconds(self.first_s)}){busy}"
        )


@dataclass(frozen=True, repr=False)
class Ratio(Shown):
    """How many times faster `label` is than `baseline`, with a 95 % bootstrap interval.

    `busy` says how busy the machine was, if that makes the ratio worthless.
    """

    label: str
    baseline: str
    value: float
    low: float
    high: float
    busy: str = ""

    def __post_init__(self) -> None:
        if any(map(math.isnan, (self.value, self.low, self.high))):
            raise BadMeasurement(
                f"Expected numbers for the ratio of {self.label!r} to"
                f" {self.baseline!r} and its interval, got {self.value},"
                f" {self.low} and {self.high}."
            )

    @property
    def verdict(self) -> str:
        """'faster', 'slower', 'no difference seen' when the interval contains 1, or
        'not judged' on a busy machine.
        """
        if self.busy:
            return "not judged"
        if self.low > 1:
            return "faster"
        if self.high < 1:
            return "slower"
        return "no difference seen"

    @property
    def inverse(self) -> Ratio:
        """How many times faster the baseline is than `label`: how many times longer
        `label` takes.
        """

        def inverted(number: float) -> float:
            return 1 / number if number else math.inf

        return Ratio(
            label=self.baseline,
            baseline=self.label,
            value=inverted(self.value),
            low=inverted(self.high),
            high=inverted(self.low),
            busy=self.busy,
        )

    @checked
    def times(self, factor: Positive) -> Ratio:
        """The ratio for unequal work: `factor` is the work of `label` over that of the
        baseline.
        """
        return dataclasses.replace(
            self,
            value=factor * self.value,
            low=factor * self.low,
            high=factor * self.high,
        )

    def __str__(self) -> str:
        both = f"{self.label} against {self.baseline}"
        value = f"{significant(self.value)}x"
        interval = f"95 % interval {significant(self.low)} to {significant(self.high)}"
        if self.busy:
            return f"{both}: not judged, since {self.busy} ({value} seen)"
        if self.verdict == "no difference seen":
            return f"{both}: no difference seen ({value}, {interval})"
        return (
            f"{self.label} is {self.verdict} than {self.baseline}: {value} ({interval})"
        )


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Timings taken in turn (A B B A ...), the first being the baseline, and their
    ratios to it.
    """

    timings: tuple[Timing, ...]
    ratios: tuple[Ratio, ...]

    def ratio(self, label: str) -> Ratio:
        """The ratio of the alternative called `label`."""
        return lookup(
            label, {ratio.label: ratio for ratio in self.ratios}, "the alternative"
        )

    def __str__(self) -> str:
        return "\n".join(str(part) for part in (*self.timings, *self.ratios))


@checked
def time_call(
    fn: Callable[[], object],
    *,
    label: str,
    sync: Callable[[], None] = no_sync,
    budget_s: Budget = 1.0,
    min_runs: Annotated[
        int, Number(least=2, most=_MOST_RUNS, advice="Fewer have no spread.")
    ] = 5,
    repeats: Annotated[int, Number(least=1, most=10_000_000)] | None = None,
    clock: Clock = time.perf_counter,
    on_sample: Callable[[Timing], None] | None = None,
    on_wait: Callable[[str], object] | None = None,
) -> Timing:
    """Time `fn` for `budget_s` seconds or 2,000 readings, whichever is less, but at
    least `min_runs` readings.

    `sync` waits for queued device work. It is called before each reading of the clock,
    so that a GPU call is timed to its end and not only to its launch. Short calls share
    a reading; `repeats` sets how many, by default as few as are needed. `on_sample`
    gets the timing so far after each reading, outside the timed region; after Ctrl-C it
    has had all readings, and KeyboardInterrupt reaches the caller. `on_wait` gets a
    sentence if another notebook measures first. Raises BadArgument if `fn` can't be
    called, and for fewer than 2 runs, which have no spread.
    """
    if results.profile() == "smoke":  # which only asks whether the code runs
        budget_s = 0.0
    with _race(sync, clock, on_wait) as watch:
        series = Series(label, fn, sync, clock)
        if repeats is None:
            repeats, _ = choose_repeats(series)
        (timing,) = _sampled([series], [repeats], budget_s, min_runs, on_sample, watch)
        return timing


@checked
def compare(
    alternatives: Annotated[Mapping[str, Callable[[], object]], Items(2)],
    *,
    sync: Callable[[], None] = no_sync,
    budget_s: Budget = 2.0,
    min_runs: Annotated[
        int, Number(least=5, most=_MOST_RUNS, advice="Fewer give no interval.")
    ] = 7,
    clock: Clock = time.perf_counter,
    on_sample: Callable[[Timing], None] | None = None,
    on_wait: Callable[[str], object] | None = None,
) -> Comparison:
    """Time two or more functions in turn, A B B A, and give each one's ratio to the
    first with a bootstrap interval.

    Turns expose all of them equally to a drifting clock rate or a busy neighbor; every
    other round runs in reverse, since each function leaves its traces in caches and
    memory. `budget_s` is the measured time of all together, and `on_sample` gets the
    timing so far of the function just read, and `on_wait` a sentence if another
    notebook measures first. Raises BadArgument for fewer than two alternatives, for one
    that can't be called, and for fewer than 5 runs.
    """
    if results.profile() == "smoke":  # which only asks whether the code runs
        budget_s = 0.0
    with _race(sync, clock, on_wait) as watch:
        all_series = [
            Series(label, fn, sync, clock) for label, fn in alternatives.items()
        ]
        choices = [choose_repeats(series) for series in all_series]
        needed = [repeats for repeats, _ in choices]
        longest_s = max(call_s for _, call_s in choices)
        # All get the same number: else a reading's fixed cost would be shared by more
        # calls of one than of another. Where only the longest call has as many as it
        # needs, so have the others: the cost is small in all readings.
        affordable = int(budget_s / (min_runs * len(needed) * longest_s))
        common = max(1, min(max(needed), affordable))
        if common >= min(needed):
            repeats = [max(n, common) for n in needed]
        else:
            repeats = [common] * len(needed)
        timings = _sampled(all_series, repeats, budget_s, min_runs, on_sample, watch)
    baseline, *others = timings
    return Comparison(timings, tuple(speedup(baseline, other) for other in others))


@checked
def speedup(baseline: Timing, other: Timing) -> Ratio:
    """How many times faster `other` is than `baseline`: the ratio of medians, with a 95
    % interval.

    Raises BadMeasurement if either has fewer than 5 readings.
    """
    for side in (baseline, other):
        _check_took_time(side)
    if min(len(baseline.samples_s), len(other.samples_s)) < 5:
        raise BadMeasurement(
            "A speed-up needs at least 5 readings on each side; take more with"
            " min_runs."
        )
    low, high = median_ratio_interval(baseline.samples_s, other.samples_s)
    value = baseline.median_s / other.median_s
    return Ratio(
        other.label, baseline.label, value, low, high, baseline.busy or other.busy
    )


def _check_took_time(timing: Timing) -> None:
    samples_s = timing.samples_s or (0.0,)
    wrong = tuple(seconds for seconds in samples_s if not seconds > 0)
    if wrong:
        raise BadMeasurement(
            f"Expected durations above 0 s for {timing.label!r}, got"
            f" {brief_repr(wrong)}. Does the clock advance while it runs?"
        )


@contextmanager
def _race(
    sync: Callable[[], None], clock: Clock, on_wait: Callable[[str], object] | None
) -> Iterator[Watch | None]:
    """Hold this machine's turn, and watch what others take of it; neither where the
    clock is simulated.
    """
    if clock is not time.perf_counter:
        yield None
        return
    with turn(on_wait):
        try:
            yield Watch(gpu=sync is not no_sync)
        except Exception as error:
            if "UNSUPPORTED_PTX" in str(error) or "unsupported toolchain" in str(error):
                raise LabError(f"{_OLD_DRIVER}{error}") from error
            raise


def _sampled(
    all_series: list[Series],
    repeats: list[int],
    budget_s: float,
    min_runs: int,
    on_sample: Callable[[Timing], None] | None,
    watch: Watch | None,
) -> tuple[Timing, ...]:
    """Take readings in turn, every other round in reverse, until budget and `min_runs`
    are both used up.
    """
    turns = list(zip(all_series, repeats, strict=True))
    spent_s = 0.0
    rounds = min(len(series.samples_s) for series in all_series)
    for series in all_series:
        # of a long call beside a short one: all have as many readings
        del series.samples_s[rounds:]
    while rounds < min_runs or (spent_s < budget_s and rounds < _MOST_READINGS):
        in_reverse = rounds % 2 == 1
        for series, calls in reversed(turns) if in_reverse else turns:
            seconds = series.seconds(calls)
            series.samples_s.append(seconds)
            spent_s += seconds * calls
            if on_sample is not None:
                on_sample(_timing(series, calls))
        rounds += 1
    contention = None if watch is None else watch.so_far()
    return tuple(_timing(series, calls, contention) for series, calls in turns)


def _timing(
    series: Series, repeats: int, contention: Contention | None = None
) -> Timing:
    return Timing(
        series.label, series.first_s, tuple(series.samples_s), repeats, contention
    )
