"""Figures of number formats: bits, gradients, and accuracy beside speed."""

import random

import pytest
import torch

from exercises.nb09 import figures, formats
from labkit import plot
from labkit.core.errors import LabError
from labkit.train.training import TunedComparison


def words_of(picture):
    return [text.get_text() for text in picture.ax.texts]


def test_a_row_has_a_box_for_each_bit_and_says_what_is_stored():
    picture = figures.bits(-1.25, [formats.float8_e5m2, formats.float16])
    assert len(picture.ax.patches) == 8 + 16
    texts = words_of(picture)
    assert "".join(text for text in texts[:8]) == "10111101"
    assert texts[8] == "-1.25 (exact)"
    assert "float16 -1.25 (exact)" in picture.sentence
    assert plot.to_png(picture.ax).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1e-9, "0: flushed, half of 5.96e-08 or less"),
        (1e6, "infinite: beyond 65504"),
        (1e-6, "1.013279e-06 (+1.3 %, subnormal)"),
        (0.1, "0.099975586 (-0.024 %)"),
    ],
)
def test_what_rounding_did_is_said(value, words):
    assert words_of(figures.bits(value, [formats.float16]))[-1] == words


def test_gradients_are_counted_by_their_fate():
    values = torch.tensor([0.0, 1e-9, 1e-6, 1.0, 2.0, 1e9])
    picture = figures.gradients(values)
    assert (
        "5 numbers in float16: 20.0% are flushed to zero, 20.0% subnormal, 20.0%"
        " overflow" in picture.sentence
    )
    assert picture.sentence.endswith("1 more were 0 before.")
    assert sum(patch.get_height() for patch in picture.ax.patches) == pytest.approx(100)
    labels = [text.get_text() for text in picture.ax.get_legend().get_texts()]
    assert labels == [
        "flushed to zero: 20.0%",
        "subnormal: fewer digits: 20.0%",
        "normal: 40.0%",
        "overflow: 20.0%",
    ]


def test_no_gradients_are_refused():
    with pytest.raises(LabError, match="at least one finite number"):
        figures.gradients([0.0, 0.0])


def test_a_row_that_is_worse_is_marked_and_one_that_is_not_shown_to_be_is_not():
    draw = random.Random(3)
    around = lambda mean: tuple(mean + draw.uniform(-0.02, 0.02) for _ in range(10))  # noqa: E731
    good = around(0.95)
    scores = {"float32": good, "fine": good[::-1], "broken": around(0.4)}
    found = TunedComparison(scores, dict.fromkeys(scores, 0.1), {})
    picture = figures.accuracy_by_seed(
        found, notes={"fine": "simulated: no time", "broken": "9.00x"}
    )
    words = words_of(picture)
    assert words[0] == "rate 0.1"
    assert words[1].startswith("rate 0.1 · no difference shown: ")
    assert words[1].endswith(" · simulated: no time")
    assert "worse: -5" in words[2]
    dots = [line for line in picture.ax.lines if line.get_marker() == "o"]
    assert [line.get_fillstyle() for line in dots] == ["full", "none", "full"]
    assert dots[0].get_color() == dots[1].get_color() != dots[2].get_color()
    assert "broken against float32: worse" in picture.sentence


def test_what_stands_beside_a_row_isnt_said_again_below_it():
    draw = random.Random(4)
    good = tuple(0.9 + draw.uniform(-0.02, 0.02) for _ in range(10))
    scores = {"float32": good, "as good": good[::-1], "bad": tuple(g / 2 for g in good)}
    picture = figures.accuracy_by_seed(
        TunedComparison(scores, dict.fromkeys(scores, 0.1), {})
    )
    assert "points" not in picture.sentence
    assert "bad against float32: worse" in picture.sentence
    assert "as good against float32: no difference shown" in picture.sentence


def test_with_too_few_seeds_the_sentence_judges_nothing():
    scores = {"float32": (0.9, 0.9), "bad": (0.1, 0.2)}
    picture = figures.accuracy_by_seed(
        TunedComparison(scores, dict.fromkeys(scores, 0.1), {})
    )
    assert picture.sentence.endswith("with fewer than 10, nothing is judged.")
    assert "worse" not in picture.sentence


def test_the_title_of_gradients_stands_above_the_names_of_the_limits():
    picture = figures.gradients(torch.tensor([1e-9, 1.0]), title="Sent")
    axes = picture.ax
    plot.to_png(axes)
    title = axes._left_title.get_window_extent()
    names = [text.get_window_extent() for text in axes.texts]
    assert all(title.y0 >= name.y1 for name in names)
