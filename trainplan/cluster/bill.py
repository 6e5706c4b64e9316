"""What a whole run costs by its calculated step: time, GPU hours, money, and the energy of the GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from trainplan.arguments import NonNegative, Positive, checked
from trainplan.cluster.step_prediction import Step
from trainplan.errors import LayoutError
from trainplan.tables import Shown
from trainplan.units import format_si, significant


@dataclass(frozen=True, repr=False)
class Bill(Shown):
    """Of a run of `tokens` at the speed of a `step`, of whose time `goodput` makes progress.

    `usd_per_gpu_hour` is a rent; 0 where none is known.
    """

    step: Step
    tokens: float
    usd_per_gpu_hour: float
    goodput: float

    @property
    def days(self) -> float:
        """Days from start to end."""
        return self.step.train_s(self.tokens) / self.goodput / 86_400

    @property
    def gpu_hours(self) -> float:
        """Hours of all GPUs together."""
        return 24 * self.days * self.step.cluster.gpus

    @property
    def usd(self) -> float:
        """US dollars for the GPUs' rent."""
        return self.gpu_hours * self.usd_per_gpu_hour

    @property
    def kwh(self) -> float | None:
        """Kilowatt-hours of the GPUs alone, at their printed power; None where that is unknown."""
        watts = self.step.cluster.gpu.tdp_w
        return None if watts is None else self.gpu_hours * watts / 1000

    def __str__(self) -> str:
        low, high = (significant(self.gpu_hours * bound / self.step.seconds) for bound in self.step.interval_s)
        parts = [f"{significant(self.gpu_hours)} GPU hours ({low} to {high}), {significant(self.days)} days"]
        parts += [f"{significant(self.usd / 1e6)} million US$"] * (self.usd_per_gpu_hour > 0)
        parts += [] if self.kwh is None else [format_si(1000 * self.kwh, "Wh")]
        why = "; ".join(self.step.outside)
        return ", ".join(parts) + " (calculated)" + f"; but {why}" * bool(why)


@checked(error=LayoutError)
def bill(step: Step, tokens: Positive, usd_per_gpu_hour: NonNegative = 0.0, *, goodput: Positive = 1.0) -> Bill:
    """The Bill of a run of `tokens`. Raises LayoutError for a goodput above 1."""
    if goodput > 1:
        raise LayoutError(f"Expected goodput of at most 1, a share of the time, got {goodput:g}.")
    return Bill(step, tokens, usd_per_gpu_hour, goodput)
