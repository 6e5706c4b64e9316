"""The figures of what ran when: their bars are read back from the axes."""

import re

import pytest

from labkit import plot
from labkit.core.errors import BadArgument
from labkit.measure.simulated import SimulatedDevice
from labkit.train.data import BatchTimes


def bars(ax, lane):
    """(left, right) of the bars in a lane, in seconds, in order."""
    found = [
        p
        for p in ax.patches
        if lane - 0.5 < p.get_y() + p.get_height() / 2 < lane + 0.5
    ]
    return sorted((p.get_x(), p.get_x() + p.get_width()) for p in found)


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
    assert [label.get_text() for label in round_trip.ax.get_yticklabels()] == [
        "host",
        "bus",
        "device",
    ]
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


def two_workers():
    return [
        BatchTimes(0, begun_s=10.0, ready_s=13.0, asked_s=9.0, taken_s=13.0),
        BatchTimes(1, begun_s=10.0, ready_s=13.5, asked_s=15.0, taken_s=15.0),
        BatchTimes(0, begun_s=13.0, ready_s=18.0, asked_s=17.0, taken_s=18.0),
    ]


def test_each_worker_has_a_lane_and_the_trainer_one_in_which_it_waits():
    picture = plot.queue(two_workers())
    assert [label.get_text() for label in picture.ax.get_yticklabels()] == [
        "trainer",
        "worker 0",
        "worker 1",
    ]
    assert bars(picture.ax, 1) == [(1.0, 4.0), (4.0, 9.0)]
    assert bars(picture.ax, 2) == [(1.0, 4.5)]
    # waiting, work, no wait at all, work, waiting; each wait is divided where the batch
    # became ready
    assert bars(picture.ax, 0) == [
        (0.0, 4.0),
        (4.0, 4.0),
        (4.0, 6.0),
        (6.0, 6.0),
        (6.0, 6.0),
        (6.0, 8.0),
        (8.0, 9.0),
        (9.0, 9.0),
    ]


def test_the_sentence_counts_work_and_waiting():
    assert (
        plot.queue(two_workers()).sentence
        == "3 batches in 9.00 s: the trainer worked 4.00 s and waited 5.00 s, 56% of"
        " its time; for 100% of the wait the batch was not ready."
    )


def test_a_trainer_that_loads_for_itself_has_one_lane():
    times = [BatchTimes(-1, i, i + 0.75, i, i + 0.75) for i in range(4)]
    picture = plot.queue(times, title="alone")
    assert [label.get_text() for label in picture.ax.get_yticklabels()] == ["trainer"]
    assert bars(picture.ax, 0)[:4] == [
        (0.0, 0.75),
        (0.75, 1.0),
        (1.0, 1.75),
        (1.75, 2.0),
    ]
    assert re.search(
        r"worked 750 ms and waited 3\.00 s, 80% of its time", picture.sentence
    )
    assert picture.ax.get_title(loc="left") == "alone"


@pytest.mark.parametrize("nothing", [[], two_workers()[:1]])
def test_no_epoch_is_no_picture(nothing):
    with pytest.raises(
        BadArgument,
        match=r"Expected (the times of two batches or more|times to be a list)",
    ):
        plot.queue(nothing)
