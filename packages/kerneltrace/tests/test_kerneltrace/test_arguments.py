"""What readers pass by mistake is refused in a sentence, as a TypeError or a
ValueError.
"""

import math

import numpy as np
import pytest

from kerneltrace import compile_numba, occupancy, trace


def fill(x):
    x[0] = 1


def needs(**changes):
    return occupancy(
        **{"block": 64, "registers": 32, "compute_capability": (8, 0)} | changes
    )


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("32", TypeError),
        (None, TypeError),
        (True, TypeError),
        (32.0, TypeError),
        (math.nan, TypeError),
        (0, ValueError),
        (-1, ValueError),
    ],
)
def test_a_count_is_a_whole_number_of_at_least_1(value, error):
    with pytest.raises(error, match="Expected registers to be a whole number of at"):
        needs(registers=value)


@pytest.mark.parametrize(
    ("value", "error"),
    [("2", TypeError), (None, TypeError), (0, ValueError), (math.inf, ValueError)],
)
def test_a_factor_is_a_finite_number_above_0(value, error):
    with pytest.raises(error, match="Expected longer to be a finite number above 0"):
        trace(fill, 1, 1, np.zeros(1)).estimate("T4", longer=value)


@pytest.mark.parametrize("value", [8.0, "8.0", (8,), (8, "0"), None])
def test_a_compute_capability_is_a_pair(value):
    with pytest.raises(TypeError, match=r"a pair of whole numbers such as \(8, 0\)"):
        needs(compute_capability=value)


def test_numbers_of_numpy_count_and_results_are_pythons():
    room = needs(registers=np.int64(32), shared_bytes=np.int32(1024))
    assert room == needs(shared_bytes=1024)
    assert {type(blocks) for blocks in room.allows.values()} == {int}
    launch = trace(fill, np.int64(1), (np.int32(1), 1), np.zeros(1))
    assert launch.estimate("T4", longer=np.float32(2)) == launch.estimate(
        "T4", longer=2
    )


def test_a_switch_is_true_or_false():
    with pytest.raises(TypeError, match="Expected fastmath to be True or False, got 1"):
        compile_numba(fill, (np.zeros(1),), fastmath=1)
