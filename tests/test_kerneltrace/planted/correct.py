"""Correct kernels with barriers, warps and borders that may look like mistakes."""

import numpy as np
from numba import cuda, float32, int32

from tests.test_kerneltrace.planted.case import FULL, Cases, floats, whole, zeros

CASES = Cases()


@CASES("", 1, 64, floats(64), zeros(1))
def a_warp_that_adds_in_step(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t < 32:
        d = 32
        while d > 0:
            v = s[t + d] if t + d < 64 else float32(0)
            cuda.syncwarp()
            s[t] += v
            cuda.syncwarp()
            d //= 2
        if t == 0:
            out[0] = s[0]


@CASES("", 1, 32, floats(160), zeros(32))
def two_buffers_in_turn(x, out):
    s = cuda.shared.array((2, 32), float32)
    t = cuda.threadIdx.x
    s[0, t] = x[t]
    for step in range(1, 5):
        cuda.syncthreads()
        s[step % 2, t] = s[(step + 1) % 2, t] + x[32 * step + t]
    cuda.syncthreads()
    out[t] = s[0, 31 - t]


@CASES("", 2, 64, floats(1000), whole(16))
def a_histogram_in_shared_memory(x, h):
    s = cuda.shared.array(16, int32)
    t = cuda.threadIdx.x
    if t < 16:
        s[t] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(s, int(x[i]) % 16, 1)
    cuda.syncthreads()
    if t < 16:
        cuda.atomic.add(h, t, s[t])


@CASES("", 1, 64, floats(64), zeros(64))
def a_prefix_sum(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    d = 1
    while d < 64:
        v = s[t]
        if t >= d:
            v += s[t - d]
        cuda.syncthreads()
        s[t] = v
        cuda.syncthreads()
        d *= 2
    out[t] = s[t]


@CASES("", 2, 64, floats(100), zeros(100))
def a_guard_that_returns_before_a_barrier(x, y):
    i = cuda.grid(1)
    if i >= x.size:
        return
    v = x[i]
    cuda.syncthreads()
    y[i] = v


@CASES("", 2, 64, floats(100), zeros(100))
def a_guard_that_returns_before_a_tile(x, y):
    s = cuda.shared.array(64, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i >= x.size:
        return
    s[t] = x[i]
    cuda.syncthreads()
    n = min(64, x.size - 64 * cuda.blockIdx.x)
    y[i] = s[n - 1 - t]


@CASES("", 2, 64, floats(100), zeros(100))
def threads_that_return_one_after_another(x, y):
    t, i = cuda.threadIdx.x, cuda.grid(1)
    for k in range(3):
        if t < 16 * k:
            return
        cuda.syncthreads()
        if i < x.size:
            y[i] = x[i] + k


@CASES("", 1, 64, floats(64), zeros(64))
def a_barrier_in_a_branch_that_all_take(x, y):
    t = cuda.threadIdx.x
    if x.size > 10:
        cuda.syncthreads()
    y[t] = x[t]


@CASES("", 2, 32, floats(64), zeros(64))
def a_stencil_that_leaves_its_border(x, y):
    i = cuda.grid(1)
    if 0 < i < x.size - 1:
        y[i] = x[i - 1] - 2 * x[i] + x[i + 1]


@CASES("", (2, 2), (8, 8), floats(16, 16), zeros(16, 16))
def a_stencil_in_two_dimensions(x, y):
    j, i = cuda.grid(2)
    if 0 < i < 15 and 0 < j < 15:
        y[i, j] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]


@CASES("", 2, 32, floats(64), zeros(64))
def differences_of_neighbours(x, y):
    i = cuda.grid(1)
    if i < x.size - 1:
        y[i] = x[i + 1] - x[i]


@CASES("", 1, 32, floats(32), zeros(64))
def every_other_element(x, y):
    i = cuda.grid(1)
    y[2 * i] = x[i]


@CASES("", 1, 64, floats(64))
def a_swap_by_one_of_its_threads(x):
    t = cuda.threadIdx.x
    if t < 32:
        v = x[t]
        x[t] = x[63 - t]
        x[63 - t] = v


@CASES("", 1, 64, floats(64)[::-1])
def an_odd_even_sort(x):
    t = cuda.threadIdx.x
    for step in range(64):
        i = 2 * t + step % 2
        if i + 1 < x.size and x[i] > x[i + 1]:
            v = x[i]
            x[i] = x[i + 1]
            x[i + 1] = v
        cuda.syncthreads()


@CASES("", 1, 64, floats(64)[::-1])
def a_bitonic_sort(x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    k = 2
    while k <= 64:
        j = k // 2
        while j > 0:
            cuda.syncthreads()
            other = t ^ j
            if other > t and (s[t] > s[other]) == (t & k == 0):
                v = s[t]
                s[t] = s[other]
                s[other] = v
            j //= 2
        k *= 2
    cuda.syncthreads()
    x[t] = s[t]


@CASES("", (2, 2), (8, 8), floats(16, 16), zeros(16, 16))
def a_transpose_through_a_tile(a, out):
    tile = cuda.shared.array((8, 9), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    bx, by = 8 * cuda.blockIdx.x, 8 * cuda.blockIdx.y
    tile[ty, tx] = a[by + ty, bx + tx]
    cuda.syncthreads()
    out[bx + ty, by + tx] = tile[tx, ty]


@CASES("", 1, 32, floats(32), zeros(32))
def halves_of_a_warp_apart(x, y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    if t < 16:
        cuda.syncwarp(0xFFFF)
        y[t] = s[15 - t]
    else:
        cuda.syncwarp(0xFFFF0000)
        y[t] = s[47 - t]


@CASES("", 2, 64, floats(128), zeros(4))
def sums_of_warps_by_shuffles(x, y):
    i = cuda.grid(1)
    v = x[i]
    d = 16
    while d > 0:
        v += cuda.shfl_down_sync(FULL, v, d)
        d //= 2
    if i % 32 == 0:
        y[i // 32] = v


@CASES("", 2, 32, floats(64), np.random.default_rng(0).permutation(64).astype(np.int32), zeros(64))
def a_scatter_to_places_of_their_own(x, place, y):
    i = cuda.grid(1)
    y[place[i]] = x[i]


@CASES("", 4, 64, floats(256), np.full(1, -1, np.float32), zeros(1))
def the_largest_and_the_sum(x, top, total):
    i = cuda.grid(1)
    cuda.atomic.max(top, 0, x[i])
    cuda.atomic.add(total, 0, x[i])


@CASES("", 1, 32, floats(32), zeros(32))
def a_local_array_written_as_it_is_read(x, y):
    i = cuda.grid(1)
    last = cuda.local.array(3, float32)
    for k in range(3):
        last[k] = x[i] * k
        if k > 0:
            last[k] += last[k - 1]
    y[i] = last[2]


@CASES("", 1, 64, floats(64), whole(1))
def a_barrier_that_counts(x, n):
    t = cuda.threadIdx.x
    many = cuda.syncthreads_count(1 if x[t] > 9 else 0)
    if t == 0:
        n[0] = many
