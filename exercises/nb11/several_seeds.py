"""The same training from several seeds: how long they took to an accuracy, and
trainings that take turns.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from labkit.core.display import Shown, ShownAsTable, Table
from labkit.core.errors import BadArgument
from labkit.core.parameters import AnyNumber, Count, Items, checked
from labkit.core.results import Measurement
from labkit.core.units import format_quantity, format_seconds, significant
from labkit.lesson.journal import record
from labkit.measure.bench import Ratio
from labkit.train.training import Run, Setup, fit
from labkit.train.training.loop import chosen_seeds


@dataclass(frozen=True, repr=False)
class Reached(Shown):
    """What it took to reach an accuracy: a value per seed, in `unit`; inf for a seed
    that never reached it.
    """

    accuracy: float
    values: tuple[float, ...]
    unit: str = "s"

    @property
    def median(self) -> float:
        """The median over the seeds; inf where half of them or more
        never reached it.
        """
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The lowest value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The highest value; inf where a seed never reached it."""
        return max(self.values)

    @property
    def arrived(self) -> int:
        """The number of seeds that reached the accuracy."""
        return sum(map(math.isfinite, self.values))

    def __str__(self) -> str:
        low, middle, high = (
            amount(value, self.unit) for value in (self.low, self.median, self.high)
        )
        got_there = (
            f"{self.arrived} of {len(self.values)} seeds reached"
            f" {_percent(self.accuracy)}"
        )
        return f"{got_there}; median {middle}, from {low} to {high}"


@dataclass(frozen=True, repr=False)
class Runs(ShownAsTable):
    """The same training from several seeds: one seed may be lucky, so judge by all of
    them.
    """

    runs: tuple[Run, ...]
    name: str = ""

    def time_to(self, accuracy: float) -> Reached:
        """Return the seconds of training to a validation accuracy (0 to 1)."""
        return self._reached(accuracy, "s", lambda run, epochs: run.seconds[epochs - 1])

    def steps_to(self, accuracy: float) -> Reached:
        """Return the training steps to a validation accuracy (0 to 1)."""
        return self._reached(
            accuracy, "steps", lambda run, epochs: run.images[epochs - 1] // run.batch
        )

    def epochs_to(self, accuracy: float) -> Reached:
        """Return the epochs to a validation accuracy (0 to 1)."""
        return self._reached(accuracy, "epochs", lambda _, epochs: epochs)

    def _reached(
        self, accuracy: float, unit: str, cost: Callable[[Run, int], float]
    ) -> Reached:
        """Return `cost(run, epochs)` for each seed, with the epochs until it first
        reached `accuracy`.
        """
        ends = [(run, run.epochs_to(accuracy)) for run in self.runs]
        return Reached(
            accuracy,
            tuple(math.inf if n is None else float(cost(run, n)) for run, n in ends),
            unit,
        )

    @property
    def busy(self) -> str:
        """How busy the machine was, from the first run that gives no verdict for it;
        empty if there is none.
        """
        return next(
            (run.contention.reason for run in self.runs if run.contention.reason), ""
        )

    @property
    def spread(self) -> tuple[float, float]:
        """Lowest and highest over the seeds of the best validation accuracy of each."""
        best = [max(run.accuracies) for run in self.runs]
        return min(best), max(best)

    @checked
    def faster_than(self, other: Runs, accuracy: float) -> Ratio:
        """Return how many times faster `accuracy` was reached than in `other`, with a
        95 % interval over the seeds.

        The value is the median of the ratios of every seed here to every seed there
        (Hodges and Lehmann). The ends of the interval are two of these ratios, chosen
        by the Mann-Whitney test, which is exact for few seeds of any distribution.
        Where seeds never reached it, an end may be 0 or inf: no more is known. Raises
        BadArgument for fewer than 4 seeds on either side, too few for such an interval.
        Source: J. L. Hodges and E. L. Lehmann, Estimates of location based on rank
        tests (1963).
        """
        if not _bound_rank(len(self.runs), len(other.runs)):
            raise BadArgument(
                "A 95 % interval needs at least 4 seeds on each side, got"
                f" {len(self.runs)} and {len(other.runs)}. Train from more seeds."
            )
        low, high, value = _interval(
            other.time_to(accuracy).values, self.time_to(accuracy).values
        )
        return Ratio(
            self.name or "this",
            other.name or "the other",
            value,
            low,
            high,
            self.busy or other.busy,
        )

    def chance_of(self, other: Runs, accuracy: float) -> float:
        """Return how probable as good a result against `other` is if both are alike:
        Mann and Whitney, one-sided.

        A pair of seeds counts for this one only if it reached `accuracy` sooner. Exact
        for any distribution.
        """
        mine, others = (runs.time_to(accuracy).values for runs in (self, other))
        against = sum(not own < another for own in mine for another in others)
        n = len(mine)
        m = len(others)
        return sum(_inversion_counts(n, m)[: against + 1]) / math.comb(n + m, n)

    def table(self) -> Table:
        """Return a row for each seed."""
        rows = tuple(
            (
                str(run.seed),
                str(run.epochs),
                format_seconds(run.seconds[-1]),
                _percent(max(run.accuracies)),
            )
            for run in self.runs
        )
        low, high = self.spread
        rate = significant(statistics.median(run.rate for run in self.runs))
        note = (
            f"Best accuracy {_percent(low)} to {_percent(high)} over {len(rows)} seeds;"
            f" {rate} images/s."
        )
        title = f"{self.name or 'Runs'}, batch {self.runs[0].batch}"
        notes = (note, self.busy) if self.busy else (note,)
        return Table(
            rows,
            ("seed", "epochs", "training time", "best validation accuracy"),
            title,
            notes,
        )


