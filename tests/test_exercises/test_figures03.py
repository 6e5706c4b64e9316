"""The figure of the owners of elements: its sentence says what it shows; wrong input is
refused.
"""

import numpy as np
import pytest
from numba import cuda

import labkit as lab
from exercises.nb03 import loops, saxpy_costs
from exercises.nb03.figures import owners
from labkit.core.errors import BadArgument
from labkit.core.units import format_quantity


def texts(picture):
    return [text.get_text() for text in picture.ax.texts]


def test_owners_names_block_and_thread_of_every_element():
    picture = owners([0, 0, 1, 1, -1], [0, 1, 0, 1, -1])
    assert texts(picture) == [
        "block 0\nthread 0",
        "block 0\nthread 1",
        "block 1\nthread 0",
        "block 1\nthread 1",
    ]
    assert (
        picture.sentence
        == "5 elements: block 0 writes 2, block 1 writes 2. Nobody writes 1 of them"
        " (crossed out)."
    )


@pytest.mark.parametrize("shape", [(0,), (401,), (2, 2, 2)])
def test_owners_refuses_what_it_cannot_draw(shape):
    with pytest.raises(BadArgument, match="Draw a smaller array"):
        owners(np.zeros(shape, int), np.zeros(shape, int))


def saxpy(a, x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = a * x[i] + y[i]


def test_saxpy_moves_three_numbers_an_element_and_never_beats_the_bandwidth():
    assert saxpy_costs.bytes_an_element(saxpy) == 12
    table = saxpy_costs.times(saxpy, elements=1e8)
    t4 = lab.catalog.find("T4").bandwidth_bytes_per_s
    assert table.rows[0][:2] == ("T4", format_quantity(12e8 / t4, "s"))
    assert [row[3] for row in table.rows] == ["memory"] * 3


def test_without_a_gpu_the_share_of_the_bus_follows_from_two_rates():
    bus = lab.published.bus("H200", "PCIe 5 x16")
    bandwidth = lab.catalog.find("H200 SXM").bandwidth_bytes_per_s
    share, origin = loops.share_of_bus(np.zeros(1000, "f4"), bus, None)
    assert share == pytest.approx(100 * bandwidth / (bandwidth + bus.bytes_per_s))
    assert origin == "calculated"
