"""What training gave: one run, several runs that differ in their seed, and how long they took to an accuracy."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import nn

from labkit.core.arguments import check_number
from labkit.core.display import Shown, Table
from labkit.core.errors import BadArgument
from labkit.core.units import format_seconds, significant
from labkit.measure.bench import Ratio


@dataclass(frozen=True, repr=False)
class Run(Shown):
    """One training: `losses` has an entry a step, `accuracies` (0 to 1, validation) one an epoch.

    `seconds` and `images` are counted from the start to each epoch's end; `seconds` leaves evaluating out. `model` is
    the trained one.
    """

    seed: int
    batch: int
    losses: tuple[float, ...]
    accuracies: tuple[float, ...]
    seconds: tuple[float, ...]
    images: tuple[int, ...]
    model: nn.Module = field(compare=False)

    @property
    def steps(self) -> int:
        """Training steps taken."""
        return len(self.losses)

    @property
    def epochs(self) -> int:
        """Passes over the training images."""
        return len(self.seconds)

    @property
    def rate(self) -> float:
        """Images per second while training."""
        return self.images[-1] / self.seconds[-1]

    def epochs_to(self, accuracy: float) -> int | None:
        """Epochs until validation first reached `accuracy` (0 to 1); None where it never did."""
        check_accuracy(accuracy)
        return next((i for i, found in enumerate(self.accuracies, start=1) if found >= accuracy), None)

    def time_to(self, accuracy: float) -> float | None:
        """Seconds of training until the end of the first epoch that reached `accuracy`; None where none did."""
        epochs = self.epochs_to(accuracy)
        return None if epochs is None else self.seconds[epochs - 1]

    def steps_to(self, accuracy: float) -> int | None:
        """Training steps until the end of the first epoch that reached `accuracy`; None where none did."""
        epochs = self.epochs_to(accuracy)
        return None if epochs is None else self.images[epochs - 1] // self.batch

    def __str__(self) -> str:
        return (
            f"seed {self.seed}, batch {self.batch}: {self.epochs} epochs, {self.steps:,} steps in "
            f"{format_seconds(self.seconds[-1])} ({significant(self.rate)} images/s); validation accuracy "
            f"{_percent(self.accuracies[-1])}, at best {_percent(max(self.accuracies))}"
        )


@dataclass(frozen=True, repr=False)
class Reached(Shown):
    """What it took to get to an accuracy, one value a seed, in `unit`; a seed that never got there counts as inf."""

    accuracy: float
    values: tuple[float, ...]
    unit: str = "s"

    @property
    def median(self) -> float:
        """Median over the seeds; inf where half of them or more never got there."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The least value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest value, inf where a seed never got there."""
        return max(self.values)

    @property
    def arrived(self) -> int:
        """How many seeds got there."""
        return sum(map(math.isfinite, self.values))

    def __str__(self) -> str:
        low, middle, high = (_amount(value, self.unit) for value in (self.low, self.median, self.high))
        got_there = f"{self.arrived} of {len(self.values)} seeds reached {_percent(self.accuracy)}"
        return f"{got_there}; median {middle}, from {low} to {high}"


