"""Launch the array kernels that benchmarks time: copy, saxpy, transpose and reduce_sum
on contiguous CUDA tensors.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from exercises import cuda_launch
from exercises.cuda_launch import blocks, int32, matrix_shape
from labkit.core.errors import LabError

FOLDER = Path(__file__).parent  # of the .cu files
_THREADS = 256
# floats a block moves: threads x LOADS of copy.cu x floats a load
_COPY_FLOATS = _THREADS * 4 * 4
_SAXPY_FLOATS = _THREADS * 2 * 4


def copy(x: Tensor, out: Tensor) -> None:
    """Copy float32 `x` into `out` of the same shape. LabError for tensors the kernel
    can't take.
    """
    _elementwise("copy", _COPY_FLOATS, x, out=out)


def saxpy(a: float, x: Tensor, y: Tensor) -> None:
    """Set float32 `y` to a x + y in place; `x` has y's shape. LabError for tensors the
    kernel can't take.
    """
    _elementwise("saxpy", _SAXPY_FLOATS, x, np.float32(a), y=y)


def _elementwise(
    kernel: str, block_floats: int, x: Tensor, *numbers: np.float32, **output: Tensor
) -> None:
    """Launch a kernel (*numbers, x, output, n) on float32 tensors of one shape; a block
    covers `block_floats`.
    """
    ((name, out),) = output.items()
    cuda_launch.check_tensors(torch.float32, x=x, **output)
    cuda_launch.check_shape(name, out, tuple(x.shape))
    if n := x.numel():
        grid = (blocks(n, block_floats),)
        cuda_launch.run(
            FOLDER / f"{kernel}.cu",
            kernel,
            grid,
            (_THREADS,),
            (*numbers, x, out, np.int64(n)),
        )


def transpose(a: Tensor, *, out: Tensor | None = None, tile: int = 32) -> Tensor:
    """The transpose (columns, rows) of float32 `a` (rows, columns), written out in
    memory, into `out` if given.

    `tile` is 32 or 64: the side of the square that a block transposes. LabError for
    tensors the kernel can't take.
    """
    if tile not in (32, 64):
        raise LabError(f"Expected tile to be 32 or 64, got {tile!r}.")
    rows, columns = matrix_shape("a", a)
    out = a.new_empty(columns, rows) if out is None else out
    cuda_launch.check_tensors(torch.float32, a=a, out=out)
    cuda_launch.check_shape("out", out, (columns, rows))
    if a.numel():
        thread_rows = _THREADS // tile
        grid = (blocks(columns, tile), blocks(rows, tile))
        block = (tile, thread_rows)
        options = (f"-DTILE={tile}", f"-DTHREAD_ROWS={thread_rows}")
        file = FOLDER / "transpose.cu"
        sizes = int32(rows, columns)
        cuda_launch.run(
            file, "transpose", grid, block, (a, out, *sizes), options=options
        )
    return out


def reduce_sum(x: Tensor) -> Tensor:
    """The sum of float32 `x` of any shape, as a 0-dimensional tensor; it repeats to the
    bit on one GPU.

    LabError for tensors the kernel can't take.
    """
    cuda_launch.check_tensors(torch.float32, x=x)
    n = x.numel()
    # Eight blocks of 256 threads fill a multiprocessor; a small x gets no more blocks
    # than it has groups of 4 floats.
    grid = (
        min(
            8 * cuda_launch.properties(x.device).multi_processor_count,
            blocks(n, 4 * _THREADS),
        )
        or 1
    )
    partial = x.new_empty(grid)
    total = x.new_empty(())
    cuda_launch.run(
        FOLDER / "reduce.cu",
        "reduce_sum",
        (grid,),
        (_THREADS,),
        (x, partial, np.int64(n)),
    )
    cuda_launch.run(
        FOLDER / "reduce.cu",
        "reduce_sum",
        (1,),
        (_THREADS,),
        (partial, total, np.int64(grid)),
    )
    return total
