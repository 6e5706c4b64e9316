"""Races that a trace finds: with both threads, lines and values; and none found in correct kernels."""

import functools
import inspect

import numpy as np
import pytest
from numba import cuda, float32, float64, int32

from kerneltrace import trace
from tests.selection import sampled
from tests.test_kerneltrace.planted import CORRECT, MISTAKES
from tests.test_kerneltrace.tracing import found

pytestmark = pytest.mark.slow  # traces every planted mistake

FULL = 0xFFFFFFFF


def floats(n):
    return np.arange(n).astype(np.float32)


def test_a_race_between_warps():
    def k(x, y):
        s = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        y[t] = s[t ^ 32]  # here

    findings = {finding.kind: finding for finding in trace(k, 1, 64, floats(64), np.zeros(64)).findings}
    line = inspect.getsourcelines(k)[1] + 4
    assert findings["race"].words == (
        f"thread 0 writes 0 to s[0] (line {line - 1}), thread 32 reads 0 from it (line {line}); no barrier lies"
        " between, so either can come first."
    )
    assert (findings["race"].count, findings["race"].line) == (64, line)
    assert "thread 0 reads s[32] before any thread of its block wrote it." in findings["unset"].words


def test_a_race_within_a_warp_only():
    def k(x, y):
        s = cuda.shared.array(32, float32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        y[t] = s[t - t % 2]  # here

    finding = found(k, 1, 32, floats(32), np.zeros(32), kind="race")
    assert "thread 0 writes 0 to s[0]" in finding.words
    assert "thread 1 reads 0 from it" in finding.words
    assert finding.count == 16


def test_a_race_between_blocks_with_the_right_result():
    def k(x, total):
        total[0] += x[cuda.grid(1)]  # here

    total = np.zeros(1, np.float32)
    finding = found(k, 4, 1, floats(4), total, kind="race")
    assert total[0] == 6
    assert "thread 0 of block 0 writes 0 to total[0]" in finding.words
    assert "thread 0 of block 1 reads 0 from it" in finding.words
    assert "blocks run in any order" in finding.words


def test_addresses_of_a_reduction_count_within_warps_and_between_them():
    def k(x):
        s = cuda.shared.array(256, float32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        cuda.syncthreads()
        stride = 128
        while stride > 0:
            if t < stride:
                s[t] += s[t + stride]  # here
            stride //= 2

    assert found(k, 1, 256, floats(256), kind="race").count == 127  # 1 to 127: s[0] is only thread 0's


def test_addresses_count_for_each_pair_of_lines():
    def k(x, y):
        s = cuda.shared.array(96, float32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        if t >= 54:
            y[t] = s[t - 54]  # of another warp
        if t > 58:
            y[t] += s[t - 1]  # of the same warp

    counts = [finding.count for finding in trace(k, 1, 64, floats(64), np.zeros(64)).findings if finding.kind == "race"]
    assert sorted(counts) == [5, 10]


def test_two_writes_of_the_same_value():
    def k(flag):
        flag[0] = 1  # here

    finding = found(k, 1, 40, np.zeros(1), kind="race")
    assert "writes 1 to flag[0]" in finding.words
    assert "Both write the same value this time." in finding.words


def test_two_writes_of_different_values():
    def k(y):
        y[cuda.grid(1) // 2] = cuda.grid(1)  # here

    finding = found(k, 1, 64, np.zeros(32), kind="race")
    assert "thread 0 writes 0 to y[0]" in finding.words
    assert "thread 1 writes 1 to it" in finding.words
    assert finding.count == 32


def test_a_plain_read_beside_atomics():
    def k(total, y):
        cuda.atomic.add(total, 0, 1)  # here
        y[cuda.grid(1)] = total[0]

    finding = found(k, 1, 2, np.zeros(1), np.zeros(2), kind="race")
    assert "thread 0 reads 1 from total[0]" in finding.words
    assert "thread 1 changes it atomically" in finding.words


def test_the_words_of_a_race_hold_values_only():
    def k(total, m, y):
        cuda.atomic.add(total, 0, 1)
        row = m[0]  # makes a view, and reads nothing
        y[cuda.grid(1)] = total[0] + row[0]

    finding = trace(k, 1, 2, np.zeros(1), np.ones((2, 2)), np.zeros(2)).findings[0]
    assert "thread 0 reads 1 from total[0]" in finding.words


def test_a_shuffle_is_no_memory_barrier():
    """CUDA C++ Programming Guide, "Warp Shuffle Functions": they do not imply a memory barrier."""

    def k(y):
        s = cuda.shared.array(32, float32)
        t = cuda.threadIdx.x
        s[t] = t
        v = cuda.shfl_sync(FULL, t, 0)
        y[t] = s[31 - t] + v

    assert "race" in {finding.kind for finding in trace(k, 1, 32, np.zeros(32)).findings}


def test_a_syncwarp_of_half_a_warp_orders_only_that_half():
    def k(y):
        s = cuda.shared.array(32, float32)
        t = cuda.threadIdx.x
        s[t] = t
        if t < 16:
            cuda.syncwarp(0xFFFF)
            y[t] = s[31 - t]
        else:
            y[t] = 1

    assert "race" in {finding.kind for finding in trace(k, 1, 32, np.zeros(32)).findings}


def test_only_some_blocks_fence():
    def k(parts, count, out):
        b = cuda.blockIdx.x
        parts[b] = b + 1
        if b == 0:
            cuda.threadfence()
        if cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1:
            for j in range(parts.size):
                out[0] += parts[j]

    done = trace(k, 4, 1, np.zeros(4), np.zeros(1, np.int32), np.zeros(1))
    assert "race" in {finding.kind for finding in done.findings}


def test_a_fence_of_one_thread_does_not_cover_its_block():
    """A barrier is missing between the writes of all threads and the fence and the atomic of thread 0."""

    def k(x, parts, count, out):
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

    done = trace(k, 2, 64, floats(128), np.zeros(128), np.zeros(1, np.int32), np.zeros(1))
    assert "race" in {finding.kind for finding in done.findings}


# -- planted mistakes, and correct kernels that look as if they had one


def traced(case, **options):
    args = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in case.args]
    return trace(case.kernel, case.grid, case.block, *args, **case.options, **options)


def test_there_are_enough_of_both():
    assert len(MISTAKES) >= 45
    assert len(CORRECT) >= 30


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found_at_the_defaults(name):
    done = traced(MISTAKES[name])
    assert MISTAKES[name].kinds <= {finding.kind for finding in done.findings}, str(done)
    assert not done.ok


@functools.cache
def traced_correct(name):
    """A correct kernel's trace at the defaults."""
    return traced(CORRECT[name])


@pytest.mark.parametrize("name", CORRECT)
def test_nothing_is_found_in_a_correct_kernel(name):
    assert traced_correct(name).findings == ()


@pytest.mark.parametrize("name", sampled(list(CORRECT), 10))
def test_nothing_is_found_in_a_correct_kernel_in_four_orders_of_threads(name):
    assert traced(CORRECT[name], schedules=4).findings == ()


def test_what_a_correct_kernel_may_mean_is_a_note():
    notes = {name: [note.kind for note in traced_correct(name).notes] for name in CORRECT}
    assert {name: kinds for name, kinds in notes.items() if kinds} == {
        "a stencil that leaves its border": ["unwritten"],
        "a stencil in two dimensions": ["unwritten"],
        "differences of neighbours": ["unwritten"],
        "every other element": ["unwritten"],
        "a compaction": ["unwritten", "order"],
        "a compaction with one atomic a warp": ["unwritten", "order"],
        "a hash table": ["order"],
    }


@pytest.mark.parametrize("offset", [0, 1])
def test_two_types_of_dynamic_shared_memory_that_overlap(offset):
    def k(x, y):
        wide = cuda.shared.array(0, float64)
        narrow = cuda.shared.array(0, int32)
        t = cuda.threadIdx.x
        wide[t] = x[t]
        narrow[2 * ((t + 1) % 32) + offset] = t  # here
        cuda.syncthreads()
        y[t] = wide[t]

    assert found(k, 1, 32, np.ones(32), np.ones(32), kind="race", shared_bytes=256).count == 32


def test_two_types_of_dynamic_shared_memory_side_by_side():
    def k(x, y):
        wide = cuda.shared.array(0, float64)
        narrow = cuda.shared.array(0, int32)
        t = cuda.threadIdx.x
        wide[t] = x[t]
        narrow[64 + t] = t
        cuda.syncthreads()
        y[t] = wide[31 - t] + narrow[64 + (t + 1) % 32]

    assert trace(k, 1, 32, np.ones(32), np.ones(32), shared_bytes=384).ok
