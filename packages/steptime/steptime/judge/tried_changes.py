"""Remove a suspect from a loop for real, or halve it, and measure what is gained: in
pairs, one after the other.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import gc
import io
import logging
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import DataLoader, IterableDataset

from steptime.errors import stood_still
from steptime.judge.edited_lines import line_that_makes
from steptime.limits import (
    AROUND,
    COLLECTING,
    COMPILING,
    FAULTS,
    HOST,
    OCCASIONAL,
    Gain,
    Limit,
)
from steptime.measure.batches import Batch, Supply
from steptime.measure.budget import Budget
from steptime.measure.clock import mean_s
from steptime.measure.machine import distributed
from steptime.measure.operator_hooks import kept_as_compiled, replaced
from steptime.measure.stack_samples import no_collection

# the median lies between the least and the most of six in 31 of 32 cases, of three in
# 3 of 4 (sign test)
PAIRS = 6
FEW_PAIRS = 3  # where a step is slow
_READING = 0.02  # share of the budget, of each side of a pair, or one step
WARM_UPS = 2  # steps before those that are counted
_AFTER = 3  # steps that follow the trials, or precede them: for what they call
_MORE = 0.25  # of the budget, for the first trial, where it needs that
_SLOW = 20  # where a step takes a budget's twentieth, one change is tried all the same
_SUSPECT = 0.1  # share of the time from which on a limit is removed or halved for real
# a step may raise anything where a change takes away what it relies on
REFUSALS = Exception
_WORKERS = 4  # that are tried where a loader has none
_LONG_EPOCH = 200  # batches, beyond which starting workers anew takes no time
_ANSWER_S = 30  # in which a worker delivers a batch
# of glibc's mallopt
_TRIM = -1
_MAP_MOST = -4
_MAP_FROM = -3
# where glibc's own adjustment ends, and its default
_DEFAULTS = {_TRIM: 2**26, _MAP_FROM: 2**25, _MAP_MOST: 65_536}
Step = Callable[[], object]
Change = Callable[[], contextlib.AbstractContextManager[Any]]


def measured(
    limit: str,
    change: str,
    before: Step,
    after: Step,
    budget: Budget,
    *,
    within: Change = contextlib.nullcontext,
    calls: int = 1,
    rows: int = 1,
    pairs: int = PAIRS,
    warm_ups: int = WARM_UPS,
    at: str = "",
    is_bound: bool = False,
) -> Gain:
    """The gain of `after`, called within the block `within`, over `before`: each
    `calls` times or more, in turn.

    `after` handles `rows` times as many rows as `before`. `at` is the line to change,
    and `is_bound` says that the change is no edit but takes `limit` away as a whole.
    Raises TooLittleSeen where half of the pairs have a reading of 0 s.
    """

    def seconds(work: Step, changed: Change) -> float:
        with changed():
            # what the change itself costs, or what it has to find first, is no part of
            # a step
            for _ in range(warm_ups):
                work()
            return mean_s(work, budget.sync, often)

    often = calls * budget.often(
        calls * mean_s(before, budget.sync), share=_READING, most=50
    )
    ratios = []
    for turn in range(pairs):
        # neither side is always the first
        if turn % 2:
            before_s = seconds(before, contextlib.nullcontext)
            after_s = seconds(after, within)
        else:
            after_s = seconds(after, within)
            before_s = seconds(before, contextlib.nullcontext)
        if min(before_s, after_s) > 0:
            ratios.append(rows * before_s / after_s)
    if 2 * len(ratios) <= pairs:
        raise stood_still("a step with and without a change")
    times = statistics.median(ratios)
    low = min(ratios)
    high = max(ratios)
    return Gain(limit, change, times, low, high, len(ratios), at, is_bound)


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Within the block, Python's garbage collector doesn't run, not even where it is
    called.
    """
    with no_collection(), replaced(gc, collect=lambda *_, **__: 0):
        yield


@contextlib.contextmanager
def without_output() -> Iterator[None]:
    """Within the block, print, logging and torch.save write nothing."""
    nowhere = io.StringIO()
    disabled = logging.root.manager.disable
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(builtins, print=_do_nothing))
        stack.enter_context(replaced(torch, save=_do_nothing))
        stack.enter_context(replaced(sys, stdout=nowhere, stderr=nowhere))
        stack.callback(logging.disable, disabled)
        logging.disable(logging.CRITICAL)
        yield


def _do_nothing(*_: object, **__: object) -> None:
    pass


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
    """Within the block, the C library keeps what is freed and gives it out again, so
    that it isn't new to the system.

    Afterwards its limits stand where glibc's own adjustment of them ends. Source:
    mallopt(3).
    """
    library = ctypes.CDLL(None)
    library.mallopt(_MAP_MOST, 0)
    library.mallopt(_TRIM, 2**31 - 1)
    try:
        yield
    finally:
        for name, value in _DEFAULTS.items():
            library.mallopt(name, value)


