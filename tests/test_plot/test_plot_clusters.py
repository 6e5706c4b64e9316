"""Figures of ranks and clusters: what they show is read back from the axes."""

import math

import numpy as np
import pytest

from exercises.nb12 import figures
from labkit import plot
from trainplan.cluster import Cluster, Layout, Transformer, step
from trainplan.facts.agreement import Agreement, Compared

MODEL = Transformer(8, 1024, 16, seq=1024)
CLUSTER = Cluster("A100 SXM4 80GB", gpus=8)
SHAPE = {"params": 4800, "blocks": 2, "hidden": 10, "ranks": 4}  # equal at 3 * 4800 / (8 * 2 * 10) = 90 tokens
COUNTED = {"FSDP": {10: 43_200.0, 1000: 43_200.0}, "tensor parallel": {10: 4_800.0}}


def made(**split):
    return step(MODEL, CLUSTER, Layout(**{"data": 8, **split}), 64)


def line(ax, label):
    (found,) = [one for one in ax.lines if str(one.get_label()).startswith(label)]
    return [list(values) for values in found.get_data()]


def test_runs_in_any_unit_meet_as_shares_of_the_peak():
    one = made()
    rows = (Compared("twice too fast", 20.0, 10.0, one), Compared("right", 5.0, 5.0, one))
    picture = plot.agreement([Agreement("A table", "tokens/s", rows)], title="Now")
    published, predicted = line(picture.ax, "A table")
    assert predicted == [pytest.approx(100 * one.mfu)] * 2
    assert published == [pytest.approx(50 * one.mfu), pytest.approx(100 * one.mfu)]
    assert line(picture.ax, "A table")
    assert picture.ax.get_xlim() == picture.ax.get_ylim()
    assert picture.ax.get_xlim()[1] > max(predicted)
    assert picture.sentence == (
        "Published runs: 2. On the black line both agree; half are within 0.0% of it, nine of ten within 100.0%. "
        "Farthest off, by +100%: twice too fast (A table)."
    )
    (legend,) = picture.ax.get_legend().get_texts()
    assert legend.get_text() == "A table: 2 runs, median error 50%"


def test_the_parts_of_a_step_add_up_and_memory_stands_beside():
    steps = {
        "fits": made(),
        "too big": step(
            MODEL, Cluster("T4", gpus=8, gpus_per_node=8), Layout(data=8, micro_batch=8, dtype="mixed float16"), 64
        ),
    }
    picture = plot.step_parts(steps)
    widths = {}
    for bar in picture.ax.patches:
        row = round(bar.get_y() + bar.get_height() / 2)
        assert bar.get_x() == pytest.approx(sum(widths.get(row, [])))
        widths.setdefault(row, []).append(bar.get_width())
    assert [sum(parts) for parts in widths.values()] == [pytest.approx(one.seconds) for one in steps.values()]
    words = [text.get_text() for text in picture.ax.texts]
    assert [("does not fit" in text) for text in words] == [one.fits is False for one in steps.values()]
    assert f"MFU {steps['fits'].mfu:.0%}" in words[0]
    named = {text.get_text() for text in picture.ax.get_legend().get_texts()}
    assert {"compute", "data communication", "optimizer"} <= named
    assert "bubble" not in named  # there is none
    assert picture.sentence.startswith("fits: ")
    assert "of it compute, then " in picture.sentence
    assert plot.step_parts({}).sentence == "No layout to draw."
    slow = plot.step_parts({"a million sequences": step(MODEL, CLUSTER, Layout(data=8), 1_048_576)})
    slow.ax.figure.canvas.draw()
    ticks = [text.get_text() for text in slow.ax.get_xticklabels()]
    assert ticks[0] == "0"
    assert all(label.endswith(" s") for label in ticks[1:])  # and not in minutes, whose ticks would be no round numbers


def test_lines_leave_out_what_is_not_finite_and_name_marks():
    series = {"a": {4: 0.2, 1: 0.1, 2: math.inf}, "none": {1: math.nan}}
    picture = plot.scales(series, x="nodes", y="time", unit="s", marks={"here": 3}, title="T")
    assert line(picture.ax, "a") == [[1, 4], [0.1, 0.2]]
    assert picture.sentence == "time by nodes: a: 100 ms at 1, 200 ms at 4; none: nothing to draw."
    assert (picture.ax.get_xscale(), picture.ax.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in picture.ax.texts] == ["here"]
    assert [list(one.get_xdata()) for one in picture.ax.lines if one.get_linestyle() == "--"] == [[3, 3]]
    assert len(picture.ax.get_yticks()) >= 2
    plain = plot.scales({"a": {1: 5}}, x="n", y="lost", unit="%")
    assert plain.sentence == "lost by n: a: 5.00 % at 1."
    assert plot.scales({}, x="n", y="lost").sentence == "Nothing drawn yet."


def lines(picture):
    return {line.get_label(): line for line in picture.ax.lines if not line.get_label().startswith("_")}


def test_predicted_lines_follow_the_ring():
    found = lines(plot.bytes_by_tokens(COUNTED, **SHAPE))
    x, fsdp = found["FSDP, predicted"].get_data()
    assert np.allclose(fsdp, 3 * 3 / 4 * 4800 * 4)
    assert np.allclose(found["tensor parallel, predicted"].get_ydata(), 2 * 4 * 2 * 3 / 4 * 10 * 4 * np.array(x))
    assert min(x) < 10
    assert max(x) > 1000


def test_dots_are_what_was_counted_and_a_way_without_any_has_its_line_alone():
    found = lines(plot.bytes_by_tokens({"FSDP": COUNTED["FSDP"]}, **SHAPE))
    assert set(found) == {"FSDP, predicted", "FSDP, counted", "tensor parallel, predicted"}
    assert list(found["FSDP, counted"].get_xdata()) == [10, 1000]
    assert list(found["FSDP, counted"].get_ydata()) == [43_200.0, 43_200.0]


@pytest.mark.parametrize("ranks", [2, 8])
def test_they_cross_where_the_sentence_says_for_any_number_of_ranks(ranks):
    picture = plot.bytes_by_tokens({}, **(SHAPE | {"ranks": ranks}))
    assert picture.sentence == "Left of 90 tokens tensor parallelism sends less, right of it FSDP does."
    fsdp, tensor = (line.get_ydata() for line in lines(picture).values())
    x = lines(picture)["FSDP, predicted"].get_xdata()
    crossing = x[np.argmax(np.array(tensor) > np.array(fsdp))]
    assert crossing == pytest.approx(90, rel=0.1)


def test_speedups_are_drawn_with_their_origin():
    picture = figures.speedup_by_ranks(
        {"the same batch": {1: 1.0, 8: 4.0, 64: 2.0}}, simulated={1: 1.0, 2: 1.8}, title="A"
    )
    labels = [text.get_text() for text in picture.ax.get_legend().get_texts()]
    assert any(label.startswith("simulated") for label in labels)
    assert "predicted: the same batch" in labels
    assert "2.0x predicted on 64 ranks, at most 4.0x, on 8" in picture.sentence
    assert len(picture.ax.patches) == 0, "the length of a bar says nothing on a logarithmic axis"
    (points,) = (line for line in picture.ax.lines if line.get_label().startswith("simulated"))
    assert points.get_markerfacecolor() == "white"


@pytest.mark.parametrize("points", [{}, {1: 0.0}, {0: 1.0}, {2: float("nan")}])
def test_speedups_that_cannot_be_are_refused(points):
    with pytest.raises(ValueError, match=r"Expected (speed-ups above 0|predicted)"):
        figures.speedup_by_ranks({"x": points} if points else {})
