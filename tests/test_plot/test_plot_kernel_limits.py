"""Figures of calculated times, of the blocks that an SM has room for, and of register caps."""

import pytest

from labkit.gpu.compiler import KernelResources
from labkit.gpu.occupancy import occupancy
from labkit.plot import blocks_allowed, new_axes, register_caps, time_bounds, to_png


def test_both_bounds_are_drawn_and_said_with_the_gpu_they_are_calculated_for():
    picture = time_bounds({"naive": (1e-4, 5e-4), "tiled": (1e-4, 1e-4)}, gpu="H200 SXM", title="Transposing")
    assert picture.sentence.startswith("Calculated for H200 SXM, not measured. naive: at least 100 µs, 500 µs without")
    texts = [text.get_text() for text in picture.ax.texts]
    assert texts == ["100 µs to 500 µs", "100 µs"]
    assert [bar.get_width() for bar in picture.ax.patches] == pytest.approx([4e-4, 0])
    assert [line.get_xdata()[0] for line in picture.ax.lines] == [1e-4, 1e-4]
    assert to_png(picture.ax).startswith(b"\x89PNG")


@pytest.mark.parametrize("most_s", [1.1e-6, 1e-3, 10.0])
def test_an_axis_of_any_length_has_a_few_ticks(most_s):
    axes = time_bounds({"one": (1e-6, most_s)}, gpu="a GPU").ax
    low, high = axes.get_xlim()
    assert 1 <= sum(low <= tick <= high for tick in axes.get_xticks()) <= 8


def test_the_shortest_bar_is_marked():
    found = occupancy(1024, registers=24, shared_bytes=4096, compute_capability=(8, 6))
    axes = new_axes()
    assert blocks_allowed.on(axes, found) == str(found)
    assert [text.get_text() for text in axes.texts] == ["1, limits", "16", "2", "20"]
    assert axes.get_title(loc="left") == "32 of 48 warps: 67% occupancy"


def build(registers, spill):
    return KernelResources(registers, spill, spill, 2 * spill, 0, 0, 1024)


def test_register_caps_tells_spills_and_occupancy():
    picture = register_caps({64: build(64, 0), 32: build(32, 50)}, block=256, compute_capability=(8, 0))
    assert "at most 64 registers: 0 B of spills, 50% occupancy" in picture.sentence
    assert "at most 32 registers: 100 B of spills, 100% occupancy" in picture.sentence
    assert [bar.get_width() for bar in picture.ax.patches] == [0, 100]
    assert [text.get_text() for text in picture.ax.texts] == [
        "no spills, 64 registers, 50% occupancy",
        "100 B spilt, 32 registers, 100% occupancy",
    ]
