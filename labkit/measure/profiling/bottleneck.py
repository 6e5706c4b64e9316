"""Find what limits a training loop, by experiments on the loop itself."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from labkit.core.arguments import lookup
from labkit.core.display import ShownAsTable, Table
from labkit.core.errors import BadMeasurement
from labkit.core.parameters import Positive, checked
from labkit.core.units import format_seconds, significant
from labkit.measure import turns
from labkit.measure.bench import sync_of
from labkit.measure.ceilings import Ceilings, measure_ceilings
from labkit.measure.contention import Watch
from labkit.measure.machine import machine
from labkit.measure.profiling import operator_timing
from labkit.measure.profiling.annotations import Batch, is_batch, same_work, supply
from labkit.measure.profiling.operator_timing import OperatorCall
from labkit.measure.profiling.step import distributed, profile_step

LIMITS = ("input", "launch overhead", "memory bandwidth", "arithmetic", "communication")
_DOMINATES = 0.5  # share of the loop's time: without it, the loop would be twice as fast
_READING_S = 0.02  # of plain steps between two operator timings: many clock ticks, yet shorter than a busy moment
_ROUNDS = 3  # the fewest whose median survives one disturbed round


@dataclass(frozen=True, repr=False)
class Limit(ShownAsTable):
    """What limits a training loop: `shares` of its time by limit, which sum to 1, and a sentence per experiment.

    `busy` says how busy the machine was, if other programs took so much that the shares are in doubt.
    """

    shares: dict[str, float]
    evidence: tuple[str, ...]
    loop_s: float
    busy: str = ""

    @property
    def largest(self) -> str:
        """The limit with the largest share."""
        return max(self.shares, key=lambda name: self.shares[name])

    @property
    def dominant(self) -> str | None:
        """The limit that takes more than half of the time; None if none does."""
        return self.largest if self.shares[self.largest] > _DOMINATES else None

    @property
    def gain(self) -> float:
        """The highest possible speed-up from removing the largest limit."""
        return self.bound(self.largest)

    @checked
    def bound(self, limit: str) -> float:
        """The highest possible speed-up from removing `limit`, if nothing else changes (Amdahl 1967)."""
        rest = 1 - lookup(limit, self.shares, "limit")
        return 1 / rest if rest > 0 else math.inf

    def table(self) -> Table:
        """A row for each limit, the largest first, and the evidence below."""
        ordered = sorted(self.shares, key=lambda name: -self.shares[name])
        rows = tuple((name, f"{self.shares[name]:.0%}", f"{significant(self.bound(name))}x") for name in ordered)
        if self.dominant:
            title = f"{self.dominant.capitalize()} limits this loop: without it, at most {significant(self.gain)}x."
        else:
            title = f"Nothing dominates: without {self.largest}, the largest, at most {significant(self.gain)}x."
        if self.busy:
            title = f"In doubt, since {self.busy}. {title}"
        return Table(rows, ("limit", "share of the time", "at most, without it"), title, self.evidence)


@checked
def find_bottleneck(
    step: Callable[[Batch], object], batches: object, *, budget_s: Positive = 8.0, ceilings: Ceilings | None = None
) -> Limit:
    """Find what limits the loop that calls `step(batch)` for each of `batches`, in about `budget_s` seconds.

    `batches` is a DataLoader or other iterable, a function that returns the next batch, or one batch in memory (then
    input takes no time). The experiments are: the whole loop; the step on a batch already in memory; the input alone;
    the step with twice the batch; each operator timed by itself and compared with `ceilings`, by default this
    machine's; with torch.distributed, a profile. They train `step`'s model. All ranks of a distributed run must call
    this. Shares are of the loop as it is: a loader's work that overlaps with steps has no share.
    Raises BadArgument for a step that can't be called and for no batches, BadMeasurement for a step whose work varies.
    """
    with turns.turn():
        ceilings = ceilings or measure_ceilings()
        trial = _Experiments(step, budget_s)
        watch = Watch(gpu=trial.device != "cpu")
        batch, in_steps, evidence = trial.input(batches)
        step_s, runs = trial.timed(lambda: step(batch))
        parts, more = trial.inside(batch, step_s, runs, ceilings)
        busy = watch.so_far().reason
    shares = {name: parts[name] * in_steps for name in LIMITS}
    shares["input"] += 1 - in_steps
    return Limit(shares, (*evidence, *more), step_s / in_steps, busy)


class _Experiments:
    """Runs and times pieces of a loop, equally often on all ranks of a distributed run."""

    def __init__(self, step: Callable[[Batch], object], budget_s: float) -> None:
        self.step, self.budget_s = step, budget_s
        self.device = machine().device
        self.sync = sync_of(self.device)

    def input(self, batches: object) -> tuple[Batch, float, list[str]]:
        """A batch to keep, the share of the loop's time that steps alone would take, and the evidence."""
        next_batch = supply(batches)
        batch = next_batch()
        if is_batch(batches):
            return batch, 1.0, []
        ready = _prefetched(batches)
        whole_s, held_s = [], []
        for turn in range(_ROUNDS):  # in turn, so that a busy neighbour affects both
            skip = 0 if turn and ready == 1 else ready  # later turns need no warm-up, but drain prefetched batches
            whole_s.append(self._seconds(lambda: self.step(next_batch()), share=0.25 / _ROUNDS, skip=skip))
            held_s.append(self._seconds(lambda: self.step(batch), share=0.1 / _ROUNDS, skip=int(not turn)))
        alone_s = self._seconds(next_batch, share=0.1, skip=ready - 1)
        in_steps = min(statistics.median(held / whole for held, whole in zip(held_s, whole_s, strict=True)), 1.0)
        held, whole = (format_seconds(statistics.median(seconds)) for seconds in (held_s, whole_s))
        evidence = [
            f"Batch already in memory: {held} a step instead of {whole}.",
            f"Input alone, without a model: a batch every {format_seconds(alone_s)}.",
        ]
        return batch, in_steps, evidence

    def timed(self, work: Callable[[], object]) -> tuple[float, list[list[OperatorCall]]]:
        """Median seconds of a plain step, and the timed operators of other steps, measured in turn."""
        work()
        trial_s = self._mean(work, 1)
        timed_s = self._mean(lambda: operator_timing.timed_calls(work, self.sync), 1)
        inside = self._often(trial_s, share=_READING_S / self.budget_s, most=100)
        step_s, runs = [], []
        for _ in range(self._often(trial_s * inside + timed_s, share=0.25, most=25, least=2)):
            step_s.append(self._mean(work, inside))
            runs.append(operator_timing.timed_calls(work, self.sync))
        return statistics.median(step_s), runs

    def inside(
        self, batch: Batch, step_s: float, runs: list[list[OperatorCall]], ceilings: Ceilings
    ) -> tuple[dict[str, float], list[str]]:
        """Shares of a step by limit, and the evidence. Communication is from a profile, the rest from operators."""
        _check_same_work(runs)
        launch_s = operator_timing.launch_seconds(self.device, self.sync)
        pace = operator_timing.Pace(ceilings.matmul_flop_per_s, ceilings.copy_bytes_per_s, launch_s)
        calls = operator_timing.median_calls(runs)
        doubled, evidence = self._doubled(batch, step_s)
        found = operator_timing.split_by_wait(calls, doubled, pace)
        talk = profile_step(lambda: self.step(batch), steps=3, warmup=1) if distributed() else None
        found["communication"] = talk.share("communication") * step_s if talk else 0.0
        busy_s = found["memory"] + found["arithmetic"] + found["copies"]
        work_s = max(step_s - found["communication"], 0.0)
        shrink = min(1.0, work_s / busy_s) if busy_s else 1.0  # timed one by one, operators find colder caches
        shares = {
            "input": found["copies"] * shrink / step_s,
            "memory bandwidth": found["memory"] * shrink / step_s,
            "arithmetic": found["arithmetic"] * shrink / step_s,
            "communication": min(found["communication"] / step_s, 1.0),
        }
        shares["launch overhead"] = max(1 - sum(shares.values()), 0.0)
        return shares, evidence + _words(calls, found, step_s, busy_s * shrink, launch_s)

    def _doubled(self, batch: Batch, step_s: float) -> tuple[list[OperatorCall] | None, list[str]]:
        """Timed operators with twice the batch, None if it can't be doubled; and the evidence."""
        try:
            twice = _twice(batch)
            twice_s, runs = self.timed(lambda: self.step(twice))
        except (RuntimeError, MemoryError, ValueError, TypeError) as error:
            words = " ".join(str(error).split())[:80]
            return None, [f"Batch doubled: the step refused it ({type(error).__name__}: {words})."]
        growth = significant(twice_s / step_s)
        return operator_timing.median_calls(runs), [f"Batch doubled: a step takes {growth} times as long."]

    def _seconds(self, work: Callable[[], object], *, share: float, skip: int) -> float:
        """Mean seconds of `work` over the calls that fit in `share` of the budget, after `skip` uncounted calls."""
        for _ in range(skip):
            work()
        trial_s = self._mean(work, 1)
        runs = self._often(trial_s, share=share, most=200)
        return self._mean(work, runs) if runs > 1 else trial_s

    def _mean(self, work: Callable[[], object], runs: int) -> float:
        """Mean seconds of `runs` calls in a row."""
        self.sync()
        start = perf_counter()
        for _ in range(runs):
            work()
        self.sync()
        return (perf_counter() - start) / runs

    def _often(self, each_s: float, *, share: float, most: int, least: int = 1) -> int:
        """How many calls fit in a share of the budget: the same on all ranks, or a collective would wait forever."""
        import torch

        n = min(max(int(share * self.budget_s / max(each_s, 1e-7)), least), most)
        if not distributed():
            return n
        shared = torch.tensor(n, device=self.device)
        torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MIN)
        return int(shared)


