"""Lines by size and by step: what they show is read back from the axes."""

import math

import numpy as np
import pytest

from exercises.nb12 import figures
from labkit import plot

# equal at 3 * 4800 / (8 * 2 * 10) = 90 tokens
SHAPE = {"params": 4800, "blocks": 2, "hidden": 10, "ranks": 4}
COUNTED = {"FSDP": {10: 43_200.0, 1000: 43_200.0}, "tensor parallel": {10: 4_800.0}}


def line(ax, label):
    (found,) = [one for one in ax.lines if str(one.get_label()).startswith(label)]
    return [list(values) for values in found.get_data()]


def test_lines_leave_out_what_is_not_finite_and_name_marks():
    series = {"a": {40: 2.0, 1: 0.1, 2: math.inf}, "none": {1: math.nan}}
    picture = plot.scales(
        series, x="nodes", y="time", unit="s", marks={"here": 3}, title="T"
    )
    assert line(picture.ax, "a") == [[1, 40], [0.1, 2.0]]
    assert (
        picture.sentence
        == "time by nodes: a: 100 ms at 1, 2.00 s at 40; none: nothing to draw."
    )
    assert (picture.ax.get_xscale(), picture.ax.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in picture.ax.texts] == ["here"]
    assert [
        list(one.get_xdata()) for one in picture.ax.lines if one.get_linestyle() == "--"
    ] == [[3, 3]]
    assert len(picture.ax.get_yticks()) >= 2
    plain = plot.scales({"a": {1: 5}}, x="n", y="lost", unit="%")
    assert plain.sentence == "lost by n: a: 5.00 % at 1."
    assert plot.scales({}, x="n", y="lost").sentence == "Nothing drawn yet."


def tick_labels(axis):
    low, high = sorted(axis.get_view_interval())
    ticks = [tick for tick in axis.get_majorticklocs() if low <= tick <= high]
    return axis.get_major_formatter().format_ticks(ticks)


@pytest.mark.parametrize(
    ("points", "sizes"),
    [
        ({bits: 60 + 5 * bits for bits in range(2, 9)}, list("2345678")),
        ({n: 130 - 7 * n for n in (2, 4, 8, 10)}, ["2", "4", "6", "8", "10"]),
        ({1: 0, 3: 5}, list("123")),
        ({1: -2, 3: 5}, list("123")),
        ({0.5: 1, 1: 2}, ["0.5", "0.6", "0.7", "0.8", "0.9", "1"]),
        ({1: 1, 64: 2}, ["1", "2", "5", "10", "20", "50"]),
    ],
)
def test_every_axis_has_several_ticks_that_differ(points, sizes):
    picture = plot.scales({"a": points}, x="n", y="lost", unit="%")
    assert tick_labels(picture.ax.xaxis) == sizes
    values = tick_labels(picture.ax.yaxis)
    assert len(set(values)) == len(values) >= 3
    bottom = picture.ax.get_ylim()[0]
    assert bottom < 0 if min(points.values()) < 0 else bottom == 0


def lines(picture):
    return {
        line.get_label(): line
        for line in picture.ax.lines
        if not line.get_label().startswith("_")
    }


def test_predicted_lines_follow_the_ring():
    found = lines(plot.bytes_by_tokens(COUNTED, **SHAPE))
    x, fsdp = found["FSDP, predicted"].get_data()
    assert np.allclose(fsdp, 3 * 3 / 4 * 4800 * 4)
    assert np.allclose(
        found["tensor parallel, predicted"].get_ydata(),
        2 * 4 * 2 * 3 / 4 * 10 * 4 * np.array(x),
    )
    assert min(x) < 10
    assert max(x) > 1000


@pytest.mark.parametrize("ranks", [2, 8])
def test_they_cross_where_the_sentence_says_for_any_number_of_ranks(ranks):
    picture = plot.bytes_by_tokens({}, **(SHAPE | {"ranks": ranks}))
    assert (
        picture.sentence
        == "Left of 90 tokens tensor parallelism sends less, right of it FSDP does."
    )
    fsdp, tensor = (line.get_ydata() for line in lines(picture).values())
    x = lines(picture)["FSDP, predicted"].get_xdata()
    crossing = x[np.argmax(np.array(tensor) > np.array(fsdp))]
    assert crossing == pytest.approx(90, rel=0.1)


def test_speedups_are_drawn_with_their_origin():
    picture = figures.speedup_by_ranks(
        {"the same batch": {1: 1.0, 8: 4.0, 64: 2.0}},
        simulated={1: 1.0, 2: 1.8},
        title="A",
    )
    labels = [text.get_text() for text in picture.ax.get_legend().get_texts()]
    assert any(label.startswith("simulated") for label in labels)
    assert "predicted: the same batch" in labels
    assert "2.0x predicted on 64 ranks, at most 4.0x, on 8" in picture.sentence
    assert len(picture.ax.patches) == 0, (
        "the length of a bar says nothing on a logarithmic axis"
    )
    (points,) = (
        line for line in picture.ax.lines if line.get_label().startswith("simulated")
    )
    assert points.get_markerfacecolor() == "white"


@pytest.mark.parametrize("points", [{}, {1: 0.0}])
def test_speedups_that_cannot_be_are_refused(points):
    with pytest.raises(ValueError, match=r"Expected (speed-ups above 0|predicted)"):
        figures.speedup_by_ranks({"x": points} if points else {})


def test_scales_are_logarithmic_over_a_few_sizes_if_asked():
    points = {256: 1.0, 512: 4.0, 1024: 16.0}
    axes = plot.scales({"a": points}, x="tokens", y="memory", log=True).ax
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_xticks().tolist() == [256, 512, 1024]
    axes = plot.scales({"a": points}, x="tokens", y="memory").ax
    assert axes.get_xscale() == "linear"
