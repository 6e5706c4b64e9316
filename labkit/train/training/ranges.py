"""The learning-rate range test: one short training whose rate grows until the loss runs away."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labkit.core.arguments import check_number
from labkit.core.display import Shown
from labkit.core.errors import BadArgument
from labkit.core.units import significant
from labkit.train.training.loop import Batches, checked_loss
from labkit.train.training.split import Labelled, check_labelled, digits_held_out

_RUNAWAY = 4.0  # times the least smoothed loss
_SMOOTHING = 0.9


@dataclass(frozen=True, repr=False)
class RangeTest(Shown):
    """Learning rates in the order tried and the loss of the step that met each; `smooth` is their running mean."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smooth: tuple[float, ...]

    @property
    def lowest(self) -> float:
        """The rate at which the smoothed loss was lowest: the end of the useful range, too high to train with."""
        return self.rates[min(range(len(self.smooth)), key=self.smooth.__getitem__)]

    @property
    def suggested(self) -> float:
        """A third of `lowest`: a rule of thumb, which leaves some room to the edge."""
        return self.lowest / 3

    def __str__(self) -> str:
        return (
            f"{len(self.rates)} steps from rate {self.rates[0]:.2g} to {self.rates[-1]:.2g}: the smoothed loss is "
            f"lowest, {significant(min(self.smooth))}, at {self.lowest:.2g}; a third of it is {self.suggested:.2g}"
        )


def range_test(
    make: Callable[[], tuple[nn.Module, torch.optim.Optimizer]],
    *,
    batch: int,
    data: Labelled | None = None,
    low: float = 1e-4,
    high: float = 10.0,
    steps: int = 100,
    seed: int = 0,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
) -> RangeTest:
    """Train for `steps` steps while the learning rate grows from `low` to `high`, by the same factor each step.

    `make()` is called after seeding and returns (model, optimizer). Ends early when the smoothed loss is four times
    its least, or not finite; each step waits for its loss. `data` is as in `fit`.
    Raises BadArgument for rates or a number of steps that make no range.
    Source: L. N. Smith, Cyclical learning rates for training neural networks (2017), arXiv:1506.01186, section 3.3;
    there the rate grows by the same amount each step.
    """
    images, labels = check_labelled("data", data) if data is not None else digits_held_out()[0]
    check_number("steps", steps, least=2, whole=True)
    check_number("low", low, above=0)
    if not low < high < math.inf:
        raise BadArgument(f"Expected a range of learning rates, low below high, got {low:g} to {high:g}.")
    torch.manual_seed(seed)
    model, optimizer = make()
    model.train()
    batches = Batches(images, labels, min(batch, len(images)), seed)
    rows: list[Tensor] = []
    rates: list[float] = []
    losses: list[float] = []
    smooth: list[float] = []
    mean = 0.0
    for i in range(steps):
        rows = rows or list(batches.shuffled())
        rates.append(low * (high / low) ** (i / (steps - 1)))
        for group in optimizer.param_groups:
            group["lr"] = rates[-1]
        now = rows.pop()
        optimizer.zero_grad()
        found = loss(model(images[now]), labels[now])
        found.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(checked_loss(found)))
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * losses[-1]
        smooth.append(mean / (1 - _SMOOTHING ** (i + 1)))  # as Adam does: the mean of what was seen so far
        if not smooth[-1] < _RUNAWAY * min(smooth):
            break
    return RangeTest(*_finite_part(rates, losses, smooth))


def _finite_part(*columns: list[float]) -> tuple[tuple[float, ...], ...]:
    """The steps before the first loss that is NaN or infinite; at least one."""
    n = next((i for i, value in enumerate(columns[1]) if not math.isfinite(value)), len(columns[1]))
    if n == 0:
        raise BadArgument("The loss is not finite at the lowest rate already: look at the data and at the model.")
    return tuple(tuple(column[:n]) for column in columns)
