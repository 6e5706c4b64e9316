"""The boards and tables of notebook 04 that compare versions of a kernel: copies with a
stride, transposes, sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from exercises.nb04 import numba_kernels
from exercises.nb04.gpu_comparison import time_on_gpu
from kerneltrace import Estimate, Trace, trace
from labkit.core.display import Table
from labkit.core.parameters import Array
from labkit.measure.bench import Comparison, Ratio, speedup

_TILE = 32  # side of the transposes' blocks
_THREADS = 256  # of a block of the sums
# blocks of the launch in which each thread of the shuffled sum takes several numbers
_FEW_BLOCKS = 2048
Kernels = Mapping[str, Callable[..., object]]


def copies(
    kernel: Callable[..., object], estimates: Mapping[str, Estimate], n: int
) -> Comparison | None:
    """Copy `n` numbers with strides 1 and 8 on the GPU, beside the estimates; None
    without one.
    """
    launches = {
        f"stride {stride}": (kernel, n // 128, 128, (8 * n,), (n,), stride, 0)
        for stride in (1, 8)
    }
    size = f"{n:,} numbers"
    return time_on_gpu("04.2", "Copying", launches, estimates=estimates, size=size)


def sectors_and_rounds(traces: Mapping[str, Trace]) -> Table:
    """What each version moves: sectors of global memory, rounds of shared memory."""
    rows = []
    for name, traced in traces.items():
        sectors = traced.count(space="global").sectors
        rounds = traced.count(space="shared").wavefronts
        rows.append((name, f"{sectors:,}", f"{rounds:,}"))
    return Table(tuple(rows), ("version", "sectors", "rounds of shared memory"))


def transposes(
    kernels: Kernels, traces: Mapping[str, Trace], gpu: Any, n: int
) -> Comparison | None:
    """Transpose n x n numbers in each version on the GPU, beside the times calculated
    for `gpu`; None without one.
    """
    grid = (n // _TILE, n // _TILE)
    block = (_TILE, _TILE)
    estimates = {name: t.estimate(gpu, grid=grid) for name, t in traces.items()}
    launches = {
        name: (kernel, grid, block, (n, n), (n, n)) for name, kernel in kernels.items()
    }
    size = f"{n:,} x {n:,}"
    return time_on_gpu("04.3", "Transposing", launches, estimates=estimates, size=size)


def counted_sums(kernels: Kernels, numbers: Array) -> Table:
    """What each version of a sum asks for, in blocks of 256 threads with a number
    each.
    """
    rows = []
    for name, traced in _traced(kernels, numbers).items():
        counts = (
            traced.count("total", kind="atomic").writes,
            traced.branches().divergent,
            traced.count(space="shared").rounds,
            traced.shuffles,
            traced.barriers,
        )
        rows.append((name, *(f"{count:,}" for count in counts)))
    heads = ("version", "atomics", "diverging", "rounds", "shuffles", "barriers")
    return Table(tuple(rows), heads)


def sums(kernels: Kernels, numbers: Array, gpu: Any, n: int) -> Comparison | None:
    """Add up `n` numbers in each version on the GPU, beside the times calculated for
    `gpu`; None without one.

    The last row is the sum with shuffles in 2,048 blocks, so that each thread first
    adds several numbers; its trace has four a thread.
    """
    traces = _traced(kernels, numbers)
    grid = n // _THREADS
    estimates = {name: t.estimate(gpu, grid=grid) for name, t in traces.items()}
    launches: dict[str, tuple[Any, ...]] = {
        name: (kernel, grid, _THREADS, (n,), (1,)) for name, kernel in kernels.items()
    }
    row = f"shuffles, {_FEW_BLOCKS:,} blocks"
    launches[row] = (numba_kernels.sum_shuffle, _FEW_BLOCKS, _THREADS, (n,), (1,))
    four_each = _traced({row: numba_kernels.sum_shuffle}, np.tile(numbers, 4))[row]
    turns = n / (_FEW_BLOCKS * _THREADS)
    estimates[row] = four_each.estimate(gpu, grid=_FEW_BLOCKS, longer=turns / 4)
    size = f"{n:,} numbers"
    title = "Adding up on a GPU"
    return time_on_gpu("04.5", title, launches, estimates=estimates, size=size)


def halves_of_c07(
    on_cpu: Comparison, strides: Comparison | None, adding: Comparison | None
) -> tuple[dict[str, Ratio], str]:
    """The evidence on "coalesce accesses, merge parallel work", and when it holds.

    Without a GPU only the first half can be told, by a CPU's sums: as many numbers,
    side by side or one of each line. On a GPU it is stride 1 over stride 8, and merged
    is the sum with several numbers a thread over the one with a number each.
    """
    if strides is None or adding is None:
        every_16th, in_a_row = on_cpu.timings[1:]
        return {"coalesced": speedup(every_16th, in_a_row)}, (
            "its first half; memory is what a CPU waits for"
        )
    stride_1, stride_8 = strides.timings
    timings = {timing.label: timing for timing in adding.timings}
    merged = speedup(timings["shuffles"], adding.timings[-1])
    return {"coalesced": speedup(stride_8, stride_1), "merged": merged}, (
        "memory is what a GPU waits for"
    )


def _traced(kernels: Kernels, numbers: Array) -> dict[str, Trace]:
    """A trace of each sum, in eight blocks."""
    return {
        name: trace(kernel, 8, _THREADS, numbers, np.zeros(1, np.float32))
        for name, kernel in kernels.items()
    }
