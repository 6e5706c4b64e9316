"""Plausible wrong answers of notebook 23: number -> (answer, words the check must say, misconception)."""

# ruff: noqa: N803 - kernels of tiles write constants in capitals

from numba import cuda, float32, int32

from exercises.nb23.attention_parts import load_rows, nothing_yet, store_rows
from kerneltrace.tiles import tl, triton

# -- 23.1


@cuda.jit
def ten_in_the_first_block_only(x, out):
    i = cuda.threadIdx.x
    out[i] = x[i] + 10


@cuda.jit
def ten_in_place(x, out):
    i = cuda.grid(1)
    x[i] = x[i] + 10
    out[i] = x[i]


@cuda.jit
def ten_by_one_thread(x, out):
    if cuda.grid(1) == 0:
        for i in range(x.size):
            out[i] = x[i] + 10


@cuda.jit
def nothing(x, out):
    pass


def ten_of_numpy(x, out):
    return x + 10


# -- 23.2


@cuda.jit
def add_the_same_twice(a, b, out):
    i = cuda.grid(1)
    out[i] = a[i] + a[i]


@cuda.jit
def add_up_in_out(a, b, out):
    i = cuda.grid(1)
    out[i] += a[i] + b[i]


@cuda.jit
def add_for_blocks_of_256(a, b, out):
    i = cuda.blockIdx.x * 256 + cuda.threadIdx.x
    out[i] = a[i] + b[i]


# -- 23.3


@cuda.jit
def double_without_guard(x, out):
    i = cuda.grid(1)
    out[i] = 2 * x[i]


@cuda.jit
def double_one_too_far(x, out):
    i = cuda.grid(1)
    if i <= x.size:
        out[i] = 2 * x[i]


@cuda.jit
def double_in_full_blocks_only(x, out):
    i = cuda.grid(1)
    if cuda.blockIdx.x < x.size // cuda.blockDim.x:
        out[i] = 2 * x[i]


# -- 23.4


@cuda.jit
def signs_with_one_guard(x, out):
    column, row = cuda.grid(2)
    if row < x.shape[0]:
        out[row, column] = -x[row, column]


