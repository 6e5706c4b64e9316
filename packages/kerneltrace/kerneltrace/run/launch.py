"""Run the threads of a launch one after another, and keep what they did."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.machine.diagnostics import NOT_ALL_RUN
from kerneltrace.machine.event_log import SITES
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
        with np.errstate(all="ignore", divide=settings.divide):
            _run(execution, blocks, one_after_another=order is None)
    except Stopped:
        pass  # the diagnostics say why, and the counts up to here are kept
    finally:
        if collecting:
            gc.enable()
    return execution


def _run(
    execution: Execution, blocks: Iterator[Iterator[int]], *, one_after_another: bool
) -> None:
    """Run blocks to their ends; each pauses where it seems to wait for others, and at a
    barrier of the grid, which opens when all have come.
    """
    paused: list[Iterator[int]] = []
    arrived: list[Iterator[int]] = []
    keys: list[int] = []

    def go_on(block: Iterator[int]) -> None:
        for key in block:
            if key:
                arrived.append(block)
                keys.append(key)
                return
            if not one_after_another:
                paused.append(block)
                return

    for block in blocks:
        go_on(block)
    while paused or arrived:
        going = paused or arrived
        if going is arrived:
            _open_grid_barrier(execution, keys)
        for block in [going.pop(0) for _ in range(len(going))]:
            go_on(block)


def _open_grid_barrier(execution: Execution, keys: list[int]) -> None:
    """Let all blocks pass, which wait at the places `keys`; Stopped where blocks have
    ended without it.
    """
    settings = execution.settings
    if not settings.blocks.all_run:
        raise KernelError(NOT_ALL_RUN)
    missing = settings.blocks.of_grid - len(keys)
    if missing:
        line = execution.sites[keys[0] % SITES].line
        words = (
            f"{len(keys):,} blocks wait at this barrier of the grid, and {missing:,}"
            " have ended without it."
        )
        execution.diagnostics.add("barrier", line, words)
        raise Stopped
    execution.log.grid_barriers.append(execution.log.new_phase())
    keys.clear()
