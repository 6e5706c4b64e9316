"""The part of a step's time that does not grow with its batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from labkit.core.display import Shown, brief_repr
from labkit.core.errors import BadArgument
from labkit.core.parameters import Count, Positive, checked
from labkit.core.units import format_seconds, significant
from labkit.measure.bench import compare, sync_of
from labkit.measure.machine import machine


@dataclass(frozen=True, repr=False)
class StepOverhead(Shown):
    """A step's seconds at two batch sizes, and the line through them: overhead + items
    * seconds of an item.

    The overhead is what does not grow with the batch: calling operators, Python, and
    work on the weights, such as the optimizer's. `busy` says how busy the machine was,
    if that makes the numbers worthless.
    """

    small: int
    large: int
    small_s: float
    large_s: float
    busy: str = ""

    @property
    def item_s(self) -> float:
        """Seconds that each further item adds; 0 if the larger batch took no longer."""
        return max(self.large_s - self.small_s, 0.0) / (self.large - self.small)

    @property
    def overhead_s(self) -> float:
        """Seconds of a step without its items; 0 if time grows faster
        than the batch.
        """
        return max(self.small_s - self.small * self.item_s, 0.0)

    @property
    def even_at(self) -> float:
        """The number of items whose work takes as long as the overhead; infinite if
        they add no time.
        """
        return self.overhead_s / self.item_s if self.item_s else math.inf

    @checked
    def share(self, items: Count) -> float:
        """The overhead's share, 0 to 1, of a step with so many items."""
        if not self.overhead_s:
            return 0.0
        return self.overhead_s / (self.overhead_s + items * self.item_s)

    def __str__(self) -> str:
        small = f"A step of {self.small:,} takes {format_seconds(self.small_s)}"
        large = f"one of {self.large:,} {format_seconds(self.large_s)}"
        overhead = f"{format_seconds(self.overhead_s)} of overhead"
        share = f"{self.share(self.small):.0%} of the smaller step"
        even = "items add no time"
        if self.item_s:
            even = f"the work of {significant(self.even_at)} items takes as long"
        busy = f" ({self.busy})" if self.busy else ""
        return f"{small}, {large}: {overhead}, {share}; {even}{busy}"


@checked
def step_overhead(
    step_of: Callable[[int], Callable[[], object]],
    small: Count,
    large: Count,
    *,
    budget_s: Positive = 2.0,
) -> StepOverhead:
    """Measure the overhead of a training step: the time that does not grow with its
    batch.

    `step_of(n)` returns a function without arguments that runs a step on n items. Steps
    of `small` and of `large` items are timed in turn for `budget_s` seconds, and a line
    through both medians splits the time. `large` should take twice as long as `small`
    or more, but not so long that its tensors leave a cache which those of `small` fit
    into. On a GPU launches overlap with work: take `small` so small that the step
    doesn't wait for the device's work. Raises BadArgument unless `large` is larger than
    `small`, and for a `step_of` that returns something else.
    """
    from torch import nn

    if large <= small:
        raise BadArgument(
            f"Expected large to be larger than small ({small}), got {large}."
        )
    steps = {f"a step of {n:,}": step_of(n) for n in (small, large)}
    for step in steps.values():
        if not callable(step) or isinstance(step, nn.Module):
            raise BadArgument(
                f"Expected step_of({small}) to return a function without arguments that"
                f" runs a training step on {small} items, got {brief_repr(step)}."
                " Define that function inside step_of, and return its name."
            )
    first, second = compare(
        steps, sync=sync_of(machine().device), budget_s=budget_s
    ).timings
    return StepOverhead(
        small, large, first.median_s, second.median_s, first.busy or second.busy
    )
