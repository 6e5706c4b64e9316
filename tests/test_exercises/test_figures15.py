"""Figures of notebook 15: what they show is read back from the axes."""

import pytest

from exercises.nb15 import figures
from trainplan.cluster import Cluster, Layout, Transformer, step
from trainplan.facts.agreement import Agreement, Compared

MODEL = Transformer(8, 1024, 16, seq=1024)
CLUSTER = Cluster("A100 SXM4 80GB", gpus=8)


def made(**split):
    return step(MODEL, CLUSTER, Layout(**{"data": 8, **split}), 64)


def line(ax, label):
    (found,) = [one for one in ax.lines if str(one.get_label()).startswith(label)]
    return [list(values) for values in found.get_data()]


def test_runs_in_any_unit_meet_as_shares_of_the_peak():
    one = made()
    rows = (Compared("twice too fast", 20.0, 10.0, one), Compared("right", 5.0, 5.0, one))
    picture = figures.agreement([Agreement("A table", "tokens/s", rows)], title="Now")
    published, predicted = line(picture.ax, "A table")
    assert predicted == [pytest.approx(100 * one.mfu)] * 2
    assert published == [pytest.approx(50 * one.mfu), pytest.approx(100 * one.mfu)]
    assert line(picture.ax, "A table")
    assert picture.ax.get_xlim() == picture.ax.get_ylim()
    assert picture.ax.get_xlim()[1] > max(predicted)
    assert picture.sentence == (
        "Published runs: 2. On the black line both agree; half are within 0.0% of it, nine of ten within 100.0%. "
        "Farthest off, by +100%: twice too fast (A table). Of the runs 2 are unlike most others (step.outside)."
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
    picture = figures.step_parts(steps)
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
    assert figures.step_parts({}).sentence == "No layout to draw."
    slow = figures.step_parts({"a million sequences": step(MODEL, CLUSTER, Layout(data=8), 1_048_576)})
    slow.ax.figure.canvas.draw()
    ticks = [text.get_text() for text in slow.ax.get_xticklabels()]
    assert ticks[0] == "0"
    assert all(label.endswith(" s") for label in ticks[1:])  # and not in minutes, whose ticks would be no round numbers