def _prefetched(batches: object) -> int:
    """How many batches a loader, torch's or labkit's, may have ready before they are asked for."""
    workers = getattr(batches, "num_workers", getattr(batches, "workers", 0))
    return min(1 + workers * (getattr(batches, "prefetch_factor", None) or 2), 20)


def _check_same_work(runs: Sequence[Sequence[OperatorCall]]) -> None:
    counts = [len(run) for run in runs]
    if not max(counts):
        raise BadMeasurement("The step called no operator of torch: there is nothing to judge. Does it train a model?")
    if not same_work(counts):
        raise BadMeasurement(
            f"Expected a step that does the same work each time, got {', '.join(map(str, counts))} operators. "
            "Take occasional work (logging, evaluation) out of it."
        )


def _twice(batch: Any) -> Any:
    """The batch with every tensor's rows repeated."""
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(lambda x: torch.cat([x, x]) if isinstance(x, torch.Tensor) and x.dim() else x, batch)


def _words(
    calls: Sequence[OperatorCall], found: dict[str, float], step_s: float, busy_s: float, launch_s: float
) -> list[str]:
    longest = max(calls, key=lambda call: call.seconds)
    talk = found["communication"]
    rest = format_seconds(max(step_s - busy_s - talk, 0.0))
    evidence = [
        f"{len(calls)} operators, timed one by one, work for {format_seconds(busy_s)} of a step's "
        f"{format_seconds(step_s)}; launching them takes {rest} (one on a single number: {format_seconds(launch_s)}).",
        f"By the ceilings, memory bandwidth limits {format_seconds(found['memory'])} of it and arithmetic "
        f"{format_seconds(found['arithmetic'])}; the longest is {longest.name}, {format_seconds(longest.seconds)}.",
    ]
    if talk:
        evidence.append(f"In a profile, exposed communication takes {format_seconds(talk)} a step.")
    return evidence
