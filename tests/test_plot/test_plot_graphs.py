"""Figures of compiling: when it pays, and what an operator costs by size."""

import pytest

from labkit import plot


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


def test_the_figure_of_an_operators_time():
    picture = plot.time_by_size({1: 4e-6, 1024: 5e-6}, overhead_s=4e-6)
    assert picture.sentence == "1 element in 4.00 µs; 1,024 elements in 5.00 µs."
    assert len(picture.ax.lines) == 2
