"""Threads in lockstep leave behind what threads that take turns do, and are asked the
same of memory.
"""

import functools
import math

import numpy as np
import pytest
from numba import cuda, float32

from kerneltrace import trace, tracing
from test_kerneltrace.numba_simulator import CASES, arrays_in
from test_kerneltrace.textbook import ENTRIES
from test_kerneltrace.tracing import run

pytestmark = pytest.mark.slow  # traces every kernel of the textbook twice

TEXTBOOK = {
    entry.name: (
        entry.kernel,
        entry.grid,
        entry.block,
        lambda e=entry: e.args(np.asarray),
    )
    for entry in ENTRIES
}
LAUNCHES = TEXTBOOK | {
    f"{name} again": case[:4] for name, case in CASES.items() if not case[4]
}


def both(kernel, grid, block, make):
    """A trace in lockstep, None where that is not possible, and one by turns, each with
    the arrays it leaves.
    """
    traced = []

    def noted(*given):
        traced.append(in_lockstep(*given)[0])
        return traced[-1], ()

    in_lockstep = tracing._in_lockstep
    actual = []
    for few, way in ((0, noted), (10**9, in_lockstep)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tracing, "FEW", few)
            patch.setattr(tracing, "_in_lockstep", way)
            args = make()
            actual.append((trace(kernel, grid, block, *args), arrays_in(args)))
    return traced[0] is not None, *actual


@functools.cache
def both_of_launch(name):
    """The two traces of one of LAUNCHES."""
    return both(*LAUNCHES[name])


@pytest.mark.parametrize("name", LAUNCHES)
def test_results_and_counts_are_those_of_threads_that_take_turns(name):
    _, (ours, left), (theirs, expected) = both_of_launch(name)
    for got, want in zip(left, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    assert str(ours).splitlines() == str(theirs).splitlines()
    for got, want in zip(ours.paths(), theirs.paths(), strict=True):
        np.testing.assert_array_equal(got, want)


def test_most_kernels_of_the_textbook_run_in_lockstep():
    ran = [name for name in TEXTBOOK if both_of_launch(name)[0]]
    assert len(ran) > 0.6 * len(TEXTBOOK), sorted(set(TEXTBOOK) - set(ran))


@cuda.jit
def primes(out):
    i = cuda.grid(1)
    if i >= out.size:
        return
    n = i + 2
    k = 2
    while k * k <= n:
        if n % k == 0:
            break
        k += 1
    else_prime = k * k > n
    for m in range(2, n):
        if m % 3 == 0:
            continue
        if m > 7:
            break
        out[i] += m
    out[i] = 2 * out[i] + (1 if else_prime else 0)


@cuda.jit(device=True)
def clamped(v, low):
    if v < low:
        return low
    for _ in range(3):
        if v > 1.0:
            return float32(1.0)
        v = v * float32(1.5)
    return v


@cuda.jit
def calls(x, y):
    i = cuda.grid(1)
    u = x[i] if i < x.size else float32(0)
    if i < x.size and 0.1 < u <= 0.9:
        v = clamped(x[i], float32(0.25))
        y[i] = v if v > 0.5 or i % 2 == 0 else math.sqrt(v)
    else:
        y[i] = -1.0


@cuda.jit
def rows(begin, value, y):
    i = cuda.grid(1)
    total = float32(0)
    for k in range(begin[i], begin[i + 1]):
        total += value[k]
    y[i] = total


def random(*shape):
    return np.random.default_rng(2).random(shape).astype(np.float32)


BEGIN = np.append(0, np.random.default_rng(3).integers(0, 9, 96).cumsum()).astype(
    np.int32
)
LOOPS = {
    "primes": (primes, 3, 48, lambda: (np.zeros(130, np.int64),)),
    "calls": (calls, 3, 32, lambda: (random(96), random(96))),
    "rows": (rows, 2, 48, lambda: (BEGIN, random(int(BEGIN[-1])), random(96))),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_whose_threads_part(name):
    ran, (ours, left), (theirs, expected) = both(*LOOPS[name])
    assert ran
    for got, want in zip(left, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    assert str(ours) == str(theirs)
    assert (ours.flop, ours.integer_operations) == (
        theirs.flop,
        theirs.integer_operations,
    )


def test_a_name_that_only_some_threads_assign_is_left_to_single_threads():
    def k(x, y):
        i = cuda.grid(1)
        if i < 50:
            v = x[i]
        y[i] = v

    ran, (ours, _), (theirs, _) = both(k, 1, 64, lambda: (random(64), random(64)))
    assert not ran
    assert str(ours) == str(theirs)


def test_arrays_that_can_not_be_written_stay_as_they_are():
    x = np.ones(64)
    x.flags.writeable = False

    def k(x, y):
        y[cuda.grid(1)] = x[cuda.grid(1)]

    run(k, 1, 64, x, y := np.zeros(64))
    assert y.sum() == 64
