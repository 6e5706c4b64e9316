"""Mistakes between blocks, and in fences, flags and locks."""

import numpy as np
from numba import cuda, float32, int32

from tests.test_kerneltrace.planted.case import Cases, floats, whole, zeros

CASES = Cases()
PARTS = (floats(128), zeros(4), whole(1), zeros(1))


@CASES("race", 4, 1, floats(4), zeros(1))
def a_sum_without_atomics(x, total):
    total[0] += x[cuda.grid(1)]


@CASES("race", 2, 64, floats(128))
def a_stencil_in_place_across_blocks(x):
    i = cuda.grid(1)
    v = x[i - 1] if i > 0 else float32(0)
    cuda.syncthreads()
    x[i] += v


@CASES("race", 2, 64, floats(128), zeros(128))
def two_steps_without_a_barrier_of_the_grid(x, y):
    i = cuda.grid(1)
    y[i] = 2 * x[i]
    cuda.syncthreads()
    if 0 < i < 127:
        x[i] = y[i - 1] + y[i + 1]


@CASES("race", 4, 32, floats(128), zeros(128))
def a_stride_of_one_block(x, y):
    for i in range(cuda.grid(1), x.size, cuda.blockDim.x):
        y[i] = x[i]


@CASES("race", 4, 32, *PARTS)
def the_last_block_without_a_fence(x, parts, count, out):
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        parts[b] = x[32 * b]
        if cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1:
            for j in range(4):
                out[0] += parts[j]


@CASES("race", 4, 32, *PARTS)
def the_last_block_with_its_fence_too_late(x, parts, count, out):
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        parts[b] = x[32 * b]
        last = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
        cuda.threadfence()
        if last:
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


@CASES("race", 4, 32, *PARTS)
def the_last_but_one_block_adds_up(x, parts, count, out):
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        parts[b] = x[32 * b]
        cuda.threadfence()
        if cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 2:
            for j in range(4):
                out[0] += parts[j]


@CASES("race", 4, 32, floats(128), zeros(4), whole(1), zeros(4))
def every_block_adds_up(x, parts, count, out):
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        parts[b] = x[32 * b]
        cuda.threadfence()
        out[b] = cuda.atomic.add(count, 0, 1)
        for j in range(b + 1):
            out[b] += parts[j]


@CASES("race", 4, 32, floats(128), zeros(128), whole(1), zeros(1))
def a_fence_of_thread_0_for_all(x, parts, count, out):
    last = cuda.shared.array(1, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    parts[i] = x[i]
    if t == 0:
        cuda.threadfence()
        last[0] = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0] and t == 0:
        for j in range(parts.size):
            out[0] += parts[j]


@CASES("race", 4, 32, floats(128), zeros(4), whole(8), zeros(4))
def an_atomic_that_is_no_flag(x, parts, h, out):
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        parts[b] = x[32 * b]
        cuda.threadfence()
        cuda.atomic.add(h, 3, 1)
        out[b] = parts[b - 1] if b > 0 else float32(0)


@CASES("race", 4, 32, whole(1), whole(1))
def a_lock_without_a_fence(count, lock):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        count[0] += 1
        cuda.atomic.exch(lock, 0, 0)


@CASES("race", 4, 32, whole(1), whole(1))
def a_lock_released_before_the_work(count, lock):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)
        count[0] += 1


@CASES("race", 4, 32, whole(1), whole(1))
def a_lock_released_by_a_plain_store(count, lock):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        count[0] += 1
        cuda.threadfence()
        lock[0] = 0


@CASES("endless", 2, 32, whole(1), zeros(2), max_steps=3000)
def a_block_that_waits_for_a_later_one(flag, y):
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        if b == 0:
            while cuda.atomic.add(flag, 0, 0) == 0:
                pass
        y[b] = b
        cuda.threadfence()
        cuda.atomic.add(flag, 0, b)


@CASES("endless", 4, 32, whole(1), zeros(128), max_steps=3000)
def a_barrier_of_the_grid_by_hand(count, y):
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(count, 0, 1)
        while cuda.atomic.add(count, 0, 0) < cuda.gridDim.x:
            pass
    cuda.syncthreads()
    y[cuda.grid(1)] = 1


@CASES("race", 3, 32, zeros(1), whole(1), zeros(3))
def a_flag_that_one_of_two_readers_waits_for(data, flag, y):
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        if b == 0:
            data[0] = 5
            cuda.threadfence()
            cuda.atomic.exch(flag, 0, 1)
        else:
            if b == 1:
                while cuda.atomic.cas(flag, 0, 0, 0) == 0:
                    pass
            y[b] = data[0]


@CASES("race", 2, 32, zeros(2), whole(2), zeros(2))
def a_reader_that_waits_for_the_wrong_flag(data, flags, y):
    if cuda.threadIdx.x == 0:
        if cuda.blockIdx.x == 0:
            data[0] = 5
            cuda.threadfence()
            cuda.atomic.exch(flags, 0, 1)
            data[1] = 6
            cuda.threadfence()
            cuda.atomic.exch(flags, 1, 1)
        else:
            while cuda.atomic.cas(flags, 0, 0, 0) == 0:
                pass
            y[0] = data[0]
            y[1] = data[1]


@CASES("race", 2, 32, zeros(1), whole(1), zeros(1))
def a_flag_read_without_an_atomic(data, flag, y):
    if cuda.threadIdx.x == 0:
        if cuda.blockIdx.x == 0:
            data[0] = 5
            cuda.threadfence()
            cuda.atomic.exch(flag, 0, 1)
        elif flag[0] == 1:
            y[0] = data[0]


@CASES("race", 2, 32, zeros(1), whole(1), zeros(1))
def a_reader_that_reads_before_it_waits(data, flag, y):
    if cuda.threadIdx.x == 0:
        if cuda.blockIdx.x == 0:
            data[0] = 5
            cuda.threadfence()
            cuda.atomic.exch(flag, 0, 1)
        else:
            v = data[0]
            while cuda.atomic.cas(flag, 0, 0, 0) == 0:
                pass
            y[0] = v


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


@CASES("race", 4, 32, whole(1), zeros(4))
def a_counter_reset_beside_its_atomics(count, y):
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        if b == 0:
            count[0] = 0
        y[b] = cuda.atomic.add(count, 0, 1) * 0
        cuda.atomic.add(count, 0, 1)


@CASES("race", 4, 64, floats(256), zeros(1))
def a_total_stored_by_every_block(x, out):
    i = cuda.grid(1)
    if cuda.threadIdx.x == 0:
        out[0] = x[i]


@CASES("race", 1, 64, np.arange(64, dtype=np.int32) % 4, whole(4))
def a_count_without_an_atomic_where_a_swap_failed(values, counts):
    v = values[cuda.grid(1)]
    seen = counts[v]
    if cuda.atomic.cas(counts, v, seen, seen + 1) != seen:
        counts[v] += 1


@CASES("race", 1, 64, np.arange(64, dtype=np.int32) % 16, whole(16))
def a_count_that_gives_up_swapping_after_two_tries(values, counts):
    v = values[cuda.grid(1)]
    for _ in range(2):
        seen = counts[v]
        if cuda.atomic.cas(counts, v, seen, seen + 1) == seen:
            return
    counts[v] += 1
