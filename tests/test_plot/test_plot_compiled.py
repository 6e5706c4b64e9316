"""The figure of register caps."""

from labkit.gpu.compiler import KernelResources
from labkit.plot.compiled import register_caps


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
