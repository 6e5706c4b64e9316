"""Find what limits a training loop: run it and pieces of it, and divide the time of a
step by what limits it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Iterable, Sequence
from operator import length_hint
from pathlib import Path
from typing import Any

import torch

from steptime import operator_timing
from steptime.annotations import Batch, Supply, is_batch
from steptime.arguments import (
    count,
    device as judged_device,
    expected,
    function,
    number,
)
from steptime.budget import Budget, crowded
from steptime.ceilings import Ceilings, given_ceilings
from steptime.errors import BadMeasurement
from steptime.gains import REFUSALS, cores, doubled_batch, measured, tried
from steptime.limits import LIMITS, Gain, Limit
from steptime.machine import Watch, core_waits, distributed, one_thread, sync_of
from steptime.operator_timing import OperatorCall, low, usual_runs
from steptime.own_loop import (
    OwnLoop,
    WatchedBatches,
    leave,
    prefetched,
    run_watched,
    watch_loop,
)
from steptime.pace import Pace, TinyStep, divide_gaps, explained, split_by_limit
from steptime.parts import FAULTS, HOST, OCCASIONAL, RANKS, THREADS
from steptime.step import profile_step
from steptime.stopwatch import mean_s
from steptime.torch_calls import compiled_graphs, kept_as_compiled
from steptime.unchanged import unchanged
from steptime.units import format_seconds, significant
from steptime.watched_steps import StepWatch, seen

# of plain steps between two looks at the clock: shorter than most moments that others
# take
_READING_S = 2e-3
# of timed operators in a row, so that work done in every eighth step only is seen
_RUNS = 8
_TINY_STEPS = 60  # in all: their low times are sought
_SLOW = 40  # a step that takes a budget's fortieth isn't repeated with twice the batch
# times as long in the loop as by itself: what a step does by itself isn't what the
# loop's steps do
_SLOWER = 1.5
_SLOWEST = 6  # one that takes a sixth is timed once


def find_bottleneck(
    step: Callable[[Batch], object],
    batches: object,
    *,
    budget_s: float = 8.0,
    ceilings: Ceilings | Callable[[], Ceilings] | None = None,
    device: str | None = None,
    watch: Watch = core_waits,
    path: Path | None = None,
    try_changes: bool = False,
) -> Limit:
    """Find what limits the loop that calls `step(batch)` for each of `batches`, in
    about `budget_s` seconds.

    It takes longer where a step takes over a tenth of the budget, since each experiment
    runs at least once.

    `batches` is a DataLoader or other iterable, a function that returns the next batch,
    or one batch in memory (then input takes no time). Measured are: the whole loop; the
    step on a batch already in memory; the input alone; each operator by itself, with
    twice the batch too, compared with `ceilings` or with what that function returns, by
    default with those that measure_ceilings finds; with torch.distributed, a profile,
    whose trace goes to `path`. The experiments train `step`'s model. All ranks of a
    distributed run must call this. Shares are of the loop as it is: a loader's work
    that overlaps with steps has no share. `device` is "cpu" or "cuda", by default
    "cuda" where torch has a GPU. What `watch` says of other programs (machine.Watch) is
    kept in `busy`. Raises BadArgument for a model and what can't be called, and for no
    batches; BadMeasurement without operators.
    """
    function("step", step, 1)
    # it can be called with a batch, and trains nothing
    if isinstance(step, torch.nn.Module):
        raise expected(
            "step",
            "a function that trains on a batch",
            step,
            "In it, call the model, backward, and so on.",
        )
    budget_s = number("budget_s", budget_s, "seconds")
    device = judged_device(device)
    function("watch", watch, 0)
    next_batch = Supply(batches)
    with contextlib.ExitStack() as stack:
        loop = LoopExperiments(step, Budget(budget_s, device, sync_of(device)), watch)
        loop.batch = next_batch()
        loop.use_fewer_threads(stack)
        rates = given_ceilings(ceilings, device)
        others = watch()
        loop.watch_turns(batches, next_batch)
        limit = loop.judged(loop.inside(loop.batch, rates, path))
        gains: tuple[Gain, ...] = ()
        if try_changes:
            gains = tried(step, next_batch, loop.batch, limit, loop.budget)
    return dataclasses.replace(limit, gains=gains, busy=others() or loop.doubt)


def watch(
    batches: Any,
    *,
    steps: int = 200,
    ceilings: Ceilings | Callable[[], Ceilings] | None = None,
    device: str | None = None,
    watch: Watch = core_waits,
    say: Callable[[Limit], object] = print,
) -> WatchedBatches:
    """Watch a loop of your own: put what this returns in place of its loader, or of its
    function for a batch.

    A turn ends when an optimizer has updated its weights; without an optimizer, with
    each batch. After `steps` turns and eight more, in which each operator is timed,
    `say` is called with what limits the loop, which goes on unwatched. Code that calls
    this again, for each epoch or for two loaders, has one watch, that of its first
    call. `ceilings`, `device` and `watch` are those of find_bottleneck.
    """
    steps = count("steps", steps, 2, 100_000)
    device = judged_device(device)
    others = watch()
    function("say", say, 1)

    def judge(turns: StepWatch, runs: list[list[OperatorCall]]) -> Limit:
        loop = WatchedLoop(Budget(0.0, device, sync_of(device)))
        loop.see(turns)
        loop.tiny.measure(_TINY_STEPS)
        calls = operator_timing.typical_calls(usual_runs(runs))
        pace = loop.tiny.pace(given_ceilings(ceilings, device))
        limit = loop.judged(loop.divided(calls, None, pace, loop.seen.step_s))
        return dataclasses.replace(limit, busy=others() or loop.doubt)

    own_loop = OwnLoop(steps, device, judge, say)
    return WatchedBatches(batches, own_loop if batches is None else own_loop.known())


def diagnose(
    step: Callable[..., object], batches: object = None, **options: Any
) -> Limit:
    """What limits the loop, as find_bottleneck finds it, and what is gained where a
    suspect is removed or halved.

    Tried, where they have a tenth of the time or more: a batch already in memory; twice
    the batch; memory that the C library keeps; no garbage collector; no print, no
    logging, no torch.save; fused optimizers; a thread for each core. Each change runs
    in turn with the loop as it is. Afterwards the training is as it was before
    (steptime.unchanged). `options` are those of find_bottleneck, which also says what
    is raised.

    Without `batches`, step() is a whole training: it is watched, and left when it has
    been seen for long enough; `options` are then those of `watch`, and nothing is
    tried.
    """
    with unchanged(step, batches):
        if batches is None:
            function("step", step, 0)
            return run_watched(step, watch(None, **options, say=leave).loop)
        return find_bottleneck(step, batches, try_changes=True, **options)


class WatchedLoop:
    """Divides the time of a loop that was watched by what limits it; on all ranks of a
    distributed run.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.tiny = TinyStep(budget.device, budget.sync)
        self.evidence = list[str]()
        self.unexplained = dict[str, str]()
        self.doubt = ""
        self.alone_s = self.ceiling_s = self.inside_s = 0.0
        self.slower = 1.0

    def see(self, watch: StepWatch) -> None:
        """Keep what the turns of the loop have shown."""
        self.seen = seen(watch.turns, watch.collected, watch.again_s)
        self.evidence += self.seen.evidence
        self.doubt = self.seen.doubt

    def judged(self, parts: dict[str, float]) -> Limit:
        """The loop's time by limit: of a usual step by `parts`, which sum to 1, and of
        what else was seen.
        """
        step_s = self.seen.step_s
        besides = {
            THREADS: step_s * (self.slower - 1),
            "input": self.seen.input_s,
            **self.seen.seconds_of,
        }
        seconds_of = {
            name: parts.get(name, 0.0) * step_s + besides.get(name, 0.0)
            for name in LIMITS
        }
        loop_s = sum(seconds_of.values())
        lines = dict.fromkeys(LIMITS, self.seen.where["step"])
        lines |= self.seen.where
        lines |= self.unexplained
        return Limit(
            {name: seconds / loop_s for name, seconds in seconds_of.items()},
            tuple(self.evidence),
            loop_s,
            input_s=self.alone_s,
            lines=lines,
            of_ceiling=self.ceiling_s / self.inside_s * step_s / loop_s,
            every=self.seen.every,
        )

    def divided(
        self,
        calls: Sequence[OperatorCall],
        doubled: Sequence[OperatorCall] | None,
        pace: Pace,
        step_s: float,
        exposed_s: float = 0.0,
    ) -> dict[str, float]:
        """Shares of a step of `step_s` seconds by limit; for `exposed_s` of them,
        nothing hides communication.
        """
        work = split_by_limit(calls, doubled, pace)
        seconds_of = {name: work.get(name, 0.0) for name in LIMITS}
        # besides the time in collectives' own calls
        waits_s = max(exposed_s - seconds_of["communication"], 0.0)
        divide_gaps(seconds_of, calls, pace, step_s, waits_s)
        if distributed():  # who has less work of its own waits for the slowest
            exchange_s = seconds_of["communication"]
            own_s = self.seen.input_s + step_s - exchange_s
            slowest_s = self.budget.most(own_s)
            seconds_of[RANKS] = min(max(slowest_s - own_s, 0.0), exchange_s)
            seconds_of["communication"] -= seconds_of[RANKS]
        # the collector's seconds count apart
        seconds_of[HOST] -= min(max(self.seen.collecting_s, 0.0), seconds_of[HOST])
        # of the host's own work: operators have theirs
        faults = self.seen.step_faults - sum(call.faults for call in calls)
        faults_s = min(max(faults * pace.fault_s, 0.0), seconds_of[HOST])
        seconds_of[HOST] -= faults_s
        seconds_of[FAULTS] += faults_s
        self.ceiling_s = sum(
            call.weight * max(pace.memory_s(call), pace.arithmetic_s(call))
            for call in calls
        )
        # more than the step: one by one, operators find colder caches
        self.inside_s = sum(seconds_of.values())
        longest, words = explained(calls, seconds_of, pace, step_s)
        self.unexplained = {"unknown": longest}
        self.evidence = self.evidence + words
        return {name: seconds / self.inside_s for name, seconds in seconds_of.items()}


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
            words = (
                f"{cores()} threads for {cores()} cores, in place of"
                f" {torch.get_num_threads()}"
            )

            def once() -> object:
                return self.step(self.batch)

            def thread_per_core() -> contextlib.AbstractContextManager[None]:
                return one_thread(cores())

            gain = measured(
                THREADS, words, once, once, self.budget, within=thread_per_core
            )
            self.slower = max(gain.low, 1.0)
            self.evidence = [str(gain)]
            stack.enter_context(one_thread(cores()))
        if crowded(self.budget.device, self.watch):
            stack.enter_context(one_thread())
            self.evidence.append(
                "Other programs take cores from torch's threads, so one thread ran all"
                " experiments."
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
            raise BadMeasurement(
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
            self.tiny.measure(_TINY_STEPS)
            calls = timed()
            timed_s = sum(call.before_s + call.seconds for call in calls)
            return min(trial_s, timed_s), [calls]
        timed_s = mean_s(timed, budget.sync)
        # plain steps between two looks at the clock, such readings in each round, and
        # steps of timed operators after them
        steps = budget.often(trial_s, share=_READING_S / budget.budget_s, most=100)
        readings = budget.often(
            trial_s * steps + 2 * timed_s, share=0.25 / rounds, most=_RUNS
        )
        timed_steps = budget.often(timed_s, share=0.25 / rounds, most=_RUNS)
        step_s = list[float]()
        runs = list[list[OperatorCall]]()
        for _ in range(rounds):
            step_s += [mean_s(work, budget.sync, steps) for _ in range(readings)]
            self.tiny.measure(_TINY_STEPS // rounds)
            runs += [timed() for _ in range(timed_steps)]
        same_work = len({len(run) for run in runs}) == 1
        return low(step_s) if same_work else statistics.mean(step_s), runs
