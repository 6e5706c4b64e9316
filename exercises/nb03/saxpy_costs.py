"""What the reader's SAXPY of notebook 03 moves, which threads do it, and how long three
GPUs would take.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from exercises.nb03 import figures
from kerneltrace import Trace, trace
from labkit.core.display import Table
from labkit.core.units import format_quantity
from labkit.measure import catalog
from labkit.plot import Picture

_ELEMENTS = 4096
_BLOCKS = 8
_THREADS = 128  # of a block: each thread has four elements
# blocks of the calculated launch
_LARGE_GRID = 4096
_GPUS = ("T4", "GeForce RTX 4090", "H200 SXM")


def bytes_an_element(kernel: Any) -> float:
    """Bytes of global memory that a kernel (a, x, y) moves for each element."""
    traced = _traced(kernel, _BLOCKS, _THREADS, _ELEMENTS)
    return traced.count(space="global").bytes_moved / _ELEMENTS


def owners(kernel: Any, moved: float) -> Picture:
    """Which of 8 threads writes which of 20 elements of y; the title says the bytes
    `moved` for each.
    """
    few = _traced(kernel, 2, 4, 20)
    title = f"{moved:g} bytes an element, yours"
    return figures.owners(*few.writers("y"), title=title)


def times(kernel: Any, elements: float) -> Table:
    """Calculated times on three GPUs: the bytes over the bandwidth, and the estimate
    from all counts.
    """
    traced = _traced(kernel, _BLOCKS, _THREADS, _ELEMENTS)
    moved = bytes_an_element(kernel)
    turns = elements / (_LARGE_GRID * _THREADS)
    traced_turns = _ELEMENTS / (_BLOCKS * _THREADS)
    rows = []
    for gpu in _GPUS:
        bandwidth = catalog.find(gpu).bandwidth_bytes_per_s or math.nan
        floor_s = elements * moved / bandwidth
        estimate = traced.estimate(gpu, grid=_LARGE_GRID, longer=turns / traced_turns)
        seconds = [format_quantity(s, "s") for s in (floor_s, estimate.seconds)]
        rows.append((gpu, *seconds, estimate.limit))
    heads = ("GPU", "bytes over bandwidth", "estimate", "what limits it")
    return Table(tuple(rows), heads, f"Calculated for {elements:,.0f} elements")


def _traced(kernel: Any, blocks: int, threads: int, elements: int) -> Trace:
    x = np.ones(elements, np.float32)
    y = np.ones(elements, np.float32)
    return trace(kernel, blocks, threads, np.float32(2), x, y)
