"""The same training from several seeds: what they reached, and trainings that take
turns.
"""

import math
import random

import pytest
import torch
from torch import nn

from exercises.nb11 import networks
from exercises.nb11.several_seeds import Runs, _bound_rank, _interval, interleaved
from labkit.core.errors import BadArgument
from labkit.train.training import Run, fit
from tests.test_train.test_training import GIVEN, setup_with

pytestmark = pytest.mark.slow  # trains


def made(values, never=()):
    """Runs that reached 97 % after so many seconds."""
    return Runs(
        tuple(
            Run(
                i,
                8,
                (1.0, 0.5),
                (0.5, 0.9 if i in never else 0.98),
                (0.1, value),
                (8, 16),
                nn.Identity(),
            )
            for i, value in enumerate(values)
        ),
        "made",
    )


def test_seeds_are_counted_or_given():
    small = {"small": (setup_with(), 16)}
    runs = interleaved(small, 3, epochs=1, **GIVEN)["small"]
    assert [run.seed for run in runs.runs] == [0, 1, 2]
    assert [
        run.seed for run in interleaved(small, [7, 9], epochs=1, **GIVEN)["small"].runs
    ] == [7, 9]
    assert "small, batch 16" in str(runs)
    assert "<table" in runs._repr_html_()
    best = [max(run.accuracies) for run in runs.runs]
    assert runs.spread == (min(best), max(best))
    for none in (0, []):
        with pytest.raises(BadArgument, match="seed"):
            interleaved(small, none, epochs=1, **GIVEN)


def test_time_to_is_a_median_with_its_ends_and_never_counts_as_inf():
    found = made([1.0, 3.0, 2.0]).time_to(0.97)
    assert (found.low, found.median, found.high, found.arrived) == (1.0, 2.0, 3.0, 3)
    assert (
        str(found)
        == "3 of 3 seeds reached 97.0 %; median 2.00 s, from 1.00 s to 3.00 s"
    )
    late = made([1.0, 3.0, 2.0], never={1}).time_to(0.97)
    assert (late.median, late.high, late.arrived) == (2.0, math.inf, 2)
    assert "to never" in str(late)
    assert "never" in str(made([1.0, 2.0], never={0, 1}).time_to(0.97))
    assert made([1.0]).steps_to(0.97).values == (2,)
    assert made([1.0], never={0}).steps_to(0.97).values == (math.inf,)
    assert made([1.0]).epochs_to(0.97).unit == "epochs"


def test_seeds_that_never_arrived_leave_an_end_open():
    sure, mostly, never = (
        made([1.0, 1.1, 0.9, 1.05, 0.95], never=which)
        for which in ((), {4}, set(range(5)))
    )
    assert sure.faster_than(never, 0.97).low > 1
    assert sure.faster_than(never, 0.97).high == math.inf
    assert never.faster_than(sure, 0.97).verdict == "slower"
    assert never.faster_than(sure, 0.97).low == 0
    assert never.faster_than(never, 0.97).verdict == "no difference seen"
    assert mostly.faster_than(sure, 0.97).verdict == "no difference seen"
    low, high, value = _interval([1.0, math.inf, 1.0, 1.0, 1.0], [0.1] * 5)
    assert (low, value, high) == (10, 10, math.inf)


def test_the_interval_is_mann_and_whitneys():
    """Critical values of their tables, two-sided 5 %: 0 for 4 and 4, 2 for 5 and 5, 23
    for 10 and 10.
    """
    assert [_bound_rank(n, n) for n in (3, 4, 5, 10)] == [0, 1, 3, 24]


def test_the_interval_holds_the_truth_in_at_least_95_of_100_draws():
    draw = random.Random(5)
    held = 0
    for _ in range(400):
        a, b = (
            [draw.lognormvariate(mean, 0.5) for _ in range(5)]
            for mean in (math.log(2), 0)
        )
        low, high, _ = _interval(a, b)
        held += low <= 2 <= high
    assert 0.94 < held / 400 < 1


def test_three_seeds_give_no_interval():
    with pytest.raises(BadArgument, match="at least 4 seeds"):
        made([1.0, 2.0, 3.0]).faster_than(made([1.0] * 4), 0.97)


def test_trainings_are_interleaved():
    order = []
    named = {"a": (setup_with(), 16), "b": (setup_with(rate=0.2), 32)}
    told = lambda name, run: order.append((name, run.seed))  # noqa: E731
    found = interleaved(named, [3, 4, 5], on_epoch=told, epochs=1, **GIVEN)
    assert order == [("a", 3), ("b", 3), ("b", 4), ("a", 4), ("a", 5), ("b", 5)]
    assert [run.batch for run in found["b"].runs] == [32] * 3
    assert found["a"].name == "a"
    assert (
        found["a"].runs[0].losses
        == fit(setup_with(), seed=3, batch=16, epochs=1, **GIVEN).losses
    )
    with pytest.raises(BadArgument, match="named"):
        interleaved({}, 3, epochs=1, **GIVEN)


def test_a_network_is_ready_once_its_last_layer_has_its_size():
    images = torch.rand(3, 1, 8, 8)

    def strided():
        return networks.chain(networks.convolution(1, 4, stride=2))

    model = networks.ready(strided, images)()
    assert model[-1].weight.shape == (10, 4 * 4 * 4)
    convolution = 2 * 9 * 4 * 4 * 4  # 3 x 3 weights, 4 channels of 4 x 4 numbers
    assert networks.forward_flop(strided, images) == convolution + 2 * 64 * 10
