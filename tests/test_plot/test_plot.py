import inspect

import matplotlib.pyplot as plt
import pytest

from labkit import plot
from labkit.measure.bench import Timing
from labkit.plot import Bar


def png(picture):
    return plot.to_png(picture.ax)


def texts(ax):
    return " ".join(text.get_text() for text in [*ax.texts, *ax.get_yticklabels(), *ax.get_legend().get_texts()])


BARS = [
    Bar("one thread", measured=6400, low=6000, high=6600, predicted=4000, limit=100_000),
    Bar("GPU", note="needs a GPU", others=[("recorded on an H", 90_000.0)]),
]


def test_the_four_series_are_told_apart_without_colour():
    picture = plot.speed_bars(BARS, unit="images/s")
    shown = texts(picture.ax)
    for word in (
        "measured here",
        "your prediction",
        "limit",
        "recorded or simulated",
        "90,000 images/s, recorded on an H",
    ):
        assert word in shown
    hatches = [patch.get_hatch() for patch in picture.ax.patches]
    assert hatches == [None, "//"]
    markers = [line.get_marker() for line in picture.ax.lines]
    assert "D" in markers


def test_a_series_that_is_absent_is_not_in_the_legend():
    shown = texts(plot.speed_bars([Bar("one", measured=1.0)], unit="s").ax)
    assert "prediction" not in shown
    assert "recorded" not in shown


def test_a_simulated_bar_is_hatched_and_said_to_be():
    picture = plot.speed_bars([Bar("one", measured=1.0, simulated=True)], unit="s")
    assert picture.ax.patches[0].get_hatch() == "//"
    assert "(simulated)" in picture.sentence


def test_the_sentence_says_what_the_figure_shows():
    sentence = plot.speed_bars(BARS, unit="images/s").sentence
    assert sentence == ("one thread: 6,400 images/s, 1.6x your guess, 6% of the limit; GPU: needs a GPU.")
    assert plot.speed_bars([], unit="s").sentence == "Nothing measured yet."


@pytest.mark.parametrize(
    "picture",
    [
        lambda: plot.speed_bars(BARS, unit="images/s", log=True),
        lambda: plot.curves({"loss": [3.0, 2.0], "accuracy": []}),
        lambda: plot.curves({}),
        lambda: plot.readings([Timing("a", 1.0, (0.1, 0.2)), Timing("b", 1.0, (0.1,))]),
        lambda: plot.images(*images()),
    ],
)
def test_every_figure_draws_and_has_a_sentence(picture):
    drawn = picture()
    assert png(drawn).startswith(b"\x89PNG")
    assert drawn.sentence.endswith(".")
    assert repr(drawn) == drawn.sentence


def images():
    from labkit.train import data

    pixels, labels = data.digits(size=32, channels=3)
    return pixels[:10], labels[:10]


def test_drawing_leaves_pyplot_alone():
    plot.curves({"loss": [1.0]})
    assert plt.get_fignums() == []


def test_a_title_stands_above_the_figure_also_after_it_is_drawn_again():
    picture = plot.speed_bars(BARS, unit="images/s", title="Now")
    assert picture.ax.get_title(loc="left") == "Now"
    plot.speed_bars.on(picture.ax, BARS, unit="images/s", title="Then")
    assert picture.ax.get_title(loc="left") == "Then"
    assert plot.curves({"loss": [1.0, 0.5]}, title="Learning").ax.get_title(loc="left") == "Learning"


def test_what_is_drawn_again_replaces_the_frame_before():
    axes = plot.new_axes()
    for _ in range(3):
        plot.speed_bars.on(axes, BARS, unit="images/s")
    assert len(axes.get_legend().get_texts()) == 4
    assert len(axes.patches) == 2
    assert len(axes.containers) == 3  # two of bars, one of whiskers
    plot.speed_bars.on(axes, [], unit="images/s")
    assert axes.get_legend() is None


def test_the_signature_has_the_title_that_every_figure_takes_and_no_axes():
    assert list(inspect.signature(plot.ratios).parameters) == ["named", "title"]


def test_a_note_does_not_lie_on_what_was_recorded_elsewhere():
    picture = plot.speed_bars(BARS, unit="images/s")
    note, recorded = picture.ax.texts[-2:]
    assert (note.get_text(), recorded.get_text()) == ("needs a GPU", "90,000 images/s, recorded on an H")
    plot.to_png(picture.ax)  # text has its place once it is drawn
    assert not note.get_window_extent().overlaps(recorded.get_window_extent())


def test_a_title_is_above_the_figure_also_after_it_is_drawn_again():
    picture = plot.speed_bars(BARS, unit="images/s", title="Now")
    assert picture.ax.get_title(loc="left") == "Now"
    plot.speed_bars.on(picture.ax, BARS, unit="images/s", title="Then")
    assert picture.ax.get_title(loc="left") == "Then"
    assert plot.curves({"loss": [1.0, 0.5]}, title="Learning").ax.get_title(loc="left") == "Learning"
