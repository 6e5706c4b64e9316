"""Run a training loop and pieces of it, and divide the time of a step by what limits it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from labkit.core.errors import BadMeasurement
from labkit.core.units import format_seconds, significant
from labkit.measure.bench import sync_of
from labkit.measure.ceilings import Ceilings
from labkit.measure.contention import Watch
from labkit.measure.machine import machine
from steptime import operator_timing
from steptime.annotations import Batch, is_batch, supply
from steptime.operator_timing import OperatorCall, low
from steptime.pace import Pace, TinyStep, split_by_limit
from steptime.stack_samples import StackSamples
from steptime.step import distributed, profile_step
from steptime.step_overhead import StepOverhead

HOST = "other host work"
LIMITS = ("input", "launch overhead", "memory bandwidth", "arithmetic", "communication", HOST, "unknown")
_ROUNDS = 3  # the fewest whose median survives one disturbed round
_READING_S = 2e-3  # of plain steps between two looks at the clock: shorter than most moments that others take
_RUNS = 8  # of timed operators in a row, so that work done in every eighth step only is seen
_TINY_STEPS = 60  # in all: their low times are sought
_LOOK_S = 0.4  # to see what others take: counters have steps of 0.01 s
_SLOW = 40  # a step that takes a budget's fortieth isn't repeated with twice the batch
_SLOWEST = 6  # one that takes a sixth is timed once


class LoopExperiments:
    """Runs and times pieces of a loop, equally often on all ranks of a distributed run."""

    def __init__(self, step: Callable[[Batch], object], budget_s: float) -> None:
        self.step, self.budget_s = step, budget_s
        self.device = machine().device
        self.sync = sync_of(self.device)
        self.samples, self.tiny = StackSamples(), TinyStep(self.device, self.sync)
        self.evidence, self.unexplained = list[str](), ""
        self.ready, self.alone_s = 1, 0.0
        self.in_steps: float | None = 1.0

    def input(self, batches: object) -> Batch:
        """A batch to keep; `alone_s` are from then on the seconds of the input without a step."""
        next_batch = supply(batches)
        batch = next_batch()
        if is_batch(batches):
            return batch
        workers, self.ready = _prefetched(batches)
        watch = Watch(gpu=self.device != "cpu")
        held, whole, share = self._in_turn(
            lambda: self.step(batch), lambda: self.step(next_batch()), self.ready, workers
        )
        self.alone_s = self._seconds(next_batch, share=0.1, skip=self.ready - 1, together=workers)
        self.in_steps = None if watch.so_far().reason and self.device == "cpu" else share
        self.evidence += [
            f"Batch already in memory: {format_seconds(held)} a step instead of {format_seconds(whole)}.",
            f"Input alone, without a model: a batch every {format_seconds(self.alone_s)}.",
        ]
        return batch

    def share_of_steps(self, step_s: float) -> float:
        """The share of the loop's time that steps of `step_s` seconds alone would take.

        On a busy CPU, long pieces of time can't be compared: there it follows from the input alone, which a loader
        with workers prepares while a step runs.
        """
        if self.in_steps is not None:
            return self.in_steps
        waits_s = self.alone_s if self.ready == 1 else max(self.alone_s - step_s, 0.0)
        return step_s / (step_s + waits_s)

    def inside(self, batch: Batch, ceilings: Ceilings) -> tuple[dict[str, float], float]:
        """Shares of a step by limit, which sum to 1, and the step's seconds."""
        step_s, runs = self._timed(lambda: self.step(batch))
        self._look_at(runs)
        calls, doubled = operator_timing.typical_calls(runs), self._doubled(batch, step_s)
        pace = self.tiny.pace(ceilings)
        self._sample(lambda: self.step(batch), len(runs), pace.gap_s)
        work = split_by_limit(calls, doubled, pace)
        found = {name: work.get(name, 0.0) for name in LIMITS}
        talk = profile_step(lambda: self.step(batch), steps=3, warmup=1) if distributed() else None
        found["communication"] += talk.share("communication") * step_s if talk else 0.0
        rest_s = max(step_s - sum(found.values()), 0.0)
        # Launching lies in short gaps between operators, and costs no more than in a tiny step.
        long_s = sum(call.weight * max(call.before_s - pace.gap_s, 0.0) for call in calls)
        found[HOST] = max(min(long_s, rest_s), rest_s - sum(call.weight for call in calls) * pace.launch_s)
        found["launch overhead"] += rest_s - found[HOST]
        rare_s = sum(call.weight * call.rare_s for call in calls)
        found[HOST], step_s = found[HOST] + rare_s, step_s + rare_s
        all_s = sum(found.values())  # more than the step: timed one by one, operators find colder caches
        self._explain(calls, found, pace, step_s)
        return {name: seconds / all_s for name, seconds in found.items()}, step_s

    def places(self) -> tuple[str, str]:
        """The line that holds the host's time, and the operator that holds most of what is unknown."""
        return self.samples.most[0], self.unexplained

    def _look_at(self, runs: Sequence[Sequence[OperatorCall]]) -> None:
        counts = [len(run) - 1 for run in runs]
        if not max(counts):
            raise BadMeasurement(
                "The step called no operator of torch: there is nothing to judge. Does it train a model?"
            )
        if len(set(counts)) > 1:
            self.evidence.append(
                f"The steps differ, with {min(counts)} to {max(counts)} operators: this is their mean."
            )

    def _doubled(self, batch: Batch, step_s: float) -> list[OperatorCall] | None:
        """Timed operators with twice the batch; None if that takes too long, or if it can't be doubled."""
        if not self._agreed(int(step_s <= self.budget_s / _SLOW)):
            return None
        try:
            twice = _twice(batch)
            twice_s, runs = self._timed(lambda: self.step(twice))
        except (RuntimeError, MemoryError, ValueError, TypeError, IndexError, KeyError) as error:
            words = " ".join(str(error).split())[:80]
            self.evidence.append(f"Batch doubled: the step refused it ({type(error).__name__}: {words}).")
            return None
        fixed = StepOverhead(1, 2, step_s, twice_s).share(1)
        self.evidence.append(
            f"Batch doubled: a step takes {significant(twice_s / step_s)} times as long, and {fixed:.0%} doesn't grow."
        )
        return operator_timing.typical_calls(runs)

    def _timed(self, work: Callable[[], object]) -> tuple[float, list[list[OperatorCall]]]:
        """Seconds of a plain step, and the timed operators of other steps; the tiny step is measured in turn."""

        def timed() -> list[OperatorCall]:
            return operator_timing.timed_calls(work, self.sync)

        work()
        trial_s = _clock_s(work)
        if not self._agreed(int(trial_s <= self.budget_s / _SLOWEST)):
            self.tiny.measure(_TINY_STEPS)
            calls = timed()
            return min(trial_s, sum(call.before_s + call.seconds for call in calls)), [calls]
        timed_s = _clock_s(timed)
        inside = self._often(trial_s, share=_READING_S / self.budget_s, most=100)
        n = self._often(trial_s * inside + 2 * timed_s, share=0.25 / _ROUNDS, most=_RUNS)
        in_a_row = self._often(timed_s, share=0.25 / _ROUNDS, most=_RUNS)
        worked_s, runs = [], []
        for _ in range(_ROUNDS):
            worked_s += [operator_timing.worked_and_slept(work, self.sync, inside)[0] for _ in range(n)]
            self.tiny.measure(_TINY_STEPS // _ROUNDS)
            runs += [timed() for _ in range(in_a_row)]
        slept_s = sum(call.weight * call.slept_s for call in operator_timing.typical_calls(runs))
        alike = len({len(run) for run in runs}) == 1
        return slept_s + (low(worked_s) if alike else statistics.mean(worked_s)), runs

    def _sample(self, work: Callable[[], object], runs: int, gap_s: float) -> None:
        """Sample the stack in further steps: on a busy machine, taking samples lengthens all that lies between them."""
        with self.samples.taken():
            for _ in range(runs):
                operator_timing.timed_calls(work, self.sync, self.samples, gap_s)

    def _in_turn(
        self, without: Callable[[], object], whole: Callable[[], object], ready: int, together: int = 1
    ) -> tuple[float, float, float]:
        """Seconds of `without` and of `whole`, measured in turn, and the first's share of the second, at most 1.

        `ready` calls of `whole` come first: a loader may have batches ready, which it prepared while others ran. A slow
        loop has one turn only.
        """
        pairs: list[tuple[float, float]] = []
        for turn in range(_ROUNDS):
            skip = 0 if turn and ready == 1 else ready
            whole_s = self._seconds(whole, share=0.25 / _ROUNDS, skip=skip, together=together)
            pairs.append((self._seconds(without, share=0.1 / _ROUNDS, skip=int(not turn)), whole_s))
            if not self._agreed(int(_ROUNDS * (ready + 2) * whole_s <= self.budget_s)):
                break
        share = statistics.median(part / all_ for part, all_ in pairs)
        part_s, whole_s = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
        return part_s, whole_s, min(share, 1.0)

    def _seconds(self, work: Callable[[], object], *, share: float, skip: int, together: int = 1) -> float:
        """Mean seconds of `work` over the calls that fit in `share` of the budget, after `skip` uncounted calls.

        Calls are counted in groups of `together`: workers that load side by side deliver their batches side by side.
        """
        for _ in range(skip):
            work()
        start = perf_counter()
        trial_s = self._mean(work, together)
        groups = self._often(perf_counter() - start, share=share, most=200)
        return self._mean(work, groups * together) if groups > 1 else trial_s

    def _mean(self, work: Callable[[], object], runs: int) -> float:
        """Mean seconds of `runs` calls in a row."""
        return sum(operator_timing.worked_and_slept(work, self.sync, runs))

    def _often(self, each_s: float, *, share: float, most: int) -> int:
        """How many calls fit in a share of the budget."""
        return self._agreed(min(max(int(share * self.budget_s / max(each_s, 1e-7)), 1), most))

    def _agreed(self, n: int) -> int:
        """The least of all ranks' numbers: with different ones, a collective would wait forever."""
        import torch

        if not distributed():
            return n
        shared = torch.tensor(n, device=self.device)
        torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MIN)
        return int(shared)

    def _explain(self, calls: Sequence[OperatorCall], found: dict[str, float], pace: Pace, step_s: float) -> None:
        """Put the division of a step into words."""
        said = {name: format_seconds(seconds) for name, seconds in found.items()}
        longest = max(calls, key=lambda call: call.seconds)
        unknown = [c for c in calls if pace.limit(c, c.seconds - pace.empty_s)[0] == "unknown"]
        self.unexplained = max(unknown, key=lambda call: call.seconds).name if unknown else ""
        n = sum(call.weight for call in calls) - 1
        self.evidence += [
            f"{n:.0f} operators in a step of {format_seconds(step_s)}. By the ceilings, memory bandwidth limits "
            f"{said['memory bandwidth']} of their work and arithmetic {said['arithmetic']}; neither explains "
            f"{said['unknown']}. The longest is {longest.name}, {format_seconds(longest.seconds)}.",
            f"Launching and preparing them takes {said['launch overhead']}; in a tiny training "
            f"step, an operator costs {format_seconds(pace.launch_s)}.",
        ]
        place, share = self.samples.most
        if place and found[HOST] > 0.1 * step_s:
            self.evidence.append(
                f"Between operators, the host works or waits for {said[HOST]} more: {share:.0%} of that in {place}."
            )
        if found["communication"]:
            self.evidence.append(f"In a profile, exposed communication takes {said['communication']} a step.")


def _clock_s(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def crowded(device: str) -> bool:
    """Whether other programs take cores from torch's threads on a CPU, which makes them wait for each other."""
    import torch

    if device != "cpu" or torch.get_num_threads() == 1:
        return False
    watch, x, start = Watch(), torch.ones(256, 256), perf_counter()
    while perf_counter() - start < _LOOK_S:
        x @ x
    return bool(watch.so_far().reason)


def _prefetched(batches: object) -> tuple[int, int]:
    """The workers of a loader, torch's or labkit's, at least 1, and how many batches may be ready before they are."""
    workers = getattr(batches, "num_workers", getattr(batches, "workers", 0))
    return max(workers, 1), min(1 + workers * (getattr(batches, "prefetch_factor", None) or 2), 20)


def _twice(batch: Any) -> Any:
    """The batch with every tensor's rows repeated."""
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(lambda x: torch.cat([x, x]) if isinstance(x, torch.Tensor) and x.dim() else x, batch)
