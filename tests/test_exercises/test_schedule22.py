"""Loops that notebook 22's scheduler plans, and the hardware that follows."""

import itertools

import numpy as np
import pytest

from exercises.nb22 import fpga
from exercises.nb22.schedule import ADD, MULTIPLY, operations, picture, schedule
from exercises.nb22.scheduled import computed
from labkit.core.errors import BadArgument

PLANS = [
    (n, ports, multipliers, add_clocks)
    for n in (1, 2, 3, 4)
    for ports in (1, 2, n)
    for multipliers in (1, n, n * n)
    for add_clocks in (1, 3)
]


@pytest.mark.parametrize(("n", "ports", "multipliers", "add_clocks"), PLANS)
def test_a_step_begins_as_early_as_its_units_and_its_sums_allow(
    n, ports, multipliers, add_clocks
):
    plan = schedule(n, ports, multipliers, add_clocks)
    assert plan.interval == max(-(-n // ports), -(-n * n // multipliers), add_clocks)
    last = max(plan.clock_of.values())
    assert plan.clocks(7) == last + add_clocks + 6 * plan.interval


@pytest.mark.parametrize(("n", "ports", "multipliers", "add_clocks"), PLANS)
def test_no_unit_does_two_things_in_a_clock_and_nothing_comes_before_its_numbers(
    n, ports, multipliers, add_clocks
):
    plan = schedule(n, ports, multipliers, add_clocks)
    units = {MULTIPLY: multipliers, ADD: n * n}
    slots = set()
    for operation in operations(n):
        clock = plan.clock_of[operation.name]
        unit = plan.unit_of[operation.name]
        slot = operation.kind, unit, clock % plan.interval
        assert slot not in slots
        slots.add(slot)
        assert unit < units.get(operation.kind, ports)
        for name in operation.takes:
            assert clock > plan.clock_of[name]


@pytest.mark.parametrize(
    ("n", "ports", "multipliers"),
    [(1, 1, 1), (2, 1, 1), (2, 2, 4), (3, 1, 2), (3, 2, 4), (3, 3, 9)],
)
def test_the_hardware_computes_the_product(n, ports, multipliers):
    draw = np.random.default_rng(n * ports)
    a = draw.integers(-128, 128, (n, 5))
    b = draw.integers(-128, 128, (5, n))
    assert np.array_equal(computed(schedule(n, ports, multipliers), a, b), a @ b)


def test_what_was_placed_has_the_multipliers_of_its_plan():
    for n, kind in itertools.product((4, 8), fpga.schedules(1)):
        if n in fpga.recorded(kind):
            plan = fpga.schedules(n)[kind]
            assert fpga.recorded(kind)[n].multipliers == plan.multipliers


def test_a_loop_needs_units_and_the_hardware_whole_numbers():
    with pytest.raises(BadArgument, match="at least 1 sum, port, multiplier"):
        schedule(4, 0, 4)
    with pytest.raises(BadArgument, match="adders of 1 clock"):
        computed(schedule(2, 2, 4, add_clocks=3), np.ones((2, 2)), np.ones((2, 2)))


def test_the_picture_says_how_often_a_step_begins():
    sentence = picture(schedule(4, 1, 16)).sentence
    assert "a step begins every 4 clocks and takes 6" in sentence
    assert "a step begins every clock and" in picture(schedule(4, 4, 16)).sentence


def test_a_gpus_start_is_compared_with_an_fpgas_answer():
    assert len(fpga.gains()) == 2
    for name, ratio in fpga.gains().items():
        published_s = fpga.published_s()
        assert ratio.value == published_s[name] / published_s["FINN's answer"]
        assert ratio.origin == "published"
    shown = fpga.answers(1e-6, 2e-6)
    assert shown["torch on this machine (measured)"] == "2.00 µs"
