"""Mistakes within a block: barriers, warps, shared and local memory, indices."""

import numpy as np
from numba import cuda, float32, from_dtype, int32

from test_kerneltrace.planted.case import FULL, Cases, floats, whole, zeros

CASES = Cases()
PARTICLE = from_dtype(np.dtype([("x", "f4"), ("id", "i4")], align=True))


@CASES("overlap", 1, 64, floats(64), zeros(64), whole(64), shared_bytes=512)
def two_types_at_the_same_place(x, y, out):
    a = cuda.shared.array(0, float32)
    b = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    a[t] = x[t]
    b[t] = t
    cuda.syncthreads()
    y[t] = a[63 - t]
    out[t] = b[63 - t]


@CASES("overlap", 1, 64, floats(64), zeros(64), shared_bytes=512)
def two_arrays_of_a_type_at_the_same_place(x, y):
    a = cuda.shared.array(0, float32)
    b = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    a[t] = x[t]
    cuda.syncthreads()
    v = a[63 - t]
    cuda.syncthreads()
    b[t] = v
    cuda.syncthreads()
    y[t] = a[t] + b[t]


@CASES("overlap", 1, 64, floats(64), zeros(64), shared_bytes=512)
def a_counter_in_the_same_bytes(x, y):
    a = cuda.shared.array(0, float32)
    count = cuda.shared.array(0, int32)[60:]
    t = cuda.threadIdx.x
    a[t] = x[t]
    cuda.syncthreads()
    cuda.atomic.add(count, 0, 1)
    cuda.syncthreads()
    y[t] = a[63 - t]


@CASES("race", 1, 64, floats(64), zeros(64))
def no_barrier_before_another_threads_record(x, y):
    s = cuda.shared.array(64, PARTICLE)
    t = cuda.threadIdx.x
    s[t].x = x[t]
    y[t] = s[63 - t].x


@CASES("unset", 1, 64, floats(64), zeros(64))
def a_field_of_a_record_of_its_own_that_it_did_not_write(x, y):
    p = cuda.local.array(2, PARTICLE)
    t = cuda.threadIdx.x
    p[0].x = x[t]
    p[1].id = t
    y[t] = p[0].x + p[1].x


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
def a_syncwarp_of_too_few_lanes(y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = t
    if t < 16:
        cuda.syncwarp(0xFFFF)
    else:
        cuda.syncwarp(0xFFFF0000)
    y[t] = s[31 - t]


@CASES("race", 1, 64, floats(64))
def a_swap_by_both_of_its_threads(x):
    t = cuda.threadIdx.x
    a = x[t]
    b = x[63 - t]
    x[t] = b
    x[63 - t] = a


@CASES("unset", 1, 64, floats(64), whole(8))
def shared_counters_that_nobody_clears(x, h):
    s = cuda.shared.array(8, int32)
    t = cuda.threadIdx.x
    cuda.atomic.add(s, int(x[t]) % 8, 1)
    cuda.syncthreads()
    if t < 8:
        cuda.atomic.add(h, t, s[t])


@CASES("unset", 2, 64, floats(128), zeros(128))
def a_halo_that_nobody_loads(x, y):
    s = cuda.shared.array(66, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    s[t + 1] = x[i]
    cuda.syncthreads()
    y[i] = s[t] + s[t + 2]


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
