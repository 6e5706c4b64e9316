"""Figures of calculated times, of the blocks that an SM has room for, and of register
caps.
"""

from exercises.nb04.figures import calculated_times
from exercises.nb05.figures import register_caps
from kerneltrace import KernelResources
from labkit.plot import to_png
from trainplan.cluster import Agreement, Compared


def test_calculated_times_lie_beside_published_ones_and_the_farthest_is_named():
    rows = Compared("near", 1.1e-3, 1e-3, True), Compared("far", 2e-2, 5e-2, False)
    picture = calculated_times([Agreement("somebody", "s", rows)])
    assert picture.sentence.startswith(
        "2 launches that others timed. On the black line both agree. somebody: 1 of 2"
    )
    assert "inside their brackets, half within 35%" in picture.sentence
    assert "Farthest off: far, calculated 0.4 times as long" in picture.sentence
    dots = picture.ax.lines[0]
    assert (list(dots.get_xdata()), list(dots.get_ydata())) == (
        [1e-3, 5e-2],
        [1.1e-3, 2e-2],
    )
    assert to_png(picture.ax).startswith(b"\x89PNG")


def build(registers, spill):
    return KernelResources(registers, spill, spill, 2 * spill, 0, 0, 1024)


def test_register_caps_tells_spills_and_occupancy():
    picture = register_caps(
        {64: build(64, 0), 32: build(32, 50)}, block=256, compute_capability=(8, 0)
    )
    assert "at most 64 registers: 0 B of spills, 50% occupancy" in picture.sentence
    assert "at most 32 registers: 100 B of spills, 100% occupancy" in picture.sentence
    assert [bar.get_width() for bar in picture.ax.patches] == [0, 100]
    assert [text.get_text() for text in picture.ax.texts] == [
        "no spills, 64 registers, 50% occupancy",
        "100 B spilt, 32 registers, 100% occupancy",
    ]
