"""Run a loop from its step and its batches, and watch it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from time import perf_counter

from steptime.loop.reloaded_batches import BATCHES, again_s
from steptime.loop.turns import TurnWatch
from steptime.measure.batches import Batch, Supply
from steptime.measure.budget import Budget
from steptime.measure.clock import mean_s

# steps that are watched at most, and in which share of the budget
_STEPS = 600
_WATCHED = 0.3
_SOUGHT = 0.55  # of it, until which a second epoch is looked for


def watch_loop(
    step: Callable[[Batch], object],
    batches: object,
    next_batch: Supply,
    device: str,
    budget: Budget,
) -> TurnWatch:
    """The turns of a loop, watched for a share of the budget, after those for which
    batches may have been `ready`.

    Workers load side by side, and deliver side by side: the number of turns is a
    multiple of theirs, unless the budget is too short for that.
    """
    workers, ready = prefetched(batches)
    watch = TurnWatch(device)
    limit_s = _WATCHED * budget.budget_s

    def turn() -> None:
        watch.begin()
        watch.mark("input_s")
        batch = next_batch()
        watch.epoch = next_batch.epoch
        watch.mark("step_s")
        step(batch)

    def fitting(taken_s: float, turns: int) -> int:
        """How many more turns fit, after so many have taken so many seconds."""
        left = (limit_s / max(taken_s, 1e-6) - 1) * turns
        return budget.agreed(max(int(left), 0))

    def taken_s() -> float:
        # what a GPU has yet to do is part of the turns
        budget.sync()
        return perf_counter() - start_s

    with watch.watching():
        start_s = perf_counter()
        skipped = 0
        # prepared while others ran
        while budget.agreed(int(skipped < ready - 1 and taken_s() < limit_s / 2)):
            turn()
            skipped += 1
        turns = 0
        more = workers
        if skipped:
            more = min(more, max(fitting(taken_s(), skipped), 2))
        while more:
            for _ in range(more):
                turn()
            turns += more
            left = fitting(taken_s(), skipped + turns)
            # no more than those so far, whose time may mislead
            more = min(turns, _STEPS - turns, left) // workers * workers
        watch.end(skip=skipped)
    watch.too_few = skipped < ready - 1 or turns < workers
    watch.again_s = again_s(batches, budget.sync)
    if watch.again_s is None and ready == 1 and isinstance(batches, Iterable):
        left_s = budget.left(_SOUGHT * budget.budget_s)
        _look_for_second_epoch(watch, next_batch, budget, perf_counter() + left_s)
    return watch


def _look_for_second_epoch(
    watch: TurnWatch, next_batch: Supply, budget: Budget, until_s: float
) -> None:
    """Load what is left of a short first epoch, and time the batches that follow."""
    for _ in range(_STEPS):
        if next_batch.epoch or perf_counter() >= until_s:
            break
        next_batch()
        budget.sync()
    if next_batch.epoch > watch.epoch:
        watch.second_epoch = True
        watch.again_s = statistics.median(
            mean_s(next_batch, budget.sync) for _ in range(BATCHES)
        )


def prefetched(batches: object) -> tuple[int, int]:
    """The workers of a loader, at least 1, and how many batches may be ready before
    they are.
    """
    workers = getattr(batches, "num_workers", getattr(batches, "workers", 0))
    factor = getattr(batches, "prefetch_factor", None) or 2
    return max(workers, 1), min(1 + workers * factor, 20)
