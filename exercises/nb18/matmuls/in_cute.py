"""A matmul in CuTe DSL: layouts say which numbers are a thread's."""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, D103

import tempfile

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import warp
from cutlass.cute.runtime import make_fake_compact_tensor


@cute.kernel
def matmul(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, tiled_mma: cute.TiledMma):
    row, column, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    mine = tiled_mma.get_slice(thread)
    in_a = mine.partition_A(cute.local_tile(a, (64, 32), (row, None)))
    in_b = mine.partition_B(cute.local_tile(b, (64, 32), (column, None)))
    in_c = mine.partition_C(cute.local_tile(c, (64, 64), (row, column)))
    part_a = tiled_mma.make_fragment_A(in_a[None, None, None, 0])
    part_b = tiled_mma.make_fragment_B(in_b[None, None, None, 0])
    total = tiled_mma.make_fragment_C(in_c)
    total.fill(0.0)
    for k in range(cute.size(in_a, mode=[3])):
        cute.autovec_copy(in_a[None, None, None, k], part_a)  # load
        cute.autovec_copy(in_b[None, None, None, k], part_b)
        cute.gemm(tiled_mma, total, part_a, part_b, total)  # multiply
    out = cute.make_fragment_like(total, cutlass.Float16)
    out.store(total.load().to(cutlass.Float16))
    cute.autovec_copy(out, in_c)  # store


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    op = warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))
    tiled_mma = cute.make_tiled_mma(op, (2, 2, 1))
    grid = (cute.size(a, mode=[0]) // 64, cute.size(b, mode=[0]) // 64, 1)
    matmul(a, b, c, tiled_mma).launch(grid=grid, block=(128, 1, 1))


def code(capability):
    """PTX of the kernel for 80, 90 or 100."""
    matrix = make_fake_compact_tensor(
        cutlass.Float16, (1024, 1024), stride_order=(1, 0), assumed_align=16
    )
    architecture = f"sm_{capability}" + "a" * (capability >= 90)
    with tempfile.TemporaryDirectory() as folder:
        options = f"--gpu-arch {architecture} --keep-ptx --dump-dir {folder}"
        made = cute.compile(launch, matrix, matrix, matrix, options=options)
        return made.__ptx__