@contextlib.contextmanager
def fused(optimizers: list[torch.optim.Optimizer]) -> Iterator[None]:
    """Within the block, optimizers update all parameters in one operator."""
    with contextlib.ExitStack() as stack:
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                before = {"foreach": group["foreach"], "fused": group["fused"]}
                stack.callback(group.update, before)
                group.update(foreach=False, fused=True)
        yield


def not_fused(step: Step) -> list[torch.optim.Optimizer]:
    """Optimizers that the step calls, and that have a fused form and don't use it."""
    called = dict[torch.optim.Optimizer, None]()  # in order, each once

    def note(optimizer: torch.optim.Optimizer, *_: object) -> None:
        called[optimizer] = None

    with register_optimizer_step_post_hook(note):
        step()
    return [
        optimizer
        for optimizer in called
        if all(
            "fused" in group and not group["fused"] for group in optimizer.param_groups
        )
    ]


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def doubled_batch(batch: Batch) -> Batch:
    """The batch with every tensor's rows repeated. Raises TypeError where no tensor
    with rows is found in it.
    """

    def has_rows(leaf: object) -> bool:
        return isinstance(leaf, torch.Tensor) and leaf.dim() > 0

    if not any(map(has_rows, tree_leaves(batch))):
        raise TypeError("no tensor with rows was found in it")
    return tree_map(lambda x: torch.cat([x, x]) if has_rows(x) else x, batch)


@dataclass(frozen=True)
class _Trial:
    """A change that removes or halves a limit: a step without it and one with it, as
    `measured` takes them.
    """

    limit: str
    change: str
    before: Step
    after: Step
    within: Change = contextlib.nullcontext
    calls: int = 1
    rows: int = 1
    at: str = ""
    sides: float = 2.0  # of a pair, in steps of the loop
    is_bound: bool = False  # it is no edit, but takes the limit away as a whole


def tried(
    step: Callable[[Batch], object],
    batches: object,
    next_batch: Callable[[], Batch],
    batch: Batch,
    limit: Limit,
    budget: Budget,
    budget_s: float,
) -> tuple[tuple[Gain, ...], tuple[str, ...]]:
    """What was gained where suspects with a tenth of the time were removed or halved,
    and sentences on what was left out.

    Without input, `batch` is what the step gets. The largest suspect comes first: its
    trial is made in a quarter more than what is left of `budget_s`, the others in what
    is left, with fewer pairs if that is short. Left out are changes that take longer,
    and those that the step refuses.
    """
    trials = [
        trial
        for trial in _trials(step, batches, next_batch, batch, limit, budget)
        if budget.agreed(int(limit.shares[trial.limit] >= _SUSPECT))
    ]
    trials.sort(key=lambda trial: -limit.shares[trial.limit])
    gains = list[Gain]()
    too_long = list[str]()
    failed = list[str]()
    for trial in trials:
        after_s = (_AFTER + limit.every) * limit.loop_s
        left_s = budget.left(budget_s) - after_s
        more_s = 0.0 if gains else _MORE * budget_s
        is_slow = not gains and limit.loop_s > budget_s / _SLOW
        slow = bool(budget.agreed(int(is_slow)))
        pairs, warm_ups = _fitting(
            trial, limit.loop_s, left_s, more_s, budget, slow=slow
        )
        if not pairs:
            too_long.append(trial.change)
            continue
        # what is compiled anew in each step can't be kept as it is compiled
        kept = contextlib.nullcontext if trial.limit == COMPILING else kept_as_compiled
        try:
            with kept():
                gain = measured(
                    trial.limit,
                    trial.change,
                    trial.before,
                    trial.after,
                    budget,
                    within=trial.within,
                    calls=trial.calls,
                    rows=trial.rows,
                    pairs=pairs,
                    warm_ups=warm_ups,
                    at=trial.at,
                    is_bound=trial.is_bound,
                )
        except REFUSALS as error:
            failed.append(f"{trial.change} ({type(error).__name__})")
        else:
            gains.append(gain)
    return tuple(gains), _left_out(too_long, failed)


def _left_out(too_long: list[str], failed: list[str]) -> tuple[str, ...]:
    """Sentences on changes that weren't tried, and why."""
    sentences = list[str]()
    if too_long:
        changes = "; ".join(too_long)
        sentences.append(f"Not tried, since budget_s is too small for it: {changes}.")
    if failed:
        changes = "; ".join(failed)
        sentences.append(f"Tried, but it failed: {changes}.")
    return tuple(sentences)


