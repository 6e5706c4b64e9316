"""Launch the fast matmul in CUDA C++, float32 and bfloat16, on
contiguous CUDA tensors.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from exercises import cuda_launch
from exercises.cuda_launch import blocks, int32, matrix_shape
from labkit.core.errors import LabError

FOLDER = Path(__file__).parent  # of the .cu files
_THREADS = 256
# DEPTH and STAGE_SIZE of matmul_bfloat16.cu, in steps and in bytes; 64 spills registers
_DEPTH = 32
_STAGE_BYTES = 2 * (128 * (_DEPTH + 8) + _DEPTH * (256 + 8))
_MOST_STAGES = 4


def matmul(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product (m, n) of `a` (m, k) and `b` (k, n), both float32 or both bfloat16,
    into `out` if given.

    float32 is computed in float32, never in TF32. bfloat16 is summed in float32 on
    tensor cores; it needs compute capability 8.0 and multiples of 8 for k and n.
    LabError for tensors the kernel can't take.
    """
    m, k = matrix_shape("a", a)
    rows, n = matrix_shape("b", b)
    if rows != k:
        raise LabError(
            f"Expected b to have as many rows as a has columns, got a {(m, k)} and b"
            f" {(rows, n)}."
        )
    if a.dtype not in (torch.float32, torch.bfloat16):
        raise LabError(
            f"Expected float32 or bfloat16 matrices, got {a.dtype}. a.float() or"
            " a.bfloat16() converts."
        )
    out = a.new_empty(m, n) if out is None else out
    cuda_launch.check_tensors(a.dtype, a=a, b=b, out=out)
    cuda_launch.check_shape("out", out, (m, n))
    if out.numel():
        (_matmul_float32 if a.dtype == torch.float32 else _matmul_bfloat16)(
            a, b, out, m, n, k
        )
    return out


def _matmul_float32(a: Tensor, b: Tensor, out: Tensor, m: int, n: int, k: int) -> None:
    grid = (blocks(n, 128), blocks(m, 128))
    options = (f"-DQUADS={int(k % 4 == 0 and n % 4 == 0)}",)
    arguments: tuple[Tensor | cuda_launch.Scalar, ...] = (a, b, out, *int32(m, n, k))
    cuda_launch.run(
        FOLDER / "matmul_float32.cu",
        "matmul_float32",
        grid,
        (_THREADS,),
        arguments,
        options=options,
    )


def _matmul_bfloat16(a: Tensor, b: Tensor, out: Tensor, m: int, n: int, k: int) -> None:
    gpu = cuda_launch.properties(a.device)
    if gpu.major < 8:
        raise LabError(
            "matmul in bfloat16 needs compute capability 8.0 (Ampere) or later, got"
            f" {gpu.major}.{gpu.minor}. Use float32 here."
        )
    if k % 8 or n % 8:
        raise LabError(
            f"Expected k and n to be multiples of 8 for bfloat16, got k = {k} and n ="
            f" {n}. Pad with zeros."
        )
    stages = min(_MOST_STAGES, gpu.shared_memory_per_block_optin // _STAGE_BYTES)
    grid = (blocks(m, 128) * blocks(n, 256),)
    options = (f"-DDEPTH={_DEPTH}", f"-DSTAGES={stages}")
    shared_bytes = stages * _STAGE_BYTES
    arguments: tuple[Tensor | cuda_launch.Scalar, ...] = (a, b, out, *int32(m, n, k))
    file = FOLDER / "matmul_bfloat16.cu"
    cuda_launch.run(
        file,
        file.stem,
        grid,
        (_THREADS,),
        arguments,
        options=options,
        shared_bytes=shared_bytes,
    )
