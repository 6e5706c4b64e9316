"""Plausible wrong answers of notebook 04: number -> (answer, words the check must say, misconception)."""

import numpy as np
from numba import cuda, float32, float64

# -- 04.1


def lines_of_128(stride, offset, element_bytes):
    return len({(offset + lane * stride) * element_bytes // 128 for lane in range(32)})


def always_from_a_boundary(stride, offset, element_bytes):
    return len({lane * stride * element_bytes // 32 for lane in range(32)})


def only_floats(stride, offset, element_bytes):
    return len({(offset + lane * stride) * 4 // 32 for lane in range(32)})


def by_formula(stride, offset, element_bytes):
    return min(32, stride * element_bytes)


# -- 04.2


@cuda.jit
def uncoalesced_but_correct(x, bias, out):
    row, column = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = x[row, column] + bias[column]


@cuda.jit
def no_guard(x, bias, out):
    column, row = cuda.grid(2)
    out[row, column] = x[row, column] + bias[column]


@cuda.jit
def guards_the_rows_only(x, bias, out):
    column, row = cuda.grid(2)
    if row < x.shape[0]:
        out[row, column] = x[row, column] + bias[column]


@cuda.jit
def bias_of_the_row(x, bias, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = x[row, column] + bias[row % bias.size]


@cuda.jit
def bias_of_96_columns(x, bias, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = x[row, column] + bias[column % 96]


@cuda.jit
def nothing_below_0(x, bias, out):
    """The whole layer, with the ReLU that nobody asked for."""
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = max(x[row, column] + bias[column], float32(0))


@cuda.jit
def a_thread_a_row(x, bias, out):
    row = cuda.grid(1)
    if row < x.shape[0] and cuda.blockIdx.y == 0 and cuda.threadIdx.y == 0:
        for column in range(x.shape[1]):
            out[row, column] = x[row, column] + bias[column]


@cuda.jit
def a_thread_a_column(x, bias, out):
    """Coalesced, but most of the threads have nothing to do."""
    column = cuda.grid(1)
    if column < x.shape[1] and cuda.blockIdx.y == 0 and cuda.threadIdx.y == 0:
        for row in range(x.shape[0]):
            out[row, column] = x[row, column] + bias[column]


@cuda.jit
def a_thread_two_rows(x, bias, out):
    column, row = cuda.grid(2)
    for r in range(2 * row, min(2 * row + 2, x.shape[0])):
        if column < x.shape[1]:
            out[r, column] = x[r, column] + bias[column]


@cuda.jit
def adds_to_the_input(x, bias, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        x[row, column] += bias[column]
        out[row, column] = x[row, column]


@cuda.jit
def bias_in_half_precision(x, bias, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = x[row, column] + np.float16(bias[column])


@cuda.jit
def reads_whole_rows(x, bias, out):
    """A slice is an array, and a kernel has no arithmetic for arrays."""
    column, row = cuda.grid(2)
    if row < x.shape[0] and column == 0:
        out[row] = x[row] + bias


# -- 04.3


@cuda.jit
def by_one_row_of_threads(a, out):
    """No conflict and no waste, but 32 of 1,024 threads do all the work."""
    tile = cuda.shared.array((32, 33), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if y == 0 and column + x < a.shape[1]:
        for r in range(min(32, a.shape[0] - row)):
            tile[r, x] = a[row + r, column + x]
    cuda.syncthreads()
    if y == 0 and row + x < out.shape[1]:
        for c in range(min(32, out.shape[0] - column)):
            out[column + c, row + x] = tile[x, c]


@cuda.jit
def padded_by_two(a, out):
    tile = cuda.shared.array((32, 34), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + y < a.shape[0] and column + x < a.shape[1]:
        tile[y, x] = a[row + y, column + x]
    cuda.syncthreads()
    if column + y < out.shape[0] and row + x < out.shape[1]:
        out[column + y, row + x] = tile[x, y]


@cuda.jit
def padded_below(a, out):
    """Another row at the end changes no bank."""
    tile = cuda.shared.array((33, 32), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + y < a.shape[0] and column + x < a.shape[1]:
        tile[y, x] = a[row + y, column + x]
    cuda.syncthreads()
    if column + y < out.shape[0] and row + x < out.shape[1]:
        out[column + y, row + x] = tile[x, y]


@cuda.jit
def waits_for_its_warp_only(a, out):
    tile = cuda.shared.array((32, 33), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + y < a.shape[0] and column + x < a.shape[1]:
        tile[y, x] = a[row + y, column + x]
    cuda.syncwarp()
    if column + y < out.shape[0] and row + x < out.shape[1]:
        out[column + y, row + x] = tile[x, y]


@cuda.jit
def tile_in_place(a, out):
    """The block's own corner of out is where a's corner was."""
    tile = cuda.shared.array((32, 33), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + y < a.shape[0] and column + x < a.shape[1]:
        tile[y, x] = a[row + y, column + x]
    cuda.syncthreads()
    if row + y < out.shape[0] and column + x < out.shape[1]:
        out[row + y, column + x] = tile[x, y]


@cuda.jit
def naive_transpose(a, out):
    column, row = cuda.grid(2)
    if row < a.shape[0] and column < a.shape[1]:
        out[column, row] = a[row, column]


@cuda.jit
def without_padding(a, out):
    tile = cuda.shared.array((32, 32), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + y < a.shape[0] and column + x < a.shape[1]:
        tile[y, x] = a[row + y, column + x]
    cuda.syncthreads()
    if column + y < out.shape[0] and row + x < out.shape[1]:
        out[column + y, row + x] = tile[x, y]


@cuda.jit
def without_barrier(a, out):
    tile = cuda.shared.array((32, 33), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + y < a.shape[0] and column + x < a.shape[1]:
        tile[y, x] = a[row + y, column + x]
    if column + y < out.shape[0] and row + x < out.shape[1]:
        out[column + y, row + x] = tile[x, y]


@cuda.jit
def multiples_of_the_tile(a, out):
    tile = cuda.shared.array((32, 33), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    tile[y, x] = a[row + y, column + x]
    cuda.syncthreads()
    out[column + y, row + x] = tile[x, y]


@cuda.jit
def barrier_inside_the_guard(a, out):
    tile = cuda.shared.array((32, 33), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + y < a.shape[0] and column + x < a.shape[1]:
        tile[y, x] = a[row + y, column + x]
        cuda.syncthreads()
    if column + y < out.shape[0] and row + x < out.shape[1]:
        out[column + y, row + x] = tile[x, y]


@cuda.jit
def one_guard_for_both(a, out):
    tile = cuda.shared.array((32, 33), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    inside = row + y < a.shape[0] and column + x < a.shape[1]
    if inside:
        tile[y, x] = a[row + y, column + x]
    cuda.syncthreads()
    if inside:
        out[column + y, row + x] = tile[x, y]


def transposes_tiles_up_to(columns, rows):
    """Right for matrices of no more tiles."""

    @cuda.jit
    def transpose(a, out):
        tile = cuda.shared.array((32, 33), float32)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
        if row + y < a.shape[0] and column + x < a.shape[1]:
            tile[y, x] = a[row + y, column + x]
        cuda.syncthreads()
        few = cuda.blockIdx.x < columns and cuda.blockIdx.y < rows
        if few and column + y < out.shape[0] and row + x < out.shape[1]:
            out[column + y, row + x] = tile[x, y]

    return transpose


@cuda.jit
def writes_columns(a, out):
    tile = cuda.shared.array((32, 33), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    if row < a.shape[0] and column < a.shape[1]:
        tile[y, x] = a[row, column]
    cuda.syncthreads()
    if row < a.shape[0] and column < a.shape[1]:
        out[column, row] = tile[y, x]


# -- 04.5


@cuda.jit
def all_atomic(x, total):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(total, 0, x[i])


@cuda.jit
def no_atomic(x, total):
    i = cuda.grid(1)
    if i < x.size:
        total[0] += x[i]


@cuda.jit
def tree_without_barriers(x, total):
    sums = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    sums[t] = x[i] if i < x.size else float32(0)
    half = 128
    while half > 0:
        if t < half:
            sums[t] += sums[t + half]
        half //= 2
    if t == 0:
        cuda.atomic.add(total, 0, sums[0])


@cuda.jit
def no_barrier_at_the_end(x, total):
    sums = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    sums[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = 128
    while half > 0:
        if t < half:
            sums[t] += sums[t + half]
        if half > 32:  # as kernels did when warps kept step by themselves
            cuda.syncthreads()
        half //= 2
    if t == 0:
        cuda.atomic.add(total, 0, sums[0])


@cuda.jit
def full_blocks_only(x, total):
    sums = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    sums[t] = x[i]
    cuda.syncthreads()
    half = 128
    while half > 0:
        if t < half:
            sums[t] += sums[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        cuda.atomic.add(total, 0, sums[0])


def sum_of_changed_numbers(changed):
    """The tree of halves, of what changed(x[i]) returns."""

    @cuda.jit
    def tree(x, total):
        sums = cuda.shared.array(256, float32)
        i, t = cuda.grid(1), cuda.threadIdx.x
        sums[t] = changed(x[i]) if i < x.size else float32(0)
        cuda.syncthreads()
        half = 128
        while half > 0:
            if t < half:
                sums[t] += sums[t + half]
            cuda.syncthreads()
            half //= 2
        if t == 0:
            cuda.atomic.add(total, 0, sums[0])

    return tree


@cuda.jit(device=True)
def without_its_sign(number):
    return abs(number)


@cuda.jit(device=True)
def at_most_1(number):
    return min(number, float32(1))


def sum_of_some_blocks(chosen):
    """The tree of halves, of which the blocks add that chosen(block, sum) picks."""

    @cuda.jit
    def tree(x, total):
        sums = cuda.shared.array(256, float32)
        i, t = cuda.grid(1), cuda.threadIdx.x
        sums[t] = x[i] if i < x.size else float32(0)
        cuda.syncthreads()
        half = 128
        while half > 0:
            if t < half:
                sums[t] += sums[t + half]
            cuda.syncthreads()
            half //= 2
        if t == 0 and chosen(cuda.blockIdx.x, sums[0]):
            cuda.atomic.add(total, 0, sums[0])

    return tree


@cuda.jit(device=True)
def the_first_four(block, sum_of_block):
    return block < 4


@cuda.jit(device=True)
def those_above_0(block, sum_of_block):
    return sum_of_block > 0


@cuda.jit
def unset_in_the_last_block(x, total):
    sums = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i < x.size:
        sums[t] = x[i]
    cuda.syncthreads()
    half = 128
    while half > 0:
        if t < half:
            sums[t] += sums[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        cuda.atomic.add(total, 0, sums[0])


@cuda.jit
def in_half_precision(x, total):
    sums = cuda.shared.array(256, np.float16)
    i, t = cuda.grid(1), cuda.threadIdx.x
    sums[t] = x[i] if i < x.size else 0.0
    cuda.syncthreads()
    half = 128
    while half > 0:
        if t < half:
            sums[t] += sums[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        cuda.atomic.add(total, 0, float32(sums[0]))


@cuda.jit
def an_atomic_a_warp(x, total):
    i = cuda.grid(1)
    mine = x[i] if i < x.size else float32(0)
    for step in range(5):
        mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 16 >> step)
    if cuda.threadIdx.x % 32 == 0:
        cuda.atomic.add(total, 0, mine)


@cuda.jit
def sets_the_total(x, total):
    sums = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    sums[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = 128
    while half > 0:
        if t < half:
            sums[t] += sums[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        total[0] += sums[0]


@cuda.jit
def atomics_to_one_shared_number(x, total):
    """One atomic a block to total, and 256 to a number in shared memory, one after another."""
    mine = cuda.shared.array(1, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t == 0:
        mine[0] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(mine, 0, x[i])
    cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(total, 0, mine[0])


@cuda.jit
def one_thread_adds_what_the_block_read(x, total):
    sums = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    sums[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    if t == 0:
        mine = float32(0)
        for k in range(256):
            mine += sums[k]
        cuda.atomic.add(total, 0, mine)


@cuda.jit
def four_threads_add_what_the_block_read(x, total):
    sums = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    sums[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    mine = float32(0)
    if t < 4:
        for k in range(64):
            mine += sums[t + 4 * k]
    for step in range(2):
        mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 2 >> step)
    if t == 0:
        cuda.atomic.add(total, 0, mine)


@cuda.jit
def strides_that_hit_one_bank(x, total):
    """Few branches diverge, but from step to step more numbers lie in one bank."""
    sums = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    sums[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    step = 1
    while step < 256:
        if 2 * step * t < 256:
            sums[2 * step * t] += sums[2 * step * t + step]
        cuda.syncthreads()
        step *= 2
    if t == 0:
        cuda.atomic.add(total, 0, sums[0])


@cuda.jit
def lane_after_lane(x, total):
    """31 shuffles where 5 are enough."""
    sums = cuda.shared.array(8, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    own = x[i] if i < x.size else float32(0)
    mine = own
    for lane in range(1, 32):
        mine += cuda.shfl_sync(0xFFFFFFFF, own, (t + lane) % 32)
    if t % 32 == 0:
        sums[t // 32] = mine
    cuda.syncthreads()
    if t == 0:
        for warp in range(1, 8):
            mine += sums[warp]
        cuda.atomic.add(total, 0, mine)


@cuda.jit
def every_thread_adds_in_every_step(x, total):
    """A scan: all 256 threads read and write in all eight steps."""
    sums = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    sums[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    step = 1
    while step < 256:
        other = sums[(t + step) % 256]
        cuda.syncthreads()
        sums[t] += other
        cuda.syncthreads()
        step *= 2
    if t == 0:
        cuda.atomic.add(total, 0, sums[0])


@cuda.jit
def shuffles_without_a_barrier(x, total):
    sums = cuda.shared.array(8, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    mine = x[i] if i < x.size else float32(0)
    for step in range(5):
        mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 16 >> step)
    if t % 32 == 0:
        sums[t // 32] = mine
    if t == 0:
        for warp in range(1, 8):
            mine += sums[warp]
        cuda.atomic.add(total, 0, mine)


@cuda.jit
def shuffles_of_those_with_a_number(x, total):
    """The mask names 32 lanes, but those beyond the end never get there."""
    sums = cuda.shared.array(8, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    mine = float32(0)
    if i < x.size:
        mine = x[i]
        for step in range(5):
            mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 16 >> step)
    if t % 32 == 0:
        sums[t // 32] = mine
    cuda.syncthreads()
    if t == 0:
        for warp in range(1, 8):
            mine += sums[warp]
        cuda.atomic.add(total, 0, mine)


@cuda.jit
def shared_sum_set_too_late(x, total):
    """The zero may come after the first addition."""
    mine = cuda.shared.array(1, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t == 0:
        mine[0] = 0
    if i < x.size:
        cuda.atomic.add(mine, 0, x[i])
    cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(total, 0, mine[0])


# -- 04.6


@cuda.jit
def adds_up_in_c(a, b, c):
    """Reads and writes c in global memory for every tile."""
    tile_a, tile_b = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    inside = row < c.shape[0] and column < c.shape[1]
    if inside:
        c[row, column] = 0
    for first in range(0, a.shape[1], 16):
        tile_a[y, x] = a[row, first + x] if row < a.shape[0] and first + x < a.shape[1] else 0
        tile_b[y, x] = (
            b[first + y, column] if first + y < b.shape[0] and column < b.shape[1] else 0
        )
        cuda.syncthreads()
        product = float32(0)
        for k in range(16):
            product += tile_a[y, k] * tile_b[k, x]
        if inside:
            c[row, column] += product
        cuda.syncthreads()


@cuda.jit
def leaves_c_where_nothing_is_added(a, b, c):
    """Right but for a depth of 0, where c keeps what it held."""
    tile_a, tile_b = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    acc = float32(0)
    for first in range(0, a.shape[1], 16):
        tile_a[y, x] = a[row, first + x] if row < a.shape[0] and first + x < a.shape[1] else 0
        tile_b[y, x] = (
            b[first + y, column] if first + y < b.shape[0] and column < b.shape[1] else 0
        )
        cuda.syncthreads()
        for k in range(16):
            acc += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
        if first + 16 >= a.shape[1] and row < c.shape[0] and column < c.shape[1]:
            c[row, column] = acc


@cuda.jit
def returns_before_the_barrier(a, b, c):
    """A thread without an element of c still has numbers of a and b to load."""
    tile_a, tile_b = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    if row >= c.shape[0] or column >= c.shape[1]:
        return
    acc = float32(0)
    for first in range(0, a.shape[1], 16):
        tile_a[y, x] = a[row, first + x] if first + x < a.shape[1] else 0
        tile_b[y, x] = b[first + y, column] if first + y < b.shape[0] else 0
        cuda.syncthreads()
        for k in range(16):
            acc += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    c[row, column] = acc


@cuda.jit
def tiles_of_any_size(a, b, c):
    """The compiler has to know the size of a shared array."""
    side = cuda.blockDim.x
    tile_a, tile_b = (
        cuda.shared.array((side, side), float32),
        cuda.shared.array((side, side), float32),
    )
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    acc = float32(0)
    for first in range(0, a.shape[1], side):
        tile_a[y, x] = a[row, first + x] if row < a.shape[0] and first + x < a.shape[1] else 0
        tile_b[y, x] = (
            b[first + y, column] if first + y < b.shape[0] and column < b.shape[1] else 0
        )
        cuda.syncthreads()
        for k in range(side):
            acc += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = acc


@cuda.jit
def one_thread_loads_a_row_of_the_tile(a, b, c):
    tile_a, tile_b = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    left = cuda.blockIdx.x * 16
    acc = float32(0)
    for first in range(0, a.shape[1], 16):
        if x == 0:
            for k in range(16):
                tile_a[y, k] = (
                    a[row, first + k] if row < a.shape[0] and first + k < a.shape[1] else 0
                )
                in_b = first + y < b.shape[0] and left + k < b.shape[1]
                tile_b[y, k] = b[first + y, left + k] if in_b else 0
        cuda.syncthreads()
        for k in range(16):
            acc += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = acc


@cuda.jit
def naive_matmul(a, b, c):
    column, row = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        product = float32(0)
        for k in range(a.shape[1]):
            product += a[row, k] * b[k, column]
        c[row, column] = product


@cuda.jit
def multiples_of_16(a, b, c):
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = float32(0)
    for first in range(0, a.shape[1], 16):
        tile_a[y, x] = a[row, first + x]
        tile_b[y, x] = b[first + y, column]
        cuda.syncthreads()
        for k in range(16):
            product += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    c[row, column] = product


@cuda.jit
def forgets_the_last_tile(a, b, c):
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = float32(0)
    for first in range(0, a.shape[1] // 16 * 16, 16):
        tile_a[y, x] = a[row, first + x] if row < a.shape[0] else float32(0)
        tile_b[y, x] = b[first + y, column] if column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(16):
            product += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product


@cuda.jit
def four_tiles_at_most(a, b, c):
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = float32(0)
    for tile in range(4):
        in_a = row < a.shape[0] and 16 * tile + x < a.shape[1]
        in_b = 16 * tile + y < b.shape[0] and column < b.shape[1]
        tile_a[y, x] = a[row, 16 * tile + x] if in_a else float32(0)
        tile_b[y, x] = b[16 * tile + y, column] if in_b else float32(0)
        cuda.syncthreads()
        for k in range(16):
            product += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product


@cuda.jit
def without_what_is_negative(a, b, c):
    """max in place of a guard: what lies beyond the end must not be below 0."""
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = float32(0)
    for first in range(0, a.shape[1], 16):
        in_a = row < a.shape[0] and first + x < a.shape[1]
        in_b = first + y < b.shape[0] and column < b.shape[1]
        tile_a[y, x] = max(a[row, first + x], float32(0)) if in_a else float32(0)
        tile_b[y, x] = b[first + y, column] if in_b else float32(0)
        cuda.syncthreads()
        for k in range(16):
            product += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product


def transposes_the_tile_of_b(columns):
    """The lanes of a warp read rows of b's tile that begin in few banks."""

    @cuda.jit
    def matmul(a, b, c):
        tile_a = cuda.shared.array((16, 16), float32)
        tile_b = cuda.shared.array((16, columns), float32)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        column, row = cuda.grid(2)
        product = float32(0)
        for first in range(0, a.shape[1], 16):
            in_b = first + y < b.shape[0] and column < b.shape[1]
            tile_a[y, x] = (
                a[row, first + x] if row < a.shape[0] and first + x < a.shape[1] else float32(0)
            )
            tile_b[x, y] = b[first + y, column] if in_b else float32(0)
            cuda.syncthreads()
            for k in range(16):
                product += tile_a[y, k] * tile_b[x, k]
            cuda.syncthreads()
        if row < c.shape[0] and column < c.shape[1]:
            c[row, column] = product

    return matmul


@cuda.jit
def one_barrier_a_step(a, b, c):
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = float32(0)
    for first in range(0, a.shape[1], 16):
        in_a, in_b = (
            row < a.shape[0] and first + x < a.shape[1],
            first + y < b.shape[0] and column < b.shape[1],
        )
        tile_a[y, x] = a[row, first + x] if in_a else float32(0)
        tile_b[y, x] = b[first + y, column] if in_b else float32(0)
        cuda.syncthreads()
        for k in range(16):
            product += tile_a[y, k] * tile_b[k, x]
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product


@cuda.jit
def adds_in_half_precision(a, b, c):
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = np.float16(0)
    for first in range(0, a.shape[1], 16):
        in_a, in_b = (
            row < a.shape[0] and first + x < a.shape[1],
            first + y < b.shape[0] and column < b.shape[1],
        )
        tile_a[y, x] = a[row, first + x] if in_a else float32(0)
        tile_b[y, x] = b[first + y, column] if in_b else float32(0)
        cuda.syncthreads()
        for k in range(16):
            product = np.float16(product + np.float16(tile_a[y, k] * tile_b[k, x]))
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product


@cuda.jit
def interleaved_neighbors(x, total):
    sums = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    sums[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    step = 1
    while step < 256:
        if t % (2 * step) == 0:
            sums[t] += sums[t + step]
        cuda.syncthreads()
        step *= 2
    if t == 0:
        cuda.atomic.add(total, 0, sums[0])


@cuda.jit
def one_thread_adds_all(x, total):
    if cuda.grid(1) == 0:
        for i in range(x.size):
            total[0] += x[i]


@cuda.jit
def one_thread_a_block_adds(x, total):
    if cuda.threadIdx.x == 0:
        mine = float32(0)
        for i in range(cuda.grid(1), min(x.size, cuda.grid(1) + cuda.blockDim.x)):
            mine += x[i]
        cuda.atomic.add(total, 0, mine)


@cuda.jit
def adds_to_what_c_held(a, b, c):
    tile_a, tile_b = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    acc = float32(0)
    for first in range(0, a.shape[1], 16):
        tile_a[y, x] = a[row, first + x] if row < a.shape[0] and first + x < a.shape[1] else 0
        tile_b[y, x] = (
            b[first + y, column] if first + y < b.shape[0] and column < b.shape[1] else 0
        )
        cuda.syncthreads()
        for k in range(16):
            acc += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] += acc


def from_first_to_last(stride, offset, element_bytes):
    first = offset * element_bytes // 32
    last = ((offset + 31 * stride) * element_bytes + element_bytes - 1) // 32
    return last - first + 1


def without_the_last_lane(stride, offset, element_bytes):
    return len({(offset + lane * stride) * element_bytes // 32 for lane in range(31)})


def with_an_offset_in_bytes(stride, offset, element_bytes):
    return len({(offset + lane * stride * element_bytes) // 32 for lane in range(32)})


def distinct_places_in_a_sector(stride, offset, element_bytes):
    return len({(offset + lane * stride) * element_bytes % 32 for lane in range(32)})


@cuda.jit
def reads_the_transpose(x, bias, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = x[column, row] + bias[column]


@cuda.jit
def strides_of_a_block_over_rows(x, bias, out):
    column, first = cuda.grid(2)
    if column < x.shape[1]:
        for row in range(first, x.shape[0], 8):
            out[row, column] = x[row, column] + bias[column]


@cuda.jit
def rows_as_long_as_columns(x, bias, out):
    column, row = cuda.grid(2)
    i = row * x.shape[0] + column
    if i < x.size:
        out[i // x.shape[1], i % x.shape[1]] = (
            x[i // x.shape[1], i % x.shape[1]] + bias[i % x.shape[1]]
        )


@cuda.jit
def through_the_output(x, bias, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = x[row, column]
        out[row, column] += bias[column]


@cuda.jit
def shifted_by_half(a, out):
    tile = cuda.shared.array((32, 32), float32)
    x, y = (cuda.threadIdx.x, cuda.threadIdx.y)
    column, row = (cuda.blockIdx.x * 32, cuda.blockIdx.y * 32)
    if row + y < a.shape[0] and column + x < a.shape[1]:
        tile[y, (x + y // 2) % 32] = a[row + y, column + x]
    cuda.syncthreads()
    if column + y < out.shape[0] and row + x < out.shape[1]:
        out[column + y, row + x] = tile[x, (y + x // 2) % 32]


@cuda.jit
def tile_of_doubles(a, out):
    tile = cuda.shared.array((32, 33), float64)
    x, y = (cuda.threadIdx.x, cuda.threadIdx.y)
    column, row = (cuda.blockIdx.x * 32, cuda.blockIdx.y * 32)
    if row + y < a.shape[0] and column + x < a.shape[1]:
        tile[y, x] = a[row + y, column + x]
    cuda.syncthreads()
    if column + y < out.shape[0] and row + x < out.shape[1]:
        out[column + y, row + x] = tile[x, y]


@cuda.jit
def last_warp_without_waiting(x, total):
    sums = cuda.shared.array(256, float32)
    i, t = (cuda.grid(1), cuda.threadIdx.x)
    sums[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    for s in (128, 64):
        if t < s:
            sums[t] += sums[t + s]
        cuda.syncthreads()
    if t < 32:
        for s in (32, 16, 8, 4, 2, 1):
            sums[t] += sums[t + s]
    if t == 0:
        cuda.atomic.add(total, 0, sums[0])


@cuda.jit
def shuffles_across_warps(x, total):
    i, t = (cuda.grid(1), cuda.threadIdx.x)
    mine = x[i] if i < x.size else float32(0)
    for step in (128, 64, 32, 16, 8, 4, 2, 1):
        mine += cuda.shfl_down_sync(4294967295, mine, step)
    if t == 0:
        cuda.atomic.add(total, 0, mine)


@cuda.jit
def shared_sum_set_without_a_barrier(x, total):
    s = cuda.shared.array(1, float32)
    i, t = (cuda.grid(1), cuda.threadIdx.x)
    if t == 0:
        s[0] = 0
    mine = x[i] if i < x.size else float32(0)
    for step in (16, 8, 4, 2, 1):
        mine += cuda.shfl_down_sync(4294967295, mine, step)
    if t % 32 == 0:
        cuda.atomic.add(s, 0, mine)
    cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(total, 0, s[0])


@cuda.jit
def adds_the_block_without_an_atomic(x, total):
    sums = cuda.shared.array(256, float32)
    i, t = (cuda.grid(1), cuda.threadIdx.x)
    sums[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    s = 128
    while s:
        if t < s:
            sums[t] += sums[t + s]
        cuda.syncthreads()
        s //= 2
    if t == 0:
        total[0] = total[0] + sums[0]


@cuda.jit
def loads_columns_of_a(a, b, c):
    sa = cuda.shared.array((16, 16), float32)
    sb = cuda.shared.array((16, 16), float32)
    x, y = (cuda.threadIdx.x, cuda.threadIdx.y)
    col, row = cuda.grid(2)
    acc = float32(0)
    for f in range(0, a.shape[1], 16):
        sa[x, y] = (
            a[cuda.blockIdx.y * 16 + x, f + y]
            if cuda.blockIdx.y * 16 + x < a.shape[0] and f + y < a.shape[1]
            else float32(0)
        )
        sb[y, x] = b[f + y, col] if f + y < b.shape[0] and col < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(16):
            acc += sa[y, k] * sb[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = acc


@cuda.jit
def adds_in_float64_by_accident(a, b, c):
    sa = cuda.shared.array((16, 16), float32)
    sb = cuda.shared.array((16, 16), float32)
    x, y = (cuda.threadIdx.x, cuda.threadIdx.y)
    col, row = cuda.grid(2)
    acc = 0.0
    for f in range(0, a.shape[1], 16):
        sa[y, x] = a[row, f + x] if row < a.shape[0] and f + x < a.shape[1] else 0.0
        sb[y, x] = b[f + y, col] if f + y < b.shape[0] and col < b.shape[1] else 0.0
        cuda.syncthreads()
        for k in range(16):
            acc += sa[y, k] * sb[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = acc


@cuda.jit
def transposes_the_tile_of_a(a, b, c):
    sa = cuda.shared.array((16, 16), float32)
    sb = cuda.shared.array((16, 16), float32)
    x, y = (cuda.threadIdx.x, cuda.threadIdx.y)
    col, row = cuda.grid(2)
    acc = float32(0)
    for f in range(0, a.shape[1], 16):
        sa[x, y] = a[row, f + x] if row < a.shape[0] and f + x < a.shape[1] else float32(0)
        sb[y, x] = b[f + y, col] if f + y < b.shape[0] and col < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(16):
            acc += sa[k, y] * sb[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = acc


@cuda.jit
def tiles_a_only(a, b, c):
    sa = cuda.shared.array((16, 16), float32)
    x, y = (cuda.threadIdx.x, cuda.threadIdx.y)
    col, row = cuda.grid(2)
    acc = float32(0)
    for f in range(0, a.shape[1], 16):
        sa[y, x] = a[row, f + x] if row < a.shape[0] and f + x < a.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(16):
            if f + k < b.shape[0] and col < b.shape[1]:
                acc += sa[y, k] * b[f + k, col]
        cuda.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = acc


@cuda.jit
def walks_along_the_rows_of_a(a, b, c):
    sa = cuda.shared.array((16, 16), float32)
    sb = cuda.shared.array((16, 16), float32)
    x, y = (cuda.threadIdx.x, cuda.threadIdx.y)
    col, row = cuda.grid(2)
    acc = float32(0)
    for f in range(0, a.shape[0], 16):
        sa[y, x] = a[row, f + x] if row < a.shape[0] and f + x < a.shape[1] else float32(0)
        sb[y, x] = b[f + y, col] if f + y < b.shape[0] and col < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(16):
            acc += sa[y, k] * sb[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = acc


WRONG = {
    "04.1": [
        (lines_of_128, "sectors begin at multiples of 32", "neighbors-apart"),
        (always_from_a_boundary, "offset=1", "neighbors-apart"),
        (only_floats, "element_bytes=8", "right-for-one-case"),
        (by_formula, "what we expect", "neighbors-apart"),
        (lambda stride, offset, element_bytes: 4, "stride=8", "hard-coded"),
        (from_first_to_last, "what we expect", "neighbors-apart"),
        (without_the_last_lane, "31 sectors is close", "off-by-one"),
        (with_an_offset_in_bytes, "offset=1", "wrong-unit"),
        (distinct_places_in_a_sector, "what we expect", "other-formula"),
    ],
    "04.2": [
        (uncoalesced_but_correct, "computes the right result, but needs", "neighbors-apart"),
        (a_thread_a_row, "computes the right result, but needs", "neighbors-apart"),
        (a_thread_a_column, "Few threads do the work of many", "few-threads-work"),
        (a_thread_two_rows, "Few threads do the work of many", "few-threads-work"),
        (adds_to_the_input, "x is an input: write to out only", "input-is-mine"),
        (bias_of_96_columns, "x of 5 x 129", "right-for-one-case"),
        (nothing_below_0, "elements are wrong", "other-formula"),
        (bias_in_half_precision, "elements are wrong", "low-precision-is-enough"),
        (reads_whole_rows, "write a loop over the elements", "kernel-takes-any-python"),
        (no_guard, "outside", "missing-guard"),
        (guards_the_rows_only, "outside", "missing-guard"),
        (bias_of_the_row, "elements are wrong", "axes-swapped"),
        (reads_the_transpose, "[outside]", "axes-swapped"),
        (strides_of_a_block_over_rows, "race] line", "one-block-is-the-grid"),
        (rows_as_long_as_columns, "race] line", "axes-swapped"),
        (through_the_output, "sectors of x and out", "global-reads-repeated"),
    ],
    "04.3": [
        (naive_transpose, "sectors of a and out", "neighbors-apart"),
        (writes_columns, "sectors of a and out", "neighbors-apart"),
        (by_one_row_of_threads, "Few threads do the work of many", "few-threads-work"),
        (padded_by_two, "rounds of shared memory", "bank-conflicts-ignored"),
        (padded_below, "rounds of shared memory", "bank-conflicts-ignored"),
        (waits_for_its_warp_only, "[race]", "missing-barrier"),
        (tile_in_place, "elements are wrong", "axes-swapped"),
        (without_padding, "rounds of shared memory", "bank-conflicts-ignored"),
        (without_barrier, "barrier", "missing-barrier"),
        (barrier_inside_the_guard, "barrier", "barrier-not-reached-by-all"),
        (multiples_of_the_tile, "outside", "missing-guard"),
        (one_guard_for_both, "outside", "missing-guard"),
        (shifted_by_half, "rounds of shared memory", "bank-conflicts-ignored"),
        (transposes_tiles_up_to(4, 9), "a of 33 x 150", "right-for-one-case"),
        (transposes_tiles_up_to(9, 4), "a of 129 x 2", "right-for-one-case"),
        (tile_of_doubles, "rounds of shared memory", "double-is-free"),
    ],
    "04.5": [
        (all_atomic, "2,048 atomic additions", "any-reduction-is-as-fast"),
        (an_atomic_a_warp, "64 atomic additions", "any-reduction-is-as-fast"),
        (interleaved_neighbors, "divergent branches", "any-reduction-is-as-fast"),
        (
            atomics_to_one_shared_number,
            "rounds of shared memory and shuffles",
            "any-reduction-is-as-fast",
        ),
        (
            one_thread_adds_what_the_block_read,
            "Few threads do the work of many",
            "few-threads-work",
        ),
        (
            four_threads_add_what_the_block_read,
            "Few threads do the work of many",
            "few-threads-work",
        ),
        (
            strides_that_hit_one_bank,
            "rounds of shared memory and shuffles",
            "bank-conflicts-ignored",
        ),
        (lane_after_lane, "rounds of shared memory and shuffles", "any-reduction-is-as-fast"),
        (
            every_thread_adds_in_every_step,
            "rounds of shared memory and shuffles",
            "any-reduction-is-as-fast",
        ),
        (shuffles_without_a_barrier, "[race]", "missing-barrier"),
        (shuffles_of_those_with_a_number, "[deadlock]", "barrier-not-reached-by-all"),
        (shared_sum_set_too_late, "[race]", "missing-barrier"),
        (one_thread_adds_all, "numbers read by one thread", "few-threads-work"),
        (one_thread_a_block_adds, "numbers read by one thread", "few-threads-work"),
        (no_atomic, "total", "plus-equals-is-atomic"),
        (sets_the_total, "total", "plus-equals-is-atomic"),
        (tree_without_barriers, "barrier", "missing-barrier"),
        (no_barrier_at_the_end, "barrier", "missing-barrier"),
        (full_blocks_only, "outside", "missing-guard"),
        (unset_in_the_last_block, "sums", "memory-starts-at-zero"),
        (in_half_precision, "elements are wrong", "low-precision-is-enough"),
        (sum_of_changed_numbers(without_its_sign), "total[0] is", "other-formula"),
        (sum_of_changed_numbers(at_most_1), "total[0] is 4, expected 103", "other-formula"),
        (sum_of_some_blocks(the_first_four), "2,048 numbers", "right-for-one-case"),
        (sum_of_some_blocks(those_above_0), "1,000 numbers", "right-for-one-case"),
        (last_warp_without_waiting, "[race]", "missing-barrier"),
        (shuffles_across_warps, "total[0] is", "one-block-is-the-grid"),
        (shared_sum_set_without_a_barrier, "[race]", "missing-barrier"),
        (adds_the_block_without_an_atomic, "[race]", "plus-equals-is-atomic"),
    ],
    "04.6": [
        (naive_matmul, "reads of a and b", "global-reads-repeated"),
        (adds_up_in_c, "accesses to c", "global-reads-repeated"),
        (leaves_c_where_nothing_is_added, "c[0, 0] is nan, expected 0", "zero-never-happens"),
        (returns_before_the_barrier, "[unset]", "barrier-not-reached-by-all"),
        (tiles_of_any_size, "shared", "kernel-takes-any-python"),
        (
            one_thread_loads_a_row_of_the_tile,
            "numbers of a matrix read by one thread",
            "few-threads-work",
        ),
        (adds_to_what_c_held, "c[0, 0] is nan", "memory-starts-at-zero"),
        (multiples_of_16, "outside", "missing-guard"),
        (four_tiles_at_most, "a of 20 x 70", "right-for-one-case"),
        (without_what_is_negative, "elements are wrong", "other-formula"),
        (forgets_the_last_tile, "elements are wrong", "rest-left-out"),
        (transposes_the_tile_of_b(16), "bank conflicts", "bank-conflicts-ignored"),
        (transposes_the_tile_of_b(32), "bank conflicts", "bank-conflicts-ignored"),
        (one_barrier_a_step, "barrier", "missing-barrier"),
        (adds_in_half_precision, "elements are wrong", "low-precision-is-enough"),
        (loads_columns_of_a, "sectors of a and b", "neighbors-apart"),
        (adds_in_float64_by_accident, "has float64", "double-is-free"),
        (transposes_the_tile_of_a, "bank conflicts", "bank-conflicts-ignored"),
        (tiles_a_only, "reads of a and b", "global-reads-repeated"),
        (walks_along_the_rows_of_a, "elements are wrong", "axes-swapped"),
    ],
}
