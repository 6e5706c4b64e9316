"""Run the threads of a launch one after another, and keep what they did."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np

from kerneltrace.machine.address_space import AddressSpace, SharedLayout
from kerneltrace.machine.diagnostics import Diagnostics
from kerneltrace.machine.event_log import SITES, EventLog
from kerneltrace.machine.execution import Execution, LaunchSettings
from kerneltrace.machine.program import Program
from kerneltrace.run.launch_arguments import LaunchArguments
from kerneltrace.run.thread_block import Order, Stopped, ThreadBlock
from kerneltrace.source.instrument import instrumented


def prepared(settings: LaunchSettings, watch: Any = None) -> Execution:
    """The log and the memory of a run, and what it reports to; `watch` is told each
    access.
    """
    log = EventLog(settings.max_events, settings.max_steps)
    diagnostics = Diagnostics(
        settings.where, lambda key: program.sites[key % SITES].line, log.current_thread
    )
    watching = None if watch is None else watch(log)
    memory = AddressSpace(
        log.add, diagnostics.out_of_bounds, diagnostics.unset_local, watching
    )
    program = Program(log, memory.constant, diagnostics.divided_by_zero)
    program.pauses = settings.pauses
    return Execution(
        settings, log, program, diagnostics, memory, SharedLayout(settings.shared_bytes)
    )


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


def _run(blocks: Iterator[Iterator[None]], *, one_after_another: bool) -> None:
    """Run blocks to their ends; each pauses where it seems to wait for others."""
    waiting = []
    for block in blocks:
        for _ in block:
            if not one_after_another:
                waiting.append(block)
                break
    while waiting:
        waiting = [block for block in waiting if not _has_ended(block)]


def _has_ended(block: Iterator[None]) -> bool:
    """Run a block to its next pause; whether it came to its end instead."""
    for _ in block:
        return False
    return True
