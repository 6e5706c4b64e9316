"""Published runs beside their predictions."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Generic, TypeVar

from trainplan._tables import Shown

T = TypeVar("T")


@dataclass(frozen=True)
class Compared(Generic[T]):
    """One published run: `predicted` and `published` in the agreement's unit, and what
    predicts it, `by`.
    """

    label: str
    predicted: float
    published: float
    by: T

    @property
    def error(self) -> float:
        """Predicted over published, less 1."""
        return self.predicted / self.published - 1


@dataclass(frozen=True, repr=False)
class Agreement(Shown, Generic[T]):
    """Published runs of one source, in one unit, each beside its prediction."""

    name: str
    unit: str
    rows: tuple[Compared[T], ...]
    source: str = ""

    @property
    def errors(self) -> tuple[float, ...]:
        """Sizes of the relative errors, ascending."""
        return tuple(sorted(abs(row.error) for row in self.rows))

    @property
    def mean_error(self) -> float:
        """Mean size of the relative errors."""
        return statistics.mean(self.errors)

    @property
    def median_error(self) -> float:
        """Median size of the relative errors."""
        return statistics.median(self.errors)

    @property
    def worst(self) -> Compared[T]:
        """The row with the largest relative error."""
        return max(self.rows, key=lambda row: abs(row.error))

    def __str__(self) -> str:
        p90 = self.errors[math.ceil(0.9 * len(self.rows)) - 1]
        return (
            f"{self.name}, {len(self.rows)} runs: error {self.mean_error:.1%} in the"
            f" mean and {self.median_error:.1%} in the median, 90 % within {p90:.1%},"
            f" worst {self.worst.error:+.1%} ({self.worst.label})"
        )
