"""lab.trace against numba's own simulator on the same kernels, and the memory that a
trace takes.

usage: tracer.py            the figures, without their targets, which run.py has
tracer.py simulated  the simulator's seconds for each kernel, on one line; needs
NUMBA_ENABLE_CUDASIM=1
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda, float32, int32

BLOCK = 256
TILE = 16
SIDE = 64
BINS = 64
PADDED = BLOCK + 2


@cuda.jit
def reduction(x: Any, out: Any) -> None:
    """The sum of each block's elements, in shared memory."""
    s = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    d = BLOCK // 2
    while d > 0:
        if t < d:
            s[t] += s[t + d]
        cuda.syncthreads()
        d //= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


@cuda.jit
def matmul(a: Any, b: Any, c: Any) -> None:
    """A product of matrices, tile by tile."""
    sa = cuda.shared.array((TILE, TILE), float32)
    sb = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    total = float32(0)
    for k in range(0, a.shape[1], TILE):
        sa[ty, tx] = a[y, k + tx]
        sb[ty, tx] = b[k + ty, x]
        cuda.syncthreads()
        for j in range(TILE):
            total += sa[ty, j] * sb[j, tx]
        cuda.syncthreads()
    c[y, x] = total


@cuda.jit
def stencil(x: Any, y: Any) -> None:
    """A mean of three neighbors, four times over, in a tile with its halo."""
    s = cuda.shared.array(PADDED, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    s[t + 1] = x[i]
    if t == 0:
        s[0] = x[i - 1] if i > 0 else float32(0)
        s[BLOCK + 1] = x[i + BLOCK] if i + BLOCK < x.size else float32(0)
    for _ in range(4):
        cuda.syncthreads()
        v = (s[t] + s[t + 1] + s[t + 2]) / float32(3)
        cuda.syncthreads()
        s[t + 1] = v
    y[i] = v


@cuda.jit
def histogram(x: Any, counts: Any) -> None:
    """A histogram of each block in shared memory, then one of all."""
    s = cuda.shared.array(BINS, int32)
    t = cuda.threadIdx.x
    if t < BINS:
        s[t] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(s, x[i], 1)
    cuda.syncthreads()
    if t < BINS:
        cuda.atomic.add(counts, t, s[t])


@cuda.jit
def sparse_rows(begin: Any, column: Any, value: Any, x: Any, y: Any) -> None:
    """A sparse matrix (CSR) times a vector, a row a thread."""
    i = cuda.grid(1)
    if i < y.size:
        total = float32(0)
        for k in range(begin[i], begin[i + 1]):
            total += value[k] * x[column[k]]
        y[i] = total


@cuda.jit
def many_accesses(x: Any, y: Any) -> None:
    """Many reads and one write a thread, nothing else."""
    i = cuda.grid(1)
    total = float32(0)
    for k in range(x.shape[0]):
        total += x[k, i]
    y[i] = total


Launch = tuple[Any, Any, Any, tuple[Any, ...]]


def launches() -> dict[str, tuple[Launch, Launch]]:
    """For each kernel a small launch to warm up, and the one to measure."""
    return {
        "reduction of 4,096": (_reduction(1), _reduction(16)),
        "tiled matmul 64 x 64": (_matmul(TILE), _matmul(SIDE)),
        "stencil with 8 barriers": (_stencil(1), _stencil(16)),
        "shared histogram of 16,384": (_histogram(1), _histogram(16)),
        "sparse matrix of 4,096 rows": (_sparse(1), _sparse(16)),
    }


def _reduction(blocks: int) -> Launch:
    x = np.random.default_rng(0).random(blocks * BLOCK, np.float32)
    return reduction, blocks, BLOCK, (x, np.zeros(blocks, np.float32))


def _matmul(side: int) -> Launch:
    a, b = (np.random.default_rng(i).random((side, side), np.float32) for i in range(2))
    return (
        matmul,
        (side // TILE, side // TILE),
        (TILE, TILE),
        (a, b, np.zeros((side, side), np.float32)),
    )


def _stencil(blocks: int) -> Launch:
    x = np.random.default_rng(0).random(blocks * BLOCK, np.float32)
    return stencil, blocks, BLOCK, (x, np.zeros_like(x))


def _histogram(blocks: int) -> Launch:
    x = np.random.default_rng(0).integers(0, BINS, 4 * blocks * BLOCK).astype(np.int32)
    return histogram, blocks, BLOCK, (x, np.zeros(BINS, np.int32))


def _sparse(blocks: int) -> Launch:
    """Rows of 0 to 31 entries at random columns."""
    rows = blocks * BLOCK
    draw = np.random.default_rng(0)
    begin = np.append(0, draw.integers(0, 32, rows).cumsum()).astype(np.int32)
    column = draw.integers(0, rows, begin[-1]).astype(np.int32)
    value, x = (draw.random(n, np.float32) for n in (begin[-1], rows))
    return (
        sparse_rows,
        blocks,
        BLOCK,
        (begin, column, value, x, np.zeros(rows, np.float32)),
    )


def seconds(launch: Callable[[Launch], object]) -> list[float]:
    """The time of one launch of each kernel, after a warm-up: the least of three."""
    times = []
    for small, full in launches().values():
        launch(small)
        times.append(min(_timed(launch, full) for _ in range(3)))
    return times


def _timed(launch: Callable[[Launch], object], which: Launch) -> float:
    start = time.perf_counter()
    launch(which)
    return time.perf_counter() - start


def traced(launch: Launch) -> Any:
    """Trace a launch, with all its counts and words."""
    from kerneltrace import trace

    kernel, grid, block, args = launch
    result = trace(kernel, grid, block, *args)
    str(result)
    return result


def simulated(launch: Launch) -> None:
    """Run a launch on numba's simulator."""
    kernel, grid, block, args = launch
    kernel[grid, block](*args)


def shares() -> dict[str, float]:
    """Time of a trace with its counts, in that of the simulator, which runs in a
    process of its own right before.
    """
    command = [sys.executable, str(Path(__file__)), "simulated"]
    env = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    theirs = [float(word) for word in run.stdout.split()]
    return {
        name: ours / slow
        for name, slow, ours in zip(launches(), theirs, seconds(traced), strict=True)
    }


def simulator_shares() -> dict[str, float]:
    """Time of a launch under `kerneltrace.simulate`, traced and judged, in that of
    numba's simulator, which runs in a process of its own right before.
    """
    import kerneltrace

    command = [sys.executable, str(Path(__file__)), "simulated"]
    env = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    theirs = [float(word) for word in run.stdout.split()]
    with kerneltrace.simulate() as counted:
        ours = seconds(simulated)
    if counted.untraced or counted.faults:
        raise RuntimeError(f"not traced or wrong: {counted.untraced}, {counted.faults}")
    return {
        name: own / slow
        for name, slow, own in zip(launches(), theirs, ours, strict=True)
    }


def compiled_shares() -> dict[str, float]:
    """Time of a trace of a kernel that numba compiled, in that of its Python source."""
    from kerneltrace import compile_numba, trace

    def compiled(launch: Launch) -> Any:
        kernel, grid, block, args = launch
        if kernel not in built:
            built[kernel] = compile_numba(kernel, args)
        str(trace(built[kernel], grid, block, *args))

    built: dict[Any, Any] = {}
    return {
        name: c / p
        for name, c, p in zip(
            launches(), seconds(compiled), seconds(traced), strict=True
        )
    }


def bytes_an_access() -> dict[str, float]:
    """The most memory that tracemalloc sees during a trace and the making of its
    counts, for each access it logged.
    """
    threads = 4096
    reads = 150
    ones = np.ones((reads, threads), np.float32)
    of_loads = (
        many_accesses,
        threads // BLOCK,
        BLOCK,
        (ones, np.zeros(threads, np.float32)),
    )
    return {
        "many reads": _peak_bytes_an_access(of_loads),
        "tiled matmul 64 x 64": _peak_bytes_an_access(_matmul(SIDE)),
    }


def _peak_bytes_an_access(launch: Launch) -> float:
    traced(_matmul(TILE))  # what is made once only
    tracemalloc.start()
    try:
        counts = traced(launch).count()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return peak / (counts.reads + counts.writes)


if __name__ == "__main__":
    if sys.argv[1:] == ["simulated"]:
        print(*seconds(simulated))
    else:
        print(shares(), compiled_shares(), bytes_an_access())
