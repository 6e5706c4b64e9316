"""Which of several ways to train learns more: each at its own best rate, over the same
seeds, with an interval.

The best of several rates is also the luckiest, so rates are chosen with seeds that take
no part in the comparison.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from labkit.core import live_line
from labkit.core.arguments import as_float, lookup
from labkit.core.display import Shown, ShownAsTable, Table, brief_repr
from labkit.core.errors import BadArgument, NotFinite
from labkit.core.parameters import Count, Items, Number, Positive, checked
from labkit.core.units import significant
from labkit.measure.bootstrap import mean_interval
from labkit.train.training.loop import chosen_seeds

Arm = Callable[[float, int], float]
Rates = Annotated[Sequence[Positive], Items(1)]
PAIRS = 10  # fewer seeds give an interval, and no verdict
_TUNING = range(10_000, 10_003)
_QUIET_S = 5.0  # after which a line says how far it is


@dataclass(frozen=True, repr=False)
class RateSweep(Shown):
    """What each learning rate led to, a result a seed: accuracies, or costs such as
    seconds if `lower` is better.
    """

    results: Mapping[float, tuple[float, ...]]
    lower: bool = False

    def middle(self, rate: float) -> float:
        """Mean accuracy over the seeds; or the median cost, which a seed that never
        arrived doesn't make infinite.
        """
        if self.lower:
            return statistics.median(self.results[rate])
        return statistics.fmean(self.results[rate])

    @property
    def best(self) -> float:
        """The rate with the best middle; of equally good ones the lowest."""
        return (min if self.lower else max)(sorted(self.results), key=self.middle)

    @property
    def at_edge(self) -> bool:
        """Whether the best is the lowest or highest of several rates: one beyond might
        be better still.
        """
        return len(self.results) > 1 and self.best in (
            min(self.results),
            max(self.results),
        )

    def __str__(self) -> str:
        edge = ", at the edge: try rates beyond it" if self.at_edge else ""
        return (
            f"best rate {self.best:g} ({significant(self.middle(self.best))}) of"
            f" {len(self.results)}{edge}"
        )


@dataclass(frozen=True, repr=False)
class AccuracyGain(Shown):
    """Mean difference of accuracy (-1 to 1), `label` - `baseline`, over paired seeds; a
    95 % bootstrap interval.
    """

    label: str
    baseline: str
    value: float
    low: float
    high: float
    seeds: int

    @property
    def verdict(self) -> str:
        """'better' or 'worse', 'no difference shown' if the interval holds 0, 'not
        judged' with fewer than 10 seeds.
        """
        if self.seeds < PAIRS:
            return "not judged"
        if self.low > 0:
            return "better"
        if self.high < 0:
            return "worse"
        return "no difference shown"

    def __str__(self) -> str:
        value, low, high = (
            f"{100 * part:+.2f}" for part in (self.value, self.low, self.high)
        )
        few = f"; a verdict needs {PAIRS}" if self.seeds < PAIRS else ""
        return (
            f"{self.label} against {self.baseline}: {self.verdict}, {value} points "
            f"(95 % interval {low} to {high}, {self.seeds} paired seeds{few})"
        )


@dataclass(frozen=True, repr=False)
class TunedComparison(ShownAsTable):
    """Accuracies (0 to 1) of several ways to train, by seed; the rate of each, and the
    sweep that it was chosen by.
    """

    accuracies: Mapping[str, tuple[float, ...]]
    rates: Mapping[str, float]
    sweeps: Mapping[str, RateSweep]

    @checked
    def gain(self, label: str) -> AccuracyGain:
        """How much more accurate `label` is than the first way. Raises BadArgument if
        it is unknown.
        """
        baseline, *_ = self.accuracies
        own = lookup(label, self.accuracies, "a training")
        gains = [a - b for a, b in zip(own, self.accuracies[baseline], strict=True)]
        low, high = mean_interval(gains)
        return AccuracyGain(
            label, baseline, statistics.fmean(gains), low, high, len(gains)
        )

    @checked
    def keeps(self, label: str) -> bool | None:
        """Whether `label` loses less accuracy than another seed changes, by a test of
        equivalence whose margin is the first way's best seed less its worst.

        True where the whole interval lies above minus the margin; False where all of it
        is below 0; None where it settles neither, and with fewer than 10 seeds. Raises
        BadArgument for an unknown way.
        """
        gain = self.gain(label)
        if gain.verdict == "not judged":
            return None
        if gain.verdict == "worse":
            return False
        own = self.accuracies[gain.baseline]
        spread = max(own) - min(own)
        return True if gain.low > -spread else None

    def table(self) -> Table:
        """Return a row for each way, and a sentence for each but the first."""
        rows = tuple(
            (
                name,
                f"{self.rates[name]:g}",
                *(f"{100 * f(shares):.1f} %" for f in (statistics.fmean, min, max)),
            )
            for name, shares in self.accuracies.items()
        )
        notes = [f"{self.gain(name)}." for name in list(self.accuracies)[1:]]
        notes += [
            f"{name}: the best rate is at the edge; try more."
            for name, s in self.sweeps.items()
            if s.at_edge
        ]
        return Table(
            rows,
            ("training", "rate", "mean accuracy", "lowest", "highest"),
            notes=tuple(notes),
        )


@checked
def sweep_rates(
    arm: Arm,
    rates: Rates,
    *,
    seeds: Count | Iterable[int] = _TUNING,
    lower: bool = False,
) -> RateSweep:
    """Call `arm(rate, seed)` with each rate and seed; it trains, and returns an
    accuracy, or a cost if `lower`.

    The rates take turns. A training that ends in NotFinite counts as an accuracy of 0,
    or as an infinite cost. After some seconds a line says how far it is; Ctrl-C ends
    it, and the rates tried until then are compared.
    """
    return _swept(arm, rates, chosen_seeds(seeds), lower=lower, can_stop=True)


@checked
def compare_tuned(
    arms: Annotated[Mapping[str, Arm], Items(2)],
    rates: Rates,
    *,
    seeds: Annotated[int, Number(least=2, most=10_000)] = PAIRS,
) -> TunedComparison:
    """Compare the held-out accuracy of several ways to train, each at the best of
    `rates` for it, seed by seed.

    An arm is a function of (learning rate, seed) that trains and returns an accuracy, 0
    to 1. Its rate is chosen with three seeds from 10,000 on; a single rate needs no
    choice. Then all take turns, A B, B A, with the seeds 0, 1, ... . A training that
    ends in NotFinite counts as 0. After some seconds a line says how far it is; Ctrl-C
    ends it, and the seeds that all ways have are compared, if there are two. Raises
    BadArgument for a result that is not from 0 to 1.
    """
    names = list(arms)
    many = len(set(rates)) > 1
    sweeps = {name: _swept(arms[name], rates, _TUNING) for name in names if many}
    chosen = {name: sweeps[name].best if many else rates[0] for name in arms}
    by_name: dict[str, list[float]] = {name: [] for name in arms}
    progress = _Progress(seeds * len(names))
    try:
        for seed in range(seeds):
            in_reverse = seed % 2 == 1
            for name in reversed(names) if in_reverse else names:
                result = _result(arms[name], chosen[name], seed)
                by_name[name].append(result)
                progress.step(f"{name}, {result:.1%}")
    except KeyboardInterrupt:
        if min(map(len, by_name.values())) < 2:
            raise
        progress.stopped()
    else:
        progress.end()
    paired = min(map(len, by_name.values()))
    accuracies = {name: tuple(results[:paired]) for name, results in by_name.items()}
    return TunedComparison(accuracies, chosen, sweeps)


def _swept(
    arm: Arm,
    rates: Iterable[float],
    seeds: Iterable[int],
    *,
    lower: bool = False,
    can_stop: bool = False,
) -> RateSweep:
    """A training of each seed with each rate, the rates in turn. With `can_stop`,
    Ctrl-C ends it and what was trained is kept.
    """
    by_rate: dict[float, list[float]] = {rate: [] for rate in sorted(set(rates))}
    turns = [(seed, rate) for seed in seeds for rate in by_rate]
    progress = _Progress(len(turns))
    try:
        for seed, rate in turns:
            result = _result(arm, rate, seed, lower=lower)
            by_rate[rate].append(result)
            progress.step(f"rate {rate:g}, {significant(result)}")
    except KeyboardInterrupt:
        if not can_stop or not any(by_rate.values()):
            raise
        progress.stopped()
    else:
        progress.end()
    tried = {rate: tuple(results) for rate, results in by_rate.items() if results}
    return RateSweep(tried, lower)


class _Progress:
    """A line that says how many trainings there have been, once they take long."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._number = 0
        self._began_s = time.monotonic()
        self._has_told = False

    def step(self, result: str) -> None:
        """Say that another training has ended, and with what."""
        self._number += 1
        if time.monotonic() - self._began_s > _QUIET_S:
            self._has_told = True
            live_line.tell(f"Training {self._number} of {self._total}: {result}.")

    def stopped(self) -> None:
        """Say after which training it was stopped."""
        live_line.tell(
            f"Stopped after training {self._number} of {self._total}; what was trained"
            " is kept."
        )
        live_line.end()

    def end(self) -> None:
        """Leave the line as it is."""
        if self._has_told:
            live_line.end()


def _result(arm: Arm, rate: float, seed: int, *, lower: bool = False) -> float:
    """What a training returned: an accuracy from 0 to 1, else BadArgument; or any cost,
    infinite where it diverged.
    """
    try:
        value = as_float(arm(rate, seed))
    except NotFinite:
        return math.inf if lower else 0.0
    if value is None or not (value >= 0 if lower else 0 <= value <= 1):
        what = "a cost of at least 0" if lower else "an accuracy from 0 to 1"
        raise BadArgument(
            f"Expected a training to return {what}, got {brief_repr(value)} at rate"
            f" {rate:g}."
        )
    return value
