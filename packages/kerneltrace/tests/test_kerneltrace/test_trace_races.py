"""Races that a trace finds: with both threads, lines and values; and none found in
correct kernels.
"""

import inspect

import numpy as np
import pytest
from numba import cuda, float32, float64, int32

from kerneltrace import trace
from test_kerneltrace.planted import CORRECT, MISTAKES
from test_kerneltrace.tracing import found

pytestmark = pytest.mark.slow  # traces every planted mistake


def floats(n):
    return np.arange(n).astype(np.float32)


def test_a_race_between_warps():
    def k(x, y):
        s = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        y[t] = s[t ^ 32]  # here

    findings = {
        finding.kind: finding
        for finding in trace(k, 1, 64, floats(64), np.zeros(64)).findings
    }
    line = inspect.getsourcelines(k)[1] + 4
    assert (
        findings["race"].words
        == f"thread 0 writes 0 to s[0] (line {line - 1}), thread 32 reads 0 from it"
        f" (line {line}); no barrier lies between, so either can come first."
    )
    assert (findings["race"].count, findings["race"].line) == (64, line)
    assert (
        "thread 0 reads s[32] before any thread of its block wrote it."
        in findings["unset"].words
    )


def test_a_race_within_a_warp_only():
    def k(x, y):
        s = cuda.shared.array(32, float32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        y[t] = s[t - t % 2]  # here

    finding = found(k, 1, 32, floats(32), np.zeros(32), kind="race")
    assert "thread 0 writes 0 to s[0]" in finding.words
    assert "thread 1 reads 0 from it" in finding.words
    assert "in one warp, and no barrier or syncwarp lies between" in finding.words
    assert finding.count == 16


def test_a_race_reads_what_is_not_written_yet():
    def k(x, y):
        s = cuda.shared.array(64, int32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        if t == 0:
            y[0] = s[32]

    race, unset = trace(k, 1, 64, np.ones(64, np.int32), np.zeros(1)).findings
    assert "thread 0 reads the unwritten s[32] (line" in race.words
    assert unset.kind == "unset"


def test_a_race_of_changes_names_the_atomic():
    def k(counts):
        counts[0] += 1  # here

    finding = found(k, 1, 64, np.zeros(1, np.int32), kind="race")
    assert finding.words.endswith("An atomic would read and write it in one step.")


@pytest.mark.parametrize("fences", [0, 1])
def test_an_atomic_without_a_fence_is_named(fences):
    def k(data, flag, y):
        if cuda.blockIdx.x == 0:
            data[0] = 5
            if fences:
                cuda.threadfence()
            cuda.atomic.exch(flag, 0, 1)
        else:
            while cuda.atomic.cas(flag, 0, 0, 0) == 0:
                pass
            y[0] = data[0]

    findings = trace(k, 2, 1, np.zeros(1), np.zeros(1, int), np.zeros(1)).findings
    words = "the atomic or flag between them orders nothing without a threadfence"
    assert [words in finding.words for finding in findings] == [True] * (1 - fences)


def test_an_atomic_that_orders_nothing_is_not_named():
    def k(count, out):
        ticket = cuda.atomic.add(count, 0, 1)
        out[0] = ticket  # here

    finding = found(k, 2, 1, np.zeros(1, int), np.zeros(1), kind="race")
    assert "threadfence" not in finding.words


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

    # 1 to 127: s[0] is only thread 0's
    assert found(k, 1, 256, floats(256), kind="race").count == 127


def test_two_writes_of_the_same_value():
    def k(flag):
        flag[0] = 1

    traced = trace(k, 1, 40, np.zeros(1))
    assert traced.ok
    (note,) = traced.notes
    assert note.kind == "race"
    assert "writes 1 to flag[0]" in note.words
    assert "All of them write the same value" in note.words


def test_a_plain_read_beside_atomics():
    def k(total, y):
        cuda.atomic.add(total, 0, 1)  # here
        y[cuda.grid(1)] = total[0]

    finding = found(k, 1, 2, np.zeros(1), np.zeros(2), kind="race")
    assert "thread 0 reads 1 from total[0]" in finding.words
    assert "thread 1 changes it atomically" in finding.words


# -- planted mistakes, and correct kernels that look as if they had one


def traced(case, **options):
    args = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in case.args]
    return trace(case.kernel, case.grid, case.block, *args, **case.options, **options)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found_at_the_defaults(name):
    outcome = traced(MISTAKES[name])
    assert MISTAKES[name].kinds <= {finding.kind for finding in outcome.findings}, str(
        outcome
    )
    assert not outcome.ok


NOTES = {
    "a stencil that leaves its border": ["unwritten"],
    "a compaction": ["unwritten", "order"],
    "a hash table": ["order"],
}
"""What correct kernels may mean."""


@pytest.mark.parametrize("name", CORRECT)
def test_nothing_is_found_in_a_correct_kernel(name):
    outcome = traced(CORRECT[name])
    assert outcome.findings == ()
    assert [note.kind for note in outcome.notes] == NOTES.get(name, [])
    assert traced(CORRECT[name], schedules=4).findings == ()


@pytest.mark.parametrize(("first", "count"), [(0, 32), (1, 32), (64, 0)])
def test_two_types_of_dynamic_shared_memory_race_where_they_overlap(first, count):
    def k(x, y):
        wide = cuda.shared.array(0, float64)
        narrow = cuda.shared.array(0, int32)
        t = cuda.threadIdx.x
        wide[t] = x[t]
        narrow[first + 2 * ((t + 1) % 32)] = t
        cuda.syncthreads()
        y[t] = wide[t]

    findings = trace(k, 1, 32, np.ones(32), np.ones(32), shared_bytes=512).findings
    assert sum(finding.count for finding in findings if finding.kind == "race") == count
