"""Plausible wrong answers of notebook 03: number -> (answer, words the check must say, misconception)."""

import numpy as np
from numba import cuda, float32, int32


@cuda.jit
def double_without_guard(x, out):
    i = cuda.grid(1)
    out[i] = 2 * x[i]


@cuda.jit
def double_with_a_guard_one_too_far(x, out):
    i = cuda.grid(1)
    if i <= x.size:
        out[i] = 2 * x[i]


@cuda.jit
def double_in_the_first_block_only(x, out):
    i = cuda.threadIdx.x
    if i < x.size:
        out[i] = 2 * x[i]


@cuda.jit
def double_for_blocks_of_256(x, out):
    i = cuda.blockIdx.x * 256 + cuda.threadIdx.x
    if i < x.size:
        out[i] = 2 * x[i]


@cuda.jit
def double_in_full_blocks_only(x, out):
    """Right only for multiples of the block."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if cuda.blockIdx.x < x.size // cuda.blockDim.x:
        out[i] = 2 * x[i]


@cuda.jit
def double_by_one_thread(x, out):
    if cuda.grid(1) == 0:
        for i in range(x.size):
            out[i] = 2 * x[i]


@cuda.jit
def double_in_place(x, out):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = 2 * x[i]
        out[i] = x[i]


@cuda.jit
def open_double(x, wrong):
    i = cuda.grid(1)
    if i < x.size:
        wrong[i] = 2 * x[i]


def double_without_the_decorator(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 2 * x[i]


@cuda.jit
def double_with_a_list(x, out):
    """Python's lists don't exist on a GPU."""
    mine = []
    i = cuda.grid(1)
    if i < x.size:
        mine.append(2 * x[i])
        out[i] = mine[0]


@cuda.jit
def double_through_a_block_of_any_size(x, out):
    """The compiler has to know the size of a shared array."""
    mine = cuda.shared.array(cuda.blockDim.x, float32)
    i = cuda.grid(1)
    if i < x.size:
        mine[cuda.threadIdx.x] = 2 * x[i]
        out[i] = mine[cuda.threadIdx.x]


@cuda.jit
def double_by_the_first_half(x, out):
    """A thread for two elements, and another for none."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for k in range(2 * i, min(2 * i + 2, x.size)):
        out[k] = 2 * x[k]


@cuda.jit
def relu_in_strides_of_two_blocks(x, out):
    """Right for grids of two blocks."""
    for i in range(cuda.grid(1), x.size, 2 * cuda.blockDim.x):
        out[i] = max(x[i], 0)


@cuda.jit
def relu_in_strides_of_128(x, out):
    """Right for grids of 128 threads."""
    for i in range(cuda.grid(1), x.size, 128):
        out[i] = max(x[i], 0)


@cuda.jit
def relu_by_128_threads(x, out):
    """However large the grid is, no more than 128 threads work."""
    threads = min(cuda.gridsize(1), 128)
    if cuda.grid(1) < threads:
        for i in range(cuda.grid(1), x.size, threads):
            out[i] = max(x[i], 0)


@cuda.jit
def relu_by_half_of_the_threads(x, out):
    threads = (cuda.gridsize(1) + 1) // 2
    if cuda.grid(1) < threads:
        for i in range(cuda.grid(1), x.size, threads):
            out[i] = max(x[i], 0)


@cuda.jit
def relu_with_numpy(x, out):
    """NumPy's functions for whole arrays are not for a GPU's threads."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = np.clip(x[i], 0, None)


@cuda.jit
def relu_that_leaks(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = max(x[i], np.float32(0.01) * x[i])


@cuda.jit
def relu_up_to_6(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = min(max(x[i], np.float32(0)), np.float32(6))


@cuda.jit
def relu_of_what_is_above_a_thousandth(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = x[i] if x[i] > np.float32(0.001) else np.float32(0)


@cuda.jit
def relu_in_eight_rounds(x, out):
    i = cuda.grid(1)
    for _ in range(8):
        if i < x.size:
            out[i] = max(x[i], np.float32(0))
        i += cuda.gridsize(1)


@cuda.jit
def relu_in_place(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        x[i] = max(x[i], np.float32(0))


@cuda.jit
def relu_once_a_thread(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = max(x[i], 0)


@cuda.jit
def relu_in_strides_of_a_block(x, out):
    """A race that happens to pass: blocks repeat each other's elements."""
    for i in range(cuda.grid(1), x.size, cuda.blockDim.x):
        out[i] = max(x[i], 0)


