"""`trace`: run a CUDA kernel's Python source on the CPU, and count and check what a GPU would do."""

from __future__ import annotations

import math
import random
from typing import Any

from labkit.core.arguments import check_number
from labkit.core.errors import KernelError
from labkit.gpu.trace.checking import check, differences
from labkit.gpu.trace.diagnostics import Finding
from labkit.gpu.trace.given import MOST_BLOCK, MOST_GRID, arguments_of, shape_of
from labkit.gpu.trace.kernel_trace import Trace
from labkit.gpu.trace.log import BYTES_AN_EVENT, too_large
from labkit.gpu.trace.program import python_function
from labkit.gpu.trace.running import Setting, run


def trace(
    kernel: Any,
    grid: Any,
    block: Any,
    *args: Any,
    shared_bytes: int = 0,
    schedules: int = 1,
    memory_bytes: int = 1 << 30,
    max_steps: int = 100_000,
) -> Trace:
    """Run `kernel[grid, block](*args)` on the CPU, thread by thread, and return what a GPU would be asked to do.

    `kernel` is a function written against numba's `cuda`, with or without @cuda.jit; `grid` and `block` are whole
    numbers or tuples of up to three. Results land in the arrays that are passed. `shared_bytes` is the dynamic shared
    memory of the launch. With `schedules` above 1 the kernel runs again with its threads and blocks in shuffled
    orders, to find results that depend on the order. A loop of more than `max_steps` turns counts as endless, and the
    log may take `memory_bytes`.

    The trace holds counts, no times, and knows no caches. Arithmetic is NumPy's: float32 with a whole number stays
    float32 where numba computes in float64, and whole numbers do not wrap around at 64 bits before they are stored.
    Accesses of different sizes are compared by where they begin. Mistakes in the kernel are its `findings`. Raises
    KernelError for a launch or a kernel that can't be traced, TraceTooLarge when the log outgrows its budget.
    """
    fn = python_function(kernel)
    numbers = {
        "shared_bytes": (shared_bytes, 0),
        "schedules": (schedules, 1),
        "max_steps": (max_steps, 1),
        "memory_bytes": (memory_bytes, 10**5),
    }
    for name, (value, least) in numbers.items():
        check_number(name, value, least=least, whole=True, error=KernelError)
    dims = shape_of("grid", grid, MOST_GRID), shape_of("block", block, MOST_BLOCK)
    setting = Setting(fn, *dims, shared_bytes, memory_bytes // BYTES_AN_EVENT, max_steps)
    if (threads := math.prod(dims[0]) * math.prod(dims[1])) > setting.max_events:
        raise too_large(f"{threads:,} threads need", setting.max_events)
    given = arguments_of(fn, args)
    before = given.copy()
    done = run(setting, given)
    findings = {_what(f): f for f in check(done, lambda watch: run(setting, before.copy(), watch=watch))}
    for number in range(1, schedules):
        other = before.copy()
        shuffled = run(setting, other, random.Random(number))
        for finding in (*shuffled.diagnostics.findings(), *differences(given, other)):
            findings.setdefault(_what(finding), finding)
    for bring in given.back:
        bring()
    return Trace(done, tuple(findings.values()), schedules)


def _what(finding: Finding) -> tuple[str, int, str]:
    return finding.kind, finding.line, finding.array
