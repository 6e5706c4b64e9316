"""The figures of time: what they show is read back from the axes, and what they say from their sentence."""

import pytest
from matplotlib.axes import Axes

from labkit import plot
from labkit.measure.bench import Ratio
from labkit.measure.simulated import SimulatedDevice
from labkit.plot import core


def bars(ax: Axes, lane: int):
    """(left, right) of the bars in a lane."""
    found = [p for p in ax.patches if lane - 0.5 < p.get_y() + p.get_height() / 2 < lane + 0.5]
    return [(p.get_x(), p.get_x() + p.get_width()) for p in found]


def words(ax):
    return [text.get_text() for text in ax.texts]


@pytest.fixture
def round_trip():
    device = SimulatedDevice(launch_s=1.0, bus_bytes_per_s=10.0, compile_s=0.0)
    device.copy_to(100)
    device.launch(20.0, name="blur")
    reads = {"start": 0.0, "stop": device.clock()}
    device.synchronize()
    return plot.timeline(device.events, reads=reads)


def test_a_timeline_has_a_lane_for_each_place_and_bars_where_the_work_was(round_trip):
    assert [label.get_text() for label in round_trip.ax.get_yticklabels()] == ["host", "bus", "device"]
    assert bars(round_trip.ax, 0) == [(0.0, 1.0), (1.0, 2.0)]
    assert bars(round_trip.ax, 1) == [(1.0, 11.0)]
    assert bars(round_trip.ax, 2) == [(11.0, 31.0)]


def test_a_timeline_marks_the_clock_and_names_what_has_room(round_trip):
    assert [line.get_xdata()[0] for line in round_trip.ax.lines] == [0.0, 2.0]
    assert {"start", "stop", "blur", "copy to device"} <= set(words(round_trip.ax))
    assert "launch blur" not in words(round_trip.ax)


def test_a_timeline_says_that_it_is_simulated(round_trip):
    assert round_trip.sentence.startswith(
        "Simulated: host busy for 2.00 s, bus busy for 10.0 s, device busy for 20.0 s"
    )
    assert round_trip.sentence.endswith("Clock read: start at 0 s, stop at 2.00 s.")
    assert round_trip.ax.get_xlabel() == "time (simulated)"


def test_single_runs_count_what_is_off():
    picture = plot.single_runs([1.0, 1.04, 1.2, 0.9])
    assert list(picture.ax.lines[1].get_ydata()) == [1.0, 1.04, 1.2, 0.9]
    assert picture.sentence == (
        "4 single comparisons: 0.900x to 1.20x, median 1.02x; 2 of them are more than 5 % away from 1."
    )


def test_a_stray_single_run_does_not_flatten_the_others():
    assert plot.single_runs([1.0, 30.0]).ax.get_yscale() == "log"
    assert plot.single_runs([1.0, 1.2]).ax.get_yscale() == "linear"


def test_ratios_mark_what_shows_nothing_by_colour_and_by_word():
    named = {"new": Ratio("new", "old", 2.0, 1.8, 2.2), "same": Ratio("same", "old", 1.01, 0.9, 1.1)}
    picture = plot.ratios(named)
    intervals = [line for line in picture.ax.lines if line.get_marker() == "|"]
    assert [list(line.get_xdata()) for line in intervals] == [[1.8, 2.2], [0.9, 1.1]]
    assert [line.get_color() for line in intervals] == [core.MEASURED, core.RECORDED]
    assert words(picture.ax) == ["2.00x, faster", "1.01x, no difference seen"]
    assert picture.sentence == "new: 2.00x, faster; same: 1.01x, no difference seen."


@pytest.mark.parametrize(
    ("share", "factor", "whole", "limit"),
    [
        (0.5, 2.0, "1.33x", "2.00x"),
        (0.9, 10.0, "5.26x", "10.0x"),
        (0.0, 10.0, "1.00x", "1.00x"),
        (1.0, 10.0, "10.0x", "none"),
    ],
)
def test_amdahl_gives_the_whole_and_its_limit(share, factor, whole, limit):
    picture = plot.amdahl(share=share, factor=factor)
    assert words(picture.ax) == [whole]
    assert picture.sentence.endswith(f"the whole gets {whole} faster; limit: {limit}.")
    curve = picture.ax.lines[0].get_ydata()
    assert curve[0] == 1.0
    assert curve[-1] <= 1 / max(1 - share, 1e-3)


def test_every_figure_becomes_a_png(round_trip):
    assert plot.to_png(round_trip.ax.get_figure(root=True)).startswith(b"\x89PNG")
