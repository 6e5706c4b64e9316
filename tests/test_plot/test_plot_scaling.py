"""The figure of scaling: what it shows is read back from the axes."""

import pytest

from labkit.plot import speedup_by_ranks


def test_speedups_are_drawn_with_their_origin():
    picture = speedup_by_ranks({"the same batch": {1: 1.0, 8: 4.0, 64: 2.0}}, simulated={1: 1.0, 2: 1.8}, title="A")
    labels = [text.get_text() for text in picture.ax.get_legend().get_texts()]
    assert any(label.startswith("simulated") for label in labels)
    assert "predicted: the same batch" in labels
    assert "2.0x predicted on 64 ranks, at most 4.0x, on 8" in picture.sentence
    assert {patch.get_hatch() for patch in picture.ax.patches} == {"//"}


@pytest.mark.parametrize("points", [{}, {1: 0.0}, {0: 1.0}, {2: float("nan")}])
def test_speedups_that_cannot_be_are_refused(points):
    with pytest.raises(ValueError, match="Expected speed-ups above 0"):
        speedup_by_ranks({"x": points} if points else {})
