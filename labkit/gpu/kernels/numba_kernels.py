"""The numba kernels of the notebooks: copy, saxpy, transposes, reductions and matmuls, from plain to fast.

Each says how it is launched. Importing needs no GPU; the kernels compile when first launched, and labkit.gpu.trace runs
them on the CPU. Blocks have the constants' sizes below, since shared arrays need sizes known to the compiler.
"""

# mypy: disable-error-code="attr-defined, untyped-decorator"
# numba.cuda builds its names at run time, and mypy reads those of its simulator.

from __future__ import annotations

from typing import Any

from numba import cuda, float32

TILE = 32  # side of a transpose's tile
PADDED_TILE = TILE + 1
THREAD_ROWS = 8  # a transpose's block is TILE x THREAD_ROWS threads
THREADS = 256  # of a block of a reduction, and of the blocked matmul
WARP = 32
MATMUL_TILE = 16  # side of the tiled matmul's block and tiles
BLOCK_TILE = 128  # side of the part of c that a block of the blocked matmul computes
PADDED_BLOCK_TILE = BLOCK_TILE + 2
DEPTH = 16  # steps in k that it keeps in shared memory
SHARE = 8  # its threads compute SHARE x SHARE products each, 16 rows and 16 columns apart


@cuda.jit
def copy(x: Any, out: Any) -> None:
    """out[i] = x[i]; any grid and block of one dimension. 8 bytes a float32."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = x[i]


@cuda.jit
def saxpy(a: Any, x: Any, y: Any) -> None:
    """y[i] = a x[i] + y[i]; any grid and block of one dimension. 12 bytes and 2 FLOP a float32."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = a * x[i] + y[i]


@cuda.jit
def transpose_naive(a: Any, out: Any) -> None:
    """Write a.T into out; blocks of TILE x THREAD_ROWS on a grid that covers a's columns and rows by TILE.

    A warp reads 128 bytes in one piece and writes 32 rows of out: 32 sectors of 32 bytes for 4 bytes each.
    """
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
    for i in range(y, TILE, THREAD_ROWS):
        if row + i < a.shape[0] and column + x < a.shape[1]:
            out[column + x, row + i] = a[row + i, column + x]


@cuda.jit
def transpose_tiled(a: Any, out: Any) -> None:
    """Write a.T into out through shared memory, launched as transpose_naive; a tile's column lies in a single bank."""
    tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
    for i in range(y, TILE, THREAD_ROWS):
        if row + i < a.shape[0] and column + x < a.shape[1]:
            tile[i, x] = a[row + i, column + x]
    cuda.syncthreads()
    for i in range(y, TILE, THREAD_ROWS):
        if column + i < a.shape[1] and row + x < a.shape[0]:
            out[column + i, row + x] = tile[x, i]


@cuda.jit
def transpose_padded(a: Any, out: Any) -> None:
    """As transpose_tiled, with one float of padding a row, which puts a column of the tile into 32 banks."""
    tile = cuda.shared.array((TILE, PADDED_TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
    for i in range(y, TILE, THREAD_ROWS):
        if row + i < a.shape[0] and column + x < a.shape[1]:
            tile[i, x] = a[row + i, column + x]
    cuda.syncthreads()
    for i in range(y, TILE, THREAD_ROWS):
        if column + i < a.shape[1] and row + x < a.shape[0]:
            out[column + i, row + x] = tile[x, i]


@cuda.jit
def sum_atomic(x: Any, total: Any) -> None:
    """total[0] += the sum of x; any grid and block of one dimension. One atomic addition a number, all to one place."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(total, 0, x[i])


@cuda.jit
def sum_shared(x: Any, total: Any) -> None:
    """total[0] += the sum of x; blocks of THREADS. Halves the sums in shared memory, one atomic addition a block."""
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
    """total[0] += the sum of x; blocks of THREADS. Warps add through registers: one barrier a block instead of nine."""
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
def matmul_naive(a: Any, b: Any, c: Any) -> None:
    """Write the product a b into c; one thread a product, blocks and grid of two dimensions over c's columns and rows.

    Two loads for a multiply-add: the caches have to carry it.
    """
    column, row = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        product = float32(0)
        for k in range(a.shape[1]):
            product += a[row, k] * b[k, column]
        c[row, column] = product


@cuda.jit
def matmul_tiled(a: Any, b: Any, c: Any) -> None:
    """Write the product a b into c; one thread a product, blocks of MATMUL_TILE x MATMUL_TILE that share their loads.

    Global memory is read MATMUL_TILE times less often; shared memory twice for a multiply-add.
    """
    tile_a = cuda.shared.array((MATMUL_TILE, MATMUL_TILE), float32)
    tile_b = cuda.shared.array((MATMUL_TILE, MATMUL_TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = float32(0)
    for first in range(0, a.shape[1], MATMUL_TILE):
        in_a, in_b = row < a.shape[0] and first + x < a.shape[1], first + y < b.shape[0] and column < b.shape[1]
        tile_a[y, x] = a[row, first + x] if in_a else float32(0)
        tile_b[y, x] = b[first + y, column] if in_b else float32(0)
        cuda.syncthreads()
        for k in range(MATMUL_TILE):
            product += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product


@cuda.jit
def matmul_blocked(a: Any, b: Any, c: Any) -> None:
    """Write the product a b into c; blocks of THREADS for BLOCK_TILE x BLOCK_TILE of c, grid over columns and rows.

    A thread keeps SHARE x SHARE sums in registers: 16 reads of shared memory for 64 multiply-adds.
    """
    tile_a = cuda.shared.array((DEPTH, PADDED_BLOCK_TILE), float32)  # turned round: 2 x 16 floats a store
    tile_b = cuda.shared.array((DEPTH, BLOCK_TILE), float32)
    sums = cuda.local.array((SHARE, SHARE), float32)
    of_a = cuda.local.array(SHARE, float32)
    of_b = cuda.local.array(SHARE, float32)
    thread = cuda.threadIdx.x & (THREADS - 1)  # "&" proves to the compiler that no index is negative: it then drops ...
    x, y = thread & 15, thread >> 4  # ... the code by which numba lets negative indices count from the end
    row, column = cuda.blockIdx.y * BLOCK_TILE, cuda.blockIdx.x * BLOCK_TILE
    rows, columns, depth = a.shape[0], b.shape[1], a.shape[1]
    for i in range(SHARE):
        for j in range(SHARE):
            sums[i, j] = 0
    for first in range(0, depth, DEPTH):
        for i in range(BLOCK_TILE * DEPTH // THREADS):
            place = thread + i * THREADS
            r, k = place // DEPTH, place % DEPTH
            tile_a[k, r] = a[row + r, first + k] if row + r < rows and first + k < depth else float32(0)
            k, r = place // BLOCK_TILE, place % BLOCK_TILE
            tile_b[k, r] = b[first + k, column + r] if first + k < depth and column + r < columns else float32(0)
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
