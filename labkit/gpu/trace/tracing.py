"""`trace`: run a CUDA kernel's Python source on the CPU, and count and check what a GPU would do."""

from __future__ import annotations

import gc
import math
import random
from typing import Annotated, Any

import numpy as np

from labkit.core.errors import KernelError
from labkit.core.kinds import Number
from labkit.core.parameters import Count, checked
from labkit.gpu.trace.address_space import AddressSpace, SharedLayout
from labkit.gpu.trace.diagnostics import Diagnostics, Finding
from labkit.gpu.trace.event_log import BYTES_PER_EVENT, SITES, EventLog, too_large
from labkit.gpu.trace.execution import Execution, LaunchSettings
from labkit.gpu.trace.findings import find_differences, find_mistakes
from labkit.gpu.trace.instrument import instrumented
from labkit.gpu.trace.kernel_scope import python_function
from labkit.gpu.trace.kernel_trace import Trace
from labkit.gpu.trace.launch_arguments import MAX_BLOCK, MAX_GRID, LaunchArguments, as_dim3, launch_arguments
from labkit.gpu.trace.program import Program
from labkit.gpu.trace.thread_block import Stopped, ThreadBlock


@checked(error=KernelError)
def trace(
    kernel: Any,
    grid: Any,
    block: Any,
    *args: Any,
    shared_bytes: Annotated[int, Number(least=0, most=2**30)] = 0,
    schedules: Annotated[int, Number(least=1, most=10_000)] = 1,
    memory_bytes: Annotated[int, Number(least=10**5)] = 1 << 30,
    max_steps: Count = 100_000,
) -> Trace:
    """Run `kernel[grid, block](*args)` on the CPU, thread by thread, and return what a GPU would be asked to do.

    `kernel` is a function written against numba's `cuda`, with or without @cuda.jit; `grid` and `block` are integers or
    tuples of up to three. Results land in the arrays that are passed. `shared_bytes` is the dynamic shared memory of
    a block. With `schedules` above 1 the kernel runs again with its threads and blocks in shuffled orders, to find
    results that depend on the order. A loop of more than `max_steps` iterations counts as endless, and the log may take
    `memory_bytes`.

    The trace holds counts, not times, and models no caches. Arithmetic is NumPy's: float32 with an integer stays
    float32 where numba computes in float64, and integers do not wrap around at 64 bits before they are stored.
    Accesses of different sizes are compared by where they begin. Mistakes in the kernel are its `findings`. Raises
    KernelError for a launch or a kernel that can't be traced, TraceTooLarge when the log outgrows its budget.
    """
    fn = python_function(kernel)
    dims = as_dim3("grid", grid, MAX_GRID), as_dim3("block", block, MAX_BLOCK)
    settings = LaunchSettings(fn, *dims, shared_bytes, memory_bytes // BYTES_PER_EVENT, max_steps)
    if (threads := math.prod(dims[0]) * math.prod(dims[1])) > settings.max_events:
        raise too_large(f"{threads:,} threads need", settings.max_events)
    arguments = launch_arguments(fn, args)
    before = arguments.copy()  # the first run overwrites what the others start from
    done = _execute(settings, arguments)
    mistakes = find_mistakes(done, lambda watch: _execute(settings, before.copy(), watch=watch))
    findings = {_identity(finding): finding for finding in mistakes}
    for seed in range(1, schedules):
        other = before.copy()
        shuffled = _execute(settings, other, random.Random(seed))
        for finding in (*shuffled.diagnostics.findings(), *find_differences(arguments, other)):
            findings.setdefault(_identity(finding), finding)
    for copy_back in arguments.copies_back:
        copy_back()
    return Trace(done, tuple(findings.values()), schedules)


def _identity(finding: Finding) -> tuple[str, int, str]:
    return finding.kind, finding.line, finding.array


def _execute(
    settings: LaunchSettings, arguments: LaunchArguments, order: random.Random | None = None, watch: Any = None
) -> Execution:
    """Run every block and its threads, in order or shuffled by `order`; `watch` is told each access."""
    log = EventLog(settings.max_events, settings.max_steps)
    diagnostics = Diagnostics(settings.where, lambda key: program.sites[key % SITES].line, log.current_thread)
    memory = AddressSpace(log.add, diagnostics.out_of_bounds, None if watch is None else watch(log))
    program = Program(log, memory.constant)
    kernel = instrumented(program, settings.fn, arguments.integers, arguments.integer_arrays)
    execution = Execution(settings, log, program, diagnostics, memory, SharedLayout(settings.shared_bytes))
    args = tuple(memory.argument(value, name) for name, value in arguments.values.items())
    blocks = math.prod(settings.grid)
    collecting = gc.isenabled()
    gc.disable()  # a trace makes millions of objects, and each block breaks the cycles it makes
    try:
        with np.errstate(all="ignore"):
            for number in order.sample(range(blocks), blocks) if order else range(blocks):
                ThreadBlock(execution, number).run(kernel, args, order)
    except Stopped:
        pass  # the diagnostics say why, and the counts up to here are kept
    finally:
        if collecting:
            gc.enable()
    return execution
