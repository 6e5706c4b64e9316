"""Kernels with shared memory. Counts by hand, from the rule of the CUDA C++ Programming
Guide, "Shared Memory".

There are 32 banks, and word w lies in bank w % 32. A request takes as many wavefronts
as the busiest bank has distinct words to give; 8-byte accesses are served half a warp
at a time. The reductions are those of M. Harris, "Optimizing Parallel Reduction in
CUDA" (2007), over 128 threads, 4 warps, in each of 2 blocks. A thread that is active in
a step reads two words of the shared array `s` and writes one.
"""

import numpy as np
from numba import cuda, float32, float64

from test_kerneltrace.textbook.entry import Entry, Want

TILE = 32
PITCH = 33
WIDTH = 16


def transpose_unpadded(a, b):
    tile = cuda.shared.array((TILE, TILE), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    left = TILE * cuda.blockIdx.x
    top = TILE * cuda.blockIdx.y
    tile[ty, tx] = a[top + ty, left + tx]
    cuda.syncthreads()
    b[left + ty, top + tx] = tile[tx, ty]


def transpose_padded(a, b):
    tile = cuda.shared.array((TILE, PITCH), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    left = TILE * cuda.blockIdx.x
    top = TILE * cuda.blockIdx.y
    tile[ty, tx] = a[top + ty, left + tx]
    cuda.syncthreads()
    b[left + ty, top + tx] = tile[tx, ty]


def stride_2(x, y):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    s[t + 32] = x[t + 32]
    cuda.syncthreads()
    y[t] = s[2 * t]


def stride_3(x, y):
    s = cuda.shared.array(96, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    s[t + 32] = x[t + 32]
    s[t + 64] = x[t + 64]
    cuda.syncthreads()
    y[t] = s[3 * t]


def doubles(x, y):
    s = cuda.shared.array(32, float64)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    y[t] = s[31 - t]


def one_word(x, y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    y[t] = s[5]


def two_words_of_a_bank(x, y):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    s[t + 32] = x[t + 32]
    cuda.syncthreads()
    y[t] = s[t % 2 * 32 + 7]


def interleaved_divergent(x, out):
    s = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    d = 1
    while d < 128:
        if t % (2 * d) == 0:
            s[t] += s[t + d]
        cuda.syncthreads()
        d *= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


def interleaved_conflicts(x, out):
    s = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    d = 1
    while d < 128:
        k = 2 * d * t
        if k < 128:
            s[k] += s[k + d]
        cuda.syncthreads()
        d *= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


def sequential(x, out):
    s = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    d = 64
    while d > 0:
        if t < d:
            s[t] += s[t + d]
        cuda.syncthreads()
        d //= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


def first_add(x, out):
    s = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    i = 256 * cuda.blockIdx.x + t
    s[t] = x[i] + x[i + 128]
    cuda.syncthreads()
    d = 64
    while d > 0:
        if t < d:
            s[t] += s[t + d]
        cuda.syncthreads()
        d //= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


def shuffles(x, out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    v = x[cuda.grid(1)]
    if t < 32:
        s[t] = 0.0
    cuda.syncthreads()
    d = 16
    while d > 0:
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, d)
        d //= 2
    if t % 32 == 0:
        s[t // 32] = v
    cuda.syncthreads()
    if t < 32:
        v = s[t]
        d = 16
        while d > 0:
            v += cuda.shfl_down_sync(0xFFFFFFFF, v, d)
            d //= 2
        if t == 0:
            out[cuda.blockIdx.x] = v


def matmul_tiled(a, b, c):
    sa = cuda.shared.array((WIDTH, WIDTH), float32)
    sb = cuda.shared.array((WIDTH, WIDTH), float32)
    x, y = cuda.grid(2)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    total = float32(0)
    for k in range(0, a.shape[1], WIDTH):
        sa[ty, tx] = a[y, k + tx]
        sb[ty, tx] = b[k + ty, x]
        cuda.syncthreads()
        for j in range(WIDTH):
            total += sa[ty, j] * sb[j, tx]
        cuda.syncthreads()
    c[y, x] = total


def ones(*shapes, dtype=np.float32):
    return lambda put: tuple(put(np.ones(shape, dtype)) for shape in shapes)


def reduction(loads, load_waves, ways, stores, store_waves, x=(8, 32)):
    """Two blocks of a reduction, given the shared requests of one."""
    return {
        "x load": Want(*x),
        "s load": Want(2 * loads, wavefronts=2 * load_waves, ways=ways),
        "s store": Want(
            2 * stores,
            wavefronts=2 * store_waves,
            ways=ways if store_waves > stores else 1,
        ),
        "out store": Want(2, 2),
    }


TILES = {
    "a load": Want(128, 512),
    "b store": Want(128, 512),
    "tile store": Want(128, wavefronts=128, ways=1),
}
ONE_WARP = {
    "x load": Want(1, 4),
    "s store": Want(1, wavefronts=1, ways=1),
    "y store": Want(1, 4),
}
TWO = {
    "x load": Want(2, 8),
    "s store": Want(2, wavefronts=2, ways=1),
    "y store": Want(1, 4),
}

ENTRIES = (
    # 64 x 64 in 4 tiles of 32 warps: both sides of global memory go along rows. Down a
    # column of the tile the words are 32 apart, all in one bank; 33 apart they are in
    # 32 banks.
    Entry(
        "transpose, tile unpadded",
        transpose_unpadded,
        (2, 2),
        (32, 32),
        ones((64, 64), (64, 64)),
        {**TILES, "tile load": Want(128, wavefronts=128 * 32, ways=32)},
    ),
    Entry(
        "transpose, tile padded",
        transpose_padded,
        (2, 2),
        (32, 32),
        ones((64, 64), (64, 64)),
        {**TILES, "tile load": Want(128, wavefronts=128, ways=1)},
    ),
    # Words 0, 2, ... 62: the 16 even banks have 2 each. Words 0, 3, ... 93: 3 and 32
    # share no factor, so 32 banks.
    Entry(
        "shared stride 2",
        stride_2,
        1,
        32,
        ones(64, 32),
        {**TWO, "s load": Want(1, wavefronts=2, ways=2)},
        reads_per_thread=2,
    ),
    Entry(
        "shared stride 3",
        stride_3,
        1,
        32,
        ones(96, 32),
        {
            "x load": Want(3, 12),
            "s store": Want(3, wavefronts=3, ways=1),
            "y store": Want(1, 4),
            "s load": Want(1, wavefronts=1, ways=1),
        },
        reads_per_thread=3,
    ),
    # 16 doubles are 32 words, one in each bank: two wavefronts, without a conflict.
    Entry(
        "shared float64",
        doubles,
        1,
        32,
        ones(32, 32, dtype=np.float64),
        {
            "x load": Want(1, 8),
            "y store": Want(1, 8),
            "s store": Want(1, wavefronts=2, ways=1),
            "s load": Want(1, wavefronts=2, ways=1),
        },
    ),
    # One word serves every lane that asks for it.
    Entry(
        "shared broadcast",
        one_word,
        1,
        32,
        ones(32, 32),
        {**ONE_WARP, "s load": Want(1, wavefronts=1, ways=1)},
    ),
    # Words 7 and 39, both in bank 7, for 16 lanes each: 2 wavefronts, not 16.
    Entry(
        "two words of a bank",
        two_words_of_a_bank,
        1,
        32,
        ones(64, 32),
        {**TWO, "s load": Want(1, wavefronts=2, ways=2)},
        reads_per_thread=2,
    ),
    # Steps d = 1 to 16: all 4 warps have an active lane (every 2d-th), 20 warps; d =
    # 32: warps 0 and 2; d = 64: warp 0. 23 warps: loads 2 x 23 and the last s[0],
    # stores 23 and the first 4; all within 32 words that follow each other, so no
    # conflicts. Branches: 4 warps x 8 tests of `while`, 4 x 7 of `if` and 4 of the last
    # `if`: 64; those 23, and warp 0 in the last, part. 127 sums a block. A block's 4
    # warps write one sum.
    Entry(
        "reduction 1, interleaved with divergence",
        interleaved_divergent,
        2,
        128,
        ones(256, 2),
        reduction(47, 47, 1, 27, 27),
        (128, 48),
        2 * 127,
        writes_per_thread=2 / 256,
    ),
    # Active are the first 128 / 2d threads: warps 0 and 1 for d = 1, warp 0 in the 6
    # steps after: 8 warps. Words are 2d apart: 2-way for d = 1 (twice), then 32 lanes
    # 4-way, 16 lanes 8 apart 4-way, 8 lanes 16 apart 4-way, 4 lanes 32 apart 4-way, 2
    # lanes 2-way, 1 lane: 2 x 2 + 4 x 4 + 2 + 1 = 23 wavefronts for each access. Loads
    # 2 x 23 + 1, stores 23 + 4. Warp 0 parts from d = 4 on (5 steps), and in the last
    # `if`.
    Entry(
        "reduction 2, interleaved with bank conflicts",
        interleaved_conflicts,
        2,
        128,
        ones(256, 2),
        reduction(17, 47, 4, 12, 27),
        (128, 12),
        2 * 127,
        writes_per_thread=2 / 256,
    ),
    # Active are the first d threads: 2 warps for d = 64, one in the 6 steps after,
    # words side by side. Warp 0 parts for d = 16 to 1 and in the last `if`.
    Entry(
        "reduction 3, sequential",
        sequential,
        2,
        128,
        ones(256, 2),
        reduction(17, 17, 1, 12, 12),
        (128, 12),
        2 * 127,
        writes_per_thread=2 / 256,
    ),
    # The same after one more sum for each thread: 2 loads, 16 requests in all.
    Entry(
        "reduction 4, first sum while loading",
        first_add,
        2,
        128,
        ones(512, 2),
        reduction(17, 17, 1, 12, 12, x=(16, 64)),
        (128, 12),
        2 * (127 + 128),
        2,
        2 / 256,
    ),
    # Shared: warp 0 clears 32 words, 4 warps write one word each, warp 0 reads 32.
    # Sums: 5 by each of 128 threads, and by 32. Branches a block: 4 + 4 x 6 tests of
    # `while` + 4 (all part) + 4 + 6 + 1 (parts).
    Entry(
        "reduction 5, shuffles",
        shuffles,
        2,
        128,
        ones(256, 2),
        reduction(1, 1, 1, 5, 5),
        (86, 10),
        2 * 5 * 160,
        writes_per_thread=2 / 256,
    ),
    # 32 x 32 in 4 blocks of 8 warps, each 2 rows of 16: 64 bytes of two rows, 4 sectors
    # and 2 lines. Two tiles: 64 requests. sa[ty, j]: two words, 16 apart; sb[j, tx]: 16
    # words for 2 lanes each: 32 warps x 2 x 16 requests.
    Entry(
        "matmul, tiled",
        matmul_tiled,
        (2, 2),
        (16, 16),
        ones((32, 32), (32, 32), (32, 32)),
        {
            "a load": Want(64, 256),
            "b load": Want(64, 256),
            "c store": Want(32, 128),
            "sa store": Want(64, wavefronts=64, ways=1),
            "sb store": Want(64, wavefronts=64, ways=1),
            "sa load": Want(1024, wavefronts=1024, ways=1),
            "sb load": Want(1024, wavefronts=1024, ways=1),
        },
        (32 + 64, 0),
        2 * 32**3,
        4,
    ),
)
