"""Right kernels of 03 and 04 that do it in another way than the solutions: each must
pass.
"""

import numpy as np
import pytest
from numba import cuda, float32, float64

from exercises.nb04 import numba_kernels
from kerneltrace import trace
from tests.helpers import check

pytestmark = pytest.mark.slow  # traces each kernel at several sizes


@cuda.jit
def double_after_a_return(x, out):
    i = cuda.threadIdx.x + cuda.blockDim.x * cuda.blockIdx.x
    if i >= len(out):
        return
    out[i] = x[i] + x[i]


@cuda.jit
def double_in_strides(x, out):
    i = cuda.grid(1)
    while i < x.shape[0]:
        out[i] = x[i] * np.float32(2)
        i += cuda.gridDim.x * cuda.blockDim.x


@cuda.jit(device=True)
def positive(value):
    return value if value > 0 else float32(0)


@cuda.jit(fastmath=True)
def relu_with_a_helper(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = positive(x[i])


@cuda.jit
def relu_without_a_comparison(x, out):
    i = cuda.grid(1)
    while i < len(out):
        out[i] = float32(0.5) * (x[i] + abs(x[i]))
        i += cuda.gridsize(1)


@cuda.jit
def histogram_by_votes(values, counts):
    i = cuda.grid(1)
    mine = values[i] if i < values.size else -1
    for value in range(8):
        same = cuda.ballot_sync(0xFFFFFFFF, mine == value)
        if cuda.laneid == 0 and same:
            cuda.atomic.add(counts, value, cuda.popc(same))


@cuda.jit
def saxpy_with_fma(a, x, y):
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[i] = cuda.fma(a, x[i], y[i])


@cuda.jit
def blur_of_a_shared_tile(image, out):
    tile = cuda.shared.array((18, 18), float32)
    column, row = cuda.grid(2)
    high = cuda.blockDim.y + 2
    wide = cuda.blockDim.x + 2
    top = cuda.blockIdx.y * cuda.blockDim.y - 1
    left = cuda.blockIdx.x * cuda.blockDim.x - 1
    first = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(first, high * wide, cuda.blockDim.x * cuda.blockDim.y):
        r = top + i // wide
        c = left + i % wide
        inside = 0 <= r < image.shape[0] and 0 <= c < image.shape[1]
        tile[i // wide, i % wide] = image[r, c] if inside else float32(0)
    cuda.syncthreads()
    if row < image.shape[0] and column < image.shape[1]:
        total = float32(0)
        count = 0
        for r in range(3):
            for c in range(3):
                total += tile[cuda.threadIdx.y + r, cuda.threadIdx.x + c]
                count += (
                    0 <= row + r - 1 < image.shape[0]
                    and 0 <= column + c - 1 < image.shape[1]
                )
        out[row, column] = total / count


@cuda.jit
def blur_by_a_running_mean(image, out):
    column, row = cuda.grid(2)
    if row >= image.shape[0] or column >= image.shape[1]:
        return
    mean = float32(0)
    count = 0
    for r in range(row - 1, row + 2):
        if r < 0 or r >= image.shape[0]:
            continue
        for c in range(column + 1, column - 2, -1):
            if c >= 0 and c < image.shape[1]:
                count += 1
                mean += (image[r, c] - mean) / float32(count)
    out[row, column] = mean


@cuda.jit
def bias_by_linear_index(x, bias, out):
    block = cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x
    i = (
        block * cuda.blockDim.y + cuda.threadIdx.y
    ) * cuda.blockDim.x + cuda.threadIdx.x
    if i >= out.size:
        return
    row = i // x.shape[1]
    column = i % x.shape[1]
    out[row, column] = x[row, column] + bias[column]


@cuda.jit
def transpose_swizzled(a, out):
    tile = cuda.shared.array((32, 32), float32)
    x = cuda.threadIdx.x
    y = cuda.threadIdx.y
    column = cuda.blockIdx.x * 32
    row = cuda.blockIdx.y * 32
    if row + y < a.shape[0] and column + x < a.shape[1]:
        tile[y, x ^ y] = a[row + y, column + x]
    cuda.syncthreads()
    if column + y < out.shape[0] and row + x < out.shape[1]:
        out[column + y, row + x] = tile[x, y ^ x]


@cuda.jit
def sum_of_shuffles_in_float64(x, total):
    sums = cuda.shared.array(8, float64)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    mine = float64(x[i]) if i < x.size else 0.0
    step = 16
    while step > 0:
        mine += cuda.shfl_down_sync(-1, mine, step)
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
def sum_by_butterflies(x, total):
    """Every lane of a warp ends with the warp's sum, then every lane with the block's."""
    sums = cuda.shared.array(32, float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    mine = float32(0) if i >= len(x) else x[i]
    for step in (1, 2, 4, 8, 16):
        mine += cuda.shfl_xor_sync(0xFFFFFFFF, mine, step)
    if t % 32 == 0:
        sums[t // 32] = mine
    cuda.syncthreads()
    if t < 32:
        mine = sums[t] if t < 8 else float32(0)
        for step in (4, 2, 1):
            mine += cuda.shfl_xor_sync(0xFFFFFFFF, mine, step)
        if t == 0:
            cuda.atomic.add(total, 0, mine)


@cuda.jit
def matmul_from_the_last_tile(a, b, c):
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    x = cuda.threadIdx.x
    y = cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = float32(0)
    first = (a.shape[1] + 15) // 16 * 16
    while first > 0:
        first -= 16
        in_a = row < a.shape[0] and first + x < a.shape[1]
        in_b = first + y < b.shape[0] and column < b.shape[1]
        tile_a[y, x] = a[row, first + x] if in_a else float32(0)
        tile_b[y, x] = b[first + y, column] if in_b else float32(0)
        cuda.syncthreads()
        for k in range(16):
            product = cuda.fma(tile_a[y, k], tile_b[k, x], product)
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product


@cuda.jit
def matmul_with_one_shared_array(a, b, c):
    tiles = cuda.shared.array((2, 16, 17), float32)
    x = cuda.threadIdx.x
    y = cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = float64(0)
    for tile in range((a.shape[1] + 15) // 16):
        k = 16 * tile
        tiles[0, y, x] = a[row, k + x] if row < a.shape[0] and k + x < a.shape[1] else 0
        tiles[1, y, x] = (
            b[k + y, column] if k + y < b.shape[0] and column < b.shape[1] else 0
        )
        cuda.syncthreads()
        for i in range(15, -1, -1):
            product += tiles[0, y, i] * tiles[1, i, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product


@cuda.jit
def matmul_up_to_the_last_number(a, b, c):
    """Adds only the products that exist, so that its tiles need no zeros."""
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    x = cuda.threadIdx.x
    y = cuda.threadIdx.y
    column, row = cuda.grid(2)
    inside = row < c.shape[0] and column < c.shape[1]
    product = float32(0)
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


def sectors_by_formula(stride, offset, element_bytes):
    first = offset * element_bytes // 32
    last = (offset + 31 * stride) * element_bytes // 32
    return min(32, last - first + 1)


RIGHT = {
    "03.1": [double_after_a_return, double_in_strides],
    "03.2": [relu_with_a_helper, relu_without_a_comparison],
    "03.5": [histogram_by_votes],
    "03.6": [saxpy_with_fma],
    "03.7": [blur_of_a_shared_tile, blur_by_a_running_mean],
    "04.1": [sectors_by_formula],
    "04.2": [bias_by_linear_index],
    "04.3": [transpose_swizzled],
    "04.5": [
        numba_kernels.sum_shared,
        numba_kernels.sum_shuffle,
        sum_of_shuffles_in_float64,
        sum_by_butterflies,
    ],
    "04.6": [
        numba_kernels.matmul_tiled,
        matmul_with_one_shared_array,
        matmul_from_the_last_tile,
        matmul_up_to_the_last_number,
    ],
}
CASES = [
    pytest.param(number, answer, id=answer.__name__)
    for number, answers in RIGHT.items()
    for answer in answers
]


@pytest.mark.parametrize(("number", "answer"), CASES)
def test_a_right_kernel_passes(number, answer):
    outcome = check(number, answer)
    assert outcome.state == "passed", outcome


def test_an_array_of_the_notebook_called_x_is_not_the_x_of_an_index(monkeypatch):
    monkeypatch.setitem(double_after_a_return.py_func.__globals__, "x", np.ones(3))
    assert check("03.1", double_after_a_return).state == "passed"


def test_the_blocked_multiplication_of_04_is_right_and_has_no_finding():
    a, b = np.random.default_rng(0).standard_normal((2, 20, 20), np.float32)
    c = np.full((20, 20), np.nan, np.float32)
    run = trace(numba_kernels.matmul_blocked, 1, 256, a, b, c)
    assert not run.findings
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
