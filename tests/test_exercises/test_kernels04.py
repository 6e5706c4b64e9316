"""Right answers to notebook 04's kernels that are written in other ways than its solutions."""

import numpy as np
import pytest
from numba import cuda, float32, float64

from exercises.nb04 import numba_kernels
from tests.helpers import check


@cuda.jit
def bias_in_strides(x, bias, out):
    first_column, first_row = cuda.grid(2)
    wide, high = cuda.gridsize(2)
    for row in range(first_row, x.shape[0], high):
        for column in range(first_column, x.shape[1], wide):
            out[row, column] = x[row, column] + bias[column]


@cuda.jit
def bias_by_linear_index(x, bias, out):
    block = cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x
    i = (block * cuda.blockDim.y + cuda.threadIdx.y) * cuda.blockDim.x + cuda.threadIdx.x
    if i >= out.size:
        return
    row, column = i // x.shape[1], i % x.shape[1]
    out[row, column] = x[row, column] + bias[column]


@cuda.jit
def bias_through_shared_memory(x, bias, out):
    mine = cuda.shared.array(32, float32)
    column, row = cuda.grid(2)
    if cuda.threadIdx.y == 0 and column < bias.size:
        mine[cuda.threadIdx.x] = bias[column]
    cuda.syncthreads()
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = mine[cuda.threadIdx.x] + x[row, column]


