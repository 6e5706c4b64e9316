"""A matmul in TileLang: you name the memories, and a pipeline is one word."""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202, D103, N803, N812

import tilelang
import tilelang.language as T
from tilelang import tvm


def matmul(n, TILE, DEPTH):
    @T.prim_func
    def tiled(
        a: T.Tensor((n, n), "float16"),
        b: T.Tensor((n, n), "float16"),
        c: T.Tensor((n, n), "float16"),
    ):
        with T.Kernel(n // TILE, n // TILE, threads=128) as (row, column):
            part_a = T.alloc_shared((TILE, DEPTH), "float16")
            part_b = T.alloc_shared((DEPTH, TILE), "float16")
            total = T.alloc_fragment((TILE, TILE), "float32")
            T.clear(total)
            for k in T.Pipelined(n // DEPTH, num_stages=3):
                T.copy(a[row * TILE, k * DEPTH], part_a)  # load
                T.copy(b[k * DEPTH, column * TILE], part_b)
                T.gemm(part_a, part_b, total)  # multiply
            T.copy(total, c[row * TILE, column * TILE])  # store

    return tiled


def code(capability):
    """CUDA C++ of the kernel for 80, 90 or 100."""
    arch = f"sm_{capability}" + "a" * (capability >= 90)
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    with target:
        lowered = tilelang.lower(
            matmul(4096, 128, 64), target=target, enable_device_compile=False
        )
    return lowered.kernel_source
