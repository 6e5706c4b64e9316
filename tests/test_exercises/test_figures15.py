"""Figures of notebook 15: what they show is read back from the axes."""

import pytest

from exercises.nb15 import figures
from trainplan.cluster import Cluster, Layout, Transformer, step

MODEL = Transformer(8, 1024, 16, seq=1024)
CLUSTER = Cluster("A100 SXM4 80GB", gpus=8)


def made(**split):
    return step(MODEL, CLUSTER, Layout(**{"data": 8, **split}), 64)


def test_the_parts_of_a_step_add_up_and_memory_stands_beside():
    small = Cluster("T4", gpus=8, gpus_per_node=8)
    layout = Layout(data=8, micro_batch=32, dtype="mixed float16")
    steps = {"fits": made(), "too big": step(MODEL, small, layout, 512)}
    picture = figures.step_parts(steps)
    widths = {}
    for bar in picture.ax.patches:
        row = round(bar.get_y() + bar.get_height() / 2)
        assert bar.get_x() == pytest.approx(sum(widths.get(row, [])))
        widths.setdefault(row, []).append(bar.get_width())
    seconds = [planned.seconds for planned in steps.values()]
    assert [sum(parts) for parts in widths.values()] == pytest.approx(seconds)
    words = [text.get_text() for text in picture.ax.texts]
    assert ["does not fit" in text for text in words] == [False, True]
    assert f"MFU {steps['fits'].mfu:.0%}" in words[0]
    assert "of it compute, then " in picture.sentence
    assert figures.step_parts({}).sentence == "No layout to draw."
