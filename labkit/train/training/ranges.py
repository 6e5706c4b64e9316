"""The learning-rate range test: one short training whose rate grows until the loss diverges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from labkit.core.display import Shown
from labkit.core.errors import BadArgument
from labkit.core.kinds import Number
from labkit.core.parameters import Count, Positive, checked
from labkit.core.units import significant
from labkit.train.data import Labelled
from labkit.train.training.batches import Batches
from labkit.train.training.loop import checked_loss
from labkit.train.training.split import check_labelled, digits_held_out

_DIVERGED = 4.0  # times the lowest smoothed loss
_SMOOTHING = 0.9  # the running mean covers about ten steps


@dataclass(frozen=True, repr=False)
class RangeTest(Shown):
    """Learning rates in the order tried, the loss of the step at each, and the running mean `smooth` of the losses."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smooth: tuple[float, ...]

    @property
    def lowest(self) -> float:
        """The rate with the lowest smoothed loss: the end of the useful range, too high to train with."""
        return self.rates[min(range(len(self.smooth)), key=self.smooth.__getitem__)]

    @property
    def suggested(self) -> float:
        """A third of `lowest`: a rule of thumb that stays clear of the edge."""
        return self.lowest / 3

    def __str__(self) -> str:
        return (
            f"{len(self.rates)} steps from rate {self.rates[0]:.2g} to {self.rates[-1]:.2g}: the smoothed loss is "
            f"lowest, {significant(min(self.smooth))}, at {self.lowest:.2g}; a third of it is {self.suggested:.2g}"
        )


@checked
def range_test(
    make: Callable[[], tuple[nn.Module, torch.optim.Optimizer]],
    *,
    batch: Count,
    data: Labelled | None = None,
    low: Positive = 1e-4,
    high: Positive = 10.0,
    steps: Annotated[int, Number(least=2, most=10**6)] = 100,
    seed: int = 0,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
) -> RangeTest:
    """Train for `steps` steps while the learning rate grows from `low` to `high`, by the same factor each step.

    `make()` is called after seeding and returns (model, optimizer). The test ends early when the smoothed loss is four
    times its lowest value, or when a loss is not finite; each step waits for its loss. `data` is as in `fit`.
    Raises BadArgument for rates or a number of steps that make no range, and where the first loss is not finite.
    Source: L. N. Smith, Cyclical learning rates for training neural networks (2017), arXiv:1506.01186, section 3.3;
    there the rate grows by the same amount each step.
    """
    images, labels = check_labelled("data", data) if data is not None else digits_held_out()[0]
    if not low < high < math.inf:
        raise BadArgument(f"Expected a range of learning rates, low below high, got {low:g} to {high:g}.")
    torch.manual_seed(seed)
    model, optimizer = make()
    model.train()
    batches = Batches(images, labels, min(batch, len(images)), seed)
    tried: list[tuple[float, float, float]] = []  # rate, loss, smoothed loss
    mean = 0.0
    for i, rows in zip(range(steps), itertools.chain.from_iterable(batches.epochs()), strict=False):
        rate = low * (high / low) ** (i / (steps - 1))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        found = loss(model(images[rows]), labels[rows])
        found.backward()
        optimizer.step()
        value = float(checked_loss(found))
        if not math.isfinite(value):
            break
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * value
        smoothed = mean / (1 - _SMOOTHING ** (i + 1))  # Adam's correction, as the mean starts from 0
        tried.append((rate, value, smoothed))
        if smoothed >= _DIVERGED * min(lowest for _, _, lowest in tried):
            break
    if not tried:
        raise BadArgument("The loss is not finite even at the lowest rate: check the data and the model.")
    rates, losses, smooth = zip(*tried, strict=True)
    return RangeTest(rates, losses, smooth)