@dataclass(frozen=True, repr=False)
class Runs(Shown):
    """The same training from several seeds. What one seed gave is chance; what most of them gave is not."""

    runs: tuple[Run, ...]
    name: str = ""

    def time_to(self, accuracy: float) -> Reached:
        """Seconds of training to a validation accuracy (0 to 1), a value a seed."""
        return Reached(accuracy, tuple(_or_inf(run.time_to(accuracy)) for run in self.runs), "s")

    def steps_to(self, accuracy: float) -> Reached:
        """Training steps to a validation accuracy, a value a seed."""
        return Reached(accuracy, tuple(_or_inf(run.steps_to(accuracy)) for run in self.runs), "steps")

    def epochs_to(self, accuracy: float) -> Reached:
        """Epochs to a validation accuracy, a value a seed."""
        return Reached(accuracy, tuple(_or_inf(run.epochs_to(accuracy)) for run in self.runs), "epochs")

    @property
    def best(self) -> tuple[float, ...]:
        """The best validation accuracy of each seed."""
        return tuple(max(run.accuracies) for run in self.runs)

    @property
    def rate(self) -> float:
        """Images per second while training: the median over the seeds."""
        return statistics.median(run.rate for run in self.runs)

    @property
    def median(self) -> Run:
        """The run of middle best accuracy; with an even number of seeds the lower of the two."""
        return sorted(self.runs, key=lambda run: max(run.accuracies))[(len(self.runs) - 1) // 2]

    @property
    def spread(self) -> tuple[float, float]:
        """Lowest and highest best accuracy over the seeds."""
        return min(self.best), max(self.best)

    def faster_than(self, other: Runs, accuracy: float) -> Ratio:
        """How many times faster `accuracy` was reached than in `other`, with a 95 % interval over the seeds.

        The value is the median of the ratios of every seed here to every seed there. The interval's ends are those of
        these ratios that Mann and Whitney's test puts there, which is exact for few seeds of any distribution. Where
        seeds never arrived, an end may be 0 or inf: nothing more is known.
        Raises BadArgument for too few seeds to have such an interval: it takes 4 on each side.
        Source: J. L. Hodges and E. L. Lehmann, Estimates of location based on rank tests (1963).
        """
        if not _cut(len(self.runs), len(other.runs)):
            raise BadArgument(
                f"A 95 % interval needs at least 4 seeds on each side, got {len(self.runs)} and {len(other.runs)}. "
                "Train from more seeds."
            )
        low, high, value = _interval(other.time_to(accuracy).values, self.time_to(accuracy).values)
        return Ratio(self.name or "this", other.name or "the other", value, low, high)

    def _table(self) -> Table:
        rows = tuple(
            (str(run.seed), str(run.epochs), format_seconds(run.seconds[-1]), _percent(max(run.accuracies)))
            for run in self.runs
        )
        low, high = self.spread
        batch, rate = self.runs[0].batch, significant(self.rate)
        note = f"Best accuracy {_percent(low)} to {_percent(high)} over {len(rows)} seeds; {rate} images/s."
        title = f"{self.name or 'Runs'}, batch {batch}"
        return Table(rows, ("seed", "epochs", "training time", "best validation accuracy"), title, (note,))

    def __str__(self) -> str:
        return str(self._table())

    def _repr_html_(self) -> str:
        return self._table()._repr_html_()


def check_accuracy(accuracy: float) -> None:
    """Raise BadArgument unless `accuracy` is a share above 0 and up to 1."""
    check_number("accuracy", accuracy, above=0, advice="It is a share: write 0.97 for 97 %.")
    if accuracy > 1:
        raise BadArgument(f"Expected accuracy as a share up to 1, got {accuracy:g}. Write 0.97 for 97 %.")


def _interval(others: Sequence[float], mine: Sequence[float]) -> tuple[float, float, float]:
    """Low, high and value of others / mine, where inf stands for never, and never / never may be anything."""
    ratios = [
        other / one if math.isfinite(one) or math.isfinite(other) else math.nan for other in others for one in mine
    ]
    lowest, middle, highest = (
        sorted(never if math.isnan(ratio) else ratio for ratio in ratios) for never in (0.0, 1.0, math.inf)
    )
    cut = _cut(len(others), len(mine))
    return lowest[cut - 1], highest[-cut], statistics.median(middle)


def _cut(n: int, m: int) -> int:
    """Which of the n m ratios, counted from either end, bounds a 95 % interval; 0 where even the outermost don't."""
    ways = _ways(n, m)
    tails = itertools.accumulate(count / math.comb(n + m, n) for count in ways)
    return sum(1 for _ in itertools.takewhile(lambda tail: tail <= 0.025, tails))


@functools.cache
def _ways(n: int, m: int) -> tuple[int, ...]:
    """How many orders of n and m things have 0, 1, ... n m pairs the wrong way round: Mann and Whitney's recursion."""
    if n == 0 or m == 0:
        return (1,)
    last_from_n, last_from_m = (*[0] * m, *_ways(n - 1, m)), _ways(n, m - 1)
    return tuple(a + b for a, b in itertools.zip_longest(last_from_n, last_from_m, fillvalue=0))


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else float(value)


def _amount(value: float, unit: str) -> str:
    if math.isinf(value):
        return "never"
    return format_seconds(value) if unit == "s" else f"{significant(value)} {unit}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
