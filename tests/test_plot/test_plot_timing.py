"""The figures of time: what they show is read back from the axes, and what they say
from their sentence.
"""

import pytest

from exercises.nb02 import figures
from labkit import plot
from labkit.measure.bench import Ratio
from labkit.plot import style


def words(ax):
    return [text.get_text() for text in ax.texts]


def test_single_runs_count_what_is_off():
    picture = figures.single_runs([1.0, 1.04, 1.2, 0.9])
    assert list(picture.ax.lines[1].get_ydata()) == [1.0, 1.04, 1.2, 0.9]
    assert (
        picture.sentence
        == "4 single comparisons: 0.900x to 1.20x, median 1.02x; 2 of them are more"
        " than 5 % away from 1."
    )


def test_ratios_mark_what_shows_nothing_by_color_and_by_word():
    named = {
        "new": Ratio("new", "old", 2.0, 1.8, 2.2),
        "same": Ratio("same", "old", 1.01, 0.9, 1.1),
    }
    picture = plot.ratios(named)
    intervals = [line for line in picture.ax.lines if line.get_marker() == "|"]
    assert [list(line.get_xdata()) for line in intervals] == [[1.8, 2.2], [0.9, 1.1]]
    assert [line.get_color() for line in intervals] == [style.MEASURED, style.RECORDED]
    assert words(picture.ax) == ["2.00x, faster", "1.01x, no difference seen"]
    assert picture.sentence == "new: 2.00x, faster; same: 1.01x, no difference seen."


@pytest.mark.parametrize(
    ("share", "factor", "whole", "limit"),
    [
        (0.5, 2.0, "1.33x", "2.00x"),
        (0.9, 10.0, "5.26x", "10.0x"),
        (0.0, 10.0, "1.00x", "1.00x"),
        (1.0, 10.0, "10.0x", "none"),
    ],
)
def test_amdahl_gives_the_whole_and_its_limit(share, factor, whole, limit):
    picture = plot.amdahl(share=share, factor=factor)
    assert words(picture.ax) == [whole]
    assert picture.sentence.endswith(f"the whole gets {whole} faster; limit: {limit}.")
    curve = picture.ax.lines[0].get_ydata()
    assert curve[0] == 1.0
    assert curve[-1] <= 1 / max(1 - share, 1e-3)


def test_the_figure_marks_where_it_pays():
    picture = plot.break_even(compile_s=8.0, eager_s=0.5, compiled_s=0.25)
    assert "it has paid after 32 steps, which last 16.0 s" in picture.sentence
    assert [text.get_text() for text in picture.ax.texts] == ["32 steps"]
    assert picture.ax.get_xlim()[1] == 96
    assert "calculated" in picture.ax.get_ylabel()


@pytest.mark.parametrize("compiled_s", [0.5, 0.7])
def test_the_figure_says_when_it_never_pays(compiled_s):
    picture = plot.break_even(compile_s=8.0, eager_s=0.5, compiled_s=compiled_s)
    assert "it never pays" in picture.sentence
    assert len(picture.ax.texts) == 0
