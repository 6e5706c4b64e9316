"""Mistakes within a block: barriers, warps, shared and local memory, indices."""

from numba import cuda, float32, int32

from tests.test_kerneltrace.planted.case import FULL, Cases, floats, whole, zeros

CASES = Cases()


@CASES("race", 1, 64, floats(64), zeros(64))
def no_barrier_after_the_load(x, y):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    y[t] = s[63 - t]


@CASES("race", 1, 64, floats(256), zeros(64))
def no_barrier_before_the_next_tile(x, y):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    for k in range(4):
        s[t] = x[64 * k + t]
        cuda.syncthreads()
        total += s[63 - t]
    y[t] = total


@CASES("race", 1, 128, floats(128), zeros(1))
def a_reduction_with_its_barrier_after_the_loop(x, out):
    s = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    d = 64
    while d > 0:
        if t < d:
            s[t] += s[t + d]
        d //= 2
    cuda.syncthreads()
    if t == 0:
        out[0] = s[0]


@CASES("race", 1, 64, floats(64), zeros(1))
def a_last_warp_without_syncwarp(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t < 32:
        d = 32
        while d > 0:
            s[t] += s[t + d]
            d //= 2
    if t == 0:
        out[0] = s[0]


@CASES("race", 1, 32, floats(32), zeros(32))
def one_syncwarp_where_two_are_needed(x, y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    d = 1
    while d < 32:
        if t >= d:
            s[t] += s[t - d]
        cuda.syncwarp()
        d *= 2
    y[t] = s[t]


@CASES("race", 1, 32, zeros(32))
def a_shuffle_taken_for_a_barrier(y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = t
    v = cuda.shfl_xor_sync(FULL, t, 1)
    y[t] = s[31 - t] + v


@CASES("race", 1, 32, zeros(32))
def a_vote_taken_for_a_barrier(y):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = t
    n = cuda.ballot_sync(FULL, t > 3)
    y[t] = s[(t + 1) % 32] + n


@CASES("race", 1, 32, zeros(32))
def a_syncwarp_of_too_few_lanes(y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = t
    if t < 16:
        cuda.syncwarp(0xFFFF)
    else:
        cuda.syncwarp(0xFFFF0000)
    y[t] = s[31 - t]


@CASES("race", 1, 64, zeros(64))
def a_syncwarp_for_two_warps(y):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = t
    cuda.syncwarp()
    y[t] = s[(t + 1) % 64]


@CASES("race", 1, 64, zeros(65))
def two_writers_of_an_element(y):
    i = cuda.grid(1)
    y[i] = i
    y[i + 1] = -i


@CASES("race", 1, 64, floats(64))
def a_stencil_in_place(x):
    i = cuda.grid(1)
    if 0 < i < 63:
        x[i] = x[i - 1] + x[i + 1]


@CASES("race", 1, 64, floats(64))
def a_scan_in_place(x):
    t = cuda.threadIdx.x
    d = 1
    while d < 64:
        if t >= d:
            x[t] += x[t - d]
        cuda.syncthreads()
        d *= 2


@CASES("race", 1, 64, floats(64))
def a_swap_by_both_of_its_threads(x):
    t = cuda.threadIdx.x
    a, b = x[t], x[63 - t]
    x[t] = b
    x[63 - t] = a


@CASES("race", 1, 64, floats(64), whole(8))
def a_histogram_without_atomics(x, h):
    h[int(x[cuda.grid(1)]) % 8] += 1


@CASES("unset", 1, 64, floats(64), whole(8))
def shared_counters_that_nobody_clears(x, h):
    s = cuda.shared.array(8, int32)
    t = cuda.threadIdx.x
    cuda.atomic.add(s, int(x[t]) % 8, 1)
    cuda.syncthreads()
    if t < 8:
        cuda.atomic.add(h, t, s[t])


@CASES("race", 1, 64, floats(64), whole(8))
def shared_counters_cleared_without_a_barrier(x, h):
    s = cuda.shared.array(8, int32)
    t = cuda.threadIdx.x
    if t < 8:
        s[t] = 0
    cuda.atomic.add(s, int(x[t]) % 8, 1)
    cuda.syncthreads()
    if t < 8:
        cuda.atomic.add(h, t, s[t])


@CASES("unset", 2, 64, floats(128), zeros(128))
def a_halo_that_nobody_loads(x, y):
    s = cuda.shared.array(66, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t + 1] = x[i]
    cuda.syncthreads()
    y[i] = s[t] + s[t + 2]


@CASES("unset", 2, 64, floats(100), zeros(100))
def a_tail_left_out_of_the_tile(x, y):
    s = cuda.shared.array(64, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i < x.size:
        s[t] = x[i]
    cuda.syncthreads()
    if i < x.size:
        y[i] = s[63 - t]


@CASES("barrier", 2, 64, floats(100), zeros(100))
def a_barrier_behind_the_guard(x, y):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        cuda.syncthreads()
        y[i] = v


@CASES("barrier", 1, 64, zeros(64))
def a_barrier_in_a_loop_of_different_lengths(y):
    t = cuda.threadIdx.x
    for _ in range(1 + t // 32):
        cuda.syncthreads()
    y[t] = t


@CASES("barrier", 1, 64, zeros(64))
def a_barrier_in_each_branch(y):
    t = cuda.threadIdx.x
    if t < 32:
        y[t] = 1
        cuda.syncthreads()
    else:
        cuda.syncthreads()
        y[t] = 2


@CASES("deadlock", 1, 32, zeros(32))
def a_barrier_against_a_syncwarp(y):
    t = cuda.threadIdx.x
    if t < 16:
        cuda.syncwarp()
    else:
        cuda.syncthreads()
    y[t] = t


@CASES("deadlock", 1, 32, zeros(32))
def a_shuffle_that_waits_for_absent_lanes(y):
    t = cuda.threadIdx.x
    if t % 2:
        y[t] = cuda.shfl_sync(FULL, t, 0)
    else:
        cuda.syncthreads()
        y[t] = t


@CASES("undefined", 1, 32, zeros(32))
def a_shuffle_from_beyond_its_mask(y):
    t = cuda.laneid
    if t < 16:
        y[t] = cuda.shfl_down_sync(0xFFFF, t, 8)
    else:
        y[t] = 0


@CASES("lane", 1, 32, zeros(32))
def a_lane_outside_its_own_mask(y):
    y[cuda.laneid] = cuda.shfl_sync(0xFFFF, cuda.laneid, 0)


@CASES("endless", 1, 32, whole(1), whole(1), max_steps=3000)
def a_lock_that_stays_locked(count, lock):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    cuda.atomic.add(count, 0, 1)


@CASES("endless", 1, 32, zeros(32), max_steps=3000)
def a_loop_that_forgets_its_step(y):
    d = 16
    while d > 0:
        y[cuda.grid(1)] = d


@CASES("outside", 1, 96, floats(96), zeros(1))
def a_tree_for_a_block_of_96(x, out):
    s = cuda.shared.array(96, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    d = 64
    while d > 0:
        if t < d:
            s[t] += s[t + d]
        cuda.syncthreads()
        d //= 2
    if t == 0:
        out[0] = s[0]


@CASES("outside", 2, 64, floats(100), zeros(100))
def a_guard_off_by_one(x, y):
    i = cuda.grid(1)
    if i <= x.size:
        y[i] = 2 * x[i]