@cuda.jit
def transpose_swizzled(a, out):
    tile = cuda.shared.array((32, 32), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + y < a.shape[0] and column + x < a.shape[1]:
        tile[y, x ^ y] = a[row + y, column + x]
    cuda.syncthreads()
    if column + y < out.shape[0] and row + x < out.shape[1]:
        out[column + y, row + x] = tile[x, y ^ x]


@cuda.jit
def transpose_rotated(a, out):
    tile = cuda.shared.array(1024, float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + y < a.shape[0] and column + x < a.shape[1]:
        tile[32 * y + (x + y) % 32] = a[row + y, column + x]
    cuda.syncthreads()
    if column + y < a.shape[1] and row + x < a.shape[0]:
        out[column + y, row + x] = tile[32 * x + (y + x) % 32]


@cuda.jit
def transpose_stored_by_columns(a, out):
    tile = cuda.shared.array((32, 35), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    inside = row < a.shape[0] and column < a.shape[1]
    tile[x, y] = a[row, column] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.blockIdx.y * 32 + x, cuda.blockIdx.x * 32 + y
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = tile[y, x]


@cuda.jit
def sum_in_float64(x, total):
    sums = cuda.shared.array(256, float64)
    i, t = cuda.grid(1), cuda.threadIdx.x
    sums[t] = x[i] if i < x.size else 0.0
    cuda.syncthreads()
    for step in range(8):
        half = 128 >> step
        if t < half:
            sums[t] += sums[t + half]
        cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(total, 0, float32(sums[0]))


@cuda.jit
def sum_of_shuffles_in_float64(x, total):
    sums = cuda.shared.array(8, float64)
    i, t = cuda.grid(1), cuda.threadIdx.x
    mine = float64(x[i]) if i < x.size else 0.0
    step = 16
    while step > 0:
        mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, step)
        step //= 2
    if t % 32 == 0:
        sums[t // 32] = mine
    cuda.syncthreads()
    if t < 4:
        sums[t] += sums[t + 4]
        cuda.syncwarp(15)
        if t < 2:
            sums[t] += sums[t + 2]
        cuda.syncwarp(15)
        if t == 0:
            cuda.atomic.add(total, 0, sums[0] + sums[1])


@cuda.jit
def sum_of_halves_then_shuffles(x, total):
    sums = cuda.shared.array(128, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    mine = x[i] if i < x.size else float32(0)
    half = 128
    while half >= 32:
        if half <= t < 2 * half:
            sums[t - half] = mine
        cuda.syncthreads()
        if t < half:
            mine += sums[t]
        cuda.syncthreads()
        half //= 2
    if t < 32:
        for step in range(5):
            mine += cuda.shfl_xor_sync(0xFFFFFFFF, mine, 1 << step)
        if t == 0:
            cuda.atomic.add(total, 0, mine)


@cuda.jit
def sum_with_an_atomic_a_warp_in_shared_memory(x, total):
    mine = cuda.shared.array(1, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t == 0:
        mine[0] = 0
    own = x[i] if i < x.size else float32(0)
    for step in range(5):
        own += cuda.shfl_xor_sync(0xFFFFFFFF, own, 1 << step)
    cuda.syncthreads()
    if t % 32 == 0:
        cuda.atomic.add(mine, 0, own)
    cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(total, 0, mine[0])


@cuda.jit
def sum_of_eight_a_lane(x, total):
    sums = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    sums[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    if t < 32:
        mine = float32(0)
        for k in range(t, 256, 32):
            mine += sums[k]
        for step in range(5):
            mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 16 >> step)
        if t == 0:
            cuda.atomic.add(total, 0, mine)


@cuda.jit
def sum_whose_last_warp_waits_for_itself(x, total):
    sums = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    sums[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = 128
    while half >= 32:
        if t < half:
            sums[t] += sums[t + half]
        cuda.syncthreads()
        half //= 2
    if t < 32:
        while half > 0:
            other = sums[t + half] if t < half else float32(0)
            cuda.syncwarp()
            sums[t] += other
            cuda.syncwarp()
            half //= 2
        if t == 0:
            cuda.atomic.add(total, 0, sums[0])


@cuda.jit
def sum_of_32_words_by_atomics(x, total):
    sums = cuda.shared.array(32, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < 32:
        sums[t] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(sums, t % 32, x[i])
    cuda.syncthreads()
    if t < 32:
        mine = sums[t]
        for step in range(5):
            mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 16 >> step)
        if t == 0:
            cuda.atomic.add(total, 0, mine)


@cuda.jit
def matmul_with_one_shared_array(a, b, c):
    tiles = cuda.shared.array((2, 16, 17), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = float64(0)
    for tile in range((a.shape[1] + 15) // 16):
        k = 16 * tile
        tiles[0, y, x] = a[row, k + x] if row < a.shape[0] and k + x < a.shape[1] else 0
        tiles[1, y, x] = b[k + y, column] if k + y < b.shape[0] and column < b.shape[1] else 0
        cuda.syncthreads()
        for i in range(15, -1, -1):
            product += tiles[0, y, i] * tiles[1, i, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product


@cuda.jit
def matmul_with_a_padded_transposed_tile(a, b, c):
    """17 numbers a row keep the transposed tile free of conflicts."""
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 17), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = float32(0)
    for k in range(0, a.shape[1], 16):
        tile_a[y, x] = a[row, k + x] if row < a.shape[0] and k + x < a.shape[1] else 0
        tile_b[x, y] = b[k + y, column] if k + y < b.shape[0] and column < b.shape[1] else 0
        cuda.syncthreads()
        for i in range(16):
            product += tile_a[y, i] * tile_b[x, i]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product


@cuda.jit
def matmul_with_two_pairs_of_tiles(a, b, c):
    """Loads the next tiles while it uses these: one barrier a step."""
    tile_a = cuda.shared.array((2, 16, 16), float32)
    tile_b = cuda.shared.array((2, 16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = float32(0)
    for step in range((a.shape[1] + 15) // 16):
        now, k = step % 2, 16 * step
        tile_a[now, y, x] = a[row, k + x] if row < a.shape[0] and k + x < a.shape[1] else float32(0)
        tile_b[now, y, x] = b[k + y, column] if k + y < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for i in range(16):
            product += tile_a[now, y, i] * tile_b[now, i, x]
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product


@cuda.jit
def matmul_up_to_the_last_number(a, b, c):
    """Adds only the products that exist, so that its tiles need no zeros."""
    tile_a, tile_b = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    inside, product = row < c.shape[0] and column < c.shape[1], float32(0)
    for k in range(0, a.shape[1], 16):
        if row < a.shape[0] and k + x < a.shape[1]:
            tile_a[y, x] = a[row, k + x]
        if k + y < b.shape[0] and column < b.shape[1]:
            tile_b[y, x] = b[k + y, column]
        cuda.syncthreads()
        if inside:
            for i in range(min(16, a.shape[1] - k)):
                product += tile_a[y, i] * tile_b[i, x]
        cuda.syncthreads()
    if inside:
        c[row, column] = product


@cuda.jit
def matmul_with_a_half_for_each_tile(a, b, c):
    """The first 128 threads load two numbers of a each, the others two of b."""
    tile_a, tile_b = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    top, left, product = cuda.blockIdx.y * 16, cuda.blockIdx.x * 16, float32(0)
    for k in range(0, a.shape[1], 16):
        for i in range(y % 8, 16, 8):
            if y < 8:
                inside = top + i < a.shape[0] and k + x < a.shape[1]
                tile_a[i, x] = a[top + i, k + x] if inside else float32(0)
            else:
                inside = k + i < b.shape[0] and left + x < b.shape[1]
                tile_b[i, x] = b[k + i, left + x] if inside else float32(0)
        cuda.syncthreads()
        for i in range(16):
            product += tile_a[y, i] * tile_b[i, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product


def sectors_by_numpy(stride, offset, element_bytes):
    return np.unique((offset + np.arange(32) * stride) * element_bytes >> 5).size


def sectors_by_formula(stride, offset, element_bytes):
    first, last = offset * element_bytes // 32, (offset + 31 * stride) * element_bytes // 32
    return min(32, last - first + 1)


RIGHT = {
    "04.1": [sectors_by_numpy, sectors_by_formula],
    "04.2": [bias_in_strides, bias_by_linear_index, bias_through_shared_memory],
    "04.3": [transpose_swizzled, transpose_rotated, transpose_stored_by_columns],
    "04.5": [
        numba_kernels.sum_shared, numba_kernels.sum_shuffle, sum_in_float64, sum_of_shuffles_in_float64,
        sum_of_halves_then_shuffles, sum_with_an_atomic_a_warp_in_shared_memory, sum_of_eight_a_lane,
        sum_whose_last_warp_waits_for_itself, sum_of_32_words_by_atomics,
    ],
    "04.6": [
        numba_kernels.matmul_tiled, matmul_with_one_shared_array, matmul_with_two_pairs_of_tiles,
        matmul_with_a_padded_transposed_tile,
        matmul_up_to_the_last_number, matmul_with_a_half_for_each_tile,
    ],
}  # fmt: skip
CASES = [pytest.param(number, answer, id=answer.__name__) for number in RIGHT for answer in RIGHT[number]]


@pytest.mark.parametrize(("number", "answer"), CASES)
def test_it_is_accepted(number, answer):
    outcome = check(number, answer)
    assert outcome.state == "passed", outcome
