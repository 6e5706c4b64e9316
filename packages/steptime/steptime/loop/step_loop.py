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
from steptime.measure.machine import no_sync

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
    multiple of theirs.
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

    with watch.watching():
        start_s = perf_counter()
        for _ in range(ready - 1):  # prepared while others ran
            turn()
        turns = 0
        more = workers
        while more:
            for _ in range(more):
                turn()
            turns += more
            taken_s = perf_counter() - start_s
            left = int((limit_s / max(taken_s, 1e-6) - 1) * turns)
            # no more than those so far, whose time may mislead
            fitting = max(min(turns, _STEPS - turns, left), 0)
            more = budget.agreed(fitting) // workers * workers
        watch.end(skip=ready - 1)
    watch.again_s = again_s(batches)
    if watch.again_s is None and ready == 1 and isinstance(batches, Iterable):
        left_s = budget.left(_SOUGHT * budget.budget_s)
        _look_for_second_epoch(watch, next_batch, perf_counter() + left_s)
    return watch


def _look_for_second_epoch(
    watch: TurnWatch, next_batch: Supply, until_s: float
) -> None:
    """Load what is left of a short first epoch, and time the batches that follow."""
    for _ in range(_STEPS):
        if next_batch.epoch or perf_counter() >= until_s:
            break
        next_batch()
    if next_batch.epoch > watch.epoch:
        watch.second_epoch = True
        watch.again_s = statistics.median(
            mean_s(next_batch, no_sync) for _ in range(BATCHES)
        )


def prefetched(batches: object) -> tuple[int, int]:
    """The workers of a loader, at least 1, and how many batches may be ready before
    they are.
    """
    workers = getattr(batches, "num_workers", getattr(batches, "workers", 0))
    factor = getattr(batches, "prefetch_factor", None) or 2
    return max(workers, 1), min(1 + workers * factor, 20)
