"""Launch the array kernels: copy, saxpy, transpose, reduce_sum and matmul on contiguous CUDA tensors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from labkit.core.errors import LabError
from labkit.kernels import driver

_THREADS = 256
_COPY_FLOATS = _THREADS * 4 * 4  # floats a block moves: threads x LOADS of copy.cu x floats a load
_SAXPY_FLOATS = _THREADS * 2 * 4
_DEPTH = 32  # DEPTH and STAGE_SIZE of matmul_bfloat16.cu, in steps and in bytes; 64 spills registers
_STAGE_BYTES = 2 * (128 * (_DEPTH + 8) + _DEPTH * (256 + 8))
_MOST_STAGES = 4
_INT32 = 2**31


def copy(x: Tensor, out: Tensor) -> None:
    """Copy float32 `x` into `out` of the same shape. LabError for tensors the kernel can't take."""
    _elementwise("copy", _COPY_FLOATS, x, out=out)


def saxpy(a: float, x: Tensor, y: Tensor) -> None:
    """Set float32 `y` to a x + y in place; `x` has y's shape. LabError for tensors the kernel can't take."""
    _elementwise("saxpy", _SAXPY_FLOATS, x, np.float32(a), y=y)


def _elementwise(kernel: str, block_floats: int, x: Tensor, *numbers: np.float32, **output: Tensor) -> None:
    """Launch a kernel (*numbers, x, output, n) on float32 tensors of one shape; a block covers `block_floats`."""
    ((name, out),) = output.items()
    driver.check_tensors(torch.float32, x=x, **output)
    driver.check_shape(name, out, tuple(x.shape))
    if n := x.numel():
        driver.run(kernel, kernel, (_blocks(n, block_floats),), (_THREADS,), (*numbers, x, out, np.int64(n)))


def transpose(a: Tensor, *, out: Tensor | None = None, tile: int = 32) -> Tensor:
    """The transpose (columns, rows) of float32 `a` (rows, columns), written out in memory, into `out` if given.

    `tile` is 32 or 64: the side of the square that a block transposes. LabError for tensors the kernel can't take.
    """
    if tile not in (32, 64):
        raise LabError(f"Expected tile to be 32 or 64, got {tile!r}.")
    rows, columns = _matrix("a", a)
    out = a.new_empty(columns, rows) if out is None else out
    driver.check_tensors(torch.float32, a=a, out=out)
    driver.check_shape("out", out, (columns, rows))
    if a.numel():
        thread_rows = _THREADS // tile
        grid, block = (_blocks(columns, tile), _blocks(rows, tile)), (tile, thread_rows)
        options = (f"-DTILE={tile}", f"-DTHREAD_ROWS={thread_rows}")
        driver.run("transpose", "transpose", grid, block, (a, out, *_int32(rows, columns)), options=options)
    return out


def reduce_sum(x: Tensor) -> Tensor:
    """The sum of float32 `x` of any shape, as a 0-dimensional tensor; it repeats to the bit on one GPU.

    LabError for tensors the kernel can't take.
    """
    driver.check_tensors(torch.float32, x=x)
    n = x.numel()
    # Eight blocks of 256 threads fill a multiprocessor; a small x gets no more blocks than it has groups of 4 floats.
    blocks = min(8 * driver.properties(x.device).multi_processor_count, _blocks(n, 4 * _THREADS)) or 1
    partial, total = x.new_empty(blocks), x.new_empty(())
    driver.run("reduce", "reduce_sum", (blocks,), (_THREADS,), (x, partial, np.int64(n)))
    driver.run("reduce", "reduce_sum", (1,), (_THREADS,), (partial, total, np.int64(blocks)))
    return total


def matmul(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product (m, n) of `a` (m, k) and `b` (k, n), both float32 or both bfloat16, into `out` if given.

    float32 is computed in float32, never in TF32. bfloat16 is summed in float32 on tensor cores; it needs compute
    capability 8.0 and multiples of 8 for k and n. LabError for tensors the kernel can't take.
    """
    (m, k), (rows, n) = _matrix("a", a), _matrix("b", b)
    if rows != k:
        raise LabError(f"Expected b to have as many rows as a has columns, got a {(m, k)} and b {(rows, n)}.")
    if a.dtype not in (torch.float32, torch.bfloat16):
        raise LabError(f"Expected float32 or bfloat16 matrices, got {a.dtype}. a.float() or a.bfloat16() converts.")
    out = a.new_empty(m, n) if out is None else out
    driver.check_tensors(a.dtype, a=a, b=b, out=out)
    driver.check_shape("out", out, (m, n))
    if out.numel():
        (_matmul_float32 if a.dtype == torch.float32 else _matmul_bfloat16)(a, b, out, m, n, k)
    return out


def _matmul_float32(a: Tensor, b: Tensor, out: Tensor, m: int, n: int, k: int) -> None:
    grid = (_blocks(n, 128), _blocks(m, 128))
    options = (f"-DQUADS={int(k % 4 == 0 and n % 4 == 0)}",)
    driver.run("matmul_float32", "matmul_float32", grid, (_THREADS,), (a, b, out, *_int32(m, n, k)), options=options)


def _matmul_bfloat16(a: Tensor, b: Tensor, out: Tensor, m: int, n: int, k: int) -> None:
    gpu = driver.properties(a.device)
    if gpu.major < 8:
        raise LabError(
            f"matmul in bfloat16 needs compute capability 8.0 (Ampere) or later, got {gpu.major}.{gpu.minor}. "
            "Use float32 here."
        )
    if k % 8 or n % 8:
        raise LabError(f"Expected k and n to be multiples of 8 for bfloat16, got k = {k} and n = {n}. Pad with zeros.")
    stages = min(_MOST_STAGES, gpu.shared_memory_per_block_optin // _STAGE_BYTES)
    name, grid = "matmul_bfloat16", (_blocks(m, 128) * _blocks(n, 256),)
    options, shared_bytes = (f"-DDEPTH={_DEPTH}", f"-DSTAGES={stages}"), stages * _STAGE_BYTES
    arguments: tuple[Tensor | driver.Scalar, ...] = (a, b, out, *_int32(m, n, k))
    driver.run(name, name, grid, (_THREADS,), arguments, options=options, shared_bytes=shared_bytes)


def _matrix(name: str, matrix: Tensor) -> tuple[int, int]:
    if not isinstance(matrix, Tensor) or matrix.dim() != 2 or max(matrix.shape) >= _INT32:
        found = tuple(matrix.shape) if isinstance(matrix, Tensor) else type(matrix).__name__
        raise LabError(f"Expected {name} to be a matrix, a tensor of two dimensions under 2^31, got {found}.")
    return matrix.shape[0], matrix.shape[1]


def _int32(*values: int) -> tuple[np.int32, ...]:
    return tuple(np.int32(value) for value in values)


def _blocks(items: int, a_block: int) -> int:
    return -(-items // a_block)
