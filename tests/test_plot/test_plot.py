import pytest
from matplotlib.transforms import Bbox

from labkit import plot
from labkit.plot import Bar, bars

pytestmark = pytest.mark.slow  # draws many boards


def png(picture):
    return plot.to_png(picture.ax)


def texts(ax):
    return " ".join(
        text.get_text()
        for text in [*ax.texts, *ax.get_yticklabels(), *ax.get_legend().get_texts()]
    )


BARS = [
    Bar(
        "one thread", measured=6400, low=6000, high=6600, predicted=4000, limit=100_000
    ),
    Bar("GPU", note="needs a GPU", others=[("recorded on an H", 90_000.0)]),
]


def test_the_four_series_are_told_apart_without_color():
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


def test_a_row_that_was_calculated_only_says_so_and_leaves_no_room_for_a_measurement():
    rows = [
        Bar("GPT-3", others=[("calculated", 35.0)]),
        Bar("small", others=[("calculated", 2.0)], predicted=20),
    ]
    picture = plot.speed_bars(rows, unit="cards")
    assert (
        picture.sentence == "GPT-3: 35 cards (calculated); small: 2 cards (calculated)."
    )
    first, second = (bar.get_y() + bar.get_height() / 2 for bar in picture.ax.patches)
    (guess,) = (
        line.get_ydata()[0] for line in picture.ax.lines if line.get_marker() == "D"
    )
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
        (0.5, 1.0, "s", True),  # a time has a floor
        (3.0, 1.0, "s", False),
    ],
)
def test_what_lies_beyond_its_limit_is_never_shown_as_a_plain_result(
    measured, limit, unit, beyond
):
    bar = Bar("copy", measured=measured, limit=limit)
    sentence = plot.speed_bars([bar], unit=unit).sentence
    assert f"{measured / limit:.0%} of the limit" in sentence
    assert ("beyond it: the clock was slower for the limit" in sentence) == beyond


def test_the_sentence_says_what_the_figure_shows():
    sentence = plot.speed_bars(BARS, unit="images/s").sentence
    own = "one thread: 6,400 images/s, 6% of the limit"
    assert sentence == f"{own}; GPU: needs a GPU, 90,000 images/s (recorded on an H)."
    assert plot.speed_bars([], unit="s").sentence == "Nothing measured yet."


def test_what_is_drawn_again_replaces_the_frame_before():
    axes = plot.new_axes()
    for _ in range(3):
        plot.speed_bars.on(axes, BARS, unit="images/s")
    assert len(axes.get_legend().get_texts()) == 4
    assert len(axes.patches) == 2
    assert len(axes.containers) == 3  # two of bars, one of whiskers
    plot.speed_bars.on(axes, [], unit="images/s")
    assert axes.get_legend() is None


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("share", [0.02, 0.97, 3.0])
def test_nothing_covers_the_readers_guess(share, log):
    other = [
        ("recorded on another machine", 1000 * share),
        ("recorded on a third", 900.0),
    ]
    ends = {"measured": 1000.0, "low": 960.0, "high": 1040.0, "predicted": 1000 * share}
    rows = [
        Bar("all three", limit=1100.0, others=other, **ends),
        Bar("measured", **ends),
    ]
    rows.append(
        Bar("noted", note="not measured here: needs a CUDA GPU", predicted=1000 * share)
    )
    axes = plot.speed_bars(rows, unit="images/s", log=log).ax
    plot.to_png(axes)
    guesses = [line for line in axes.lines if line.get_label() == "your prediction"]
    rest = [
        *axes.patches,
        *axes.texts,
        *(line for line in axes.lines if line not in guesses),
    ]
    boxes = {
        part: part.get_window_extent() for part in rest if part.get_label() != "limit"
    }
    assert len(guesses) == 3
    for guess in guesses:
        x, y = axes.transData.transform((guess.get_xdata()[0], guess.get_ydata()[0]))
        half = (
            (guess.get_markersize() + guess.get_markeredgewidth())
            / 2
            * 2**0.5
            * axes.figure.dpi
            / 72
        )
        diamond = Bbox([[x - half, y - half], [x + half, y + half]])
        assert not [part for part, box in boxes.items() if diamond.overlaps(box)]
        assert all(guess.get_zorder() > part.get_zorder() for part in rest)


def test_no_tick_has_a_unit_that_the_axis_has():
    assert bars.quantity_tick(1, "visitors") == "1"
    assert bars.quantity_tick(2, "visitors") == "2"
    assert bars.quantity_tick(0.002, "s") == "2.00 ms"
