"""Run the threads of a launch one after another, and keep what they did."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np

from kerneltrace.machine.execution import Execution, LaunchSettings, prepared
from kerneltrace.run.launch_arguments import LaunchArguments
from kerneltrace.run.thread_block import Order, Stopped, ThreadBlock
from kerneltrace.source.instrument import instrumented


def execute(
    settings: LaunchSettings,
    arguments: LaunchArguments,
    order: Order | None = None,
    watch: Any = None,
) -> Execution:
    """Run every block and its threads; `watch` is told each access.

    Without an `order` one block runs after the other: CUDA promises no more ("in any
    order, in parallel or in series", CUDA C++ Programming Guide, "Thread Hierarchy"),
    and a block that waits for a later one waits forever. With one, a block that seems
    to wait lets the next ones start.
    """
    execution = prepared(settings, watch)
    kernel = instrumented(execution.program, settings.fn, arguments.types)
    args = tuple(
        execution.memory.argument(value, name)
        for name, value in arguments.values.items()
    )
    batches = settings.blocks.batches(
        execution.log, execution.program.counters, order=order
    )
    blocks = (
        ThreadBlock(execution, int(number)).run(kernel, args, order)
        for batch in batches
        for number in batch
    )
    collecting = gc.isenabled()
    # a trace makes millions of objects, and each block breaks the cycles it makes
    gc.disable()
    try:
        with np.errstate(all="ignore"):
            _run(blocks, one_after_another=order is None)
    except Stopped:
        pass  # the diagnostics say why, and the counts up to here are kept
    finally:
        if collecting:
            gc.enable()
    return execution


def _run(blocks: Iterator[Iterator[bool]], *, one_after_another: bool) -> None:
    """Run blocks to their ends; each pauses where it seems to wait for others."""
    waiting = []
    for block in blocks:
        if one_after_another:
            all(block)
        elif next(block, False):
            waiting.append(block)
    while waiting:
        waiting = [block for block in waiting if next(block, False)]
