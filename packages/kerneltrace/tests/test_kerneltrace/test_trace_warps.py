"""Warp operations, votes, barriers that count, atomics and bit functions of traced
kernels.
"""

import numpy as np
import pytest
from numba import cuda

from kerneltrace import trace
from test_kerneltrace.tracing import filled, run

FULL = 0xFFFFFFFF
LANES = np.arange(32)


def test_the_four_shuffles():
    def k(out, x):
        t = cuda.laneid
        v = x[t]
        out[0, t] = cuda.shfl_sync(FULL, v, 5)
        out[1, t] = cuda.shfl_sync(FULL, v, (t + 1) % 32)
        out[2, t] = cuda.shfl_up_sync(FULL, v, 3)
        out[3, t] = cuda.shfl_down_sync(FULL, v, 3)
        out[4, t] = cuda.shfl_xor_sync(FULL, v, 5)

    x = LANES * 10.0
    out = np.zeros((5, 32))
    run(k, 1, 32, out, x)
    up = np.maximum(LANES - 3, 0)
    down = np.where(LANES + 3 < 32, LANES + 3, LANES)
    up[:3] = LANES[:3]
    assert (
        out == [x[[5] * 32], x[(LANES + 1) % 32], x[up], x[down], x[LANES ^ 5]]
    ).all()


