"""`trace`: run a CUDA kernel's Python source on the CPU, and count and check what a GPU would do."""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np

from kerneltrace.judge.diagnostics import Diagnostics, Finding
from kerneltrace.judge.findings import find_differences, find_mistakes, order_matters
from kerneltrace.kernel_trace import Trace
from kerneltrace.log.address_space import AddressSpace, SharedLayout
from kerneltrace.log.event_log import BYTES_PER_EVENT, SITES, EventLog, too_large
from kerneltrace.run.execution import Execution, LaunchSettings
from kerneltrace.run.launch_arguments import MAX_BLOCK, MAX_GRID, LaunchArguments, as_dim3, launch_arguments
from kerneltrace.run.lockstep import FEW, Lanes, run_in_lockstep
from kerneltrace.run.thread_block import Order, Stopped, ThreadBlock
from kerneltrace.source.instrument import instrumented
from kerneltrace.source.kernel_scope import python_function
from kerneltrace.source.program import Program
from labkit.core.errors import KernelError, TraceTooLarge
from labkit.core.kinds import Number
from labkit.core.parameters import Count, checked


@checked(error=KernelError)
def trace(
    kernel: Any,
    grid: Any,
    block: Any,
    *args: Any,
    shared_bytes: Annotated[int, Number(least=0, most=2**30)] = 0,
    schedules: Annotated[int, Number(least=1, most=10_000)] = 2,
    memory_bytes: Annotated[int, Number(least=10**5)] = 1 << 30,
    max_steps: Count = 100_000,
) -> Trace:
    """Run `kernel[grid, block](*args)` on the CPU, thread by thread, and return what a GPU would be asked to do.

    `kernel` is a function written against numba's `cuda`, with or without @cuda.jit; `grid` and `block` are integers or
    tuples of up to three. Results land in the arrays that are passed. `shared_bytes` is the dynamic shared memory of a
    block. A kernel in which the order of the threads can matter (one without races that uses what atomics return) runs
    in as many orders as `schedules` says: first in order, then in reverse, then shuffled. A loop of more than
    `max_steps` iterations counts as endless, and the log may take `memory_bytes`.

    A block that waits for a later one is a mistake: CUDA promises neither that both run at once nor in which order they
    start. Waiting for an earlier block is not reported, though nothing is promised there either.

    The trace holds counts, not times, and models no caches. Each operation computes in the type that numba.cuda gives
    it, and counts as FLOP or as an integer operation by that type; numba's simulator has no types, and there nothing is
    counted. Accesses of different sizes are compared by where they begin. Mistakes in the kernel are its `findings`,
    and what may be meant is in its `notes`. Raises KernelError for a launch or a kernel that can't be traced or that
    numba can't compile, in numba's words, and TraceTooLarge when the log outgrows its budget.
    """
    fn = python_function(kernel)
    dims = as_dim3("grid", grid, MAX_GRID), as_dim3("block", block, MAX_BLOCK)
    settings = LaunchSettings(fn, *dims, shared_bytes, memory_bytes // BYTES_PER_EVENT, max_steps)
    if (threads := math.prod(dims[0]) * math.prod(dims[1])) > settings.max_events:
        raise too_large(f"{threads:,} threads need", settings.max_events)
    arguments = launch_arguments(fn, args)
    before = arguments.copy()  # the first run overwrites what the others start from
    done, found = _in_lockstep(settings, arguments, before) if threads >= 2 * FEW else (None, ())
    if done is None:
        done = execute(settings, arguments)
        found = find_mistakes(done, lambda watch: execute(settings, before.copy(), watch=watch))
    schedules = schedules if order_matters(done, found) else 1
    for number in range(1, schedules):
        found += _found_in_another_order(settings, arguments, before, number)
    for copy_back in arguments.copies_back:
        copy_back()
    findings: dict[tuple[str, int, str], Finding] = {}
    for finding in found:
        findings.setdefault((finding.kind, finding.line, finding.array), finding)
    return Trace(done, tuple(findings.values()), schedules)


def _in_lockstep(
    settings: LaunchSettings, arguments: LaunchArguments, before: LaunchArguments
) -> tuple[Execution | None, tuple[Finding, ...]]:
    """A run of all threads in lockstep and its notes; None where that is not possible, or brings a mistake to light.

    Then the arguments are left as they were `before`.
    """
    if not all(array.flags.writeable for array in arguments.arrays.values()):
        return None, ()
    run = _prepared(settings)
    run.program.lanes = lanes = Lanes(run)
    try:
        kernel = instrumented(run.program, settings.fn, arguments.types)
        args = (run.memory.argument(value, name) for name, value in arguments.values.items())
        run_in_lockstep(run, kernel, lanes, tuple(args))
        found = find_mistakes(run, lambda _: None)
        if not any(finding.mistake for finding in found):
            return run, found
    except Exception:  # whatever it is, single threads meet it again, and can say which of them
        pass
    for name, array in arguments.arrays.items():
        array[...] = before.arrays[name]
    return None, ()


def _found_in_another_order(
    settings: LaunchSettings, arguments: LaunchArguments, before: LaunchArguments, number: int
) -> tuple[Finding, ...]:
    """What a run in another order finds, and how its results differ from those in order, which are in `arguments`."""

    def reordered(items: Sequence[Any]) -> list[Any]:
        return list(items)[::-1] if number == 1 else draw.sample(items, len(items))

    def again(watch: Any) -> Execution:
        draw.seed(number)
        return execute(settings, before.copy(), reordered, watch)

    draw, other = random.Random(number), before.copy()
    try:
        run = execute(settings, other, reordered)
    except TraceTooLarge:  # threads that wait in loops may take far more turns in this order
        return ()
    return (*find_mistakes(run, again), *(() if run.diagnostics.ended else find_differences(arguments, other)))


def _prepared(settings: LaunchSettings, watch: Any = None) -> Execution:
    """The log and the memory of a run, and what it reports to; `watch` is told each access."""
    log = EventLog(settings.max_events, settings.max_steps)
    diagnostics = Diagnostics(settings.where, lambda key: program.sites[key % SITES].line, log.current_thread)
    watching = None if watch is None else watch(log)
    memory = AddressSpace(log.add, diagnostics.out_of_bounds, diagnostics.unset_local, watching)
    program = Program(log, memory.constant, diagnostics.divided_by_zero)
    program.pauses = settings.pauses
    return Execution(settings, log, program, diagnostics, memory, SharedLayout(settings.shared_bytes))


def execute(
    settings: LaunchSettings, arguments: LaunchArguments, order: Order | None = None, watch: Any = None
) -> Execution:
    """Run every block and its threads; `watch` is told each access.

    Without an `order` one block runs after the other: CUDA promises no more ("in any order, in parallel or in series",
    CUDA C++ Programming Guide, "Thread Hierarchy"), and a block that waits for a later one waits forever. With one, a
    block that seems to wait lets the next ones start.
    """
    execution = _prepared(settings, watch)
    kernel = instrumented(execution.program, settings.fn, arguments.types)
    args = tuple(execution.memory.argument(value, name) for name, value in arguments.values.items())
    blocks = math.prod(settings.grid)
    collecting = gc.isenabled()
    gc.disable()  # a trace makes millions of objects, and each block breaks the cycles it makes
    try:
        with np.errstate(all="ignore"):
            waiting: list[Iterator[None]] = []
            for number in order(range(blocks)) if order else range(blocks):
                running = ThreadBlock(execution, number).run(kernel, args, order)
                for _ in running:
                    if order:
                        waiting.append(running)
                        break
            while waiting:
                waiting = [running for running in waiting if next(running, waiting) is None]
    except Stopped:
        pass  # the diagnostics say why, and the counts up to here are kept
    finally:
        if collecting:
            gc.enable()
    return execution
