"""A matmul in Mojo: a warp's 16 x 8 numbers of the result, by TensorCore."""

from layout import Layout, LayoutTensor
from layout.tensor_core import TensorCore
from max.gpu import block_idx
from max.gpu.host import get_gpu_target
from max.gpu.host.compile import _compile_code
from std.utils import Index

comptime n = 1024
comptime square = Layout.row_major(n, n)


def matmul(
    a: LayoutTensor[DType.float16, square, MutAnyOrigin],
    b: LayoutTensor[DType.float16, square, MutAnyOrigin],
    c: LayoutTensor[DType.float32, square, MutAnyOrigin],
):
    var mma = TensorCore[DType.float32, DType.float16, Index(16, 8, 16)]()
    var in_c = c.tile[16, 8](block_idx.y, block_idx.x)
    var total = mma.c_reg_tile_type.stack_allocation()
    _ = total.fill(0)
    for k in range(n // 16):
        var part_a = mma.load_a(a.tile[16, 16](block_idx.y, k))  # load
        var part_b = mma.load_b(b.tile[16, 8](k, block_idx.x))
        total.copy_from(mma.mma_op(part_a, part_b, total))  # multiply
    mma.store_d(in_c, total)  # store


def main():
    print(_compile_code[matmul, target=get_gpu_target["sm_90a"]()]())