def test_votes():
    def k(out, x):
        t = cuda.laneid
        out[0, t] = cuda.all_sync(FULL, x[t] >= 0)
        out[1, t] = cuda.all_sync(FULL, x[t] > 0)
        out[2, t] = cuda.any_sync(FULL, x[t] == 31)
        out[3, t] = cuda.any_sync(FULL, x[t] == 32)
        out[4, t] = cuda.ballot_sync(FULL, x[t] % 2)
        out[5, t] = cuda.eq_sync(FULL, x[t] // 32)
        out[6, t] = cuda.eq_sync(FULL, x[t])
        out[7, t] = cuda.activemask()

    out = np.zeros((8, 32), np.int64)
    run(k, 1, 32, out, LANES)
    assert (out == np.array([1, 0, 1, 0, 0xAAAAAAAA, 1, 0, FULL])[:, None]).all()


def test_activemask_in_a_branch_has_the_lanes_of_the_branch():
    def k(out):
        t = cuda.laneid
        out[t] = 0
        if t % 4 == 0:
            out[t] = cuda.activemask()

    assert filled(k, 1, 32, 32)[::4] == [0x11111111] * 8


OPERATIONS = {
    "add": lambda x: x.sum(),
    "sub": lambda x: -x.sum(),
    "max": lambda x: x.max(initial=0),
    "min": lambda x: x.min(initial=0),
    "and_": lambda x: 0,
    "or_": lambda x: np.bitwise_or.reduce(x),
    "xor": lambda x: np.bitwise_xor.reduce(x),
}


@pytest.mark.parametrize("dtype", [np.int32, np.uint64])
def test_atomics_on_whole_numbers(dtype):
    def k(out, x):
        v = x[cuda.grid(1)]
        cuda.atomic.add(out, 0, v)
        cuda.atomic.sub(out, 1, v)
        cuda.atomic.max(out, 2, v)
        cuda.atomic.min(out, 3, v)
        cuda.atomic.and_(out, 4, v)
        cuda.atomic.or_(out, 5, v)
        cuda.atomic.xor(out, 6, v)

    x = np.random.default_rng(0).integers(-(2**31), 2**31, 64).astype(dtype)
    with np.errstate(over="ignore"):
        whole = np.array([int(of(x)) for of in OPERATIONS.values()], object)
    expected = [
        int(np.array([v % 2 ** (8 * x.itemsize)]).astype(np.uint64).astype(dtype)[0])
        for v in whole
    ]
    out = np.zeros(7, dtype)
    run(k, 2, 32, out, x)
    assert out.tolist() == expected


def test_atomics_give_the_old_value():
    def k(out, a):
        out[0] = cuda.atomic.exch(a, 0, 7)
        out[1] = cuda.atomic.cas(a, 0, 7, 9)
        out[2] = cuda.atomic.cas(a, 0, 7, 11)
        out[3] = cuda.atomic.inc(a, 1, 2)
        out[4] = cuda.atomic.inc(a, 1, 2)
        out[5] = cuda.atomic.dec(a, 2, 5)
        out[6] = cuda.atomic.add(a, 0, 1)

    a = np.array([3, 1, 0], np.uint32)
    assert filled(k, 1, 1, 7, a) == [3, 7, 9, 1, 2, 0, 9]
    assert a.tolist() == [10, 0, 5]


def test_an_atomic_rounds_its_value_to_the_arrays_type_first():
    def k(out):
        cuda.atomic.add(out, 0, 0.1)

    expected = np.float32(0)
    for _ in range(64):
        expected += np.float32(0.1)
    assert filled(k, 1, 64, 1, dtype=np.float32) == [expected]


@pytest.mark.parametrize(
    ("dtype", "last"), [(np.int32, [-1, -5]), (np.uint32, [2**32 - 1, 2**31])]
)
def test_bit_functions_know_their_arguments_type(dtype, last):
    def k(out, x):
        i = cuda.grid(1)
        out[0, i] = cuda.popc(x[i])
        out[1, i] = cuda.clz(x[i])
        out[2, i] = cuda.ffs(x[i])
        out[3, i] = cuda.brev(x[i]) & 0xFFFFFFFF

    x = np.array([0, 1, 6, 2**31 - 1, *last], dtype)
    out = np.zeros((4, len(x)), np.int64)
    trace(k, 1, len(x), out, x)
    whole = [int(v) % 2**32 for v in x]
    assert out[0].tolist() == [v.bit_count() for v in whole]
    assert out[1].tolist() == [32 - v.bit_length() for v in whole]
    assert out[2].tolist() == [(v & -v).bit_length() for v in whole]
    assert out[3].tolist() == [int(f"{v:032b}"[::-1], 2) for v in whole]


def test_fma_selp_and_cbrt():
    def k(out, x):
        i = cuda.grid(1)
        out[i] = (
            cuda.fma(x[i], 2.0, 1.0) + cuda.selp(x[i] > 1, 100, 200) + cuda.cbrt(x[i])
        )

    x = np.array([0.0, 1.0, 8.0])
    assert filled(k, 1, 3, 3, x, dtype=float) == pytest.approx([201, 204, 119])


def interleaved(x, out):
    sums = cuda.shared.array(64, "f4")
    t = cuda.threadIdx.x
    sums[t] = x[t]
    cuda.syncthreads()
    step = 1
    while step < 4:
        if t % (2 * step) == 0:
            sums[t] += sums[t + step]
        cuda.syncthreads()
        step *= 2
    if t == 0:
        cuda.atomic.add(out, 0, sums[0])


def parted(x, out):
    i = cuda.threadIdx.x
    if i % 2:
        out[i] = x[i]
    else:
        out[i] = x[0]
    k = 0
    while k < i % 4:
        out[i] += x[k]
        k += 1
    x[i] = 1


def in_short(step):
    return step.kind, step.text, step.lanes.count(1), step.lanes.count(0)


def test_a_warp_does_its_steps_in_the_order_of_the_source():
    traced = trace(interleaved, 1, 64, np.ones(64, "f4"), np.zeros(1, "f4"))
    turns = []
    for lanes in (16, 8):
        turns += [
            ("branch", "step < 4", 32, 0),
            ("branch", "t % (2 * step) == 0", lanes, 32 - lanes),
            ("load", "sums[t]", lanes, 0),
            ("load", "sums[t + step]", lanes, 0),
            ("store", "sums[t]", lanes, 0),
        ]
    assert [in_short(step) for step in traced.warp_steps()] == [
        ("load", "x[t]", 32, 0),
        ("store", "sums[t]", 32, 0),
        *turns,
        ("branch", "step < 4", 0, 32),
        ("branch", "t == 0", 1, 31),
        ("load", "sums[0]", 1, 0),
        ("atomic", "cuda.atomic.add(out, 0, sums[0])", 1, 0),
    ]
    # the second warp has no thread 0
    assert in_short(traced.warp_steps(1)[-1]) == ("branch", "t == 0", 0, 32)


@pytest.mark.parametrize("kernel", [interleaved, parted])
def test_the_steps_of_all_warps_are_all_requests_and_branches_of_a_trace(kernel):
    traced = trace(kernel, 1, 48, np.ones(48, "f4"), np.zeros(64, "f4"))
    steps = [step for warp in (0, 1) for step in traced.warp_steps(warp)]
    assert sum(step.request is not None for step in steps) == traced.count().requests
    assert sum(step.parts for step in steps) == traced.branches().divergent
    # 16 lanes have a thread
    assert all(step.lanes[16:] == (-1,) * 16 for step in traced.warp_steps(1))


def test_a_lane_does_its_own_steps_in_their_order_whatever_the_others_do():
    traced = trace(parted, 1, 32, np.ones(32, "f4"), np.zeros(32, "f4"))
    steps = traced.warp_steps()
    own = [step.text for step in steps if step.lanes[2] != -1]
    turn = ["k < i % 4", "out[i]", "x[k]", "out[i]"]
    assert own == ["i % 2", "x[0]", "out[i]", *turn, *turn, "k < i % 4", "x[i]"]


def test_a_warp_that_is_not_there_has_no_steps():
    traced = trace(parted, 1, 32, np.ones(32, "f4"), np.zeros(32, "f4"))
    with pytest.raises(ValueError, match="warp"):
        traced.warp_steps(1)
