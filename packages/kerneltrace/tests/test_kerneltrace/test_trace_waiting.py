"""Threads that wait: barriers that part of a block reaches, deadlocks, loops without
end, lanes that are not there.
"""

import inspect

import numpy as np
import pytest
from numba import cuda

from kerneltrace import trace
from kerneltrace.errors import TraceTooLarge
from test_kerneltrace.tracing import found, run, with_assert

FULL = 0xFFFFFFFF


def test_a_barrier_that_part_of_the_block_reaches():
    def k(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = x[i]
            cuda.syncthreads()  # here

    finding = found(k, 2, 64, np.zeros(100), np.zeros(100), kind="barrier")
    assert (
        finding.words
        == "thread 0 of block 1 and 35 others wait here, but 28 of the block's 64"
        " threads have come to the kernel's end without it (the first: thread 36 of"
        " block 1). All threads of a block that have not returned have to reach the"
        " same syncthreads()."
    )


def test_two_barriers_for_one_block():
    def k(x):
        t = cuda.threadIdx.x
        if t < 32:
            cuda.syncthreads()  # here
        else:
            cuda.syncthreads()
        x[t] = t

    finding = found(k, 1, 64, np.zeros(64), kind="barrier")
    assert "thread 0 and 31 others wait here, 32 threads wait at line" in finding.words


@cuda.jit(device=True)
def wait(x, t):
    x[t] += t
    cuda.syncthreads()


@pytest.mark.parametrize("turns", [1, 2])
def test_a_barrier_in_a_function_that_two_branches_call(turns):
    def k(x):
        t = cuda.threadIdx.x
        for _ in range(turns):
            if t < 32:
                wait(x, t)
            else:
                wait(x, t)

    first = inspect.getsourcelines(k)[1]
    (finding,) = trace(k, 1, 64, np.zeros(64)).findings
    assert finding.kind == "barrier"
    assert finding.count == turns
    assert (
        f"63 others wait here, in different calls (line {first + 4}, {first + 6})."
        in finding.words
    )


def test_a_barrier_in_a_function_that_all_threads_call():
    def k(x):
        t = cuda.threadIdx.x
        wait(x, t)
        for turn in range(2):
            wait(x, t ^ turn)

    assert trace(k, 1, 64, np.zeros(64)).ok


def test_syncwarp_against_syncthreads():
    def k(x):
        t = cuda.threadIdx.x
        if t < 16:
            cuda.syncwarp()  # here
        else:
            cuda.syncthreads()
        x[t] = t

    finding = found(k, 1, 32, np.zeros(32), kind="deadlock")
    assert (
        "no thread of the block can go on. They wait for each other: 16 at line"
        in finding.words
    )
    assert "(cuda.syncwarp(); the first: thread 0)" in finding.words
    assert "(cuda.syncthreads(); the first: thread 16)" in finding.words


def test_a_while_loop_without_end():
    def k(x):
        i = 0
        while i < 10:  # here
            x[0] = i

    finding = found(k, 1, 1, np.zeros(1), kind="endless", max_steps=3000)
    assert "thread 0 is still in this loop after 3,000 turns" in finding.words
    assert "Does i < 10 ever become false?" in finding.words


@pytest.mark.parametrize(
    ("turns", "max_steps"), [(10**12, 70_000), (60_000, 500), (1000, 500)]
)
def test_a_for_loop_of_too_many_turns(turns, max_steps):
    def k(x, n):
        for i in range(n):  # here
            x[0] = i

    finding = found(k, 1, 1, np.zeros(1), turns, kind="endless", max_steps=max_steps)
    assert f"after {max_steps:,} turns" in finding.words
    assert "raise max_steps" in finding.words


def test_a_lock_that_is_never_released():
    def k(lock, x):
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:  # here
            pass
        x[cuda.grid(1)] = 1

    finding = found(
        k, 1, 2, np.zeros(1, np.int32), np.zeros(2), kind="endless", max_steps=3000
    )
    assert "thread 1 is still in this loop" in finding.words
    assert "does it wait for a thread that can't go on?" in finding.words


def test_waiting_for_a_later_thread_of_the_block_ends():
    def k(flag):
        t = cuda.threadIdx.x
        if t < 40:
            while cuda.atomic.add(flag, 0, 0) == 0:
                pass
        if t == 50:
            cuda.atomic.add(flag, 0, 1)

    run(k, 1, 64, np.zeros(1, np.int32))


@with_assert
def test_what_was_done_before_a_kernel_stopped_is_still_counted():
    def k(x, y):
        i = cuda.grid(1)
        y[i] = x[i]
        assert x[i] > 0  # here
        y[i] = 1 // x[i]

    finding = found(
        k, 1, 4, np.array([1, 2, 0, 4]), np.zeros(4, np.int64), kind="raised"
    )
    assert finding.words.startswith("thread 2 raised AssertionError")
    traced = trace(k, 1, 4, np.array([1, 2, 0, 4]), np.zeros(4, np.int64))
    assert traced.count("y").writes == 5
    assert "raised" in str(traced)


def counting_for(x):
    for j in range(90_000):
        x[cuda.grid(1)] += j


def counting_while(x):
    j = 0
    while j < 90_000:
        x[0] = j
        j += 1


@pytest.mark.parametrize(
    ("kernel", "threads"), [(counting_for, 256), (counting_while, 1)]
)
def test_a_trace_stops_before_its_memory_is_spent(kernel, threads):
    words = r"[\d,]+ logged accesses need more than the trace's budget of .*Or raise"
    with pytest.raises(TraceTooLarge, match=words) as error:
        trace(kernel, 1, threads, np.zeros(threads), memory_bytes=1_000_000)
    logged = int(str(error.value).split(" ")[0].replace(",", ""))
    assert logged * 16 < 1_000_000


def sum_of_eight(x, y, mask):
    t = cuda.threadIdx.x
    if t < 8:
        v = x[t]
        for d in (4, 2, 1):
            v += cuda.shfl_down_sync(mask, v, d)
        if t == 0:
            y[0] = v


@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_an_undefined_value_that_nobody_uses_is_a_note(kind):
    y = np.zeros(1, kind)
    traced = trace(sum_of_eight, 1, 32, np.arange(32, dtype=kind), y, 0xFF)
    assert (traced.ok, y[0], [note.kind for note in traced.notes]) == (
        True,
        28,
        ["undefined"],
    )


def test_an_undefined_value_that_is_used_is_a_mistake():
    def k(x, y):
        t = cuda.threadIdx.x
        if t < 8:
            v = max(x[t], cuda.shfl_down_sync(0xFF, x[t], 4))
            y[t] = v

    finding = trace(k, 1, 32, np.ones(32), np.ones(8)).findings[0]
    assert (finding.kind, finding.count) == ("undefined", 4)
    assert (
        "thread 4 reads the value of lane 8, which does not take part: it is undefined"
        in finding.words
    )


def test_a_mask_that_names_lanes_which_do_not_come():
    traced = trace(sum_of_eight, 1, 32, np.ones(32), np.zeros(1), FULL)
    assert [finding.kind for finding in traced.findings] == ["lane"]
    assert (
        "the mask 0xffffffff names 24 lanes that don't come here (the first: lane 8)"
        in traced.findings[0].words
    )
    assert "Name those that do: 0xff." in traced.findings[0].words


def test_a_mask_may_name_lanes_that_have_returned():
    def k(x, y):
        t = cuda.threadIdx.x
        if t >= 8:
            return
        y[t] = cuda.shfl_xor_sync(FULL, x[t], 1)

    assert trace(k, 1, 32, np.ones(32), np.ones(8)).ok


def test_different_warp_operations_do_not_meet():
    """CUDA C++ Programming Guide, "Warp Vote Functions": all lanes in the mask must
    execute the same operation.
    """

    def k(x):
        t = cuda.threadIdx.x
        if t < 16:
            x[t] = cuda.shfl_sync(FULL, t, 0)
        else:
            x[t] = cuda.ballot_sync(FULL, 1)

    assert not trace(k, 1, 32, np.zeros(32, np.int64)).ok
