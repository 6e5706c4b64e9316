"""The rehearsal of a lab: learners wait for each other's turns on a clock that the
program moves, and no line is lost.
"""

import pytest

from benchmarks import lab_rehearsal, virtual_lab
from benchmarks.lab_rehearsal import Pieces, Run
from benchmarks.virtual_learner import at
from labkit.core.paths import NOTEBOOKS
from labkit.core.results import Measurement, from_line, to_line
from labkit.lesson import notebook_files
from labkit.measure import contention, turns

# starts processes that load labkit
pytestmark = [pytest.mark.slow, pytest.mark.complete]

NOTEBOOK = next(NOTEBOOKS.glob("00_*.ipynb"))
MEASURED = to_line(
    Measurement("00.2", "one thread", 900.0, "images/s", "measured", "here", at(0))
)
TURN_S = 5.0
MEASURE = ["run", [["turn", [[TURN_S, 2.0]]], ["line", MEASURED]]]
COMPUTE = ["run", [["compute", 60.0, 2.0]]]


@pytest.fixture
def room(tmp_path):
    with virtual_lab.opened(tmp_path, 3, cores=2) as opened:
        yield opened


def lines_of(room, learner):
    return (room.home(learner) / "results.jsonl").read_text("utf-8").splitlines()


def test_who_measures_at_the_same_moment_waits_for_the_others_turns(room):
    for learner in range(3):
        room.send(learner, [MEASURE])
    room.run(1000.0)
    first, second, third = (wait.seconds for wait in room.told.waits)
    assert first < 0.1
    assert TURN_S < second < TURN_S + 0.5
    # it is as patient as labkit, and measures beside another one after that
    assert third <= turns.PATIENCE_S + 0.1
    assert all(
        lines_of(room, learner) == room.told.wrote[learner] for learner in range(3)
    )


def test_a_number_is_marked_that_others_computed_beside(room):
    room.send(0, [MEASURE])
    room.run(100.0)
    begin_s = room.now_s
    room.send(1, [COMPUTE])
    room.send(0, [MEASURE])
    room.run(300.0)
    alone, disturbed = map(from_line, lines_of(room, 0))
    assert not alone.busy
    assert disturbed.waited > contention.BUSY
    assert "busy" in disturbed.busy
    # two jobs that ask for both cores each take twice as long
    assert disturbed.waited == pytest.approx(0.5)
    assert room.told.finished_s[1] == pytest.approx(begin_s + 60.0 + TURN_S, abs=0.1)


def test_a_kernel_that_is_killed_in_its_turn_keeps_its_lines_and_frees_the_lock(room):
    room.send(0, [["guess", "00.2 one thread", "images/s", 123.4], MEASURE])
    room.later(
        2.0, lambda: room.restart(0, [["attempt", "00.1", "not yet", "1", "no"]])
    )
    room.later(2.0, lambda: room.send(1, [MEASURE]))
    room.run(1000.0)
    assert [from_line(line).when for line in lines_of(room, 0)] == [at(0), at(2)]
    assert [wait.learner for wait in room.told.waits] == [0, 1]
    assert room.told.waits[1].seconds < 0.1


def test_a_lab_loses_nothing_and_the_class_s_page_has_read_all_of_it():
    cells = notebook_files.read(NOTEBOOK)["cells"]
    measuring = Pieces([MEASURE[1][0], MEASURE[1][1]])
    run = Run(1.0, 1.0, (measuring,) * sum(c["cell_type"] == "code" for c in cells))
    lab = lab_rehearsal.rehearse(NOTEBOOK, run, 3, "together")
    assert lab.lost == lab.unread == 0
    assert lab.written > 100
    assert lab.restarts == len(lab_rehearsal.RESTARTS_MIN)
    assert len(lab.ready_s) == 3
    # nothing else moves the clock: the same lab again takes the same times
    again = lab_rehearsal.rehearse(NOTEBOOK, run, 3, "together")
    assert (again.waited_s, again.ready_s) == (lab.waited_s, lab.ready_s)


def test_what_a_kernel_waited_for_is_no_part_of_what_a_cell_takes():
    events = [
        {"kind": "asked", "took_s": 1.0, "used_s": 1.0},
        {"kind": "came", "took_s": 9.0, "used_s": 0.0},
        {"kind": "line", "took_s": 2.0, "used_s": 4.0, "line": "{}"},
        {"kind": "over", "took_s": 1.0, "used_s": 1.0},
        {"kind": "done", "took_s": 0.5, "used_s": 0.0},
    ]
    assert list(lab_rehearsal._pieces(events)) == [
        ["compute", 1.0, 1.0],
        ["turn", [[2.0, 2.0], [1.0, 1.0]]],
        ["line", "{}"],
        ["compute", 0.5, 0.0],
    ]
