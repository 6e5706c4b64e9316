"""Matrix products of notebook 05: the reader's own, a readable one and the library's,
on the same memory.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from exercises.nb05 import fast_matmul, nvrtc
from labkit.lesson.boards import SpeedBoard
from labkit.measure.bench import Comparison
from labkit.measure.ceilings import measure_ceilings
from labkit.measure.machine import machine, pick, threads
from labkit.measure.probe import float32_precision

# of what a block of matmul_coarsened.cu computes
_ROWS = 64
_COLUMNS = 128
_BLOCK = (16, 16)


def coarsened(a: Any, b: Any, c: Any, *options: str) -> Callable[[], object]:
    """A launch of matmul_coarsened.cu that writes a b into `c`: CuPy's square arrays,
    float32, with sides that are multiples of 128.
    """
    cupy: Any = importlib.import_module("cupy")
    n = len(a)
    module = cupy.RawModule(code=nvrtc.text_of("matmul_coarsened"), options=options)
    kernel = module.get_function("matmul")
    grid = (n // _COLUMNS, n // _ROWS)
    return functools.partial(kernel, grid, _BLOCK, (a, b, c, np.int32(n)))


def checked_rows(
    loops: Callable[[Any, Any], Any], a: Any, b: Any, *, with_cupy: bool
) -> dict[str, Callable[[], object]]:
    """A call for each way to multiply two square arrays, whose results agree.

    "mine" is `loops` on a CPU, and matmul_coarsened.cu on a GPU, where "readable" is
    matmul_float32.cu. Raises AssertionError where results differ.
    """
    rows: dict[str, Callable[[], object]] = {}
    in_torch = from_dlpack(a), from_dlpack(b)
    if with_cupy:
        cupy: Any = importlib.import_module("cupy")
        c = cupy.empty_like(a)
        rows["mine"] = coarsened(a, b, c)
        rows["readable"] = functools.partial(fast_matmul.matmul, *in_torch)
        rows["mine"]()
        mine = from_dlpack(c)
    else:
        rows["mine"] = functools.partial(loops, a, b)
        mine = from_dlpack(loops(a, b))
    rows["library"] = functools.partial(torch.mm, *in_torch)
    torch.testing.assert_close(mine, torch.mm(*in_torch), rtol=1e-3, atol=1e-3)
    return rows


def race(
    board: SpeedBoard,
    rows: dict[str, Callable[[], object]],
    n: int,
    *,
    with_cupy: bool,
) -> Comparison:
    """Time the products of n x n numbers, on a CPU with one thread, and show the
    library's highest rate as its limit.
    """
    ceilings = measure_ceilings() if with_cupy else measure_ceilings(threads=1)
    with threads(1), float32_precision("ieee"):
        comparison = board.compare(
            rows,
            items=2 * n**3 / 1e9,
            sync=machine().sync,
            budget_s=pick(ci=0.5, cpu=2.0, gpu=1.0),
        )
    board.limit("library", ceilings.matmul_flop_per_s["float32"] / 1e9)
    return comparison
