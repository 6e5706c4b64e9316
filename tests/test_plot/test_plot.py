import inspect

import matplotlib.pyplot as plt
import pytest
from matplotlib.transforms import Bbox

from labkit import plot
from labkit.measure.bench import Timing
from labkit.plot import Bar

pytestmark = pytest.mark.slow  # draws many boards


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
        "recorded, published, simulated or calculated",
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


def test_a_row_that_was_calculated_only_says_so_and_leaves_no_room_for_a_measurement():
    rows = [Bar("GPT-3", others=[("calculated", 35.0)]), Bar("small", others=[("calculated", 2.0)], predicted=20)]
    picture = plot.speed_bars(rows, unit="cards")
    assert picture.sentence == "GPT-3: 35 cards (calculated); small: 2 cards (calculated)."
    first, second = (bar.get_y() + bar.get_height() / 2 for bar in picture.ax.patches)
    (guess,) = (line.get_ydata()[0] for line in picture.ax.lines if line.get_marker() == "D")
    assert first == picture.ax.get_yticks()[0]
    assert first < guess < second


def test_a_simulated_bar_is_hatched_and_said_to_be():
    picture = plot.speed_bars([Bar("one", measured=1.0, simulated=True)], unit="s")
    assert picture.ax.patches[0].get_hatch() == "//"
    assert "(simulated)" in picture.sentence


@pytest.mark.parametrize(
    ("measured", "limit", "unit", "beyond"),
    [
        (112.0, 100.0, "B/s", True),
        (104.0, 100.0, "B/s", False),  # no more than the spread of two measurements
        (50.0, 100.0, "B/s", False),
        (0.5, 1.0, "s", True),  # a time has a floor
        (0.97, 1.0, "s", False),
        (3.0, 1.0, "s", False),
        (0.0, 1.0, "B/s", False),
    ],
)
def test_what_lies_beyond_its_limit_is_never_shown_as_a_plain_result(measured, limit, unit, beyond):
    bar = Bar("copy", measured=measured, limit=limit)
    sentence = plot.speed_bars([bar], unit=unit).sentence
    assert f"{measured / limit:.0%} of the limit" in sentence
    assert ("beyond it: the clock was slower for the limit" in sentence) == beyond


def test_the_sentence_says_what_the_figure_shows():
    sentence = plot.speed_bars(BARS, unit="images/s").sentence
    own = "one thread: 6,400 images/s, 6% of the limit"
    assert sentence == f"{own}; GPU: needs a GPU, 90,000 images/s (recorded on an H)."
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


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.85, 0.97, 1.0, 1.03, 1.1, 1.3, 3.0])
def test_nothing_covers_the_readers_guess(share, log):
    other = [("recorded on another machine", 1000 * share), ("recorded on a third", 900.0)]
    ends = {"measured": 1000.0, "low": 960.0, "high": 1040.0, "predicted": 1000 * share}
    rows = [Bar("all three", limit=1100.0, others=other, **ends), Bar("measured", **ends)]
    rows.append(Bar("noted", note="not measured here: needs a CUDA GPU", predicted=1000 * share))
    axes = plot.speed_bars(rows, unit="images/s", log=log).ax
    plot.to_png(axes)
    guesses = [line for line in axes.lines if line.get_label() == "your prediction"]
    rest = [*axes.patches, *axes.texts, *(line for line in axes.lines if line not in guesses)]
    boxes = {part: part.get_window_extent() for part in rest if part.get_label() != "limit"}
    assert len(guesses) == 3
    for guess in guesses:
        x, y = axes.transData.transform((guess.get_xdata()[0], guess.get_ydata()[0]))
        half = (guess.get_markersize() + guess.get_markeredgewidth()) / 2 * 2**0.5 * axes.figure.dpi / 72
        diamond = Bbox([[x - half, y - half], [x + half, y + half]])
        assert not [part for part, box in boxes.items() if diamond.overlaps(box)]
        assert all(guess.get_zorder() > part.get_zorder() for part in rest)


def test_on_a_logarithmic_axis_values_are_points():
    rows = [Bar("here", measured=10.0, low=9.0, high=11.0), Bar("there", others=[("recorded on another", 1000.0)])]
    axes = plot.speed_bars(rows, unit="s", log=True).ax
    assert len(axes.patches) == 0
    assert sorted(line.get_xdata()[0] for line in axes.lines if line.get_marker() in ("o", "s")) == [10.0, 1000.0]
