"""Finished numba kernels for the notebooks: sums and matrix products, float32.

Importing needs no GPU; the kernels compile when first launched, and lab.trace runs them
on the CPU. Blocks have the sizes below, since shared arrays need sizes that are known
to the compiler.
"""

# mypy: disable-error-code="attr-defined, untyped-decorator"
# numba.cuda builds its names at run time, and mypy sees those of its simulator.

from __future__ import annotations

from typing import Any

from numba import cuda, float32

THREADS = 256  # of a block of the sums, and of the blocked matmul
WARP = 32
MATMUL_TILE = 16  # side of the tiled matmul's block and tiles
BLOCK_TILE = 128  # side of the part of c that a block of the blocked matmul computes
# the padding keeps the transposed stores of a warp in different banks
PADDED_BLOCK_TILE = BLOCK_TILE + 2
DEPTH = 16  # steps in k that it keeps in shared memory
# its threads compute SHARE x SHARE products each, 16 rows and 16 columns apart
SHARE = 8


@cuda.jit
def sum_shared(x: Any, total: Any) -> None:
    """Add the sum of x to total[0]; blocks of THREADS. A tree in shared memory, then
    one atomic addition a block.
    """
    sums = cuda.shared.array(THREADS, float32)
    thread = cuda.threadIdx.x
    mine = float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        mine += x[i]
    sums[thread] = mine
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            sums[thread] += sums[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        cuda.atomic.add(total, 0, sums[0])


@cuda.jit
def sum_shuffle(x: Any, total: Any) -> None:
    """Add the sum of x to total[0]; blocks of THREADS. Warps add through registers: one
    barrier a block, not nine.
    """
    sums = cuda.shared.array(WARP, float32)
    thread = cuda.threadIdx.x
    mine = float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        mine += x[i]
    for step in range(5):
        mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 16 >> step)
    if thread % WARP == 0:
        sums[thread // WARP] = mine
    cuda.syncthreads()
    if thread < WARP:
        mine = sums[thread] if thread < THREADS // WARP else float32(0)
        for step in range(5):
            mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 16 >> step)
        if thread == 0:
            cuda.atomic.add(total, 0, mine)


@cuda.jit
def matmul_tiled(a: Any, b: Any, c: Any) -> None:
    """Write the product a b into c; a thread for each element, blocks of MATMUL_TILE x
    MATMUL_TILE that share loads.

    Global memory is read MATMUL_TILE times less often than without tiles; shared memory
    twice per multiply-add.
    """
    tile_a = cuda.shared.array((MATMUL_TILE, MATMUL_TILE), float32)
    tile_b = cuda.shared.array((MATMUL_TILE, MATMUL_TILE), float32)
    x = cuda.threadIdx.x
    y = cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = float32(0)
    for first in range(0, a.shape[1], MATMUL_TILE):
        in_a = row < a.shape[0] and first + x < a.shape[1]
        in_b = first + y < b.shape[0] and column < b.shape[1]
        tile_a[y, x] = a[row, first + x] if in_a else float32(0)
        tile_b[y, x] = b[first + y, column] if in_b else float32(0)
        cuda.syncthreads()
        for k in range(MATMUL_TILE):
            product += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product


@cuda.jit
def matmul_blocked(a: Any, b: Any, c: Any) -> None:  # noqa: C901  # one kernel, one function
    """Write the product a b into c; blocks of THREADS for BLOCK_TILE x BLOCK_TILE of c,
    grid over columns and rows.

    A thread keeps SHARE x SHARE sums in registers: 16 reads of shared memory for 64
    multiply-adds.
    """
    # transposed: 2 x 16 floats a store
    tile_a = cuda.shared.array((DEPTH, PADDED_BLOCK_TILE), float32)
    tile_b = cuda.shared.array((DEPTH, BLOCK_TILE), float32)
    sums = cuda.local.array((SHARE, SHARE), float32)
    of_a = cuda.local.array(SHARE, float32)
    of_b = cuda.local.array(SHARE, float32)
    # "&" proves to the compiler that no index is negative: it then drops ...
    thread = cuda.threadIdx.x & (THREADS - 1)
    # ... the code by which numba lets negative indices count from the end
    x = thread & 15
    y = thread >> 4
    row = cuda.blockIdx.y * BLOCK_TILE
    column = cuda.blockIdx.x * BLOCK_TILE
    rows = a.shape[0]
    columns = b.shape[1]
    depth = a.shape[1]
    for i in range(SHARE):
        for j in range(SHARE):
            sums[i, j] = 0
    for first in range(0, depth, DEPTH):
        for i in range(BLOCK_TILE * DEPTH // THREADS):
            place = thread + i * THREADS
            r = place // DEPTH
            k = place % DEPTH
            tile_a[k, r] = (
                a[row + r, first + k]
                if row + r < rows and first + k < depth
                else float32(0)
            )
            k = place // BLOCK_TILE
            r = place % BLOCK_TILE
            tile_b[k, r] = (
                b[first + k, column + r]
                if first + k < depth and column + r < columns
                else float32(0)
            )
        cuda.syncthreads()
        for step in range(DEPTH):
            k = step & (DEPTH - 1)
            for i in range(SHARE):
                of_a[i] = tile_a[k, y + 16 * i]
                of_b[i] = tile_b[k, x + 16 * i]
            for i in range(SHARE):
                for j in range(SHARE):
                    sums[i, j] += of_a[i] * of_b[j]
        cuda.syncthreads()
    for i in range(SHARE):
        for j in range(SHARE):
            if row + y + 16 * i < rows and column + x + 16 * j < columns:
                c[row + y + 16 * i, column + x + 16 * j] = sums[i, j]
