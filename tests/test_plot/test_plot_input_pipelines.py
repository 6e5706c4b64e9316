import re

import pytest

from labkit import plot
from labkit.core.errors import BadArgument
from labkit.train.data import BatchTimes


def bars(ax, lane):
    """(left, right) of the bars in a lane, in seconds, in order."""
    found = [p for p in ax.patches if lane - 0.5 < p.get_y() + p.get_height() / 2 < lane + 0.5]
    return sorted((p.get_x(), p.get_x() + p.get_width()) for p in found)


def two_workers():
    return [
        BatchTimes(0, begun_s=10.0, ready_s=13.0, asked_s=9.0, taken_s=13.0),
        BatchTimes(1, begun_s=10.0, ready_s=13.5, asked_s=15.0, taken_s=15.0),
        BatchTimes(0, begun_s=13.0, ready_s=18.0, asked_s=17.0, taken_s=18.0),
    ]


def test_each_worker_has_a_lane_and_the_trainer_one_in_which_it_waits():
    picture = plot.queue(two_workers())
    assert [label.get_text() for label in picture.ax.get_yticklabels()] == ["trainer", "worker 0", "worker 1"]
    assert bars(picture.ax, 1) == [(1.0, 4.0), (4.0, 9.0)]
    assert bars(picture.ax, 2) == [(1.0, 4.5)]
    assert bars(picture.ax, 0) == [(0.0, 4.0), (4.0, 6.0), (6.0, 6.0), (6.0, 8.0), (8.0, 9.0)]


def test_the_sentence_counts_work_and_waiting():
    assert plot.queue(two_workers()).sentence == (
        "3 batches in 9.00 s: the trainer worked 4.00 s and waited 5.00 s, 56% of its time."
    )


def test_a_trainer_that_loads_for_itself_has_one_lane():
    times = [BatchTimes(-1, i, i + 0.75, i, i + 0.75) for i in range(4)]
    picture = plot.queue(times, title="alone")
    assert [label.get_text() for label in picture.ax.get_yticklabels()] == ["trainer"]
    assert bars(picture.ax, 0)[:4] == [(0.0, 0.75), (0.75, 1.0), (1.0, 1.75), (1.75, 2.0)]
    assert re.search(r"worked 750 ms and waited 3\.00 s, 80% of its time", picture.sentence)
    assert picture.ax.get_title(loc="left") == "alone"


def test_numbers_stand_where_there_is_room():
    assert [text.get_text() for text in plot.queue(two_workers()).ax.texts] == ["0", "1", "2", "0", "1"]
    many = [BatchTimes(0, i, i + 0.5, i, i + 0.5) for i in range(100)]
    assert len(plot.queue(many).ax.texts) == 0


@pytest.mark.parametrize("nothing", [[], two_workers()[:1], None])
def test_no_epoch_is_no_picture(nothing):
    with pytest.raises(BadArgument, match="Expected the times of two batches or more"):
        plot.queue(nothing)
