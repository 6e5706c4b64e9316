"""Watch a loop that stands in a script of its own: its turns end with the optimizer's step, or with a batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any
from unittest import mock

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_map
from torch.utils.data.dataloader import _BaseDataLoaderIter

from steptime.annotations import Batch, Supply
from steptime.budget import Budget
from steptime.errors import BadMeasurement
from steptime.limits import Limit
from steptime.machine import sync_of
from steptime.operator_timing import CallTimer, OperatorCall, timing_calls
from steptime.watched_steps import Step, StepWatch

_STEPS, _WATCHED = 600, 0.3  # of a step and its batches: watched at most, and in which share of the budget
_TIMED = 8  # turns after those that are watched, of which each operator is timed
_UNWATCHED = 3  # at the start: first calls are slow

# Says what limits a loop, from its turns, the lines of the garbage collector, and timed operators.
Judge = Callable[[StepWatch, list[Step], list[list[OperatorCall]]], Limit]


class Enough(BaseException):
    """Leaves a training that has been watched for long enough; no `except Exception` of it holds this up."""


class OwnLoop:
    """In place of a loader, or of a function that returns batches: hands them on, and watches the loop that uses them.

    `steps` turns are watched, in a few more each operator is timed, and after that nothing is. `limit` is then what was
    found, and `say` is called with it.
    """

    def __init__(self, batches: Any, steps: int, device: str, judge: Judge, say: Callable[[Limit], object]) -> None:
        self._batches, self._steps, self._judge, self._say = batches, steps, judge, say
        self._sync, self._watch, self._open = sync_of(device), StepWatch(device), contextlib.ExitStack()
        self._turns, self._runs = list[Step](), list[list[OperatorCall]]()
        self._turn = self._epoch = 0
        self._stepped = False
        self._found: Limit | None = None
        self._timer: CallTimer | None = None

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch."""
        self._watch.epoch, self._epoch = self._epoch, self._epoch + 1
        batches = iter(self._batches)
        while True:
            try:
                with self.input():
                    batch = next(batches)
            except StopIteration:
                return
            yield batch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The batch that the function returns."""
        with self.input():
            return self._batches(*args, **kwargs)

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    @contextlib.contextmanager
    def input(self) -> Iterator[None]:
        """The loop waits for a batch within the block: operators in it belong to no step."""
        if not self._stepped:
            self.turn()
        watched = self._found is None and 0 < self._turn - _UNWATCHED <= self._steps
        timed = len(self._timer.calls) if self._timer is not None else 0
        if watched:
            self._watch.input_begins()
        try:
            yield
        finally:
            if watched:
                self._watch.input_ends()
            if self._timer is not None:
                del self._timer.calls[timed:]
                self._timer.begin()

    def stepped(self, *_: object) -> None:
        """An optimizer has updated its weights: that ends a turn."""
        self._stepped = True
        self.turn()

    def turn(self) -> None:
        """End a turn, and begin the next."""
        if self._found is not None:
            return
        self._turn += 1
        n = self._turn - _UNWATCHED
        if n == 1 - _UNWATCHED:
            self._open.callback(register_optimizer_step_post_hook(self.stepped).remove)
        elif n == 1:
            self._open.enter_context(self._watch.watching())
        if 1 <= n <= self._steps:
            self._watch.begin()
        elif n == self._steps + 1:
            self._turns = self._watch.end()
        if n > self._steps + _TIMED:
            self.end()
        elif n > self._steps:
            self._close()  # ends the turn before
            self._open.callback(register_optimizer_step_post_hook(self.stepped).remove)
            self._timer = self._open.enter_context(timing_calls(self._sync))

    def _close(self) -> None:
        self._open.close()
        if self._timer is not None:
            self._runs.append(self._timer.calls)
        self._timer = None

    def end(self) -> Limit:
        """What limits the loop. The training goes on unwatched."""
        if self._found is None:
            self._close()
            if not self._runs:
                needed = self._steps + _TIMED + _UNWATCHED
                words = f"The loop ended after {max(self._turn - 1, 0)} steps, and {needed} are looked at."
                raise BadMeasurement(f"{words} Let it run longer, or pass a smaller `steps`.")
            self._found = self._judge(self._watch, self._turns, self._runs)
            self._say(self._found)
        return self._found

    limit = property(end)


def run_watched(train: Callable[[], object], loop: OwnLoop) -> Limit:
    """Call `train`, watch it, and leave it when that is enough; its DataLoaders' batches are input."""
    following = _BaseDataLoaderIter.__next__

    def waited(batches: Any) -> Any:
        with loop.input():
            return following(batches)

    with contextlib.suppress(Enough), mock.patch.object(_BaseDataLoaderIter, "__next__", waited):
        loop.turn()
        train()
        loop.end()
    return loop.end()


def leave(_: Limit) -> None:
    """Leave the training."""
    raise Enough


def watch_loop(
    step: Callable[[Batch], object], next_batch: Supply, device: str, budget: Budget, workers: int, ready: int
) -> tuple[list[Step], StepWatch]:
    """The turns of a loop, watched for a share of the budget, after those for which batches may have been `ready`.

    Workers load side by side, and deliver side by side: the number of turns is a multiple of theirs.
    """
    watch, turns, n = StepWatch(device), 0, workers

    def turn() -> None:
        watch.begin()
        watch.input_begins()
        batch = next_batch()
        watch.epoch = next_batch.epoch
        watch.input_ends()
        step(batch)

    with watch.watching():
        for _ in range(ready - 1):  # prepared while others ran
            turn()
        start = perf_counter()
        while n:
            for _ in range(n):
                turn()
            turns, taken_s = turns + n, perf_counter() - start
            left = int((_WATCHED * budget.budget_s / max(taken_s, 1e-6) - 1) * turns)
            n = budget.agreed(max(min(turns, _STEPS - turns, left), 0)) // workers * workers
        return watch.end()[ready - 1 :], watch


def prefetched(batches: object) -> tuple[int, int]:
    """The workers of a loader, at least 1, and how many batches may be ready before they are."""
    workers = getattr(batches, "num_workers", getattr(batches, "workers", 0))
    return max(workers, 1), min(1 + workers * (getattr(batches, "prefetch_factor", None) or 2), 20)


def doubled_batch(batch: Any) -> Any:
    """The batch with every tensor's rows repeated."""
    return tree_map(lambda x: torch.cat([x, x]) if isinstance(x, torch.Tensor) and x.dim() else x, batch)
