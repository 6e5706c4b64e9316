"""Published kernels that copy, transpose, add, convolve, or multiply a matrix by a
vector, for numba.cuda.
"""

import numpy as np
from numba import cuda, float32, float64, uint8

TAPS = np.linspace(0.1, 0.3, 5, dtype=np.float32)


@cuda.jit
def copied(x, out):
    i = cuda.grid(1)
    out[i] = x[i]


@cuda.jit
def added(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


@cuda.jit
def transposed(a, out):
    column, row = cuda.grid(2)
    out[column, row] = a[row, column]


@cuda.jit
def transposed_by_writes(a, out):
    column, row = cuda.grid(2)
    out[row, column] = a[column, row]


@cuda.jit
def copied_in_tiles(a, out):
    column, row = cuda.grid(2)
    out[row, column] = a[row, column]


@cuda.jit
def transposed_in_rows(a, out):
    i = cuda.grid(1)
    row = i // a.shape[1]
    column = i % a.shape[1]
    out[column, row] = a[row, column]


@cuda.jit
def transposed_in_rows_by_writes(a, out):
    i = cuda.grid(1)
    row = i % a.shape[0]
    column = i // a.shape[0]
    out[column, row] = a[row, column]


def transposed_in_shared_memory(dtype, side=32, apart=32, rows=32):
    """A kernel whose blocks of (side, rows) threads transpose tiles of `side` squared,
    rows `apart` words apart.
    """

    @cuda.jit
    def kernel(a, out):
        tile = cuda.shared.array((side, apart), dtype)
        x = cuda.threadIdx.x
        y = cuda.threadIdx.y
        left = cuda.blockIdx.x * side
        top = cuda.blockIdx.y * side
        for j in range(0, side, rows):
            tile[y + j, x] = a[top + y + j, left + x]
        cuda.syncthreads()
        for j in range(0, side, rows):
            out[left + y + j, top + x] = tile[x, y + j]

    return kernel


@cuda.jit
def matrices_added(a, b, out):
    column, row = cuda.grid(2)
    out[row, column] = a[row, column] + b[row, column]


@cuda.jit
def matrices_added_by_columns(a, b, out):
    row, column = cuda.grid(2)
    out[row, column] = a[row, column] + b[row, column]


@cuda.jit
def gray(rgb, out):
    column, row = cuda.grid(2)
    red = rgb[row, 3 * column]
    green = rgb[row, 3 * column + 1]
    blue = rgb[row, 3 * column + 2]
    out[row, column] = uint8(
        float32(0.21) * red + float32(0.71) * green + float32(0.07) * blue
    )


@cuda.jit
def convolved(x, taps, out):
    i = cuda.grid(1)
    total = float32(0)
    start = i - taps.size // 2
    for j in range(taps.size):
        if 0 <= start + j < x.size:
            total += x[start + j] * taps[j]
    # in float64, as the published kernel clamps
    out[i] = min(max(total, float64(0)), float64(1))


@cuda.jit
def convolved_in_tiles(x, out):
    tile = cuda.shared.array(0, float32)
    taps = cuda.const.array_like(TAPS)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    if t >= 510:
        tile[t - 510] = x[i - 512] if i >= 512 else float32(0)
    tile[2 + t] = x[i]
    if t < 2:
        tile[514 + t] = x[i + 512] if i + 512 < x.size else float32(0)
    cuda.syncthreads()
    total = float32(0)
    for j in range(5):
        total += tile[t + j] * taps[j]
    out[i] = min(max(total, float64(0)), float64(1))


@cuda.jit
def convolved_2d(x, taps, out):
    column, row = cuda.grid(2)
    total = float32(0)
    top = row - taps.shape[0] // 2
    left = column - taps.shape[1] // 2
    for k in range(taps.shape[0]):
        for m in range(taps.shape[1]):
            if 0 <= top + k < x.shape[0] and 0 <= left + m < x.shape[1]:
                total += x[top + k, left + m] * taps[k, m]
    out[row, column] = min(max(total, float64(0)), float64(1))


@cuda.jit
def times_vector(matrix, vector, out):
    i = cuda.grid(1)
    total = np.uint32(0)
    for k in range(vector.size):
        total += matrix[i, k] * vector[k]
    out[i] = total


@cuda.jit
def times_vector_in_tiles(matrix, vector, out):
    tile = cuda.shared.array(0, np.uint32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    total = np.uint32(0)
    for first in range(0, vector.size, 512):
        tile[t] = vector[first + t]
        cuda.syncthreads()
        for k in range(512):
            total += matrix[i, first + k] * tile[k]
        cuda.syncthreads()
    out[i] = total
