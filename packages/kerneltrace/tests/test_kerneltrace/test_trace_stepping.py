"""Threads that run one access at a time: the order of their turns, and what each step
says.
"""

import numba
import numpy as np
import pytest
from numba import cuda

from kerneltrace import ThreadStepper
from kerneltrace.run import stepping
from kerneltrace.run.stepping import IN_TURN, ONE_BY_ONE, steps


@cuda.jit
def add_one(counter):
    counter[0] += 1


@cuda.jit
def histogram(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(counts, values[i], 1)


@cuda.jit
def reverse(x, out):
    held = cuda.shared.array(4, numba.float32)
    i = cuda.threadIdx.x
    held[i] = x[i]
    cuda.syncthreads()
    out[i] = held[3 - i]


@cuda.jit
def without_guard(x, out):
    i = cuda.threadIdx.x
    out[i] = x[i]


@cuda.jit
def wait_for_ever(flag, out):
    while flag[0] == 0:
        out[0] = 1


def told(made):
    return [(step.thread, step.words) for step in made.steps]


def test_in_turn_both_threads_read_before_one_writes_and_an_addition_is_lost():
    counter = np.zeros(1, int)
    made = steps(add_one, 2, (counter,))
    assert told(made) == [
        (0, "reads 0 from counter[0]"),
        (1, "reads 0 from counter[0]"),
        (0, "writes 1 to counter[0]"),
        (1, "writes 1 to counter[0]: thread 0's 1 is lost"),
    ]
    assert [moment["counter"][0] for moment in made.memory] == [0, 0, 0, 1, 1]
    assert counter[0] == 0, "the reader's own array has changed"
    assert made.ended == ""


@pytest.mark.parametrize("threads", [1, 2, 5, 8])
def test_one_after_another_loses_nothing(threads):
    made = steps(add_one, threads, (np.zeros(1, int),), ONE_BY_ONE)
    assert [step.thread for step in made.steps] == [
        thread for thread in range(threads) for _ in "rw"
    ]
    assert not any("lost" in step.words for step in made.steps)
    assert made.memory[-1]["counter"][0] == threads


def test_of_the_six_orders_of_two_threads_the_two_in_which_one_ends_first_lose_nothing():
    for order in (
        [0, 0, 1, 1],
        [0, 1, 0, 1],
        [0, 1, 1, 0],
        [1, 0, 0, 1],
        [1, 0, 1, 0],
        [1, 1, 0, 0],
    ):
        made = steps(add_one, 2, (np.zeros(1, int),), ONE_BY_ONE, order)
        assert [step.thread for step in made.steps] == order
        kept = order[0] == order[1]
        assert made.memory[-1]["counter"][0] == (2 if kept else 1)
        assert any("lost" in step.words for step in made.steps) is not kept


def lost_in(kernel, threads, *args, order=IN_TURN, chosen=()):
    return [
        step.words
        for step in steps(kernel, threads, args, order, chosen).steps
        if "lost" in step.words
    ]


def test_a_write_that_a_barrier_orders_is_not_lost():
    @cuda.jit
    def rounds(x):
        i = cuda.threadIdx.x
        old = x[0]
        if i == 0:
            x[0] = old + 1
        cuda.syncthreads()
        if i == 1:
            x[0] = old + 2

    assert not lost_in(rounds, 2, np.zeros(1, int), chosen=[1, 0, 0, 1])


def test_an_atomic_reads_its_index_in_a_step_before_it_and_is_itself_one():
    made = steps(histogram, 3, (np.array([1, 1]), np.zeros(2, np.int32)))
    assert told(made) == [
        (0, "reads 1 from values[0]"),
        (1, "reads 1 from values[1]"),
        (0, "changes counts[1] from 0 to 1 in one step"),
        (1, "changes counts[1] from 1 to 2 in one step"),
    ]
    assert made.places[0][2] == (0, "is done"), "thread 2 has no value"


def test_a_barrier_holds_a_thread_until_all_have_come():
    made = steps(
        reverse,
        4,
        (np.arange(4, dtype=np.float32), np.zeros(4, np.float32)),
        ONE_BY_ONE,
    )
    assert [step.thread for step in made.steps] == [0, 0, 1, 1, 2, 2, 3, 3] * 2
    assert [why for _, why in made.places[2]] == ["waits at the barrier", "", "", ""]
    assert [why for _, why in made.places[8]] == [""] * 4
    assert made.memory[-1]["out"].tolist() == [3, 2, 1, 0]
    line = made.source.index("    out[i] = held[3 - i]") + made.first_line
    assert made.places[8][0] == (line, "")


def test_an_access_outside_says_so_and_is_a_step():
    made = steps(without_guard, 3, (np.arange(2.0), np.zeros(2)))
    outside = [
        (step.thread, step.words) for step in made.steps if "outside" in step.words
    ]
    assert outside == [
        (2, "reads outside of an array: x[i]"),
        (2, "writes outside of an array: out[i]"),
    ]


@cuda.jit
def without_memory(x, out):
    i = cuda.threadIdx.x
    place = (i, x.shape[0])
    own = cuda.local.array(2, numba.int32)
    own[0] = place[1]
    own[0] += x.shape[1]
    out[i] = own[0]


def test_sizes_tuples_and_local_arrays_are_no_steps():
    made = steps(without_memory, 2, (np.zeros((2, 3), int), np.zeros(2, int)))
    assert told(made) == [(0, "writes 5 to out[0]"), (1, "writes 5 to out[1]")]


@cuda.jit
def without_barrier(x, out):
    held = cuda.shared.array(2, numba.int32)
    i = cuda.threadIdx.x
    held[i] = x[i]
    out[i] = held[1 - i]


def test_shared_memory_is_not_written_before_a_thread_writes_it():
    x = np.array([7, 8], np.int32)
    made = steps(without_barrier, 2, (x, np.zeros(2, int)), ONE_BY_ONE)
    assert told(made)[1:4] == [
        (0, "writes 7 to held[0]"),
        (0, "reads held[1], which is not written yet"),
        (0, "writes ? to out[0]"),
    ]
    assert [moment["held"].tolist() for moment in made.unwritten[1:3]] == [
        [True, True],
        [False, True],
    ]
    assert not made.unwritten[-1]["held"].any()
    shown = ThreadStepper(without_barrier, 2, x, np.zeros(2, int)).all_steps()[1]
    assert "not written yet" in shown
    assert "7 ?" in shown
    assert "with one thread after another it is ? 7" in shown
    assert "-842150451" not in shown


def test_what_never_ends_is_cut_off():
    made = steps(wait_for_ever, 2, (np.zeros(1, int), np.zeros(1, int)))
    assert len(made.steps) == stepping.MOST_STEPS
    assert made.ended == "These are the first 200 steps; there are more."
