"""Goodput: the share of a run's time that makes lasting progress, where GPUs fail and all go back to the last save."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from trainplan.arguments import Count, NonNegative, Number, Positive, checked
from trainplan.errors import LayoutError
from trainplan.tables import Shown
from trainplan.units import format_seconds

_Above = Annotated[float, Number(least=1e-3)]  # seconds: a checkpoint that takes none would be written all the time


@dataclass(frozen=True, repr=False)
class Goodput(Shown):
    """A run that saves after every `interval_s` seconds of work, and fails every `between_s` seconds on average.

    A save stops the training for `save_s`; a failure costs `restart_s` and the work since the last save. Failures come
    at random, at one rate, during saves and restarts too.
    """

    interval_s: float
    between_s: float
    save_s: float
    restart_s: float

    @property
    def share(self) -> float:
        """Share of the time that makes lasting progress, 0 to 1. Source: Daly 2006, FGCS 22(3), equation 13."""
        mean = self.between_s
        try:
            return self.interval_s / mean / math.exp(self.restart_s / mean) / math.expm1(self._apart_s / mean)
        except OverflowError:
            return 0.0

    @property
    def saving(self) -> float:
        """Share of the time spent in the saves that last."""
        return self.share * self.save_s / self.interval_s

    @property
    def failing(self) -> float:
        """Share of the time that failures cost: work done again, saves cut short, restarts."""
        return max(1 - self.share - self.saving, 0.0)

    @property
    def _apart_s(self) -> float:
        return self.interval_s + self.save_s

    def __str__(self) -> str:
        return (
            f"goodput {self.share:.1%} (calculated): a save every {format_seconds(self.interval_s)} of work takes "
            f"{self.saving:.1%} of the time, failures every {format_seconds(self.between_s)} take {self.failing:.1%}"
        )


@checked(error=LayoutError)
def goodput(
    gpus: Count,
    gpu_hours_between: Positive,
    *,
    save_s: _Above,
    restart_s: NonNegative = 0.0,
    interval_s: Positive | None = None,
) -> Goodput:
    """The Goodput of `gpus` that fail once in `gpu_hours_between` each, and all stop when one does.

    Without `interval_s` the best: Daly's, which is Young's sqrt(2 save between) where a save takes little of the time
    between failures. Sources: Young 1974, Communications of the ACM 17(9); Daly 2006, Future generation computer
    systems 22(3), equation 37.
    """
    between_s = 3600 * gpu_hours_between / gpus
    if interval_s is None:
        small = save_s / (2 * between_s)
        best = math.sqrt(2 * save_s * between_s) * (1 + math.sqrt(small) / 3 + small / 9) - save_s
        interval_s = best if small < 1 else between_s
    return Goodput(interval_s, between_s, save_s, restart_s)
