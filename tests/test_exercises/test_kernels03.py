"""Right answers to notebook 03's kernels that are written in other ways than its solutions."""

import numpy as np
import pytest
from numba import cuda, float32, int32

from tests.helpers import check


@cuda.jit
def double_from_the_end(x, out):
    i = x.size - 1 - (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    if i >= 0:
        out[i] = 2 * x[i]


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


@cuda.jit
def double_through_shared_memory(x, out):
    mine = cuda.shared.array(256, float32)
    i, t = int32(cuda.grid(1)), cuda.threadIdx.x
    mine[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    if i < x.size:
        out[i] = 2 * mine[t]


@cuda.jit
def relu_a_piece_a_block(x, out):
    piece = (x.size + cuda.gridDim.x - 1) // cuda.gridDim.x
    start = cuda.blockIdx.x * piece
    for i in range(start + cuda.threadIdx.x, min(start + piece, x.size), cuda.blockDim.x):
        out[i] = max(x[i], float32(0))


@cuda.jit
def relu_in_pairs(x, out):
    for pair in range(cuda.grid(1), (x.size + 1) // 2, cuda.gridsize(1)):
        for i in range(2 * pair, min(2 * pair + 2, x.size)):
            out[i] = x[i] if x[i] > 0 else float32(0)


@cuda.jit
def relu_without_a_branch(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = (x[i] + abs(x[i])) / 2


@cuda.jit
def relu_in_guarded_rounds(x, out):
    threads = cuda.gridsize(1)
    for turn in range((x.size + threads - 1) // threads):
        i = turn * threads + cuda.grid(1)
        if i < x.size:
            out[i] = x[i] * (x[i] > 0)


@cuda.jit(device=True)
def positive(value):
    return value if value > 0 else float32(0)


@cuda.jit(fastmath=True)
def relu_with_a_helper(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = positive(x[i])


@cuda.jit
def histogram_in_shared_memory(values, counts):
    mine = cuda.shared.array(8, int32)
    t = cuda.threadIdx.x
    if t < 8:
        mine[t] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(mine, values[i], 1)
    cuda.syncthreads()
    if t < 8:
        cuda.atomic.add(counts, t, mine[t])


@cuda.jit
def histogram_in_strides(values, counts):
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(counts, values[i], 1)


@cuda.jit
def histogram_by_exchange(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        seen = counts[values[i]]
        while True:
            found = cuda.atomic.cas(counts, values[i], seen, seen + 1)
            if found == seen:
                break
            seen = found


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
def saxpy_from_the_end(a, x, y):
    i = x.size - 1 - cuda.grid(1)
    while i >= 0:
        y[i] += a * x[i]
        i -= cuda.gridsize(1)


@cuda.jit
def blur_by_linear_index(image, out):
    column, row = cuda.grid(2)
    rows, columns = image.shape
    threads = cuda.gridDim.x * cuda.blockDim.x
    for i in range(row * threads + column, rows * columns, threads * cuda.gridDim.y * cuda.blockDim.y):
        r, c = i // columns, i % columns
        total, count = float32(0), 0
        for dr in range(-1, 2):
            for dc in range(-1, 2):
                if 0 <= r + dr < rows and 0 <= c + dc < columns:
                    total += image[r + dr, c + dc]
                    count += 1
        out[r, c] = total / count


@cuda.jit
def blur_with_counted_edges(image, out):
    column, row = cuda.grid(2)
    rows, columns = image.shape
    if row >= rows or column >= columns:
        return
    high = 3 - (row == 0) - (row == rows - 1)
    wide = 3 - (column == 0) - (column == columns - 1)
    total = float32(0)
    for r in range(max(row - 1, 0), min(row + 2, rows)):
        for c in range(max(column - 1, 0), min(column + 2, columns)):
            total += image[r, c]
    out[row, column] = total / (high * wide)


@cuda.jit
def blur_of_a_shared_tile(image, out):
    tile = cuda.shared.array((18, 18), float32)
    column, row = cuda.grid(2)
    high, wide = cuda.blockDim.y + 2, cuda.blockDim.x + 2
    top, left = cuda.blockIdx.y * cuda.blockDim.y - 1, cuda.blockIdx.x * cuda.blockDim.x - 1
    first = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(first, high * wide, cuda.blockDim.x * cuda.blockDim.y):
        r, c = top + i // wide, left + i % wide
        inside = 0 <= r < image.shape[0] and 0 <= c < image.shape[1]
        tile[i // wide, i % wide] = image[r, c] if inside else float32(0)
    cuda.syncthreads()
    if row < image.shape[0] and column < image.shape[1]:
        total, count = float32(0), 0
        for r in range(3):
            for c in range(3):
                total += tile[cuda.threadIdx.y + r, cuda.threadIdx.x + c]
                count += 0 <= row + r - 1 < image.shape[0] and 0 <= column + c - 1 < image.shape[1]
        out[row, column] = total / count


RIGHT = {
    "03.1": [double_from_the_end, double_after_a_return, double_in_strides, double_through_shared_memory],
    "03.2": [
        relu_a_piece_a_block, relu_in_pairs, relu_without_a_branch, relu_in_guarded_rounds, relu_with_a_helper,
    ],
    "03.5": [
        histogram_in_shared_memory, histogram_in_strides, histogram_by_exchange, histogram_by_votes,
    ],
    "03.6": [saxpy_with_fma, saxpy_from_the_end],
    "03.7": [blur_by_linear_index, blur_with_counted_edges, blur_of_a_shared_tile],
}  # fmt: skip
CASES = [pytest.param(number, answer, id=answer.__name__) for number in RIGHT for answer in RIGHT[number]]


@pytest.mark.parametrize(("number", "answer"), CASES)
def test_it_is_accepted(number, answer):
    outcome = check(number, answer)
    assert outcome.state == "passed", outcome


def test_an_array_of_the_notebook_called_x_is_not_the_x_of_an_index(monkeypatch):
    monkeypatch.setitem(double_after_a_return.py_func.__globals__, "x", np.ones(3))
    assert check("03.1", double_after_a_return).state == "passed"
