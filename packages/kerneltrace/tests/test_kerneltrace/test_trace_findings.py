"""Mistakes that a trace finds in accesses: outside, unset, unwritten, and results that
depend on the order.
"""

import numpy as np
import pytest
from numba import cuda, float32

from kerneltrace import trace
from kerneltrace.errors import KernelError
from kerneltrace.judge import races
from test_kerneltrace.tracing import found, made_in_a_cell


def floats(n):
    return np.arange(n).astype(np.float32)


# -- out of bounds


def test_a_missing_guard_writes_past_the_end():
    def k(y):
        i = cuda.grid(1)
        y[i] = i  # here

    finding = found(k, 4, 32, floats(100), kind="outside")
    assert (
        finding.words
        == "thread 4 of block 3 writes to y[100], but y has 100 elements, 0 to 99."
    )
    assert (finding.count, finding.thread, finding.array) == (28, 100, "y")


def test_a_negative_index_reads_before_the_array():
    def k(x, y):
        i = cuda.grid(1)
        y[i] = x[i - 1] + x[i]  # here

    finding = found(k, 1, 8, floats(8), np.zeros(8), kind="outside")
    assert "thread 0 reads x[-1], but x has 8 elements, 0 to 7" in finding.words
    assert (
        "negative index counts from the end in numba and reads before the array in"
        " CUDA C++" in finding.words
    )


def test_a_negative_index_is_told_beside_one_that_is_too_large():
    def k(x, index, y):
        i = cuda.grid(1)
        y[i] = x[index[i]]  # here

    findings = trace(k, 1, 3, floats(8), np.array([-2, 8, 3]), np.zeros(3)).findings
    assert [finding.kind for finding in findings] == ["outside", "outside"]
    assert "x[-2]" in findings[0].words
    assert "x[8]" in findings[1].words


def test_a_wrong_order_of_indices_in_two_dimensions():
    def k(m):
        x, y = cuda.grid(2)
        m[x, y] += 1  # here

    findings = trace(k, 1, (8, 4), np.zeros((4, 8))).findings
    assert {finding.kind for finding in findings} == {"outside"}
    assert (
        "thread (4, 0) reads m[4, 0], but m has the shape (4, 8)" in findings[0].words
    )


@pytest.mark.parametrize(
    "array", ["shared", "local", "atomic", "record", "row", "slice"]
)
def test_outside_is_found_in_every_memory_and_ends_nothing(array):
    def k_shared(y, m, p):
        s = cuda.shared.array(8, float32)
        y[0] = s[8]

    def k_local(y, m, p):
        s = cuda.local.array(8, float32)
        s[8] = 1
        y[0] = 1

    def k_atomic(y, m, p):
        cuda.atomic.add(y, 4, 1)
        y[0] = 1

    def k_record(y, m, p):
        p[3].a = 1
        y[0] = p[-1].a

    def k_row(y, m, p):
        row = m[4]
        row[0] = 1
        y[0] = row[1]

    def k_slice(y, m, p):
        part = m[1, 1:3]
        part[2] = 1
        y[0] = 1

    traced = trace(
        locals()[f"k_{array}"],
        1,
        1,
        np.zeros(4),
        np.zeros((4, 4)),
        np.zeros(3, [("a", np.float32)]),
    )
    assert traced.findings[0].kind == "outside"
    assert {finding.kind for finding in traced.findings} <= {
        "outside",
        "unwritten",
        "untouched",
    }
    assert traced.findings[0].line > 0


# -- the result depends on the order


def test_order_dependence_is_caught_with_schedules():
    def k(x, out, last):
        i = cuda.grid(1)
        place = cuda.atomic.add(last, 0, 1)
        out[i] = place + x[i]

    x = floats(64)
    out = np.zeros(64, np.float32)
    assert trace(k, 2, 32, x, out, np.zeros(1, np.int32), schedules=1).ok
    finding = found(k, 2, 32, x, out, np.zeros(1, np.int32), kind="order")
    assert "with the threads in order" in finding.words
    assert "the result depends on which thread comes first" in finding.words


# -- unwritten and unset


def test_elements_that_nobody_wrote_count_together_in_a_line():
    def k(x, y):
        s = cuda.shared.array(34, float32)
        t = cuda.threadIdx.x
        s[t + 1] = x[t]
        cuda.syncthreads()
        y[t] = s[t] + s[t + 2]  # here

    finding = found(k, 1, 32, floats(32), floats(32), kind="unset")
    assert "thread 0 reads s[0] before" in finding.words
    assert finding.count == 2


def test_elements_that_no_thread_writes():
    def k(x, y):
        i = cuda.grid(1)
        if i < x.size - 3:
            y[i] = x[i]

    finding = found(k, 1, 128, floats(100), np.zeros(100), kind="unwritten")
    assert (
        finding.words
        == "3 of the 100 elements of y are never written, the first is y[97]."
    )


# -- speed


def test_a_race_is_searched_thread_by_thread_and_not_access_by_access(monkeypatch):
    def k(total, y):
        for _ in range(100):
            cuda.atomic.add(total, 0, 1)
        if cuda.threadIdx.x == 255:
            y[0] = total[0]

    asked = []
    pairs = races._Search._add_pairs
    monkeypatch.setattr(
        races._Search, "_add_pairs", lambda *given: asked.append(given) or pairs(*given)
    )
    assert not trace(k, 1, 256, np.zeros(1), np.zeros(1)).ok
    assert len(asked) <= 4 * 256  # in lockstep, and thread by thread


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("y[i / 1] = 1", "// does not"),
        ("y[i] = 1 + y", "index the array"),
        ("y[cuda.blockIdx * cuda.blockDim] = 1", "take .x of it"),
        ("cuda.atomic.add(y[i], 1, 1)", "Atomics take the array"),
    ],
)
def test_an_error_of_python_says_what_it_means(statement, words):
    kernel = made_in_a_cell(f"def k(y):\n    i = cuda.grid(1)\n    {statement}\n")
    with pytest.raises(KernelError, match=words):
        trace(kernel, 1, 4, np.zeros(4))
