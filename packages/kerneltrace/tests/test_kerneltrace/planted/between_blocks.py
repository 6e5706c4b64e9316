"""Mistakes between blocks, and in fences, flags and locks."""

import numpy as np
from numba import cuda, float32, int32

from test_kerneltrace.planted.case import Cases, floats, whole, zeros

CASES = Cases()
PARTS = (floats(128), zeros(4), whole(1), zeros(1))


@CASES("race", 2, 64, floats(128))
def a_stencil_in_place_across_blocks(x):
    i = cuda.grid(1)
    v = x[i - 1] if i > 0 else float32(0)
    cuda.syncthreads()
    x[i] += v


@CASES("race", 4, 32, *PARTS)
def the_last_block_without_a_fence(x, parts, count, out):
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        parts[b] = x[32 * b]
        if cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1:
            for j in range(4):
                out[0] += parts[j]


@CASES("race", 4, 32, *PARTS)
def the_last_block_with_a_fence_of_the_block(x, parts, count, out):
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        parts[b] = x[32 * b]
        cuda.threadfence_block()
        if cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1:
            for j in range(4):
                out[0] += parts[j]


@CASES("race", 4, 32, floats(128), zeros(128), whole(1), zeros(1))
def a_fence_of_thread_0_for_all(x, parts, count, out):
    last = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    parts[i] = x[i]
    if t == 0:
        cuda.threadfence()
        last[0] = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0] and t == 0:
        for j in range(parts.size):
            out[0] += parts[j]


@CASES("race", 4, 32, whole(1), whole(1))
def a_lock_without_a_fence(count, lock):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        count[0] += 1
        cuda.atomic.exch(lock, 0, 0)


@CASES("race", 4, 32, whole(1), whole(1))
def a_lock_released_by_a_plain_store(count, lock):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        count[0] += 1
        cuda.threadfence()
        lock[0] = 0


@CASES("endless", 4, 32, whole(1), zeros(128), max_steps=3000)
def a_barrier_of_the_grid_by_hand(count, y):
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(count, 0, 1)
        while cuda.atomic.add(count, 0, 0) < cuda.gridDim.x:
            pass
    cuda.syncthreads()
    y[cuda.grid(1)] = 1


@CASES("race", 2, 32, zeros(1), whole(1), zeros(1))
def a_flag_read_without_an_atomic(data, flag, y):
    if cuda.threadIdx.x == 0:
        if cuda.blockIdx.x == 0:
            data[0] = 5
            cuda.threadfence()
            cuda.atomic.exch(flag, 0, 1)
        elif flag[0] == 1:
            y[0] = data[0]


@CASES("race", 1, 64, zeros(64))
def warps_that_hand_on_without_a_fence(y):
    s = cuda.shared.array(32, float32)
    flag = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        flag[0] = 0
    cuda.syncthreads()
    if t < 32:
        s[t] = t
        cuda.syncwarp()
        if t == 0:
            cuda.atomic.exch(flag, 0, 1)
    else:
        while cuda.atomic.cas(flag, 0, 0, 0) == 0:
            pass
        y[t] = s[t - 32]


@CASES("race", 1, 64, np.arange(64, dtype=np.int32) % 4, whole(4))
def a_count_without_an_atomic_where_a_swap_failed(values, counts):
    v = values[cuda.grid(1)]
    seen = counts[v]
    if cuda.atomic.cas(counts, v, seen, seen + 1) != seen:
        counts[v] += 1
