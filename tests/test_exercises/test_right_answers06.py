"""Unusual answers to notebook 06's exercises that are right, and have to pass."""

import numba
import numpy as np
import pytest
from numba import prange

from exercises.nb06.wrong_answers import backward_with, forward_with, operator
from tests.helpers import check


def rows_of_one_array(x, weight, bias, pooled, choice):
    scratch = np.empty_like(pooled)
    for image in prange(len(x)):
        here = np.s_[image : image + 1]
        forward_with(x[here], weight, bias, scratch[here], choice[here])
        pooled[image] = scratch[image]


def a_row_for_each_thread(x, weight, bias, pooled, choice):
    scratch = np.empty((numba.get_num_threads(), *pooled.shape[1:]), x.dtype)
    for image in numba.prange(len(x)):
        here, mine = np.s_[image : image + 1], numba.get_thread_id()
        forward_with(x[here], weight, bias, scratch[mine : mine + 1], choice[here])
        pooled[image] = scratch[mine]


def images_and_outputs(x, weight, bias, pooled, choice):
    outputs = len(weight)
    for place in numba.prange(len(x) * outputs):
        here, out = np.s_[place // outputs : place // outputs + 1], np.s_[place % outputs : place % outputs + 1]
        for _ in numba.prange(1):  # inside, it is a range
            forward_with(x[here], weight[out], bias[out], pooled[here, out], choice[here, out])


def image_by_image(grad_pooled, choice, x, weight, grad_x, grad_weights, grad_biases):
    for image in prange(len(x)):
        here = np.s_[image : image + 1]
        mine = grad_pooled[here].copy()
        backward_with(mine, choice[here], x[here], weight, grad_x[here], grad_weights[here], grad_biases[here])


@pytest.mark.parametrize(
    ("number", "kernel"),
    [
        ("06.5", rows_of_one_array),
        ("06.5", a_row_for_each_thread),
        ("06.5", images_and_outputs),
        ("06.6", image_by_image),
    ],
)
def test_threads_that_share_nothing_are_left_alone(number, kernel):
    outcome = check(number, kernel)
    assert "Right, but not compiled" in outcome.message, outcome  # Python's run of it, which watches prange, is passed


@pytest.mark.complete
def test_an_operator_passes_however_often_it_was_defined_before():
    for i in range(10):  # torch compiles the same function for 8 operators, then refuses
        outcome = check("06.7", operator(f"again_{i}"))
        assert outcome.state == "passed", outcome
