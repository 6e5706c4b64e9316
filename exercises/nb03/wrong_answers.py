"""Plausible wrong answers of notebook 03: number -> (answer, words the check must say)."""

import numpy as np
from numba import cuda


def double_without_guard(x, out):
    i = cuda.grid(1)
    out[i] = 2 * x[i]


def double_with_a_guard_one_too_far(x, out):
    i = cuda.grid(1)
    if i <= x.size:
        out[i] = 2 * x[i]


def double_in_the_first_block_only(x, out):
    i = cuda.threadIdx.x
    if i < x.size:
        out[i] = 2 * x[i]


def double_for_blocks_of_256(x, out):
    i = cuda.blockIdx.x * 256 + cuda.threadIdx.x
    if i < x.size:
        out[i] = 2 * x[i]


def double_in_full_blocks_only(x, out):
    """Right only for multiples of the block."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if cuda.blockIdx.x < x.size // cuda.blockDim.x:
        out[i] = 2 * x[i]


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


def open_double(x, wrong):
    i = cuda.grid(1)
    if i < x.size:
        wrong[i] = 2 * x[i]


def relu_once_a_thread(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = max(x[i], 0)


def relu_in_strides_of_a_block(x, out):
    """A race that happens to pass: blocks repeat each other's elements."""
    for i in range(cuda.grid(1), x.size, cuda.blockDim.x):
        out[i] = max(x[i], 0)


