"""The schedule editor without a browser: moves that hold, and moves
that are refused.
"""

import pytest

import labkit as lab
from exercises.nb14.schedule_editor import ScheduleEditor

pytestmark = pytest.mark.slow  # draws schedules

GPIPE = ["F0", "F1", "F2", "B0", "B1", "B2"]


def editor(**times):
    return ScheduleEditor(lab.schedule.gpipe(2, 3), **times)


def move(made, rank, name, by):
    """What the page sends when a step is dragged."""
    made.blocks._handle_custom_msg({"rank": rank, "name": name, "by": by}, [])


def test_a_move_changes_the_order_the_plan_and_what_is_said():
    made = editor(forward_s=1, backward_s=1)
    assert made.order == [GPIPE, GPIPE]
    move(made, 1, "B0", -2)
    assert made.order == [GPIPE, ["F0", "B0", "F1", "F2", "B1", "B2"]]
    assert made.plan.peak_activations == (3, 2)
    assert made.blocks.said == made.sentence
    assert "3, 2, rank by rank" in made.blocks.said
    assert [step[1] for step in made.blocks.steps if step[0] == 1] == made.order[1]


@pytest.mark.parametrize(
    ("asked", "words"),
    [((0, "B0", -3), "B0 of rank 0 stays where it was. Rank 0 does B0 before F0. Put F0 in front of B0."),
     ((1, "F2", 3), "F2 of rank 1 stays where it was. Rank 1 does B2 before F2."),
     ((0, "B0", -1), "B0 of rank 0 stays where it was. The schedule deadlocks: rank 0 waits at B0 for rank 1, which ")],
)  # fmt: skip
def test_a_move_that_a_dependency_forbids_is_undone_and_its_reason_said(asked, words):
    made = editor()
    steps = made.blocks.steps
    move(made, *asked)
    assert made.order == [GPIPE, GPIPE]
    assert made.blocks.steps == steps
    assert made.blocks.said.startswith(words)


@pytest.mark.complete
def test_what_was_dragged_is_an_answer_and_can_be_drawn():
    made = ScheduleEditor(lab.schedule.gpipe(3, 5), forward_s=0.02, backward_s=0.04)
    assert (
        lab.check("14.3", {"order": made.order, "transfer_s": 0.0}).state == "not yet"
    )
    for rank in (2, 1, 0):  # a rank's backwards wait for those of the rank after it
        for place, step in enumerate(lab.schedule.one_f_one_b(3, 5)[rank]):
            move(made, rank, step, place - made.order[rank].index(step))
    assert made.order == lab.schedule.one_f_one_b(3, 5)
    assert lab.check("14.3", {"order": made.order, "transfer_s": 0.0}).state == "passed"
    assert lab.plot.gantt(made.plan).sentence == made.sentence
