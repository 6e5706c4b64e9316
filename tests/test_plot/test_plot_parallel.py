"""Bytes by tokens: the lines are the formulas, the dots what was counted, and they cross where the sentence says."""

import numpy as np
import pytest

from labkit import plot

SHAPE = {"params": 4800, "blocks": 2, "hidden": 10, "ranks": 4}  # equal at 3 * 4800 / (8 * 2 * 10) = 90 tokens
COUNTED = {"FSDP": {10: 43_200.0, 1000: 43_200.0}, "tensor parallel": {10: 4_800.0}}


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