def relu_in_whole_rounds_only(x, out):
    """Right only for multiples of the grid."""
    for turn in range(x.size // cuda.gridsize(1)):
        i = cuda.grid(1) + turn * cuda.gridsize(1)
        out[i] = max(x[i], 0)


def relu_in_a_round_too_many(x, out):
    for turn in range(x.size // cuda.gridsize(1) + 1):
        i = cuda.grid(1) + turn * cuda.gridsize(1)
        out[i] = max(x[i], 0)


def relu_of_positive_numbers_only(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        if x[i] > 0:
            out[i] = x[i]


def relu_a_piece_a_thread(x, out):
    """Correct, but neighbouring threads are far apart."""
    piece = (x.size + cuda.gridsize(1) - 1) // cuda.gridsize(1)
    start = cuda.grid(1) * piece
    for i in range(start, min(start + piece, x.size)):
        out[i] = max(x[i], 0)


def histogram_as_found(values, counts):
    i = cuda.threadIdx.x + cuda.blockIdx.x
    counts[values[i]] += 1


def histogram_with_a_race(values, counts):
    """A race that happens to pass: traced one thread after another, the counts come out right."""
    i = cuda.grid(1)
    if i < values.size:
        counts[values[i]] += 1


def histogram_without_guard(values, counts):
    cuda.atomic.add(counts, values[cuda.grid(1)], 1)


def histogram_with_the_wrong_index(values, counts):
    i = cuda.threadIdx.x + cuda.blockIdx.x
    if i < values.size:
        cuda.atomic.add(counts, values[i], 1)


def histogram_by_one_thread(values, counts):
    if cuda.grid(1) == 0:
        for i in range(values.size):
            counts[values[i]] += 1


def histogram_of_indices(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(counts, i % counts.size, 1)


def histogram_with_a_barrier(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        counts[values[i]] += 1
    cuda.syncthreads()


def saxpy_once_a_thread(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


def saxpy_in_whole_rounds_only(a, x, y):
    """Right only for multiples of the grid."""
    for turn in range(x.size // cuda.gridsize(1)):
        i = cuda.grid(1) + turn * cuda.gridsize(1)
        y[i] = a * x[i] + y[i]


def saxpy_into_x(a, x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        x[i] = a * x[i] + y[i]


def saxpy_a_piece_a_thread(a, x, y):
    piece = (x.size + cuda.gridsize(1) - 1) // cuda.gridsize(1)
    start = cuda.grid(1) * piece
    for i in range(start, min(start + piece, x.size)):
        y[i] = a * x[i] + y[i]


def _mean(image, row, column):
    total = np.float32(0)
    count = 0
    for r in range(max(row - 1, 0), min(row + 2, image.shape[0])):
        for c in range(max(column - 1, 0), min(column + 2, image.shape[1])):
            total += image[r, c]
            count += 1
    return total / count


def blur_without_edges(image, out):
    column, row = cuda.grid(2)
    if 0 < row < image.shape[0] - 1 and 0 < column < image.shape[1] - 1:
        out[row, column] = _mean(image, row, column)


def blur_over_nine(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        total = np.float32(0)
        for r in range(max(row - 1, 0), min(row + 2, image.shape[0])):
            for c in range(max(column - 1, 0), min(column + 2, image.shape[1])):
                total += image[r, c]
        out[row, column] = total / 9


def blur_past_the_edges(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        total = np.float32(0)
        for r in range(row - 1, row + 2):
            for c in range(column - 1, column + 2):
                total += image[r, c]
        out[row, column] = total / 9


def blur_of_square_images(image, out):
    row, column = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        out[row, column] = _mean(image, row, column)


def blur_with_the_guards_swapped(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[1] and column < image.shape[0]:
        out[row, column] = _mean(image, row, column)


def blur_with_one_guard(image, out):
    column, row = cuda.grid(2)
    if column < image.shape[1]:
        out[row, column] = _mean(image, row, column)


def blur_in_place(image, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        image[row, column] = _mean(image, row, column)
        out[row, column] = image[row, column]


def blur_of_full_blocks_only(image, out):
    """Right only for multiples of the block."""
    column, row = cuda.grid(2)
    blocks_down, blocks_across = image.shape[0] // cuda.blockDim.y, image.shape[1] // cuda.blockDim.x
    if cuda.blockIdx.y < blocks_down and cuda.blockIdx.x < blocks_across:
        out[row, column] = _mean(image, row, column)


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


def blur_by_one_thread(image, out):
    column, row = cuda.grid(2)
    if row == 0 and column == 0:
        for r in range(image.shape[0]):
            for c in range(image.shape[1]):
                out[r, c] = _mean(image, r, c)


WRONG = {
    "03.1": [
        (double_without_guard, "[outside]"),
        (double_with_a_guard_one_too_far, "reads x[10], but x has 10 elements"),
        (double_in_the_first_block_only, "[race]"),
        (double_for_blocks_of_256, "expected"),
        (double_in_full_blocks_only, "out[8] is nan"),
        (double_by_one_thread, "Few threads do the work of many"),
        (double_in_place, "x[0] is"),
        (open_double, "Expected the kernel's parameters (x, out), got (x, wrong)"),
    ],
    "03.2": [
        (relu_once_a_thread, "out[8] is nan"),
        (relu_in_strides_of_a_block, "[race]"),
        (relu_in_whole_rounds_only, "out[16] is nan"),
        (relu_in_a_round_too_many, "[outside]"),
        (relu_of_positive_numbers_only, "is nan, expected 0"),
        (relu_a_piece_a_thread, "neighbouring threads take neighbouring elements"),
    ],
    "03.5": [
        (histogram_as_found, "[race]"),
        (histogram_with_a_race, "[race]"),
        (histogram_without_guard, "[outside]"),
        (histogram_with_the_wrong_index, "counts[0] is"),
        (histogram_by_one_thread, "Few threads do the work of many"),
        (histogram_of_indices, "elements are wrong"),
        (histogram_with_a_barrier, "[race]"),
    ],
    "03.6": [
        (saxpy_once_a_thread, "elements are wrong"),
        (saxpy_in_whole_rounds_only, "elements are wrong"),
        (saxpy_into_x, "elements are wrong"),
        (saxpy_a_piece_a_thread, "neighbouring threads take neighbouring elements"),
    ],
    "03.7": [
        (blur_without_edges, "out[0, 0] is nan"),
        (blur_over_nine, "elements are wrong"),
        (blur_past_the_edges, "reads image[-1, -1]"),
        (blur_of_square_images, "out["),
        (blur_with_the_guards_swapped, "out[0, 16] is nan"),
        (blur_with_one_guard, "[outside]"),
        (blur_in_place, "[race]"),
        (blur_of_full_blocks_only, "is nan"),
        (blur_of_a_cross, "elements are wrong"),
        (blur_by_one_thread, "Few threads do the work of many"),
    ],
}
