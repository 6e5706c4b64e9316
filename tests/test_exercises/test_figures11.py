"""Figures of training and the board that grows: what they show is read back from the
axes.
"""

import math

import pytest
from torch import nn

from exercises.nb11 import figures
from exercises.nb11.seed_curves import SeedCurves
from exercises.nb11.several_seeds import Runs
from labkit.core.errors import NotFinite
from labkit.train.training import RateSweep, Run
from tests.test_train.test_training import GIVEN, setup_with

pytestmark = pytest.mark.slow  # draws many curves

ONE = Run(
    0, 10, (1.0,) * 30, (0.2, 0.6, 1.0), (1.0, 2.0, 3.0), (100, 200, 300), nn.Identity()
)
OTHER = Run(1, 10, (1.0,) * 20, (0.4, 0.8), (1.5, 2.5), (100, 200), nn.Identity())


def made(*values, batch=10):
    runs = (
        Run(
            i,
            batch,
            (1.0,),
            (0.5 if math.isinf(v) else 0.98,),
            (min(v, 9.0),),
            (100,),
            nn.Identity(),
        )
        for i, v in enumerate(values)
    )
    return Runs(tuple(runs))


def line(ax, label):
    (found,) = [one for one in ax.lines if one.get_label().startswith(label)]
    return [list(values) for values in found.get_data()]


def test_a_band_runs_from_the_lowest_to_the_highest_seed():
    picture = figures.seed_bands({"small": [ONE, OTHER]}, accuracy=0.8)
    assert line(picture.ax, "small (2 seeds)") == [
        [1.5, 2, 2.5, 3],
        pytest.approx([40, 60, 80, 90]),
    ]
    (band,) = picture.ax.collections
    low = band.get_paths()[0].vertices[:, 1].min()
    high = band.get_paths()[0].vertices[:, 1].max()
    assert (low, high) == (pytest.approx(40), pytest.approx(100))
    assert picture.ax.get_xlabel() == "seconds of training"
    assert (
        picture.sentence
        == "small: 2 of 2 seeds reached 80.0 %, after 2.50 s to 3.00 s."
    )


def test_time_by_batch_has_a_median_whiskers_and_a_cross_for_never():
    by = {
        8: made(1.0, 2.0, 3.0),
        64: made(0.5, 0.6, math.inf),
        512: made(math.inf, 1.0, math.inf),
    }
    picture = figures.time_to_accuracy({"fixed rate": by}, 0.97, title="Batches")
    assert line(picture.ax, "fixed rate") == [[8, 64], [2.0, 0.6]]
    crosses = [
        one
        for one in picture.ax.lines
        if one.get_marker() == "x" and len(one.get_xdata())
    ]
    assert "never did" in picture.ax.get_legend().texts[-1].get_text()
    assert [one.get_xdata()[0] for one in crosses] == [512]
    assert (
        picture.sentence
        == "To 97.0 %: fixed rate, batch 8: 3 of 3 seeds, median 2.00 s; fixed rate,"
        " batch 64: 2 of 3 seeds, median 600 ms; fixed rate, batch 512: 1 of 3"
        " seeds, median never."
    )


def test_a_sweep_shows_a_dot_a_seed_and_rings_the_best_rate():
    sweep = RateSweep(
        {0.01: (3.0, math.inf), 0.1: (1.0, 2.0), 1.0: (2.5, 4.5)}, lower=True
    )
    picture = figures.rate_sweeps({"batch 8": sweep}, y="seconds", title="Two seeds")
    assert line(picture.ax, "batch 8")[1][1:] == [1.5, 3.5]
    assert line(picture.ax, "batch 8")[1][0] > picture.ax.get_ylim()[1]
    dots = [one for one in picture.ax.lines if one.get_marker() == "."]
    assert sorted(float(one.get_ydata()[0]) for one in dots) == [
        1.0,
        2.0,
        2.5,
        3.0,
        4.5,
    ]
    assert [one.get_marker() for one in picture.ax.lines].count("x") == 1
    (ring,) = [
        one
        for one in picture.ax.lines
        if one.get_fillstyle() == "none" and one.get_marker() == "o"
    ]
    assert [*ring.get_xdata(), *ring.get_ydata()] == [0.1, 1.5]
    assert "batch 8: best rate 0.1" in picture.sentence


# The board


@pytest.mark.complete
def test_the_board_grows_while_it_trains_and_gives_the_runs():
    board = SeedCurves("Two rates", accuracy=0.9)
    runs = board.train({"quick": (setup_with(), 16)}, 2, epochs=8, **GIVEN)["quick"]
    assert isinstance(runs, Runs)
    assert (runs.name, len(runs.runs)) == ("quick", 2)
    assert board.frames >= 2
    assert "quick: 2 of 2 seeds reached 90.0 %" in board.sentence
    assert repr(board) == "<SeedCurves>"


def test_what_was_trained_before_an_error_stays_on_the_board():
    board = SeedCurves("Stops")

    def setup():
        model, step = setup_with()()
        seen = []
        return (
            model,
            lambda *batch: (
                step(*batch) * (1 if seen.append(1) or len(seen) < 15 else math.nan)
            ),
        )

    with pytest.raises(NotFinite):
        board.train({"stops": (setup, 16)}, 1, epochs=8, **GIVEN)
    assert [run.epochs for run in board.runs["stops"].values()] == [1]


def test_a_frame_is_drawn_when_it_costs_a_tenth_of_the_time_at_most(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("exercises.nb11.seed_curves.time.monotonic", lambda: now[0])
    board = SeedCurves("Rare")
    board.draw = lambda axes: now.__setitem__(0, now[0] + 0.5) or "drawn"
    board.redraw()
    for waited, frames in ((4.9, 1), (5.1, 2)):
        now[0] = board._last_s + waited
        board.tick()
        assert board.frames == frames
