"""Watch a loop that stands in a script of its own: its turns end with the optimizer's
step, or with a batch.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import inspect
import itertools
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import partial
from types import CodeType
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary, ref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.hooks import RemovableHandle

from steptime.errors import TooLittleSeen
from steptime.limits import Limit
from steptime.loop.reloaded_batches import again_s
from steptime.loop.turns import TurnWatch
from steptime.measure.machine import no_sync, sync_of
from steptime.measure.operator_hooks import replaced
from steptime.measure.operator_timing import CallTimer, OperatorCall, timing_calls
from steptime.measure.stack_samples import Place, place_of, stack_of

_FIRST = 20  # turns that are watched before operators are timed: enough for a page
_TIMED = 8  # turns after those, of which each operator is timed
_PLACES = 16  # in the code, whose loops are kept
_UNWATCHED = 3  # at the start: first calls are slow
_NEXT_TO_NOTHING = 1e-12


# By the code that calls `watch`, outwards, whose ids are its own as long as it is kept;
# of the last places only.
_LOOPS = dict[tuple[int, ...], tuple[list[CodeType], "OwnLoop"]]()


class Enough(BaseException):
    """Leaves a training that has been watched for long enough; no `except Exception` of
    it holds this up.
    """


class _Source(NamedTuple):
    """Where a batch came from: the number of its iterator, a DataLoader's iterator
    itself, and the loader.
    """

    number: int = 0
    iterator: object = None
    loader: object = None


class WatchedBatches:
    """In place of a loader, or of a function for a batch: hands batches on, and tells
    the `loop` that is watched.
    """

    def __init__(self, batches: Any, loop: OwnLoop) -> None:
        self._batches = batches
        self.loop = loop

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch."""
        # to start workers takes time, too
        batches = self.loop.waited_for(partial(iter, self._batches), ends_turn=False)
        number = next(self.loop.numbers)
        at_end = object()
        fetch = partial(next, batches, at_end)
        while True:
            batch = self.loop.waited_for(fetch)
            if batch is at_end:
                return
            self.loop.fetched(number, batches, self._batches)
            yield batch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The batch that the function returns."""
        return self.loop.waited_for(partial(self._batches, *args, **kwargs))

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    @property
    def limit(self) -> Limit:
        """What limits the loop. The training goes on unwatched."""
        return self.loop.end()


class OwnLoop:
    """Watches the loop that uses batches.

    `steps` turns are watched, in a few more each operator is timed, and after that
    nothing is. `say` is then called with what was found, or where the loop ends before
    that with what was found in fewer turns. Code that calls `watch` again, for each
    epoch or for two loaders, has one loop.
    """

    # experiments have optimizers of their own, which end no turn of any loop
    _judging = False

    def __init__(
        self,
        steps: int,
        device: str,
        judge: Callable[[OwnLoop], Limit],
        say: Callable[[Limit], object],
    ) -> None:
        self.device = device
        self.watch = TurnWatch(device)
        self.watch.samples.in_script = True
        self.runs = list[list[OperatorCall]]()  # timed operators of turns
        self._steps = steps
        self._judge = judge
        self._say = say
        self._sync = sync_of(device)
        self._turns_begun = 0
        # the loop that the same code watched before
        self._before = self
        # returns the loop's first one, if it is alive
        self._optimizer: Callable[[], object] = lambda: None
        self._has_stepped = False  # with an optimizer
        self._anew = True  # the next optimizer that steps is the first
        self._limit: Limit | None = None
        self._timer: CallTimer | None = None
        self._hook: RemovableHandle | None = None
        self._turns = self._watched_turns()
        self.numbers = itertools.count(1)  # of iterators
        self._source = _Source()  # of the last batch
        self._trained_from = self._source
        self._drawn_at: Place | None = None
        self._batches_of = Counter[int]()  # by iterator

    def known(self) -> OwnLoop:
        """The loop that the same code has begun to watch before, if that still goes on;
        else this one.
        """
        # Without a frame, walk_stack begins one caller further out from Python 3.12 on.
        caller = sys._getframe(1)
        codes = [frame.f_code for frame, _ in traceback.walk_stack(caller)]
        calls = tuple(map(id, codes))
        _, before = _LOOPS.get(calls, (codes, self))
        if before is not self and before._turns_are_left():
            before._anew = True
            return before
        if before is not self and before._limit is not None and not before._has_stepped:
            return before  # no other optimizer tells that another model is trained
        self._before = before
        _LOOPS[calls] = codes, self
        at_the_end(self)
        for oldest in [*_LOOPS][:-_PLACES]:
            del _LOOPS[oldest]
        return self

    def _turns_are_left(self) -> bool:
        return inspect.getgeneratorstate(self._turns) != inspect.GEN_CLOSED

    @property
    def goes_on(self) -> bool:
        """Whether turns have begun, and nothing has been said of them."""
        return bool(self._turns_begun) and self._turns_are_left()

    @property
    def has_seen_enough(self) -> bool:
        """Whether what was watched so far is enough to judge."""
        return bool(self.runs)

    @property
    def loader(self) -> object:
        """What the batches of the training come from; None where that is unknown.

        An iterator that was begun before the loop was watched is of the DataLoader with
        its dataset.
        """
        _, iterator, loader = self._trained_from
        dataset = getattr(iterator, "_dataset", None)
        if loader is not None or dataset is None:
            return loader
        alive = (x for x in gc.get_objects() if issubclass(type(x), DataLoader))
        return next((loader for loader in alive if loader.dataset is dataset), None)

    def fetched(self, number: int, batches: object, loader: object) -> None:
        """A batch has come from the iterator of this number."""
        # a DataLoader's alone: its workers live as long as it does
        iterator = batches if hasattr(batches, "_dataset_fetcher") else None
        self._source = _Source(number, iterator, loader)
        self._batches_of[number] += 1

    def waited_for(self, fetch: Callable[[], Any], *, ends_turn: bool = True) -> Any:
        """The batch that `fetch` returns: the loop waits for it, and its operators
        belong to no step.

        Without an optimizer, the turn before ends here if `ends_turn`.
        """
        if self._limit is not None or not self._turns_are_left():
            self.close()
        elif ends_turn and self._optimizer() is None:
            self.turn()
        if self._drawn_at is None:
            self._drawn_at = place_of(stack_of(sys._getframe()), in_script=True)
        # A dataset may call many operators: to time each takes a hundred times as long.
        untimed = (
            contextlib.nullcontext() if self._timer is None else self._timer.paused()
        )
        self.watch.mark("input_s")
        try:
            with untimed:
                return fetch()
        finally:
            self.watch.mark("step_s")

    def stepped(self, optimizer: object, *_: object) -> None:
        """An optimizer has updated its weights: that ends a turn, if it is the loop's
        first optimizer, and not one of an experiment's.
        """
        if OwnLoop._judging:
            return
        if self._anew:
            if self._before._optimizer() is optimizer:  # judged already
                self._limit = self._before._limit
            self._optimizer = ref(optimizer)
            self._has_stepped = True
            self._anew = False
            self._before = self
        if self._optimizer() is optimizer:
            self.turn()

    def turn(self) -> None:
        """End a turn, and begin the next.

        A training goes on, also if it can't be judged: that is said, and no error.
        """
        if self._limit is not None or not self._turns_are_left():
            return
        # other iterators are for an evaluation
        if self._source.number != self._trained_from.number:
            self._trained_from = self._source
            self.watch.epoch += 1
        self._turns_begun += 1
        if next(self._turns, None) is not None:
            return
        try:
            limit = self._found()
        except RuntimeError as error:
            sys.stderr.write(f"steptime: this loop can't be judged: {error}\n")
        else:
            self._say(limit)

    def _watched_turns(self) -> Generator[int, None, None]:
        """How the turns are looked at: each time that one begins, this goes on to the
        next `yield`.
        """
        self._hook = register_optimizer_step_post_hook(self.stepped)
        first = min(_FIRST, self._steps)
        yield from range(_UNWATCHED)
        if self._is_on_cpu():
            self.device = "cpu"
            self.watch.on_gpu = False
            self._sync = no_sync
        yield from self._watched(first)
        for turn in range(_TIMED):
            with timing_calls(self._sync) as self._timer:
                yield turn
            self.runs.append(self._timer.calls)
            self._timer = None
        if self._steps > first:
            yield from self._watched(self._steps - first)

    def _is_on_cpu(self) -> bool:
        """Whether the optimizer's weights are on a CPU, whatever else there is."""
        groups = getattr(self._optimizer(), "param_groups", ())
        weights = [weight for group in groups for weight in group["params"]]
        return bool(weights) and all(weight.device.type == "cpu" for weight in weights)

    def _watched(self, turns: int) -> Generator[int, None, None]:
        """So many turns in a row that are watched, or fewer if the loop ends."""
        with self.watch.watching():
            try:
                for turn in range(turns):
                    self.watch.begin()
                    yield turn
                self.watch.begin()  # the last one ends
            finally:
                self.watch.finish()

    def close(self) -> None:
        """Watch no longer. No hook may call this: torch is going through its hooks
        then.
        """
        self._turns.close()
        if self._hook is not None:
            self._hook.remove()

    def end(self) -> Limit:
        """What limits the loop. The training goes on unwatched."""
        self.close()
        if self._limit is None:
            self._say(self._found())
        return cast(Limit, self._limit)

    def _found(self) -> Limit:
        """What limits the loop, judged in modes in which a model can be trained."""
        if not self.runs:
            ended = max(self._turns_begun - 1, 0)
            needed = min(_FIRST, self._steps) + _TIMED + _UNWATCHED
            if not ended:
                raise TooLittleSeen(
                    f"No step was seen, and {needed} are needed. A step ends when an"
                    " optimizer of torch has updated its weights."
                )
            raise TooLittleSeen(
                f"The loop ended after {ended} steps, and {needed} are needed. Let it"
                " run longer, or pass a smaller `steps`."
            )
        if self._drawn_at is not None:  # too short for a sample, it has this line
            self.watch.turns[0].input_lines[self._drawn_at] += _NEXT_TO_NOTHING  # type: ignore[assignment]  # a Counter of seconds
        OwnLoop._judging = True
        try:
            with (
                torch.inference_mode(False),
                torch.enable_grad(),
                torch.autocast(self.device, enabled=False),
            ):
                if self.watch.epoch == 1:
                    self.watch.again_s = self._again_s()
                self._limit = self._judge(self)
        finally:
            OwnLoop._judging = False
        self._source = self._trained_from = _Source()
        return self._limit

    def _again_s(self) -> float | None:
        """Seconds of a turn's batches the second time that they are loaded."""
        number, iterator, _ = self._trained_from
        batch_s = again_s(iterator, self._sync)
        if batch_s is None:
            return None
        return batch_s * self._batches_of[number] / self._turns_begun