@cuda.jit
def signs_of_the_square(x, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[0]:
        out[row, column] = -x[row, column]


@cuda.jit
def signs_of_another_place(x, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = -x[column, row]


# -- 23.5


@cuda.jit
def sums_with_axes_swapped(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = a[column] + b[row]


@cuda.jit
def sums_of_the_diagonal(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = a[row] + b[row]


@cuda.jit
def sums_row_by_row(a, b, out):
    row = cuda.grid(1)
    if row < out.shape[0]:
        for column in range(out.shape[1]):
            out[row, column] = a[row] + b[column]


# -- 23.6


@cuda.jit
def size_without_a_loop(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = abs(x[i])


@cuda.jit
def size_with_the_block_as_stride(x, out):
    for i in range(cuda.grid(1), x.size, cuda.blockDim.x):
        out[i] = abs(x[i])


@cuda.jit
def size_of_whole_rounds_only(x, out):
    for turn in range(x.size // cuda.gridsize(1)):
        i = turn * cuda.gridsize(1) + cuda.grid(1)
        out[i] = abs(x[i])


# -- 23.7


@cuda.jit
def saxpy_of_rows_as_long_as_columns(a, x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        row = i // x.shape[0]
        column = i % x.shape[0]
        y[row, column] = a * x[row, column] + y[row, column]


@cuda.jit
def saxpy_by_every_thread(a, x, y):
    for i in range(x.size):
        row = i // x.shape[1]
        column = i % x.shape[1]
        y[row, column] = a * x[row, column] + y[row, column]


@cuda.jit
def saxpy_without_a_loop(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        row = i // x.shape[1]
        column = i % x.shape[1]
        y[row, column] = a * x[row, column] + y[row, column]


# -- 23.8


@cuda.jit
def window_without_a_barrier(x, out):
    window = cuda.shared.array(68, float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    window[t + 2] = x[i] if i < x.size else float32(0)
    if t < 4:
        j = i - 2 if t < 2 else i + 62
        place = t if t < 2 else t + 64
        window[place] = x[j] if j >= 0 and j < x.size else float32(0)
    if i < x.size:
        out[i] = window[t] + window[t + 1] + window[t + 2] + window[t + 3] + window[t + 4]


@cuda.jit
def window_that_wraps(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i - 2] + x[i - 1] + x[i] + x[i + 1] + x[i + 2]


@cuda.jit
def window_of_its_block_alone(x, out):
    window = cuda.shared.array(64, float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    window[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    if i < x.size:
        total = float32(0)
        for k in range(max(t - 2, 0), min(t + 3, 64)):
            total += window[k]
        out[i] = total


# -- 23.9


@cuda.jit
def pool_of_two_in_a_column(x, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = max(x[2 * row, column], x[2 * row + 1, column])


@cuda.jit
def pool_of_all_lanes(x, out):
    column, row = cuda.grid(2)
    mine = float32(0)
    if 2 * row + 1 < x.shape[0] and column < x.shape[1]:
        mine = max(x[2 * row, column], x[2 * row + 1, column])
    neighbor = cuda.shfl_down_sync(0xFFFFFFFF, mine, 1)
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = max(mine, neighbor)


@cuda.jit
def pool_that_starts_from_zero(x, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        most = float32(0)
        for r in range(2 * row, 2 * row + 2):
            for c in range(2 * column, 2 * column + 2):
                most = max(most, x[r, c])
        out[row, column] = most


# -- 23.10


@cuda.jit
def transpose_without_a_barrier(x, out):
    tile = cuda.shared.array((32, 33), float32)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + j < x.shape[0] and column + i < x.shape[1]:
        tile[j, i] = x[row + j, column + i]
    if column + j < out.shape[0] and row + i < out.shape[1]:
        out[column + j, row + i] = tile[i, j]


@cuda.jit
def transpose_of_tiles_alone(x, out):
    tile = cuda.shared.array((32, 33), float32)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + j < x.shape[0] and column + i < x.shape[1]:
        tile[j, i] = x[row + j, column + i]
    cuda.syncthreads()
    if column + j < out.shape[0] and row + i < out.shape[1]:
        out[column + j, row + i] = tile[j, i]


@cuda.jit
def transpose_without_guards(x, out):
    column, row = cuda.grid(2)
    out[column, row] = x[row, column]


# -- 23.11


@cuda.jit
def dot_by_plus_equals(a, b, out):
    i = cuda.grid(1)
    if i < a.size:
        out[cuda.blockIdx.x] += a[i] * b[i]


@cuda.jit
def dot_of_the_first_warp(a, b, out):
    i = cuda.grid(1)
    mine = a[i] * b[i] if i < a.size else float32(0)
    for step in range(5):
        mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 16 >> step)
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = mine


@cuda.jit
def dot_without_a_barrier(a, b, out):
    sums = cuda.shared.array(128, float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    sums[t] = a[i] * b[i] if i < a.size else float32(0)
    if t == 0:
        total = float32(0)
        for k in range(128):
            total += sums[k]
        out[cuda.blockIdx.x] = total


@cuda.jit
def dot_with_the_barrier_in_a_branch(a, b, out):
    sums = cuda.shared.array(128, float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    if i < a.size:
        sums[t] = a[i] * b[i]
        cuda.syncthreads()
    if t == 0:
        total = float32(0)
        for k in range(128):
            total += sums[k]
        out[cuda.blockIdx.x] = total


@cuda.jit
def dot_by_one_thread(a, b, out):
    if cuda.threadIdx.x == 0:
        total = float32(0)
        first = cuda.blockIdx.x * cuda.blockDim.x
        for i in range(first, min(first + cuda.blockDim.x, a.size)):
            total += a[i] * b[i]
        out[cuda.blockIdx.x] = total


# -- 23.12


@cuda.jit
def sums_that_leave_out_their_own(x, out):
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    mine = x[i] if i < x.size else float32(0)
    total = mine
    for step in range(5):
        below = cuda.shfl_up_sync(0xFFFFFFFF, total, 1 << step)
        if t >= 1 << step:
            total += below
    if i < x.size:
        out[i] = total - mine


@cuda.jit
def sums_of_lanes_that_lack_a_neighbor(x, out):
    i = cuda.grid(1)
    mine = x[i] if i < x.size else float32(0)
    for step in range(5):
        mine += cuda.shfl_up_sync(0xFFFFFFFF, mine, 1 << step)
    if i < x.size:
        out[i] = mine


@cuda.jit
def sums_in_place_in_shared_memory(x, out):
    sums = cuda.shared.array(32, float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    sums[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    for step in range(5):
        if t >= 1 << step:
            sums[t] += sums[t - (1 << step)]
        cuda.syncthreads()
    if i < x.size:
        out[i] = sums[t]


# -- 23.13


@cuda.jit
def histogram_by_plus_equals(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        counts[values[i]] += 1


@cuda.jit
def histogram_from_what_was_there(values, counts):
    own = cuda.shared.array(8, int32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    if i < values.size:
        cuda.atomic.add(own, values[i], 1)
    cuda.syncthreads()
    if t < 8:
        cuda.atomic.add(counts, t, own[t])


@cuda.jit
def histogram_of_every_thread(values, counts):
    own = cuda.shared.array(8, int32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    if t < 8:
        own[t] = 0
    cuda.syncthreads()
    if i < values.size:
        cuda.atomic.add(own, values[i], 1)
    if t < 8:
        cuda.atomic.add(counts, t, own[t])


# -- 23.14


@cuda.jit
def matmul_without_a_second_barrier(a, b, c):
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for first in range(0, a.shape[1], 16):
        in_a = row < a.shape[0] and first + x < a.shape[1]
        in_b = first + y < b.shape[0] and column < b.shape[1]
        tile_a[y, x] = a[row, first + x] if in_a else float32(0)
        tile_b[y, x] = b[first + y, column] if in_b else float32(0)
        cuda.syncthreads()
        for k in range(16):
            total += tile_a[y, k] * tile_b[k, x]
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


@cuda.jit
def matmul_of_whole_tiles_only(a, b, c):
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for first in range(0, a.shape[1] // 16 * 16, 16):
        tile_a[y, x] = a[row, first + x] if row < a.shape[0] else float32(0)
        tile_b[y, x] = b[first + y, column] if column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(16):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


@cuda.jit
def matmul_with_b_turned(a, b, c):
    column, row = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[column, k]
        c[row, column] = total


# -- 23.15


@triton.jit
def tile_without_a_mask(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.store(out + at, values * values)


@triton.jit
def tile_of_the_first_program(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.store(out + at, values * values, mask=at < n)


@triton.jit
def tile_twice_itself(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.store(out + at, values + values, mask=at < n)


# -- 23.16


@triton.jit
def row_sum_with_whatever_is_there(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + column, mask=column < columns)
    tl.store(out + row, tl.sum(values, 0))


@triton.jit
def row_sum_of_rows_of_the_tile(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    values = tl.load(x + row * BLOCK + column, mask=column < columns, other=0.0)
    tl.store(out + row, tl.sum(values, 0))


@triton.jit
def row_mean(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + column, mask=column < columns, other=0.0)
    tl.store(out + row, tl.sum(values, 0) / columns)


# -- 23.17


@triton.jit
def softmax_of_masked_zeros(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + column
    values = tl.load(x + at, mask=column < columns, other=0.0)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + at, powers / tl.sum(powers, 0), mask=column < columns)


@triton.jit
def softmax_without_the_largest(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + column
    values = tl.load(x + at, mask=column < columns, other=-float("inf"))
    powers = tl.exp(values)
    tl.store(out + at, powers / tl.sum(powers, 0), mask=column < columns)


@triton.jit
def softmax_undivided(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + column
    values = tl.load(x + at, mask=column < columns, other=-float("inf"))
    tl.store(out + at, tl.exp(values - tl.max(values, 0)), mask=column < columns)


# -- 23.18


@triton.jit
def tile_matmul_without_masks(a, b, c, rows, depth, columns, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    row = tl.program_id(0) * TILE + lane[:, None]
    column = tl.program_id(1) * TILE + lane[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for first in range(0, depth, TILE):
        tile_a = tl.load(a + row * depth + first + lane[None, :])
        tile_b = tl.load(b + (first + lane[:, None]) * columns + column)
        total = tl.dot(tile_a, tile_b, total)
    tl.store(c + row * columns + column, total)


@triton.jit
def tile_matmul_of_the_last_tile(a, b, c, rows, depth, columns, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    row = tl.program_id(0) * TILE + lane[:, None]
    column = tl.program_id(1) * TILE + lane[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for first in range(0, depth, TILE):
        along_a = first + lane[None, :]
        along_b = first + lane[:, None]
        in_a = (row < rows) & (along_a < depth)
        in_b = (along_b < depth) & (column < columns)
        tile_a = tl.load(a + row * depth + along_a, mask=in_a, other=0.0)
        tile_b = tl.load(b + along_b * columns + column, mask=in_b, other=0.0)
        total = tl.dot(tile_a, tile_b)
    tl.store(c + row * columns + column, total, mask=(row < rows) & (column < columns))


@triton.jit
def tile_matmul_with_strides_swapped(a, b, c, rows, depth, columns, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    row = tl.program_id(0) * TILE + lane[:, None]
    column = tl.program_id(1) * TILE + lane[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for first in range(0, depth, TILE):
        along_a = first + lane[None, :]
        along_b = first + lane[:, None]
        in_a = (row < rows) & (along_a < depth)
        in_b = (along_b < depth) & (column < columns)
        tile_a = tl.load(a + row * depth + along_a, mask=in_a, other=0.0)
        tile_b = tl.load(b + column * depth + along_b, mask=in_b, other=0.0)
        total = tl.dot(tile_a, tile_b, total)
    tl.store(c + row * columns + column, total, mask=(row < rows) & (column < columns))


# -- 23.19


@triton.jit
def norm_of_masked_lanes(x, weight, bias, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    at = tl.program_id(0) * columns + column
    values = tl.load(x + at, mask=inside, other=0.0)
    away = values - tl.sum(values, 0) / columns
    scale = 1 / tl.sqrt(tl.sum(away * away, 0) / columns + 1e-5)
    w = tl.load(weight + column, mask=inside, other=0.0)
    b = tl.load(bias + column, mask=inside, other=0.0)
    tl.store(out + at, away * scale * w + b, mask=inside)


@triton.jit
def norm_over_the_tile(x, weight, bias, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    at = tl.program_id(0) * columns + column
    values = tl.load(x + at, mask=inside, other=0.0)
    away = tl.where(inside, values - tl.sum(values, 0) / BLOCK, 0.0)
    scale = 1 / tl.sqrt(tl.sum(away * away, 0) / BLOCK + 1e-5)
    w = tl.load(weight + column, mask=inside, other=0.0)
    b = tl.load(bias + column, mask=inside, other=0.0)
    tl.store(out + at, away * scale * w + b, mask=inside)


@triton.jit
def norm_by_the_variance(x, weight, bias, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    at = tl.program_id(0) * columns + column
    values = tl.load(x + at, mask=inside, other=0.0)
    away = tl.where(inside, values - tl.sum(values, 0) / columns, 0.0)
    scale = 1 / (tl.sum(away * away, 0) / columns + 1e-5)
    w = tl.load(weight + column, mask=inside, other=0.0)
    b = tl.load(bias + column, mask=inside, other=0.0)
    tl.store(out + at, away * scale * w + b, mask=inside)


# -- 23.20


@triton.jit
def attention_of_old_sums(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total, mixed = nothing_yet(TILE, WIDTH)
    for first in range(0, tokens, TILE):
        key = first + tl.arange(0, TILE)
        keys = load_rows(k, key, tokens, WIDTH)
        values = load_rows(v, key, tokens, WIDTH)
        scores = tl.dot(mine, tl.trans(keys)) * scale
        scores = tl.where(key[None, :] < tokens, scores, -float("inf"))
        top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - top[:, None])
        total = total + tl.sum(weights, 1)
        mixed = tl.dot(weights.to(tl.float16), values, mixed)
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def attention_of_absent_keys(
    q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr
):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total, mixed = nothing_yet(TILE, WIDTH)
    for first in range(0, tokens, TILE):
        key = first + tl.arange(0, TILE)
        keys = load_rows(k, key, tokens, WIDTH)
        values = load_rows(v, key, tokens, WIDTH)
        scores = tl.dot(mine, tl.trans(keys)) * scale
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(weights, 1)
        mixed = tl.dot(weights.to(tl.float16), values, mixed * shrink[:, None])
        top = higher
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def attention_without_the_largest(
    q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr
):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    total = tl.zeros((TILE,), tl.float32)
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for first in range(0, tokens, TILE):
        key = first + tl.arange(0, TILE)
        keys = load_rows(k, key, tokens, WIDTH)
        values = load_rows(v, key, tokens, WIDTH)
        scores = tl.dot(mine, tl.trans(keys)) * scale
        scores = tl.where(key[None, :] < tokens, scores, -float("inf"))
        weights = tl.exp(scores)
        total = total + tl.sum(weights, 1)
        mixed = tl.dot(weights.to(tl.float16), values, mixed)
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


_RACE = "[race]"
_OUTSIDE = "[outside]"

WRONG = {
    "23.1": [
        (ten_in_the_first_block_only, "blocks run in any order", "one-block-is-the-grid"),
        (ten_in_place, "x is an input: write to out only", "input-is-mine"),
        (ten_by_one_thread, "Few threads do the work of many", "few-threads-work"),
        (nothing, "is nan, expected", "does-less-work"),
        (ten_of_numpy, "needs @cuda.jit above it", "goes-round-the-tool"),
    ],
    "23.2": [
        (add_the_same_twice, "elements are wrong", "other-formula"),
        (add_up_in_out, "is nan, expected", "memory-starts-at-zero"),
        (add_for_blocks_of_256, _OUTSIDE, "right-for-one-case"),
    ],
    "23.3": [
        (double_without_guard, _OUTSIDE, "missing-guard"),
        (double_one_too_far, _OUTSIDE, "off-by-one"),
        (double_in_full_blocks_only, "elements are wrong", "rest-left-out"),
    ],
    "23.4": [
        (signs_with_one_guard, _OUTSIDE, "missing-guard"),
        (signs_of_the_square, "elements are wrong", "right-for-one-case"),
        (signs_of_another_place, _OUTSIDE, "axes-swapped"),
    ],
    "23.5": [
        (sums_with_axes_swapped, _OUTSIDE, "axes-swapped"),
        (sums_of_the_diagonal, "elements are wrong", "axes-swapped"),
        (sums_row_by_row, "It is done several times", "few-threads-work"),
    ],
    "23.6": [
        (size_without_a_loop, "elements are wrong", "rest-left-out"),
        (size_with_the_block_as_stride, "It is done several times", "one-block-is-the-grid"),
        (size_of_whole_rounds_only, "elements are wrong", "rest-left-out"),
    ],
    "23.7": [
        (saxpy_of_rows_as_long_as_columns, _OUTSIDE, "axes-swapped"),
        (saxpy_by_every_thread, _RACE, "everyone-reads-all"),
        (saxpy_without_a_loop, "elements are wrong", "rest-left-out"),
    ],
    "23.8": [
        (window_without_a_barrier, _RACE, "missing-barrier"),
        (window_that_wraps, _OUTSIDE, "edges-are-ordinary"),
        (window_of_its_block_alone, "elements are wrong", "edges-are-ordinary"),
    ],
    "23.9": [
        (pool_of_two_in_a_column, "elements are wrong", "other-formula"),
        (pool_of_all_lanes, "elements are wrong", "off-by-one"),
        (pool_that_starts_from_zero, "elements are wrong", "memory-starts-at-zero"),
    ],
    "23.10": [
        (transpose_without_a_barrier, _RACE, "missing-barrier"),
        (transpose_of_tiles_alone, "before any thread of its block wrote it", "axes-swapped"),
        (transpose_without_guards, _OUTSIDE, "missing-guard"),
    ],
    "23.11": [
        (dot_by_plus_equals, _RACE, "plus-equals-is-atomic"),
        (dot_of_the_first_warp, "elements are wrong", "rest-left-out"),
        (dot_without_a_barrier, _RACE, "missing-barrier"),
        (dot_with_the_barrier_in_a_branch, "[barrier]", "barrier-not-reached-by-all"),
        (dot_by_one_thread, "Few threads do the work of many", "few-threads-work"),
    ],
    "23.12": [
        (sums_that_leave_out_their_own, "elements are wrong", "off-by-one"),
        (sums_of_lanes_that_lack_a_neighbor, "elements are wrong", "edges-are-ordinary"),
        (sums_in_place_in_shared_memory, _RACE, "missing-barrier"),
    ],
    "23.13": [
        (histogram_by_plus_equals, _RACE, "plus-equals-is-atomic"),
        (
            histogram_from_what_was_there,
            "before any thread of its block wrote it",
            "memory-starts-at-zero",
        ),
        (histogram_of_every_thread, _RACE, "missing-barrier"),
    ],
    "23.14": [
        (matmul_without_a_second_barrier, _RACE, "missing-barrier"),
        (matmul_of_whole_tiles_only, "elements are wrong", "rest-left-out"),
        (matmul_with_b_turned, _OUTSIDE, "axes-swapped"),
    ],
    "23.15": [
        (tile_without_a_mask, _OUTSIDE, "missing-guard"),
        (tile_of_the_first_program, _RACE, "one-block-is-the-grid"),
        (tile_twice_itself, "elements are wrong", "other-formula"),
    ],
    "23.16": [
        (row_sum_with_whatever_is_there, "[undefined]", "masked-lanes-are-absent"),
        (row_sum_of_rows_of_the_tile, _OUTSIDE, "right-for-one-case"),
        (row_mean, "elements are wrong", "sum-for-mean"),
    ],
    "23.17": [
        (softmax_of_masked_zeros, "Masked lanes must not count", "masked-lanes-are-absent"),
        (softmax_without_the_largest, "exp overflows beyond 88", "exp-never-overflows"),
        (softmax_undivided, "elements are wrong", "other-formula"),
    ],
    "23.18": [
        (tile_matmul_without_masks, _OUTSIDE, "missing-guard"),
        (tile_matmul_of_the_last_tile, "elements are wrong", "does-less-work"),
        (tile_matmul_with_strides_swapped, "elements are wrong", "axes-swapped"),
    ],
    "23.19": [
        (norm_of_masked_lanes, "Masked lanes must not count", "masked-lanes-are-absent"),
        (norm_over_the_tile, "Masked lanes must not count", "wrong-denominator"),
        (norm_by_the_variance, "elements are wrong", "other-formula"),
    ],
    "23.20": [
        (attention_of_old_sums, "exp(top - higher)", "old-sums-stay-right"),
        (attention_of_absent_keys, "elements are wrong", "masked-lanes-are-absent"),
        (attention_without_the_largest, "exp overflows beyond 88", "exp-never-overflows"),
    ],
}
