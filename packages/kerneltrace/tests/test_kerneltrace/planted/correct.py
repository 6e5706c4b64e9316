"""Correct kernels with barriers, warps and borders that may look like mistakes."""

import numpy as np
from numba import cuda, float32, from_dtype, int32

from test_kerneltrace.planted.case import Cases, floats, whole, zeros

CASES = Cases()
PARTICLE = from_dtype(np.dtype([("x", "f4"), ("v", "f4", (2,))], align=True))


@CASES("", 1, 64, floats(64), zeros(64), whole(64), shared_bytes=512)
def an_array_behind_another(x, y, out):
    a = cuda.shared.array(0, float32)[:64]
    b = cuda.shared.array(0, int32)[64:]
    t = cuda.threadIdx.x
    a[t] = x[t]
    b[t] = t
    cuda.syncthreads()
    y[t] = a[63 - t]
    out[t] = b[63 - t]


@CASES("", 1, 64, floats(64), zeros(64), whole(64), shared_bytes=256)
def an_array_after_another(x, y, out):
    a = cuda.shared.array(0, float32)
    b = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    a[t] = x[t]
    cuda.syncthreads()
    y[t] = a[63 - t]
    cuda.syncthreads()
    b[t] = t
    cuda.syncthreads()
    out[t] = b[63 - t]


@CASES("", 1, 64, floats(64), zeros(64))
def records_in_shared_and_local_memory(x, y):
    s = cuda.shared.array((2, 32), PARTICLE)
    own = cuda.local.array(1, PARTICLE)
    t = cuda.threadIdx.x
    own[0].x = x[t]
    for i in range(2):
        s[t // 32, t % 32].v[i] = own[0].x
    cuda.syncthreads()
    y[t] = s[1 - t // 32, t % 32]["v"][1]


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
def threads_that_return_one_after_another(x, y):
    t = cuda.threadIdx.x
    i = cuda.grid(1)
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


@CASES("", 1, 32, floats(32), zeros(32))
def a_local_array_written_as_it_is_read(x, y):
    i = cuda.grid(1)
    last = cuda.local.array(3, float32)
    for k in range(3):
        last[k] = x[i] * k
        if k > 0:
            last[k] += last[k - 1]
    y[i] = last[2]