def _fitting(
    trial: _Trial,
    step_s: float,
    left_s: float,
    more_s: float,
    budget: Budget,
    *,
    slow: bool,
) -> tuple[int, int]:
    """How many pairs of a trial fit in `left_s` seconds, and steps before each of their
    readings; (0, 0) where the fewest pairs don't fit in `more_s` more.

    Of a `slow` step, the fewest pairs are made all the same.
    """
    for seconds, most in ((left_s, PAIRS), (left_s + more_s, FEW_PAIRS)):
        for warm_ups in (WARM_UPS, 1):
            steps = trial.sides * (warm_ups + trial.calls)
            pair_s = steps * step_s + 2 * _READING * budget.budget_s
            # before the first pair, `calls` steps are timed
            fitting = budget.agreed(int((seconds - trial.calls * step_s) / pair_s))
            if fitting >= FEW_PAIRS:
                return min(fitting, most), warm_ups
    if slow and trial.calls == 1:
        return FEW_PAIRS, 1
    return 0, 0


def _trials(
    step: Callable[[Batch], object],
    batches: object,
    next_batch: Callable[[], Batch],
    batch: Batch,
    limit: Limit,
    budget: Budget,
) -> Iterator[_Trial]:
    """What can be tried, the likeliest edit of each limit first."""
    every = max(limit.every, 1)

    def once() -> object:
        return step(batch)

    def loaded() -> object:
        return step(next_batch())

    if limit.shares["input"] >= _SUSPECT and not distributed():
        yield from _loader_trials(step, batches, loaded)
    where = "in memory" if budget.device == "cpu" else "on the GPU"
    there = tree_map(
        lambda x: x.to(budget.device) if isinstance(x, torch.Tensor) else x, batch
    )
    yield _Trial(
        "input",
        f"a batch already {where}",
        loaded,
        lambda: step(there),
        sides=2 - limit.shares["input"],
        is_bound=True,
    )
    around = max(AROUND, key=lambda name: limit.shares[name])
    for change, within in _modes_off():
        yield _Trial(around, change, once, once, within)
    with contextlib.suppress(REFUSALS):
        twice = doubled_batch(batch)
        yield _Trial(
            "launch overhead",
            "twice the batch, by row",
            once,
            lambda: step(twice),
            rows=2,
            sides=3.0,
        )
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
        kept = "memory that is kept, as out= does"
        yield _Trial(FAULTS, kept, once, once, kept_memory, is_bound=True)
    # the loader makes garbage, too
    yield _Trial(
        COLLECTING,
        "without garbage collection",
        loaded,
        loaded,
        without_collector,
        calls=every,
    )
    silent = "without print, logging and torch.save"
    yield _Trial(HOST, silent, once, once, without_output)
    yield _Trial(OCCASIONAL, silent, once, once, without_output, calls=every)
    yield _Trial(COMPILING, "without torch.compile", loaded, loaded, _not_compiled)
    largest = max(
        ("launch overhead", "memory bandwidth"), key=lambda name: limit.shares[name]
    )
    if budget.agreed(int(limit.shares[largest] >= _SUSPECT)):
        optimizers = not_fused(once)
        if optimizers:
            yield _Trial(
                largest,
                "fused=True",
                once,
                once,
                lambda: fused(optimizers),
                at=line_that_makes(optimizers[0]),
            )


def _modes_off() -> Iterator[tuple[str, Change]]:
    """Modes that are on and slow Python down, each with a block in which it is off."""
    if torch.is_anomaly_enabled():
        yield "anomaly mode off", lambda: torch.autograd.set_detect_anomaly(False)
    if sys.gettrace() is not None or sys.getprofile() is not None:
        yield "without a trace or profile function", _not_traced


@contextlib.contextmanager
def _not_traced() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.callback(sys.settrace, sys.gettrace())
        stack.callback(sys.setprofile, sys.getprofile())
        sys.settrace(None)
        sys.setprofile(None)
        yield


@contextlib.contextmanager
def _not_compiled() -> Iterator[None]:
    with torch.compiler.set_stance("force_eager"):
        yield


def _loader_trials(
    step: Callable[[Batch], object], batches: object, loaded: Step
) -> Iterator[_Trial]:
    """Edits of a DataLoader: workers, where it has none, and workers that stay."""
    if type(batches) is not DataLoader or isinstance(batches.dataset, IterableDataset):
        return
    workers = batches.num_workers or min(cores(), _WORKERS)
    calls = 2 * workers  # as many batches as are prefetched
    change = f"num_workers={workers}, persistent_workers=True"
    if batches.num_workers:
        if batches.persistent_workers or len(batches) > _LONG_EPOCH:
            return
        calls = len(batches)
        change = "persistent_workers=True"
    edited = Supply(_with_workers(batches, workers))
    yield _Trial(
        "input",
        change,
        loaded,
        lambda: step(edited()),
        calls=calls,
        at=line_that_makes(batches),
    )


def _with_workers(loader: DataLoader[Any], workers: int) -> DataLoader[Any]:
    """The same loader, with workers that stay; a worker that doesn't answer is an
    error.
    """
    options: dict[str, Any] = {"batch_sampler": loader.batch_sampler}
    if loader.batch_sampler is None:
        options = {"batch_size": None, "sampler": loader.sampler}
    return DataLoader(
        loader.dataset,
        num_workers=workers,
        persistent_workers=True,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
        timeout=_ANSWER_S,
        **options,
    )
