"""Find what limits a training loop, by experiments on the loop itself."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass

from labkit.core.arguments import lookup
from labkit.core.display import ShownAsTable, Table
from labkit.core.parameters import Positive, checked
from labkit.core.units import significant
from labkit.measure import turns
from labkit.measure.ceilings import Ceilings, measure_ceilings
from labkit.measure.contention import Watch
from labkit.measure.machine import threads
from steptime.annotations import Batch
from steptime.loop_experiments import HOST, LIMITS, LoopExperiments, crowded

_ESTIMATED = ("launch overhead", "unknown")  # without a measured time of their own, there is no bound
_DOMINATES = 0.5  # share of the loop's time: without it, the loop would be twice as fast


@dataclass(frozen=True, repr=False)
class Limit(ShownAsTable):
    """What limits a training loop: `shares` of its time by limit, which sum to 1, and a sentence per experiment.

    `where` is the line of Python that holds most of the host's time between operators, `unexplained` the operator that
    holds most of what is unknown. `input_s` are the seconds in which the input alone gives a batch: no loop is faster.
    `busy` says how busy the machine was, if other programs took so much that the shares are in doubt.
    """

    shares: dict[str, float]
    evidence: tuple[str, ...]
    loop_s: float
    busy: str = ""
    where: str = ""
    unexplained: str = ""
    input_s: float = 0.0

    @property
    def largest(self) -> str:
        """The limit with the largest share."""
        return max(self.shares, key=lambda name: self.shares[name])

    @property
    def dominant(self) -> str | None:
        """The limit that takes more than half of the time; None if none does."""
        return self.largest if self.shares[self.largest] > _DOMINATES else None

    @checked
    def bound(self, limit: str) -> float:
        """The highest speed-up from removing `limit`, if nothing else changes (Amdahl 1967) and input stays as fast.

        For launch overhead and what is unknown this is an estimate: their time is what other limits leave.
        """
        rest_s = self.loop_s * (1 - lookup(limit, self.shares, "limit"))
        if limit != "input":
            rest_s = min(max(rest_s, self.input_s), self.loop_s)
        return self.loop_s / rest_s if rest_s > 0 else math.inf

    @checked
    def words(self, limit: str) -> str:
        """The bound in words: "at most 2.50x", or "about 2.50x" where it is an estimate."""
        return f"{'about' if limit in _ESTIMATED else 'at most'} {significant(self.bound(limit))}x"

    def table(self) -> Table:
        """A row for each limit, the largest first, and the evidence below."""
        ordered = sorted(self.shares, key=lambda name: -self.shares[name])
        rows = tuple((name, f"{self.shares[name]:.0%}", self.words(name)) for name in ordered)
        largest = self.largest
        title = f"Nothing dominates: without {largest}, the largest, {self.words(largest)}."
        if self.dominant == "unknown":
            title = "What limits this loop is unknown."
        elif self.dominant:
            title = f"{largest.capitalize()} limits this loop: without it, {self.words(largest)}."
        place = {HOST: self.where, "unknown": self.unexplained}.get(largest)
        title += f" Most of it: {place}." if place else ""
        if self.busy:
            title = f"In doubt, since {self.busy}. {title}"
        return Table(rows, ("limit", "share of the time", "without it"), title, self.evidence)


@checked
def find_bottleneck(
    step: Callable[[Batch], object], batches: object, *, budget_s: Positive = 8.0, ceilings: Ceilings | None = None
) -> Limit:
    """Find what limits the loop that calls `step(batch)` for each of `batches`, in about `budget_s` seconds.

    It takes longer where a step takes over a tenth of the budget, since each experiment runs at least once.

    `batches` is a DataLoader or other iterable, a function that returns the next batch, or one batch in memory (then
    input takes no time). Measured are: the whole loop; the step on a batch already in memory; the input alone; each
    operator by itself, with twice the batch too, compared with `ceilings`, by default this machine's; with
    torch.distributed, a profile. So a step's time is divided into operators at work, by their limit; the launch of
    each, at the cost that operators have at the same moments in a tiny training step, and on a CPU what products
    prepare for any batch; communication that nothing hides; and the rest, the host's other work or waiting, with the
    line that holds most of it. On a CPU, seconds in which other programs had this thread's core are left out.
    The experiments train `step`'s model. All ranks of a distributed run must call this. Shares are of the loop as it
    is: a loader's work that overlaps with steps has no share.
    Raises BadArgument for a step that can't be called and for no batches, BadMeasurement for one without operators.
    """
    with turns.turn(), contextlib.ExitStack() as stack:
        trial = LoopExperiments(step, budget_s)
        if crowded(trial.device):
            stack.enter_context(threads(1))
            trial.evidence.append("Other programs take cores from torch's threads, so one thread ran all experiments.")
        ceilings = ceilings or measure_ceilings()
        watch = Watch(gpu=trial.device != "cpu")
        batch = trial.input(batches)
        parts, step_s = trial.inside(batch, ceilings)
        busy = watch.so_far().reason
    in_steps = trial.share_of_steps(step_s)
    shares = {name: parts[name] * in_steps for name in LIMITS}
    shares["input"] += 1 - in_steps
    return Limit(shares, tuple(trial.evidence), step_s / in_steps, busy, *trial.places(), trial.alone_s)
