"""Correct kernels whose threads hand data on by fences and flags, by locks, or by
places that atomics give.
"""

import numpy as np
from numba import cuda, float32, int32

from test_kerneltrace.planted.case import Cases, floats, whole, zeros

CASES = Cases()


@CASES("", 4, 64, floats(256), zeros(4), whole(1), zeros(1))
def last_block_done(x, parts, count, total):
    s = cuda.shared.array(64, float32)
    last = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    b = cuda.blockIdx.x
    s[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    d = 32
    while d > 0:
        if t < d:
            s[t] += s[t + d]
        cuda.syncthreads()
        d //= 2
    if t == 0:
        parts[b] = s[0]
        cuda.threadfence()
        last[0] = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0] and t == 0:
        whole = float32(0)
        for j in range(cuda.gridDim.x):
            whole += parts[j]
        total[0] = whole


@CASES("", 3, 32, floats(96), zeros(96), whole(1), zeros(32))
def last_block_done_after_everybodys_fence(x, parts, count, total):
    last = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    parts[i] = x[i]
    cuda.threadfence()
    cuda.syncthreads()
    if t == 0:
        last[0] = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0]:
        whole = float32(0)
        for j in range(cuda.gridDim.x):
            whole += parts[32 * j + t]
        total[t] = whole


@CASES("", 4, 32, whole(1), whole(1))
def lock_between_blocks(count, lock):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        count[0] += 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)


@CASES("", 6, 32, floats(192), zeros(7), whole(6), zeros(192))
def chained_scan(x, sums, ready, y):
    s = cuda.shared.array(1, float32)
    t = cuda.threadIdx.x
    b = cuda.blockIdx.x
    i = cuda.grid(1)
    if t == 0:
        before = float32(0)
        if b > 0:
            while cuda.atomic.cas(ready, b - 1, 0, 0) == 0:
                pass
            before = sums[b - 1]
        s[0] = before
        total = before
        for k in range(32):
            total += x[32 * b + k]
        sums[b] = total
        cuda.threadfence()
        cuda.atomic.exch(ready, b, 1)
    cuda.syncthreads()
    y[i] = s[0] + x[i]


@CASES("", 1, 64, floats(64), zeros(64))
def a_warp_that_produces_for_another(x, y):
    s = cuda.shared.array(32, float32)
    flag = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        flag[0] = 0
    cuda.syncthreads()
    if t < 32:
        s[t] = x[t]
        cuda.threadfence_block()
        cuda.syncwarp()
        if t == 0:
            cuda.atomic.exch(flag, 0, 1)
        y[t] = x[t]
    else:
        while cuda.atomic.cas(flag, 0, 0, 0) == 0:
            pass
        y[t] = s[t - 32]


@CASES("", 3, 64, zeros(1), whole(1), zeros(3))
def a_flag_that_every_reader_waits_for(data, flag, y):
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        if b == 0:
            data[0] = 5
            cuda.threadfence()
            cuda.atomic.exch(flag, 0, 1)
        else:
            while cuda.atomic.cas(flag, 0, 0, 0) == 0:
                pass
        y[b] = data[0]


@CASES("", 2, 64, np.arange(128, dtype=np.int32), whole(1))
def the_guides_loop_around_compare_and_swap(x, total):
    v = x[cuda.grid(1)]
    old = total[0]
    traced = False
    while not traced:
        assumed = old
        old = cuda.atomic.cas(total, 0, assumed, assumed + v)
        traced = assumed == old


@CASES("", 2, 64, floats(128), zeros(128), whole(1))
def a_compaction(x, y, count):
    i = cuda.grid(1)
    if x[i] % 3 == 0:
        y[cuda.atomic.add(count, 0, 1)] = x[i]


@CASES("", 2, 32, np.arange(64, dtype=np.int32), whole(128))
def a_hash_table(keys, table):
    key = keys[cuda.grid(1)] + 1
    slot = key * 8 % 128
    while cuda.atomic.cas(table, slot, 0, key) != 0:
        slot = (slot + 1) % 128
