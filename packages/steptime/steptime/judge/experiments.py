"""Run and time pieces of a loop."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterable
from operator import length_hint
from pathlib import Path

import torch

from steptime._units import format_seconds, significant
from steptime.errors import TooLittleSeen, stood_still
from steptime.judge.divided_loop import WatchedLoop
from steptime.judge.tried_changes import (
    FEW_PAIRS,
    PAIRS,
    REFUSALS,
    WARM_UPS,
    cores,
    doubled_batch,
    measured,
)
from steptime.limits import OCCASIONAL, THREADS, Gain
from steptime.loop.step_loop import prefetched, watch_loop
from steptime.measure import operator_timing
from steptime.measure.batches import Batch, Supply, is_batch
from steptime.measure.budget import Budget, crowded
from steptime.measure.ceilings import Ceilings
from steptime.measure.clock import above_0, mean_s
from steptime.measure.machine import Watch, distributed, one_thread
from steptime.measure.operator_hooks import compiled_graphs, kept_as_compiled
from steptime.measure.operator_timing import OperatorCall, low, usual_runs
from steptime.profile.step_profile import profile_step

# of plain steps between two looks at the clock: shorter than most moments that others
# take
_READING_S = 2e-3
# of timed operators in a row, so that work done in every eighth step only is seen
_RUNS = 8
TINY_STEPS = 60  # in all: their low times are sought
_RATHER_SLOW = 100  # of a step that takes a budget's hundredth, few pairs are made
_SLOW = 60  # a step that takes a budget's sixtieth isn't repeated with twice the batch
# times as long in the loop as by itself: what a step does by itself isn't what the
# loop's steps do
_SLOWER = 1.5
_WAITS = 0.1  # of a step's time, from which on waits for a batch matter
_SLOWEST = 20  # one that takes a twentieth is timed once
# shares of the budget, twice each: for one batch, and for twice the batch
_PLAIN = 0.12
_TIMED = 0.12


class LoopExperiments(WatchedLoop):
    """Runs and times pieces of a loop, equally often on all ranks of a
    distributed run.
    """

    def __init__(
        self, step: Callable[[Batch], object], budget: Budget, watch: Watch
    ) -> None:
        super().__init__(budget)
        self.step = step
        self.watch = watch
        self.batch: Batch = None

    def use_fewer_threads(self, stack: contextlib.ExitStack) -> None:
        """Until `stack` closes, torch has no more threads than cores, and one on a busy
        machine.

        torch.compile would compile anew for another number of threads: then it stays.
        """
        if self.budget.device != "cpu" or compiled_graphs():
            return
        if torch.get_num_threads() > cores():
            with contextlib.suppress(TooLittleSeen):
                gain = self._gain_of_fewer_threads()
                self.slower = max(gain.low, 1.0)
                self.evidence = [str(gain)]
            stack.enter_context(one_thread(cores()))
        if crowded(self.budget.device, self.watch):
            stack.enter_context(one_thread())
            self.evidence.append(
                "Other programs take cores from torch's threads, so one thread ran all"
                " experiments: times and shares are of the loop with one thread."
            )

    def _gain_of_fewer_threads(self) -> Gain:
        words = (
            f"{cores()} threads for {cores()} cores, in place of"
            f" {torch.get_num_threads()}"
        )

        def once() -> object:
            return self.step(self.batch)

        def thread_per_core() -> contextlib.AbstractContextManager[None]:
            return one_thread(cores())

        step_s = mean_s(once, self.budget.sync)
        is_slow = step_s >= self.budget.budget_s / _RATHER_SLOW
        if self.budget.agreed(int(not is_slow)):
            pairs = PAIRS
            warm_ups = WARM_UPS
        else:
            pairs = FEW_PAIRS
            warm_ups = 0
        return measured(
            THREADS,
            words,
            once,
            once,
            self.budget,
            within=thread_per_core,
            pairs=pairs,
            warm_ups=warm_ups,
        )

    def watch_turns(self, batches: object, next_batch: Supply) -> None:
        """Watch the loop as it is; `alone_s` are from then on the seconds of the input
        without a step.
        """
        workers, ready = prefetched(batches)
        self.step(self.batch)
        turns = watch_loop(
            self.step, batches, next_batch, self.budget.device, self.budget
        )
        self.see(turns)
        if is_batch(batches):
            return
        self.alone_s = self.budget.seconds(
            next_batch, share=0.1, skip=ready - 1, together=workers
        )
        waited_s = statistics.fmean(turn.input_s for turn in turns.turns)
        if turns.too_few and waited_s > _WAITS * self.seen.step_s:
            self.doubt = (
                f"{len(turns.turns)} steps are too few for {workers} workers, who have"
                " prepared batches before: pass a larger budget_s"
            )
        self.evidence.append(
            f"In the loop, a batch is waited for {format_seconds(waited_s)}."
        )
        self.evidence.append(
            "Input alone, without a model: a batch every"
            f" {format_seconds(self.alone_s)}."
        )
        # nothing is loaded meanwhile: what the loop waits is what a batch takes
        if turns.again_s is not None:
            self.alone_s = self.seen.input_s
        elif isinstance(batches, Iterable) and not next_batch.epoch:
            self.evidence.append(
                "Only a first epoch was seen. Later ones may be faster."
            )
            if (
                ready == 1
                and length_hint(batches)
                and self.seen.step_s < self.seen.input_s
            ):
                self.doubt = (
                    "only a first epoch was seen, and a later one may be faster:"
                    " pass a larger budget_s"
                )

    def inside(
        self, batch: Batch, ceilings: Ceilings, path: Path | None
    ) -> dict[str, float]:
        """Shares of a usual step by limit, which sum to 1; a profile's trace goes to
        `path`.
        """
        step_s, runs = self._timed(lambda: self.step(batch))
        if not step_s:
            raise stood_still("a step")
        waits_s = exposed_s = 0.0
        # in the loop, but not here, a rank waits for another one's input
        if distributed():
            longest_s = self.budget.most(self.seen.input_s)
            slower_s = max(self.seen.step_s - step_s, 0.0)
            waits_s = min(longest_s - self.seen.input_s, slower_s)
            profile = profile_step(
                lambda: self.step(batch),
                steps=3,
                warmup=1,
                path=path,
                device=self.budget.device,
            )
            exposed_s = waits_s + profile.share("communication") * step_s
        if self.seen.step_s > _SLOWER * (step_s + waits_s):
            self.doubt = (
                f"a usual step of the loop takes {format_seconds(self.seen.step_s)},"
                f" and with one batch in memory {format_seconds(step_s)}"
            )
        counts = sorted({len(run) - 1 for run in runs})
        if not counts[-1]:
            raise TooLittleSeen(
                "The step called no operator of torch. Pass a step that trains a model."
            )
        if len(counts) > 1:
            self.evidence.append(
                f"The steps differ, with {counts[0]} to {counts[-1]} operators."
            )
        if OCCASIONAL in self.seen.seconds_of:
            runs = usual_runs(runs)
        calls = operator_timing.typical_calls(runs)
        doubled = self._doubled(batch, step_s)
        return self.divided(
            calls, doubled, self.tiny.pace(ceilings), step_s + waits_s, exposed_s
        )

    def _doubled(self, batch: Batch, step_s: float) -> list[OperatorCall] | None:
        """Timed operators with twice the batch; None if that takes too long, or if it
        can't be doubled.
        """
        if not self.budget.agreed(int(step_s <= self.budget.budget_s / _SLOW)):
            return None
        try:
            twice = doubled_batch(batch)
            with kept_as_compiled():
                twice_s, runs = self._timed(lambda: self.step(twice))
            if not twice_s:
                raise stood_still("it")
        except REFUSALS as error:
            message = " ".join(str(error).split())[:80]
            if "recompile" in message:
                why = "torch.compile would have to compile the step anew"
            else:
                why = f"it was refused ({type(error).__name__}: {message})"
            self.evidence.append(f"Batch doubled: {why}.")
            return None
        times = twice_s / step_s
        fixed = min(max(2 - times, 0.0), 1.0)
        self.evidence.append(
            f"Batch doubled: a step takes {significant(times)} times as long, and"
            f" {fixed:.0%} doesn't grow."
        )
        return operator_timing.typical_calls(runs)

    def _timed(
        self, work: Callable[[], object]
    ) -> tuple[float, list[list[OperatorCall]]]:
        """Seconds of a plain step, and the timed operators of other steps; the tiny
        step is measured in turn.
        """
        budget = self.budget
        rounds = budget.rounds

        def timed() -> list[OperatorCall]:
            return operator_timing.timed_calls(work, self.budget.sync)

        work()
        trial_s = mean_s(work, budget.sync)
        if not budget.agreed(int(trial_s <= budget.budget_s / _SLOWEST)):
            self.tiny.measure(TINY_STEPS)
            calls = timed()
            timed_s = sum(call.before_s + call.seconds for call in calls)
            return min(trial_s, timed_s), [calls]
        timed_s = mean_s(timed, budget.sync)
        # plain steps between two looks at the clock, such readings in each round, and
        # steps of timed operators after them
        steps = budget.often(trial_s, share=_READING_S / budget.budget_s, most=100)
        readings = budget.often(
            trial_s * steps + 2 * timed_s, share=_PLAIN / rounds, most=_RUNS
        )
        timed_steps = budget.often(timed_s, share=_TIMED / rounds, most=_RUNS)
        step_s = list[float]()
        runs = list[list[OperatorCall]]()
        for _ in range(rounds):
            step_s += [mean_s(work, budget.sync, steps) for _ in range(readings)]
            self.tiny.measure(TINY_STEPS // rounds)
            runs += [timed() for _ in range(timed_steps)]
        same_work = len({len(run) for run in runs}) == 1
        step_s = above_0(step_s)
        return low(step_s) if same_work else statistics.mean(step_s), runs
