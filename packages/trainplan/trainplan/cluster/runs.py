"""A whole run: its goodput, where GPUs fail and all go back to the last save, and what
it costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from trainplan._tables import Shown
from trainplan._units import format_seconds, format_si, significant
from trainplan.arguments import Bounds, Count, NonNegative, Positive, checked
from trainplan.cluster.step_prediction import Step

# seconds: a save that takes none would be made all the time
_Above = Annotated[float, Bounds(least=1e-3)]


@dataclass(frozen=True, repr=False)
class Goodput(Shown):
    """A run that saves after every `interval_s` seconds of work, and fails every
    `between_s` seconds on average.

    A save stops the training for `save_s`; a failure costs `restart_s` and the work
    since the last save. Failures come at random, at one rate, during saves and restarts
    too. `share` is the share of the time that makes lasting progress, 0 to 1 (Daly
    2006, FGCS 22(3), equation 13), `saving` that of the saves that last.
    """

    interval_s: float
    between_s: float
    save_s: float
    restart_s: float
    share: float
    saving: float

    def __str__(self) -> str:
        return (
            f"goodput {self.share:.1%} (calculated): a save every"
            f" {format_seconds(self.interval_s)} of work takes {self.saving:.1%} of the"
            f" time, failures every {format_seconds(self.between_s)} take"
            f" {max(1 - self.share - self.saving, 0):.1%}"
        )


@checked
def goodput(
    gpus: Count,
    gpu_hours_between: Positive,
    *,
    save_s: _Above,
    restart_s: NonNegative = 0.0,
    interval_s: Positive | None = None,
) -> Goodput:
    """The Goodput of `gpus` that fail once in `gpu_hours_between` each, and all stop
    when one does.

    Without `interval_s` the best: Daly's, which is Young's sqrt(2 save between) where a
    save takes little of the time between failures. Sources: Young 1974, Communications
    of the ACM 17(9); Daly 2006, equation 37.
    """
    between_s = 3600 * gpu_hours_between / gpus
    if interval_s is None:
        interval_s = _best_interval_s(save_s, between_s)
    # beyond 700 no float holds how seldom work lasts
    apart = min((interval_s + save_s) / between_s, 700)
    survived = math.exp(-restart_s / between_s)
    share = interval_s / between_s * survived / math.expm1(apart)
    saving = share * save_s / interval_s
    return Goodput(interval_s, between_s, save_s, restart_s, share, saving)


def _best_interval_s(save_s: float, between_s: float) -> float:
    small = save_s / (2 * between_s)
    if small >= 1:
        return between_s
    young = math.sqrt(2 * save_s * between_s)
    return young * (1 + math.sqrt(small) / 3 + small / 9) - save_s


@dataclass(frozen=True, repr=False)
class Bill(Shown):
    """What a run costs by its calculated `step`: days, hours of all GPUs, their rent in
    US dollars (0: unknown).

    `kwh` is the energy of the GPUs alone, at their printed power; None where that is
    unknown. The intervals are those of the step's seconds.
    """

    step: Step
    days: float
    gpu_hours: float
    usd: float
    kwh: float | None

    @property
    def days_interval(self) -> tuple[float, float]:
        """Days between which eight of ten such runs would be."""
        return self._interval(self.days)

    @property
    def usd_interval(self) -> tuple[float, float]:
        """US dollars of rent in the least and in the most of these days."""
        return self._interval(self.usd)

    @property
    def kw(self) -> float | None:
        """The printed power of all GPUs together, in kilowatts."""
        watts = self.step.cluster.gpu.tdp_w
        return None if watts is None else watts * self.step.cluster.gpus / 1000

    def _interval(self, amount: float) -> tuple[float, float]:
        low_s, high_s = self.step.interval_s
        seconds = self.step.seconds
        return amount * low_s / seconds, amount * high_s / seconds

    def __str__(self) -> str:
        hours = _between(self.gpu_hours, self._interval(self.gpu_hours))
        text = f"{hours} GPU hours, {_between(self.days, self.days_interval)} days"
        if self.usd > 0:
            size, unit = (1e6, "million US$") if self.usd >= 1e5 else (1.0, "US$")
            low, high = self.usd_interval
            text += f", {_between(self.usd / size, (low / size, high / size))} {unit}"
        if self.kwh is not None and self.kw is not None:
            energy = format_si(1000 * self.kwh, "Wh")
            text += f", {energy} at {format_si(1000 * self.kw, 'W')}"
        text += " (calculated)"
        if self.step.outside:
            text += f"; but {'; '.join(self.step.outside)}"
        return text


def _between(amount: float, interval: tuple[float, float]) -> str:
    low, high = map(significant, interval)
    return f"{significant(amount)} ({low} to {high})"


@checked
def bill(
    step: Step,
    tokens: Positive,
    usd_per_gpu_hour: NonNegative = 0.0,
    *,
    goodput: Positive = 1.0,
) -> Bill:
    """The Bill of a run of `tokens`, of whose time `goodput` makes progress. Raises
    ValueError for one above 1.
    """
    if goodput > 1:
        raise ValueError(
            f"Expected goodput of at most 1, a share of the time, got {goodput:g}."
        )
    days = step.train_s(tokens) / goodput / 86_400
    gpu_hours = 24 * days * step.cluster.gpus
    watts = step.cluster.gpu.tdp_w
    kwh = None if watts is None else gpu_hours * watts / 1000
    return Bill(step, days, gpu_hours, gpu_hours * usd_per_gpu_hour, kwh)
