"""A matmul in Gluon for 10.0: shared memory, barriers and tensor memory by name."""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, D103, N803, N806

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia import blackwell, hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from exercises.nb18.matmuls import in_triton

# the names before and after Triton 3.8
async_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
async_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def matmul(a, b, c, n, TILE: gl.constexpr, DEPTH: gl.constexpr):
    row = gl.program_id(0) * TILE
    column = gl.program_id(1) * TILE
    A: gl.constexpr = gl.NVMMASharedLayout.get_default_for([TILE, DEPTH], gl.float16)
    B: gl.constexpr = gl.NVMMASharedLayout.get_default_for([DEPTH, TILE], gl.float16)
    C: gl.constexpr = gl.NVMMASharedLayout.get_default_for([TILE, TILE], gl.float16)
    in_a = tma.make_tensor_descriptor(a, [n, n], [n, 1], [TILE, DEPTH], A)
    in_b = tma.make_tensor_descriptor(b, [n, n], [n, 1], [DEPTH, TILE], B)
    in_c = tma.make_tensor_descriptor(c, [n, n], [n, 1], [TILE, TILE], C)
    part_a = gl.allocate_shared_memory(gl.float16, [TILE, DEPTH], A)
    part_b = gl.allocate_shared_memory(gl.float16, [DEPTH, TILE], B)
    stored = gl.allocate_shared_memory(gl.float16, [TILE, TILE], C)
    loaded = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    multiplied = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(loaded, count=1)
    mbarrier.init(multiplied, count=1)
    IN_TMEM: gl.constexpr = blackwell.TensorMemoryLayout([TILE, TILE], col_stride=1)
    total = blackwell.allocate_tensor_memory(gl.float32, [TILE, TILE], IN_TMEM)
    phase = 0
    for k in range(0, n, DEPTH):
        mbarrier.expect(loaded, in_a.block_type.nbytes + in_b.block_type.nbytes)
        async_load(in_a, [row, k], loaded, part_a)  # load
        async_load(in_b, [k, column], loaded, part_b)
        mbarrier.wait(loaded, phase)
        blackwell.tcgen05_mma(part_a, part_b, total, use_acc=k > 0)  # multiply
        blackwell.tcgen05_commit(multiplied)
        mbarrier.wait(multiplied, phase)
        phase ^= 1
    # a thread reads a row of the result from tensor memory
    A_ROW: gl.constexpr = gl.BlockedLayout([1, TILE], [32, 1], [4, 1], [0, 1])
    stored.store(total.load(A_ROW).to(gl.float16))
    hopper.fence_async_shared()
    async_store(in_c, [row, column], stored)  # store
    tma.store_wait(pendings=0)


def code(capability):
    """PTX of the kernel for 100."""
    return in_triton.code(capability, matmul, GluonASTSource)
