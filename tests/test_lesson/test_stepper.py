"""The stepper without a browser: what its buttons and its slider show, and what the
notebook keeps.
"""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda

import labkit as lab

pytestmark = pytest.mark.slow  # numba compiles


@cuda.jit
def add_one(counter):
    counter[0] += 1


@cuda.jit
def count_long(counts):
    counts[cuda.threadIdx.x] += 1


def stepper(threads=2):
    return lab.Stepper(add_one, threads, np.zeros(1, int))


def test_it_begins_before_the_first_step_and_ends_with_what_is_lost():
    made = stepper()
    assert made.sentence.startswith("No thread has accessed memory yet.")
    made.slider.value = 4
    assert (
        made.sentence
        == "Step 4 of 4: thread 1 writes 1 to counter[0]: thread 0's 1 is lost. "
        "In the end counter is 1, with one thread after another it is 2."
    )


def test_a_step_that_is_to_come_is_not_shown_yet():
    made = stepper()
    assert "reads 0" not in made._table.value
    made.buttons["step"].click()
    assert made._table.value.count("reads 0") == 1
    made.buttons["back"].click()
    made.buttons["back"].click()
    assert made.slider.value == 0
    assert "reads 0" not in made._table.value


def test_a_threads_button_goes_on_from_the_step_that_is_shown():
    made = stepper()
    made.slider.value = 1
    made.buttons[0].click()
    assert [step.thread for step in made.steps.steps] == [0, 0, 1, 1]
    assert made.slider.value == 2
    assert [made.buttons[thread].disabled for thread in (0, 1)] == [True, False]


def test_the_notebook_keeps_all_steps_wherever_the_reader_stands():
    made = stepper()
    data, _ = made.data("", "", "kept")
    for text in (data["text/html"], data["text/plain"]):
        assert text.count("writes 1 to counter[0]") == 2
        assert "In the end counter is 1" in text
        assert "Run this cell to go through the steps yourself." in text


class Loop:
    """An event loop whose time a test advances."""

    def __init__(self):
        self.waits = []

    def call_later(self, seconds, function):
        self.waits.append(function)
        return SimpleNamespace(cancel=lambda: self.waits.remove(function))


def test_play_goes_on_step_by_step_and_a_button_stops_it(monkeypatch):
    made = stepper()
    made.play.click()
    assert (made.slider.value, made.play.description) == (1, "play"), "no event loop"
    loop = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    made.play.click()
    assert (made.slider.value, made.play.description) == (2, "pause")
    loop.waits.pop()()
    assert made.slider.value == 3
    made.buttons["back"].click()
    assert (loop.waits, made.slider.value, made.play.description) == ([], 2, "play")
    made.slider.value = 4
    made.play.click()
    assert made.slider.value == 1, "from the first step again"
    for _ in range(3):
        loop.waits.pop()()
    assert (loop.waits, made.slider.value, made.play.description) == ([], 4, "play")


def test_memory_at_the_end_is_that_of_the_order_shown():
    made = stepper()
    assert made.memory_at_end["counter"].tolist() == [1]
    made.order.value = "one after another"
    assert made.memory_at_end["counter"].tolist() == [2]
