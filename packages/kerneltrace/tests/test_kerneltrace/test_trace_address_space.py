"""Where an address lies in an array, for arrays of every layout."""

import numpy as np
import pytest

from kerneltrace.machine.address_space import Region

CUBE = np.zeros((3, 4, 5), np.float32)
LAYOUTS = {
    "C order": CUBE,
    "Fortran order": np.asfortranarray(CUBE),
    "turned round": CUBE.transpose(1, 2, 0),
    "every second": CUBE[:, ::2, 1:4],
    "backwards": CUBE[::-1, :, ::-1],
    "one row": CUBE[1:2],
    "broadcast": np.broadcast_to(CUBE[0], (6, 4, 5)),
    "a field": np.zeros(7, [("a", "i4"), ("b", "f8")])["b"],
    "no dimension": np.array(2.5),
}


@pytest.mark.parametrize("array", LAYOUTS.values(), ids=LAYOUTS)
def test_every_element_is_found_at_its_address(array):
    region = Region("a", "global", 10_000, array)
    for number, index in enumerate(np.ndindex(array.shape)):
        if any(step == 0 and i for i, step in zip(index, array.strides, strict=True)):
            continue  # shares its memory with an element that was found
        address = 10_000 + sum(
            i * step for i, step in zip(index, array.strides, strict=True)
        )
        last = address + array.itemsize - 1
        assert region.elements(np.array([address, last])).tolist() == [number, number]


def test_what_lies_between_or_beside_is_in_no_element():
    # floats at 10,000, 10,008 and 10,016
    region = Region("a", "global", 10_000, CUBE[0, 0, ::2])
    assert (
        region.elements(np.array([9_999, 10_004, 10_015, 10_020, 10_024])).tolist()
        == [-1] * 5
    )


def test_an_empty_array_holds_no_address():
    assert Region("a", "global", 10_000, np.zeros((0, 3))).elements(
        np.array([10_000])
    ).tolist() == [-1]
