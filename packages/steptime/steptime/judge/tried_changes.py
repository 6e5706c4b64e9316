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
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_leaves, tree_map

from steptime.limits import COLLECTING, FAULTS, HOST, OCCASIONAL, Gain, Limit
from steptime.measure.batches import Batch
from steptime.measure.budget import Budget
from steptime.measure.clock import mean_s
from steptime.measure.operator_hooks import kept_as_compiled, replaced
from steptime.measure.stack_samples import no_collection

# the median lies between the least and the most of six in 31 of 32 cases (sign test)
_PAIRS = 6
_SUSPECT = 0.1  # share of the time from which on a limit is removed or halved for real
# a step may raise anything where a change takes away what it relies on
REFUSALS = Exception
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
) -> Gain:
    """The gain of `after`, called within the block `within`, over `before`: each
    `calls` times or more, in turn.

    `after` handles `rows` times as many rows as `before`.
    """

    def seconds(work: Step, changed: Change) -> float:
        with changed():
            # what the change itself costs, or what it has to find first, is no part of
            # a step
            for _ in range(2):
                work()
            return mean_s(work, budget.sync, often)

    often = calls * budget.often(
        calls * mean_s(before, budget.sync), share=0.02, most=50
    )
    ratios = []
    for turn in range(_PAIRS):
        # neither side is always the first
        if turn % 2:
            before_s = seconds(before, contextlib.nullcontext)
            after_s = seconds(after, within)
        else:
            after_s = seconds(after, within)
            before_s = seconds(before, contextlib.nullcontext)
        ratios.append(rows * before_s / max(after_s, 1e-12))
    return Gain(
        limit, change, statistics.median(ratios), min(ratios), max(ratios), _PAIRS
    )


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


def tried(
    step: Callable[[Batch], object],
    next_batch: Callable[[], Batch],
    batch: Batch,
    limit: Limit,
    budget: Budget,
) -> tuple[Gain, ...]:
    """What was gained where suspects with a tenth of the time were removed or halved.

    Without input, `batch` is what the step gets. A change that the step refuses is left
    out.
    """
    gains = list[Gain]()
    every = max(limit.every, 1)

    def attempt(
        name: str,
        change: str,
        after: Step | None = None,
        before: Step | None = None,
        **options: Any,
    ) -> None:
        if not suspected(name):
            return
        with contextlib.suppress(REFUSALS), kept_as_compiled():
            gains.append(
                measured(name, change, before or once, after or once, budget, **options)
            )

    def suspected(name: str) -> bool:
        return bool(budget.agreed(int(limit.shares[name] >= _SUSPECT)))

    def once() -> object:
        return step(batch)

    attempt("input", "a batch already in memory", before=lambda: step(next_batch()))
    with contextlib.suppress(REFUSALS):
        twice = doubled_batch(batch)
        attempt(
            "launch overhead",
            "twice the batch, by row",
            after=lambda: step(twice),
            rows=2,
        )
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
        attempt(FAULTS, "memory that is kept, as out= does", within=kept_memory)
    attempt(
        COLLECTING, "without garbage collection", within=without_collector, calls=every
    )
    silent = "without print, logging and torch.save"
    attempt(HOST, silent, within=without_output)
    attempt(OCCASIONAL, silent, within=without_output, calls=every)
    largest = max(
        ("launch overhead", "memory bandwidth"), key=lambda name: limit.shares[name]
    )
    if suspected(largest):
        optimizers = not_fused(once)
        if optimizers:
            attempt(largest, "a fused optimizer", within=lambda: fused(optimizers))
    return tuple(gains)