def at_the_end(loop: OwnLoop) -> None:
    """Say what was found when the program ends, or a notebook's cell, if the loop has
    ended before that.

    A cell may be followed by another one with more steps: after too few, it says
    nothing.
    """
    alive = ref(loop)

    def program_ends() -> None:
        ended = alive()
        if ended is not None and ended.goes_on:
            try:
                ended.end()
            except TooLittleSeen as error:
                sys.stderr.write(f"steptime.watch: {error}\n")

    def cell_ends(*_: object) -> None:
        ended = alive()
        if ended is not None and ended.goes_on and ended.has_seen_enough:
            ended.end()
        if ended is None or not ended.goes_on:
            notebook.events.unregister("post_run_cell", cell_ends)

    atexit.register(program_ends)
    ipython: Any = sys.modules.get("IPython")
    notebook: Any = ipython.get_ipython() if ipython is not None else None
    if notebook is not None:
        notebook.events.register("post_run_cell", cell_ends)


@contextlib.contextmanager
def watched_loaders(loop: OwnLoop) -> Iterator[None]:
    """Within the block, the batches of every DataLoader of torch are the loop's
    input.
    """
    begin = DataLoader.__iter__
    next_batch = _BaseDataLoaderIter.__next__
    # by iterator: a loader whose workers stay begins the same one in each epoch
    begun_as = WeakKeyDictionary[Any, tuple[int, Any]]()

    def begun(loader: Any) -> Any:
        batches = loop.waited_for(partial(begin, loader), ends_turn=False)
        begun_as[batches] = next(loop.numbers), loader
        return batches

    def waited(batches: Any) -> Any:
        batch = loop.waited_for(partial(next_batch, batches))
        if batches not in begun_as:
            begun_as[batches] = next(loop.numbers), None
        number, loader = begun_as[batches]
        loop.fetched(number, batches, loader)
        return batch

    with (
        replaced(_BaseDataLoaderIter, __next__=waited),
        replaced(DataLoader, __iter__=begun),
    ):
        loop.turn()
        yield


def run_watched(train: Callable[[], object], loop: OwnLoop) -> Limit:
    """Call `train`, watch it, and leave it when that is enough."""
    with (
        contextlib.closing(loop),
        contextlib.suppress(Enough),
        watched_loaders(loop),
    ):
        train()
        loop.end()
    return loop.end()


def leave(_: Limit) -> None:
    """Leave the training."""
    raise Enough
