"""Atomics, votes and shuffles, with counts by hand.

Most launches are 2 blocks of 128 threads: 8 warps. An atomic reads and writes; each of
the lanes that change the same address in one request collides with the first of them.
An atomic on floating-point numbers is one FLOP a thread, on integers none. Shuffles and
votes don't touch memory.
"""

import numpy as np
from numba import cuda, float32, int32

from test_kerneltrace.textbook.entry import Entry, Want

N = 256
FULL = 0xFFFFFFFF
LOAD = {"x load": Want(8, 32)}  # 32 lanes x 4 bytes: 4 sectors a request
STORE = {"y store": Want(8, 32)}
ONE = {"y atomic": Want(8, 8, collisions=8 * 31)}  # all lanes of a warp at one address


def arrays(n, dtype=np.float32):
    """x holds 0 to 255, y has n elements."""
    return lambda put: (put(np.arange(N).astype(dtype)), put(np.zeros(n, dtype)))


def add_at_own(x, y):
    i = cuda.grid(1)
    cuda.atomic.add(y, i, x[i])


def add_at_two(x, y):
    i = cuda.grid(1)
    cuda.atomic.add(y, i % 2, x[i])


def add_of_warp(x, y):
    i = cuda.grid(1)
    cuda.atomic.add(y, i // 32, x[i])


def add_strided(x, y):
    i = cuda.grid(1)
    cuda.atomic.add(y, 32 * (i % 32), x[i])


def count(x, y):
    if x[cuda.grid(1)] % 2 == 0:
        cuda.atomic.add(y, 0, 1)


def subtract(x, y):
    i = cuda.grid(1)
    cuda.atomic.sub(y, i, x[i])


def largest(x, y):
    cuda.atomic.max(y, 0, x[cuda.grid(1)])


def smallest_at_own(x, y):
    i = cuda.grid(1)
    cuda.atomic.min(y, i, x[i])


def exchange(x, y):
    i = cuda.grid(1)
    cuda.atomic.exch(y, i, x[i])


def compare_and_swap(x, y):
    i = cuda.grid(1)
    cuda.atomic.cas(y, i, 0, x[i])


def set_bits(x, y):
    i = cuda.grid(1)
    cuda.atomic.or_(y, i // 32, x[i])


def toggle(x, y):
    i = cuda.grid(1)
    cuda.atomic.xor(y, i // 2, x[i])


def increment(x, y):
    i = cuda.grid(1)
    cuda.atomic.inc(y, int32(x[i]) % 8, 999)


def add_in_plane(x, y):
    i = cuda.grid(1)
    cuda.atomic.add(y, (i % 2, i // 2), x[i])


def block_counter(x, y):
    s = cuda.shared.array(1, float32)
    t = cuda.threadIdx.x
    if t == 0:
        s[0] = 0
    cuda.syncthreads()
    v = x[cuda.grid(1)]
    if t % 32 == 0:
        cuda.atomic.add(s, 0, v)
    cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(y, 0, s[0])


def private_bins(x, y):
    s = cuda.shared.array(128, int32)
    t = cuda.threadIdx.x
    s[t] = 0
    cuda.syncthreads()
    cuda.atomic.add(s, t, x[cuda.grid(1)])
    cuda.syncthreads()
    y[cuda.grid(1)] = s[t]


def warp_sum(x, y):
    v = x[cuda.grid(1)]
    for d in (16, 8, 4, 2, 1):
        v += cuda.shfl_down_sync(FULL, v, d)
    if cuda.laneid == 0:
        cuda.atomic.add(y, 0, v)


def butterfly(x, y):
    i = cuda.grid(1)
    v = x[i]
    for d in (16, 8, 4, 2, 1):
        v = max(v, cuda.shfl_xor_sync(FULL, v, d))
    y[i] = v


def integer_sum(x, y):
    i = cuda.grid(1)
    v = x[i]
    for d in (16, 8, 4, 2, 1):
        v += cuda.shfl_xor_sync(FULL, v, d)
    y[i] = v


def warp_scan(x, y):
    i = cuda.grid(1)
    v = x[i]
    for d in (1, 2, 4, 8, 16):
        below = cuda.shfl_up_sync(FULL, v, d)
        if cuda.laneid >= d:
            v += below
    y[i] = v


def broadcast(x, y):
    i = cuda.grid(1)
    y[i] = cuda.shfl_sync(FULL, x[i], 0)


def neighbor(x, y):
    i = cuda.grid(1)
    v = x[i]
    y[i] = v - cuda.shfl_up_sync(FULL, v, 1)


def ballot(x, y):
    i = cuda.grid(1)
    word = cuda.ballot_sync(FULL, x[i] > 9)
    if cuda.laneid == 0:
        y[i // 32] = word


def any_of_warp(x, y):
    i = cuda.grid(1)
    if cuda.any_sync(FULL, x[i] >= 128):
        y[i] = 1
    else:
        y[i] = 2


def count_of_block(x, y):
    n = cuda.syncthreads_count(int32(x[cuda.grid(1)] > 9))
    if cuda.threadIdx.x == 0:
        y[cuda.blockIdx.x] = n


def aggregated(x, y):
    i = cuda.grid(1)
    if x[i] % 4 == 0:
        mask = cuda.activemask()
        if cuda.laneid == cuda.ffs(mask) - 1:
            cuda.atomic.add(y, 0, cuda.popc(mask))


TWO_READS = {"reads_per_thread": 2}
# one lane of each warp does the atomic
SOME = {"reads_per_thread": 1 + 8 / N, "writes_per_thread": 8 / N}

ENTRIES = (
    # 128 bytes of y a warp, no address twice.
    Entry(
        "atomic add, own elements",
        add_at_own,
        2,
        128,
        arrays(N),
        {**LOAD, "y atomic": Want(8, 32)},
        flop=N,
        **TWO_READS,
    ),
    # 16 lanes at each of two words of one sector: 15 collide at each.
    Entry(
        "atomic add, two elements",
        add_at_two,
        2,
        128,
        arrays(2),
        {**LOAD, "y atomic": Want(8, 8, collisions=8 * 30)},
        flop=N,
        **TWO_READS,
    ),
    # Each warp has an element of its own, and its 32 lanes meet there.
    Entry(
        "atomic add, an element a warp",
        add_of_warp,
        2,
        128,
        arrays(8),
        {**LOAD, **ONE},
        flop=N,
        **TWO_READS,
    ),
    # 128 bytes apart: 32 sectors a request, no collision within it.
    Entry(
        "atomic add, stride 32",
        add_strided,
        2,
        128,
        arrays(1024),
        {**LOAD, "y atomic": Want(8, 256)},
        flop=N,
        **TWO_READS,
    ),
    # The 16 even lanes count: 15 collisions a warp, 8 branches that part.
    Entry(
        "atomic count of some lanes",
        count,
        2,
        128,
        arrays(1, np.int32),
        {**LOAD, "y atomic": Want(8, 8, collisions=8 * 15)},
        (8, 8),
        0,
        1.5,
        0.5,
    ),
    Entry(
        "atomic sub",
        subtract,
        2,
        128,
        arrays(N),
        {**LOAD, "y atomic": Want(8, 32)},
        flop=N,
        **TWO_READS,
    ),
    Entry(
        "atomic max of float32",
        largest,
        2,
        128,
        arrays(1),
        {**LOAD, **ONE},
        flop=N,
        **TWO_READS,
    ),
    Entry(
        "atomic max of int32",
        largest,
        2,
        128,
        arrays(1, np.int32),
        {**LOAD, **ONE},
        **TWO_READS,
    ),
    # 8-byte elements: 256 bytes, 8 sectors a request.
    Entry(
        "atomic min of float64",
        smallest_at_own,
        2,
        128,
        arrays(N, np.float64),
        {"x load": Want(8, 64), "y atomic": Want(8, 64)},
        flop=N,
        **TWO_READS,
    ),
    # An exchange and a comparison compute nothing.
    Entry(
        "atomic exchange",
        exchange,
        2,
        128,
        arrays(N, np.int32),
        {**LOAD, "y atomic": Want(8, 32)},
        **TWO_READS,
    ),
    Entry(
        "compare and swap",
        compare_and_swap,
        2,
        128,
        arrays(N, np.int32),
        {**LOAD, "y atomic": Want(8, 32)},
        **TWO_READS,
    ),
    Entry(
        "atomic or, a word a warp",
        set_bits,
        2,
        128,
        arrays(8, np.uint32),
        {**LOAD, **ONE},
        **TWO_READS,
    ),
    # Neighbors share a word: 16 words, 64 bytes, 2 sectors; one of each 2 lanes
    # collides.
    Entry(
        "atomic xor of neighbors",
        toggle,
        2,
        128,
        arrays(N // 2, np.int32),
        {**LOAD, "y atomic": Want(8, 16, collisions=8 * 16)},
        **TWO_READS,
    ),
    # 4 lanes at each of 8 words of one sector.
    Entry(
        "atomic inc, 8 counters",
        increment,
        2,
        128,
        arrays(8, np.uint32),
        {**LOAD, "y atomic": Want(8, 8, collisions=8 * 24)},
        **TWO_READS,
    ),
    # 16 neighbors in each of two rows of 512 bytes: 2 sectors of either.
    Entry(
        "atomic add in two rows",
        add_in_plane,
        2,
        128,
        lambda put: (
            put(np.arange(N, dtype=np.float32)),
            put(np.zeros((2, N // 2), np.float32)),
        ),
        {**LOAD, "y atomic": Want(8, 32)},
        flop=N,
        **TWO_READS,
    ),
    # A block: thread 0 clears the word, 4 lanes add to it in 4 requests, thread 0 reads
    # it. 3 tests of 4 warps in each block, of which the first and the last part warp 0
    # and the second parts all. 8 + 2 sums of floats.
    Entry(
        "shared counter, an atomic a warp",
        block_counter,
        2,
        128,
        arrays(1),
        {
            **LOAD,
            "s store": Want(2, wavefronts=2, ways=1),
            "s atomic": Want(8, wavefronts=8, ways=1),
            "s load": Want(2, wavefronts=2, ways=1),
            "y atomic": Want(2, 2),
        },
        (24, 12),
        10,
        1 + 2 / N,
        2 / N,
    ),
    # 32 words side by side: a wavefront a request.
    Entry(
        "shared atomics, own words",
        private_bins,
        2,
        128,
        arrays(N, np.int32),
        {
            **LOAD,
            **STORE,
            **{
                f"s {kind}": Want(8, wavefronts=8, ways=1)
                for kind in ("load", "store", "atomic")
            },
        },
    ),
    # 5 sums in all lanes, and one atomic of 8 lanes, which are in 8 requests. The loop
    # over a tuple and the `if` are reached once by each warp.
    Entry(
        "warp sum, then an atomic",
        warp_sum,
        2,
        128,
        arrays(1),
        {**LOAD, "y atomic": Want(8, 8)},
        (16, 8),
        5 * N + 8,
        **SOME,
    ),
    Entry(
        "butterfly of max",
        butterfly,
        2,
        128,
        arrays(N),
        {**LOAD, **STORE},
        (8, 0),
        5 * N,
    ),
    Entry(
        "butterfly of integers",
        integer_sum,
        2,
        128,
        arrays(N, np.int32),
        {**LOAD, **STORE},
        (8, 0),
    ),
    # 31 + 30 + 28 + 24 + 16 = 129 lanes of a warp add in the five steps, in each of
    # which the warp parts.
    Entry(
        "warp scan", warp_scan, 2, 128, arrays(N), {**LOAD, **STORE}, (48, 40), 8 * 129
    ),
    Entry("broadcast from lane 0", broadcast, 2, 128, arrays(N), {**LOAD, **STORE}),
    Entry(
        "difference to the left lane",
        neighbor,
        2,
        128,
        arrays(N),
        {**LOAD, **STORE},
        flop=N,
    ),
    Entry(
        "ballot, a word a warp",
        ballot,
        2,
        128,
        arrays(8, np.uint32),
        {**LOAD, "y store": Want(8, 8)},
        (8, 8),
        writes_per_thread=8 / N,
    ),
    # A vote is the same for all lanes: no warp parts, though the blocks do.
    Entry(
        "branch on a vote", any_of_warp, 2, 128, arrays(N), {**LOAD, **STORE}, (8, 0)
    ),
    Entry(
        "a barrier that counts",
        count_of_block,
        2,
        128,
        arrays(2, np.int32),
        {**LOAD, "y store": Want(2, 2)},
        (8, 2),
        writes_per_thread=2 / N,
    ),
    # 8 lanes of each warp have a multiple of 4; their first adds for all. Both
    # conditions part each warp.
    Entry(
        "one atomic for a branch",
        aggregated,
        2,
        128,
        arrays(1, np.int32),
        {**LOAD, "y atomic": Want(8, 8)},
        (16, 16),
        **SOME,
    ),
)
