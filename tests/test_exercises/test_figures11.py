"""Figures of training and the board that grows: what they show is read back from the axes."""

import math

import pytest
from torch import nn

from exercises.nb11 import figures
from exercises.nb11.gradient_noise import GradientNoise
from exercises.nb11.seed_curves import SeedCurves
from exercises.nb11.several_seeds import Runs
from labkit.core.errors import NotFinite
from labkit.train.training import RateSweep, Run
from tests.test_train.test_training import GIVEN, setup_with

pytestmark = pytest.mark.slow  # draws many curves

ONE = Run(0, 10, (1.0,) * 30, (0.2, 0.6, 1.0), (1.0, 2.0, 3.0), (100, 200, 300), nn.Identity())
OTHER = Run(1, 10, (1.0,) * 20, (0.4, 0.8), (1.5, 2.5), (100, 200), nn.Identity())


def made(*values, batch=10):
    runs = (
        Run(i, batch, (1.0,), (0.5 if math.isinf(v) else 0.98,), (min(v, 9.0),), (100,), nn.Identity())
        for i, v in enumerate(values)
    )
    return Runs(tuple(runs))


def line(ax, label):
    (found,) = [one for one in ax.lines if one.get_label().startswith(label)]
    return [list(values) for values in found.get_data()]


def test_a_band_runs_from_the_lowest_to_the_highest_seed():
    picture = figures.seed_bands({"small": [ONE, OTHER]}, accuracy=0.8)
    assert line(picture.ax, "small (2 seeds)") == [[1.5, 2, 2.5, 3], pytest.approx([40, 60, 80, 90])]
    (band,) = picture.ax.collections
    low, high = band.get_paths()[0].vertices[:, 1].min(), band.get_paths()[0].vertices[:, 1].max()
    assert (low, high) == (pytest.approx(40), pytest.approx(100))
    assert picture.ax.get_xlabel() == "seconds of training"
    assert picture.sentence == "small: 2 of 2 seeds reached 80.0 %, after 2.50 s to 3.00 s."


def test_seeds_meet_at_common_times_and_one_that_ended_keeps_its_accuracy():
    x, y = line(figures.seed_bands({"small": [ONE, OTHER]}).ax, "small")
    assert x == [1.5, 2.0, 2.5, 3.0]
    assert y == pytest.approx([40, 60, 80, 90])  # by the line between two epochs


def test_what_never_arrived_and_what_has_not_begun_is_said():
    words = figures.seed_bands({"small": [ONE], "none": []}, accuracy=1.0).sentence
    assert words == "small: 1 of 1 seeds reached 100 %, after 3.00 s."
    assert "0 of 1 seeds reached 90.0 %." in figures.seed_bands({"other": [OTHER]}, accuracy=0.9).sentence
    assert figures.seed_bands({}).sentence == "No epoch has ended yet."


def test_time_by_batch_has_a_median_whiskers_and_a_cross_for_never():
    by = {8: made(1.0, 2.0, 3.0), 64: made(0.5, 0.6, math.inf), 512: made(math.inf, 1.0, math.inf)}
    picture = figures.time_to_accuracy({"fixed rate": by}, 0.97, title="Batches")
    assert line(picture.ax, "fixed rate") == [[8, 64], [2.0, 0.6]]
    crosses = [one for one in picture.ax.lines if one.get_marker() == "x" and len(one.get_xdata())]
    assert "never did" in picture.ax.get_legend().texts[-1].get_text()
    assert [one.get_xdata()[0] for one in crosses] == [512]
    assert picture.sentence == (
        "To 97.0 %: fixed rate, batch 8: 3 of 3 seeds, median 2.00 s; fixed rate, batch 64: 2 of 3 seeds, median "
        "600 ms; fixed rate, batch 512: 1 of 3 seeds, median never."
    )


def test_the_line_goes_from_batch_to_batch_in_whatever_order_they_were_trained():
    picture = figures.time_to_accuracy({"a": {32: made(2.0), 16: made(3.0), 64: made(1.0)}}, 0.97)
    assert line(picture.ax, "a") == [[16, 32, 64], [3.0, 2.0, 1.0]]


def test_steps_by_batch_with_the_predicted_critical_batch():
    noise = GradientNoise(noise=50.0, signal=1.0, low=40.0, high=60.0, draws=9)
    picture = figures.time_to_accuracy({"a": {10: made(1.0, 2.0)}}, 0.97, what="steps", noise=noise)
    assert line(picture.ax, "critical batch")[0] == [50.0, 50.0]
    assert "median 10 steps" in picture.sentence
    endless = GradientNoise(noise=50.0, signal=-1.0, low=40.0, high=math.inf, draws=9)
    assert "critical" not in str(
        figures.time_to_accuracy({"a": {10: made(1.0)}}, 0.97, noise=endless).ax.get_legend().texts
    )


def test_nothing_that_arrived_can_be_drawn():
    assert "median never" in figures.time_to_accuracy({"a": {10: made(math.inf)}}, 0.97).sentence


def test_a_sweep_shows_a_dot_a_seed_and_rings_the_best_rate():
    sweep = RateSweep({0.01: (3.0, math.inf), 0.1: (1.0, 2.0), 1.0: (2.5, 4.5)}, lower=True)
    picture = figures.rate_sweeps({"batch 8": sweep}, y="seconds", title="Two seeds")
    assert line(picture.ax, "batch 8")[1][1:] == [1.5, 3.5]
    assert line(picture.ax, "batch 8")[1][0] > picture.ax.get_ylim()[1]
    dots = [one for one in picture.ax.lines if one.get_marker() == "."]
    assert sorted(float(one.get_ydata()[0]) for one in dots) == [1.0, 2.0, 2.5, 3.0, 4.5]
    assert [one.get_marker() for one in picture.ax.lines].count("x") == 1
    (ring,) = [one for one in picture.ax.lines if one.get_fillstyle() == "none" and one.get_marker() == "o"]
    assert [*ring.get_xdata(), *ring.get_ydata()] == [0.1, 1.5]
    assert "batch 8: best rate 0.1" in picture.sentence


# The board


def test_the_board_grows_while_it_trains_and_gives_the_runs():
    board = SeedCurves("Two rates", accuracy=0.9)
    runs = board.train({"quick": (setup_with(), 16)}, 2, epochs=8, **GIVEN)["quick"]
    assert isinstance(runs, Runs)
    assert (runs.name, len(runs.runs)) == ("quick", 2)
    assert board.frames >= 2
    assert "quick: 2 of 2 seeds reached 90.0 %" in board.sentence
    assert repr(board) == "<SeedCurves>"


def test_a_comparison_is_drawn_under_each_name():
    board = SeedCurves("Two batches")
    found = board.train({"a": (setup_with(), 16), "b": (setup_with(), 32)}, 2, epochs=2, **GIVEN)
    assert sorted(found) == ["a", "b"]
    assert [len(by_seed) for by_seed in board.runs.values()] == [2, 2]
    assert board.sentence.startswith("a: best accuracy")


def test_what_was_trained_before_an_error_stays_on_the_board():
    board = SeedCurves("Stops")

    def setup():
        model, step = setup_with()()
        seen = []
        return model, lambda *batch: step(*batch) * (1 if seen.append(1) or len(seen) < 15 else math.nan)

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
