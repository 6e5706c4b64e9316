"""What limits a training loop, by experiment, or by watching it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from steptime.arguments import count, expected, function, number
from steptime.judge.divided_loop import WatchedLoop
from steptime.judge.experiments import TINY_STEPS, LoopExperiments
from steptime.judge.settings import remarks, remarks_on_step
from steptime.judge.tried_changes import tried
from steptime.limits import Gain, Limit
from steptime.loop.script_loop import (
    OwnLoop,
    WatchedBatches,
    leave,
    run_watched,
    watched_loaders,
)
from steptime.measure.batches import Batch, Supply
from steptime.measure.budget import Budget
from steptime.measure.ceilings import Ceilings, given_ceilings
from steptime.measure.machine import Watch, core_waits, device_named, rank, sync_of
from steptime.measure.operator_timing import typical_calls, usual_runs
from steptime.measure.training_state import unchanged

_LOOKING = 0.6  # of a budget, where changes are tried in what is left


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
    "cuda" where torch has a GPU. `watch` begins to look at other programs, and returns
    a function that says in words what they have taken since, which is kept in `busy`.
    Raises TooLittleSeen for a step without operators.
    """
    function("step", step, 1)
    # it can be called with a batch, and trains nothing
    if isinstance(step, torch.nn.Module):
        words = "a function that trains on a batch"
        advice = "In it, call the model, backward, and so on."
        raise TypeError(expected("step", words, step, advice))
    number("budget_s", budget_s, "seconds")
    device = device_named(device)
    function("watch", watch, 0)
    next_batch = Supply(batches)
    with contextlib.ExitStack() as stack:
        stack.callback(next_batch.close)
        looking_s = _LOOKING * budget_s if try_changes else budget_s
        loop = LoopExperiments(step, Budget(looking_s, device, sync_of(device)), watch)
        loop.batch = next_batch()
        loop.use_fewer_threads(stack)
        rates = given_ceilings(ceilings, device)
        others = watch()
        loop.watch_turns(batches, next_batch)
        limit = loop.judged(loop.inside(loop.batch, rates, path))
        gains: tuple[Gain, ...] = ()
        left_out: tuple[str, ...] = ()
        if try_changes:
            gains, left_out = tried(
                step, batches, next_batch, loop.batch, limit, loop.budget, budget_s
            )
        busy = others()
        on_settings = (
            *remarks(loop.turns, loop.calls, batches, device, busy),
            *remarks_on_step(lambda: step(loop.batch)),
        )
    return dataclasses.replace(
        limit,
        evidence=(*limit.evidence, *left_out),
        gains=gains,
        busy=busy or loop.doubt,
        remarks=on_settings,
    )


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
    `say` is called with what limits the loop, which goes on unwatched. A loop that ends
    earlier gets its page when the program ends, or a notebook's cell, if there were 31
    turns. Code that calls this again, for each epoch or for two loaders, has one watch,
    that of its first call. Of several ranks, the first calls `say`. `ceilings`,
    `device` and `watch` are those of find_bottleneck.
    """
    loop = _own_loop(
        steps=steps, ceilings=ceilings, device=device, watch=watch, say=say
    )
    return WatchedBatches(batches, loop.known())


@contextlib.contextmanager
def watching(**options: Any) -> Iterator[None]:
    """Watch the training that runs within the block, whoever has its loop: the batches
    of torch's DataLoaders are input, a turn ends with the optimizer's step.

    `say` is called as `watch` says, whose `options` these are, at the latest when the
    block ends. Then a RuntimeError (TooLittleSeen) says if there were fewer than 31
    turns, unless the block itself raised something.
    """
    loop = _own_loop(**options)
    with contextlib.closing(loop), watched_loaders(loop):
        yield
        loop.end()


def _own_loop(
    *,
    steps: int = 200,
    ceilings: Ceilings | Callable[[], Ceilings] | None = None,
    device: str | None = None,
    watch: Watch = core_waits,
    say: Callable[[Limit], object] = print,
) -> OwnLoop:
    """A loop that is watched, and judged with these options."""
    count("steps", steps, 2, 100_000)
    device = device_named(device)
    others = watch()
    function("say", say, 1)

    def judge(own: OwnLoop) -> Limit:
        loop = WatchedLoop(Budget(0.0, own.device, sync_of(own.device)))
        loop.see(own.watch)
        loop.tiny.measure(TINY_STEPS)
        calls = typical_calls(usual_runs(own.runs))
        pace = loop.tiny.pace(given_ceilings(ceilings, own.device))
        limit = loop.judged(loop.divided(calls, None, pace, loop.seen.step_s))
        busy = others()
        return dataclasses.replace(
            limit,
            busy=busy or loop.doubt,
            remarks=remarks(loop.turns, loop.calls, own.loader, own.device, busy),
        )

    def say_on_one_rank(limit: Limit) -> None:
        if say is not print or rank() == 0:
            say(limit)

    return OwnLoop(steps, device, judge, say_on_one_rank)


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
    if batches is None:
        _whole_training(step)
    with unchanged(step, batches) as left:
        if batches is None:
            limit = run_watched(step, _own_loop(**options, say=leave))
        else:
            limit = find_bottleneck(step, batches, try_changes=True, **options)
    return dataclasses.replace(limit, evidence=(*limit.evidence, *left))


def _whole_training(step: Any) -> None:
    """Refuse what takes a batch, and say that the batches are missing."""
    try:
        function("step", step, 0)
    except TypeError as refused:
        advice = " Or pass its batches behind it: diagnose(step, batches)."
        raise TypeError(f"{refused}{advice * callable(step)}") from None