@cuda.jit
def relu_in_whole_rounds_only(x, out):
    """Right only for multiples of the grid."""
    for turn in range(x.size // cuda.gridsize(1)):
        i = cuda.grid(1) + turn * cuda.gridsize(1)
        out[i] = max(x[i], 0)


@cuda.jit
def relu_in_a_round_too_many(x, out):
    for turn in range(x.size // cuda.gridsize(1) + 1):
        i = cuda.grid(1) + turn * cuda.gridsize(1)
        out[i] = max(x[i], 0)


@cuda.jit
def relu_of_positive_numbers_only(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        if x[i] > 0:
            out[i] = x[i]


@cuda.jit
def relu_a_piece_a_thread(x, out):
    """Correct, but neighboring threads are far apart."""
    piece = (x.size + cuda.gridsize(1) - 1) // cuda.gridsize(1)
    start = cuda.grid(1) * piece
    for i in range(start, min(start + piece, x.size)):
        out[i] = max(x[i], 0)


@cuda.jit
def histogram_as_found(values, counts):
    i = cuda.threadIdx.x + cuda.blockIdx.x
    counts[values[i]] += 1


@cuda.jit
def histogram_with_a_race(values, counts):
    """A race that happens to pass: traced one thread after another, the counts come out right."""
    i = cuda.grid(1)
    if i < values.size:
        counts[values[i]] += 1


@cuda.jit
def histogram_without_guard(values, counts):
    cuda.atomic.add(counts, values[cuda.grid(1)], 1)


@cuda.jit
def histogram_with_the_wrong_index(values, counts):
    i = cuda.threadIdx.x + cuda.blockIdx.x
    if i < values.size:
        cuda.atomic.add(counts, values[i], 1)


@cuda.jit
def histogram_by_one_thread(values, counts):
    if cuda.grid(1) == 0:
        for i in range(values.size):
            counts[values[i]] += 1


@cuda.jit
def histogram_of_indices(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(counts, i % counts.size, 1)


@cuda.jit
def histogram_with_a_barrier(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        counts[values[i]] += 1
    cuda.syncthreads()


@cuda.jit
def histogram_in_shared_memory_unset(values, counts):
    mine = cuda.shared.array(8, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i < values.size:
        cuda.atomic.add(mine, values[i], 1)
    cuda.syncthreads()
    if t < 8:
        cuda.atomic.add(counts, t, mine[t])


@cuda.jit
def histogram_in_shared_memory_too_early(values, counts):
    """No barrier between the counting and the adding up."""
    mine = cuda.shared.array(8, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < 8:
        mine[t] = 0
    cuda.syncthreads()
    if i < values.size:
        cuda.atomic.add(mine, values[i], 1)
    if t < 8:
        cuda.atomic.add(counts, t, mine[t])


@cuda.jit
def histogram_of_a_block(values, counts):
    """Each block overwrites what the others counted."""
    mine = cuda.shared.array(8, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < 8:
        mine[t] = 0
    cuda.syncthreads()
    if i < values.size:
        cuda.atomic.add(mine, values[i], 1)
    cuda.syncthreads()
    if t < 8:
        counts[t] = mine[t]


@cuda.jit
def histogram_added_without_an_atomic(values, counts):
    """One thread a block adds to counts: within a block that is no race."""
    mine = cuda.shared.array(8, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < 8:
        mine[t] = 0
    cuda.syncthreads()
    if i < values.size:
        cuda.atomic.add(mine, values[i], 1)
    cuda.syncthreads()
    if t < 8:
        counts[t] += mine[t]


@cuda.jit
def histogram_of_a_thread_a_count(values, counts):
    """No race, and eight threads read all values."""
    t = cuda.grid(1)
    if t < counts.size:
        for i in range(values.size):
            if values[i] == t:
                counts[t] += 1


@cuda.jit
def histogram_with_a_fence(values, counts):
    """A fence orders what one thread does, and keeps no other out."""
    i = cuda.grid(1)
    if i < values.size:
        counts[values[i]] += 1
        cuda.threadfence()


@cuda.jit
def histogram_that_swaps_once(values, counts):
    """A swap fails where another thread was first, and here nobody tries again."""
    i = cuda.grid(1)
    if i < values.size:
        seen = counts[values[i]]
        cuda.atomic.cas(counts, values[i], seen, seen + 1)


@cuda.jit
def histogram_that_counts_without_an_atomic_after_a_failed_swap(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        v = values[i]
        seen = counts[v]
        if cuda.atomic.cas(counts, v, seen, seen + 1) != seen:
            counts[v] += 1


@cuda.jit
def saxpy_in_strides_of_two_blocks(a, x, y):
    for i in range(cuda.grid(1), x.size, 2 * cuda.blockDim.x):
        y[i] = a * x[i] + y[i]


@cuda.jit
def saxpy_by_the_first_block(a, x, y):
    if cuda.blockIdx.x == 0:
        for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
            y[i] = a * x[i] + y[i]


@cuda.jit
def saxpy_of_the_sum(a, x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = a * (x[i] + y[i])


@cuda.jit
def saxpy_once_a_thread(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@cuda.jit
def saxpy_in_whole_rounds_only(a, x, y):
    """Right only for multiples of the grid."""
    for turn in range(x.size // cuda.gridsize(1)):
        i = cuda.grid(1) + turn * cuda.gridsize(1)
        y[i] = a * x[i] + y[i]


@cuda.jit
def saxpy_into_x(a, x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        x[i] = a * x[i] + y[i]


@cuda.jit
def saxpy_a_piece_a_thread(a, x, y):
    piece = (x.size + cuda.gridsize(1) - 1) // cuda.gridsize(1)
    start = cuda.grid(1) * piece
    for i in range(start, min(start + piece, x.size)):
        y[i] = a * x[i] + y[i]


@cuda.jit(device=True)
def _mean(image, row, column):
    total = np.float32(0)
    count = 0
    for r in range(max(row - 1, 0), min(row + 2, image.shape[0])):
        for c in range(max(column - 1, 0), min(column + 2, image.shape[1])):
            total += image[r, c]
            count += 1
    return total / count


@cuda.jit
def blur_without_edges(image, out):
    column, row = cuda.grid(2)
    if 0 < row < image.shape[0] - 1 and 0 < column < image.shape[1] - 1:
        out[row, column] = _mean(image, row, column)


@cuda.jit
def blur_over_nine(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        total = np.float32(0)
        for r in range(max(row - 1, 0), min(row + 2, image.shape[0])):
            for c in range(max(column - 1, 0), min(column + 2, image.shape[1])):
                total += image[r, c]
        out[row, column] = total / 9


@cuda.jit
def blur_past_the_edges(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        total = np.float32(0)
        for r in range(row - 1, row + 2):
            for c in range(column - 1, column + 2):
                total += image[r, c]
        out[row, column] = total / 9


@cuda.jit
def blur_of_square_images(image, out):
    row, column = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        out[row, column] = _mean(image, row, column)


@cuda.jit
def blur_with_the_guards_swapped(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[1] and column < image.shape[0]:
        out[row, column] = _mean(image, row, column)


@cuda.jit
def blur_with_one_guard(image, out):
    column, row = cuda.grid(2)
    if column < image.shape[1]:
        out[row, column] = _mean(image, row, column)


@cuda.jit
def blur_in_place(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        image[row, column] = _mean(image, row, column)
        out[row, column] = image[row, column]


@cuda.jit
def blur_of_full_blocks_only(image, out):
    """Right only for multiples of the block."""
    column, row = cuda.grid(2)
    blocks_down, blocks_across = (
        image.shape[0] // cuda.blockDim.y,
        image.shape[1] // cuda.blockDim.x,
    )
    if cuda.blockIdx.y < blocks_down and cuda.blockIdx.x < blocks_across:
        out[row, column] = _mean(image, row, column)


@cuda.jit
def blur_of_a_cross(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        total = np.float32(0)
        count = 0
        for r in range(max(row - 1, 0), min(row + 2, image.shape[0])):
            for c in range(max(column - 1, 0), min(column + 2, image.shape[1])):
                if r == row or c == column:
                    total += image[r, c]
                    count += 1
        out[row, column] = total / count


@cuda.jit
def blur_by_one_thread(image, out):
    column, row = cuda.grid(2)
    if row == 0 and column == 0:
        for r in range(image.shape[0]):
            for c in range(image.shape[1]):
                out[r, c] = _mean(image, r, c)


def _sum_of_nine(image, row, column):
    total = np.float32(0)
    for r in range(row - 1, row + 2):
        for c in range(column - 1, column + 2):
            total += image[
                min(max(r, 0), image.shape[0] - 1), min(max(c, 0), image.shape[1] - 1)
            ]
    return total


@cuda.jit
def blur_with_a_helper_for_the_cpu(image, out):
    """A function that a kernel calls needs @cuda.jit(device=True)."""
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        out[row, column] = _sum_of_nine(image, row, column) / 9


@cuda.jit
def blur_with_edges_repeated(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        total = np.float32(0)
        for r in range(row - 1, row + 2):
            for c in range(column - 1, column + 2):
                total += image[
                    min(max(r, 0), image.shape[0] - 1), min(max(c, 0), image.shape[1] - 1)
                ]
        out[row, column] = total / 9


@cuda.jit
def blur_a_row_a_thread(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column == 0:
        for c in range(image.shape[1]):
            out[row, c] = _mean(image, row, c)


@cuda.jit
def blur_of_a_shared_tile_too_early(image, out):
    """Reads what its neighbors put into shared memory, without a barrier."""
    tile = cuda.shared.array((16, 16), float32)
    column, row = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if row < image.shape[0] and column < image.shape[1]:
        tile[y, x] = image[row, column]
        total = np.float32(0)
        count = 0
        for r in range(max(row - 1, 0), min(row + 2, image.shape[0])):
            for c in range(max(column - 1, 0), min(column + 2, image.shape[1])):
                inside = (
                    0 <= y + r - row < cuda.blockDim.y and 0 <= x + c - column < cuda.blockDim.x
                )
                total += tile[y + r - row, x + c - column] if inside else image[r, c]
                count += 1
        out[row, column] = total / count


@cuda.jit
def saxpy_by_atomics(a, x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(y, i, a * x[i])


@cuda.jit
def saxpy_by_atomic_differences(a, x, y):
    """An atomic of any kind."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.sub(y, i, -a * x[i])


@cuda.jit
def saxpy_by_atomics_of_odd_threads(a, x, y):
    """Some atomics are too many, too."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        if i % 2:
            cuda.atomic.add(y, i, a * x[i])
        else:
            y[i] = a * x[i] + y[i]


@cuda.jit
def double_by_an_atomic_maximum(x, out):
    """That of NaN and a number is the number."""
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.nanmax(out, i, 2 * x[i])


block_of = np.full(10, -1)


@cuda.jit
def double_with_an_array_of_the_notebook(x, out):
    i = cuda.grid(1)
    if i < block_of.size:
        out[i] = 2 * x[i]


@cuda.jit
def double_guarded_within_the_block(x, out):
    i = cuda.grid(1)
    if cuda.threadIdx.x < x.size:
        out[i] = 2 * x[i]


@cuda.jit
def double_with_the_index_clamped(x, out):
    i = min(cuda.grid(1), x.size - 1)
    out[i] = 2 * x[i]


@cuda.jit
def double_round_and_round(x, out):
    if x.size > 0:
        i = cuda.grid(1) % x.size
        out[i] = 2 * x[i]


@cuda.jit
def double_in_half_precision(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = np.float16(x[i]) * np.float16(2)


@cuda.jit
def relu_as_the_absolute_value(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = abs(x[i])


@cuda.jit
def relu_in_strides_of_the_number_of_blocks(x, out):
    i = cuda.grid(1)
    while i < x.size:
        out[i] = max(x[i], float32(0))
        i += cuda.gridDim.x


@cuda.jit
def relu_of_everything_in_each_block(x, out):
    for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
        out[i] = max(x[i], float32(0))


@cuda.jit
def relu_that_reads_everything(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        s = float32(0)
        for _ in range(x.size):
            s = x[i]
        out[i] = max(s, float32(0))


@cuda.jit
def histogram_that_reads_by_an_atomic(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        old = cuda.atomic.add(counts, values[i], 0)
        counts[values[i]] = old + 1


@cuda.jit
def histogram_by_the_first_lane_of_a_warp(values, counts):
    i = cuda.grid(1)
    if i < values.size and cuda.threadIdx.x % 32 == 0:
        for k in range(32):
            if i + k < values.size:
                cuda.atomic.add(counts, values[i + k], 1)


@cuda.jit
def histogram_with_barriers_in_the_guard(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        cuda.syncthreads()
        cuda.atomic.add(counts, values[i], 1)
        cuda.syncthreads()


@cuda.jit
def histogram_by_an_atomic_maximum(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.max(counts, values[i], counts[values[i]] + 1)


@cuda.jit
def saxpy_without_y(a, x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = a * x[i]


@cuda.jit
def saxpy_with_a_at_y(a, x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = x[i] + a * y[i]


@cuda.jit
def blur_round_the_edges(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        total, n = (float32(0), 0)
        for r in range(-1, 2):
            for c in range(-1, 2):
                total += image[(row + r) % image.shape[0], (column + c) % image.shape[1]]
                n += 1
        out[row, column] = total / n


@cuda.jit
def blur_of_whole_numbers(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        total, n = (0, 0)
        for r in range(max(row - 1, 0), min(row + 2, image.shape[0])):
            for c in range(max(column - 1, 0), min(column + 2, image.shape[1])):
                total += int(image[r, c] * 100)
                n += 1
        out[row, column] = total / n / 100


@cuda.jit
def blur_by_atomics_over_nine(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        out[row, column] = 0
        for r in range(max(row - 1, 0), min(row + 2, image.shape[0])):
            for c in range(max(column - 1, 0), min(column + 2, image.shape[1])):
                cuda.atomic.add(out, (row, column), image[r, c] / 9)


@cuda.jit
def blur_along_rows_then_columns(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        total, n = (float32(0), 0)
        for c in range(max(column - 1, 0), min(column + 2, image.shape[1])):
            total += image[row, c]
            n += 1
        out[row, column] = total / n
        cuda.syncthreads()
        total, n = (float32(0), 0)
        for r in range(max(row - 1, 0), min(row + 2, image.shape[0])):
            total += out[r, column]
            n += 1
        out[row, column] = total / n


WRONG = {
    "03.1": [
        (double_without_guard, "[outside]", "missing-guard"),
        (double_with_a_guard_one_too_far, "reads x[10], but x has 10 elements", "off-by-one"),
        (double_in_the_first_block_only, "race] line", "one-block-is-the-grid"),
        (double_for_blocks_of_256, "expected", "right-for-one-case"),
        (double_in_full_blocks_only, "out[8] is nan", "rest-left-out"),
        (double_by_one_thread, "Few threads do the work of many", "few-threads-work"),
        (double_in_place, "x is an input: write to out only", "input-is-mine"),
        (double_without_the_decorator, "needs @cuda.jit above it", "kernel-takes-any-python"),
        (double_with_a_list, "list", "kernel-takes-any-python"),
        (double_through_a_block_of_any_size, "shared", "kernel-takes-any-python"),
        (double_by_an_atomic_maximum, "No two threads change one element", "atomic-is-free"),
        (
            double_with_an_array_of_the_notebook,
            "It uses block_of, an array of the notebook",
            "right-for-one-case",
        ),
        (double_by_the_first_half, "Few threads do the work of many", "few-threads-work"),
        (
            open_double,
            "Expected the kernel's parameters (x, out), got (x, wrong)",
            "result-of-another-kind",
        ),
        (double_guarded_within_the_block, "[outside]", "one-block-is-the-grid"),
        (double_with_the_index_clamped, "race] line", "missing-guard"),
        (double_round_and_round, "race] line", "missing-guard"),
        (double_in_half_precision, "elements are wrong", "low-precision-is-enough"),
    ],
    "03.2": [
        (relu_once_a_thread, "out[8] is nan", "one-block-is-the-grid"),
        (relu_in_strides_of_a_block, "race] line", "one-block-is-the-grid"),
        (relu_in_strides_of_two_blocks, "race] line", "right-for-one-case"),
        (relu_in_strides_of_128, "out[8] is nan", "right-for-one-case"),
        (relu_by_128_threads, "Few threads do the work of many", "few-threads-work"),
        (relu_by_half_of_the_threads, "Few threads do the work of many", "few-threads-work"),
        (relu_with_numpy, "clip", "kernel-takes-any-python"),
        (relu_up_to_6, "is 6, expected 100", "other-formula"),
        (relu_of_what_is_above_a_thousandth, "expected 0.0005", "other-formula"),
        (relu_in_eight_rounds, "1,201 elements", "right-for-one-case"),
        (relu_in_place, "x is an input: write to out only", "input-is-mine"),
        (relu_that_leaks, "elements are wrong", "other-formula"),
        (relu_in_whole_rounds_only, "out[16] is nan", "rest-left-out"),
        (relu_in_a_round_too_many, "[outside]", "off-by-one"),
        (relu_of_positive_numbers_only, "is nan, expected 0", "memory-starts-at-zero"),
        (
            relu_a_piece_a_thread,
            "neighboring threads take neighboring elements",
            "neighbors-apart",
        ),
        (relu_as_the_absolute_value, "elements are wrong", "other-formula"),
        (relu_in_strides_of_the_number_of_blocks, "race] line", "one-block-is-the-grid"),
        (relu_of_everything_in_each_block, "race] line", "one-block-is-the-grid"),
        (relu_that_reads_everything, "far more than it has to", "does-less-work"),
    ],
    "03.5": [
        (histogram_as_found, "[race]", "plus-equals-is-atomic"),
        (histogram_with_a_race, "[race]", "plus-equals-is-atomic"),
        (histogram_without_guard, "[outside]", "missing-guard"),
        (histogram_with_the_wrong_index, "counts[0] is", "one-block-is-the-grid"),
        (histogram_by_one_thread, "Few threads do the work of many", "few-threads-work"),
        (histogram_of_indices, "elements are wrong", "other-formula"),
        (histogram_with_a_barrier, "[race]", "plus-equals-is-atomic"),
        (histogram_with_a_fence, "[race]", "plus-equals-is-atomic"),
        (histogram_that_swaps_once, "[race]", "plus-equals-is-atomic"),
        (
            histogram_that_counts_without_an_atomic_after_a_failed_swap,
            "[race]",
            "plus-equals-is-atomic",
        ),
        (histogram_in_shared_memory_unset, "[unset]", "memory-starts-at-zero"),
        (histogram_in_shared_memory_too_early, "[race]", "missing-barrier"),
        (histogram_of_a_block, "[race]", "one-block-is-the-grid"),
        (histogram_added_without_an_atomic, "[race]", "plus-equals-is-atomic"),
        (histogram_of_a_thread_a_count, "Few threads do the work of many", "few-threads-work"),
        (histogram_that_reads_by_an_atomic, "[race]", "plus-equals-is-atomic"),
        (
            histogram_by_the_first_lane_of_a_warp,
            "Few threads do the work of many",
            "few-threads-work",
        ),
        (histogram_with_barriers_in_the_guard, "[barrier]", "barrier-not-reached-by-all"),
        (histogram_by_an_atomic_maximum, "[race]", "plus-equals-is-atomic"),
    ],
    "03.6": [
        (saxpy_once_a_thread, "elements are wrong", "one-block-is-the-grid"),
        (saxpy_in_whole_rounds_only, "elements are wrong", "rest-left-out"),
        (saxpy_in_strides_of_two_blocks, "[race]", "right-for-one-case"),
        (saxpy_by_the_first_block, "Few threads do the work of many", "few-threads-work"),
        (saxpy_of_the_sum, "elements are wrong", "other-formula"),
        (saxpy_into_x, "x is an input: write to y only", "input-is-mine"),
        (saxpy_by_atomics, "No two threads change one element", "atomic-is-free"),
        (saxpy_by_atomic_differences, "No two threads change one element", "atomic-is-free"),
        (
            saxpy_by_atomics_of_odd_threads,
            "No two threads change one element",
            "atomic-is-free",
        ),
        (
            saxpy_a_piece_a_thread,
            "neighboring threads take neighboring elements",
            "neighbors-apart",
        ),
        (saxpy_without_y, "elements are wrong", "other-formula"),
        (saxpy_with_a_at_y, "elements are wrong", "pairs-mixed-up"),
    ],
    "03.7": [
        (blur_without_edges, "out[0, 0] is nan", "edges-are-ordinary"),
        (blur_over_nine, "elements are wrong", "edges-are-ordinary"),
        (blur_past_the_edges, "reads image[-1, -1]", "edges-are-ordinary"),
        (blur_of_square_images, "out[", "axes-swapped"),
        (blur_with_the_guards_swapped, "out[0, 16] is nan", "axes-swapped"),
        (blur_with_one_guard, "[outside]", "missing-guard"),
        (blur_in_place, "[race]", "input-is-mine"),
        (blur_of_full_blocks_only, "is nan", "rest-left-out"),
        (blur_of_a_cross, "elements are wrong", "other-formula"),
        (blur_with_a_helper_for_the_cpu, "_sum_of_nine", "kernel-takes-any-python"),
        (blur_with_edges_repeated, "elements are wrong", "edges-are-ordinary"),
        (blur_a_row_a_thread, "Few threads do the work of many", "few-threads-work"),
        (blur_of_a_shared_tile_too_early, "[race]", "missing-barrier"),
        (blur_by_one_thread, "Few threads do the work of many", "few-threads-work"),
        (blur_round_the_edges, "elements are wrong", "edges-are-ordinary"),
        (blur_of_whole_numbers, "elements are wrong", "rounding-is-cosmetic"),
        (blur_by_atomics_over_nine, "elements are wrong", "edges-are-ordinary"),
        (blur_along_rows_then_columns, "[race]", "missing-barrier"),
    ],
}
