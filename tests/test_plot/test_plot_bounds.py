"""Figures of calculated times and of the blocks that an SM has room for."""

import pytest

from labkit.gpu.occupancy import occupancy
from labkit.plot.bounds import blocks_allowed, time_bounds
from labkit.plot.core import new_axes, to_png


def test_both_bounds_are_drawn_and_said_with_the_gpu_they_are_calculated_for():
    picture = time_bounds({"naive": (1e-4, 5e-4), "tiled": (1e-4, 1e-4)}, gpu="H200 SXM", title="Transposing")
    assert picture.sentence.startswith("Calculated for H200 SXM, not measured. naive: at least 100 µs, 500 µs without")
    texts = [text.get_text() for text in picture.ax.texts]
    assert texts == ["100 µs to 500 µs", "100 µs"]
    assert [bar.get_width() for bar in picture.ax.patches] == pytest.approx([4e-4, 0])
    assert [line.get_xdata()[0] for line in picture.ax.lines] == [1e-4, 1e-4]
    assert to_png(picture.ax.figure).startswith(b"\x89PNG")


@pytest.mark.parametrize("most_s", [1.1e-6, 1e-3, 10.0])
def test_an_axis_of_any_length_has_a_few_ticks(most_s):
    ticks = time_bounds({"one": (1e-6, most_s)}, gpu="a GPU").ax.get_xticks()
    assert 1 <= len(ticks) <= 8


def test_the_shortest_bar_is_marked():
    found = occupancy(1024, registers=24, shared_bytes=4096, compute_capability=(8, 6))
    axes = new_axes()
    assert blocks_allowed.on(axes, found) == str(found)
    assert [text.get_text() for text in axes.texts] == ["1, limits", "16", "2", "20"]
    assert axes.get_title(loc="left") == "32 of 48 warps: 67% occupancy"