def keep(
    key: str, ratio: Ratio | float, claims: Sequence[str] = ()
) -> Measurement | str:
    """Record a ratio under its key, as `lab.record` does; only words where a seed that
    never reached the target makes it 0 or infinite.
    """
    value = ratio.value if isinstance(ratio, Ratio) else ratio
    if not 0 < value < math.inf:
        return f"{key}: too few seeds reached the target"
    return record(key, ratio, "x", claims=claims)


@checked
def interleaved(
    named: Annotated[Mapping[str, tuple[Setup, int]], Items(1)],
    seeds: Count | Iterable[int] = 5,
    *,
    on_epoch: Callable[[str, Run], object] | None = None,
    **how: Any,
) -> dict[str, Runs]:
    """Train setups, {name: (setup, batch)}, from each seed in turn: A B, B A, A B, ...
    `how` goes to `fit`.

    A machine that gets slower meanwhile slows all of them alike, so that their times
    may be compared. The seeds are 0, 1, ... up to a number of them, or those given.
    `on_epoch` gets the name and the Run so far.
    """
    runs_of: dict[str, list[Run]] = {name: [] for name in named}
    for turn, seed in enumerate(chosen_seeds(seeds)):
        # every other turn backwards, so that no one is always first
        for name in list(named)[:: -1 if turn % 2 else 1]:
            setup, batch = named[name]
            report = None if on_epoch is None else functools.partial(on_epoch, name)
            runs_of[name].append(
                fit(setup, seed=seed, batch=batch, on_epoch=report, **how)
            )
    return {name: Runs(tuple(runs), name) for name, runs in runs_of.items()}


def _interval(
    others: Sequence[float], mine: Sequence[float]
) -> tuple[float, float, float]:
    """Return low end, high end and value of others / mine, where inf stands for never.

    never / never may be any ratio: it counts as 0 for the low end, as inf for the high
    one, as 1 for the value.
    """
    ratios = [other / own for other in others for own in mine]  # inf / inf is NaN
    lowest, middle, highest = (
        sorted(never if math.isnan(ratio) else ratio for ratio in ratios)
        for never in (0.0, 1.0, math.inf)
    )
    rank = _bound_rank(len(others), len(mine))
    return lowest[rank - 1], highest[-rank], statistics.median(middle)


def _bound_rank(n: int, m: int) -> int:
    """Return the rank, from either end, of the sorted ratio that bounds a 95 %
    interval; 0 where none does.
    """
    # If both sides were alike, each order of all values would be equally likely.
    tails = itertools.accumulate(
        count / math.comb(n + m, n) for count in _inversion_counts(n, m)
    )
    # 2.5 % at each end
    return sum(1 for _ in itertools.takewhile(lambda tail: tail <= 0.025, tails))


@functools.cache
def _inversion_counts(n: int, m: int) -> tuple[int, ...]:
    """Count the orders of n and m values with 0, 1, ... n m inversions between them:
    Mann and Whitney's recursion.
    """
    if n == 0 or m == 0:
        return (1,)
    last_from_n = (*[0] * m, *_inversion_counts(n - 1, m))
    last_from_m = _inversion_counts(n, m - 1)
    return tuple(
        a + b for a, b in itertools.zip_longest(last_from_n, last_from_m, fillvalue=0)
    )


@checked
def amount(value: AnyNumber, unit: str) -> str:
    """A value in words; "never" for inf."""
    return "never" if math.isinf(value) else format_quantity(value, unit)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
