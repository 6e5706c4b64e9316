"""What a trace counts of atomics that meet, of shuffles, of barriers, and of constant
memory.
"""

import numpy as np
import pytest
from numba import cuda, float32

from kerneltrace import trace

FULL = 0xFFFFFFFF
LANES = np.arange(32)


def contended(x, one, few, y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    if t < 32:
        s[t] = 0
    cuda.syncthreads()
    cuda.atomic.add(one, 0, x[t])
    cuda.atomic.add(few, t % 4, x[t])
    cuda.atomic.add(s, 0, x[t])
    cuda.atomic.add(s, t % 2, x[t])
    cuda.syncthreads()
    y[cuda.grid(1)] = s[t % 32]


def test_atomics_of_lanes_at_one_address_are_done_one_after_another():
    """Two blocks of two warps: 4 requests of 32 lanes for each atomic."""
    traced = trace(
        contended,
        2,
        64,
        np.ones(64, np.float32),
        *(np.zeros(n, np.float32) for n in (1, 4, 128)),
    )
    assert traced.ok
    each = traced.count("one")
    few = traced.count("few")
    shared = traced.count("s", kind="atomic")
    assert (each.requests, each.rounds, each.collisions, each.hottest) == (
        4,
        4 * 32,
        4 * 31,
        128,
    )
    assert (few.requests, few.rounds, few.collisions, few.hottest) == (
        4,
        4 * 8,
        4 * 28,
        32,
    )
    assert (shared.requests, shared.rounds, shared.wavefronts, shared.ways) == (
        8,
        4 * 32 + 4 * 16,
        192,
        32,
    )
    # of one block
    assert (shared.collisions, shared.hottest) == (4 * 31 + 4 * 30, 64 + 32)
    assert (each.efficiency, few.efficiency) == (1 / 8, 1 / 2)
    assert traced.count("x").rounds == traced.count("x").requests == 16


def test_an_atomic_moves_its_sectors_both_ways_as_plain_code_does():
    def plain(x, y):
        i = cuda.grid(1)
        y[i] = y[i] + float32(2) * x[i]

    def by_atomics(x, y):
        i = cuda.grid(1)
        cuda.atomic.add(y, i, float32(2) * x[i])

    moved = [
        trace(k, 4, 64, *np.ones((2, 256), np.float32))
        .count(space="global")
        .bytes_moved
        for k in (plain, by_atomics)
    ]
    assert moved == [12 * 256, 12 * 256]


@pytest.mark.parametrize(("dtype", "each"), [(np.float32, 1), (np.float64, 2)])
def test_shuffles_are_counted_once_a_warp(dtype, each):
    """Shuffles move 32 bits (PTX ISA, "shfl.sync"): a float64 takes two."""

    def k(out, x):
        v = x[cuda.grid(1)]
        for d in (16, 8, 4, 2, 1):
            v += cuda.shfl_down_sync(FULL, v, d)
        out[cuda.grid(1)] = v

    assert (
        trace(k, 2, 64, np.zeros(128, dtype), np.ones(128, dtype)).shuffles
        == 2 * 2 * 5 * each
    )


def test_a_kernel_whose_threads_can_come_in_any_order_runs_once():
    def unused(out, n):
        cuda.atomic.add(n, 0, 1)
        cuda.atomic.add(out, 0, 2)

    def used(out, n):
        cuda.atomic.add(out, 0, cuda.atomic.add(n, 0, 1))

    def of_two_kinds(out, n):
        cuda.atomic.add(n, 0, 1)
        cuda.atomic.max(out, 0, 1)

    launch = 2, 32, np.zeros(1, np.int32), np.zeros(1, np.int32)
    assert [trace(k, *launch).schedules for k in (unused, used, of_two_kinds)] == [
        1,
        2,
        2,
    ]


def test_constant_memory_takes_a_round_for_each_address():
    """CUDA C++ Programming Guide, "Device Memory Accesses": a request is split by its
    distinct addresses.
    """

    def k(out):
        c = cuda.const.array_like(LANES)
        out[0, cuda.laneid] = c[cuda.laneid]
        out[1, cuda.laneid] = c[3]
        out[2, cuda.laneid] = c[cuda.laneid // 8]

    assert (
        trace(k, 1, 32, np.zeros((3, 32), np.int64)).count(space="constant").rounds
        == 32 + 1 + 4
    )
