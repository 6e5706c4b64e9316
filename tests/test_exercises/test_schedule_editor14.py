"""The schedule editor without a browser: moves that hold, and moves
that are refused.
"""

import pytest

import labkit as lab
from exercises.nb14 import playing, schedule_par
from exercises.nb14.schedule_editor import ScheduleEditor
from labkit.lesson import bests
from trainplan.errors import ScheduleError

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


# -- par and the reader's bests


@pytest.mark.parametrize(
    ("ranks", "microbatches", "held", "time"),
    [(3, 5, 1, 45), (3, 5, 2, 27), (3, 5, 3, 21), (3, 5, 5, 21), (2, 4, 1, 24)],
)
def test_par_is_the_shortest_of_all_orders_within_the_memory(
    ranks, microbatches, held, time
):
    par = schedule_par.par(ranks, microbatches, held)
    assert par == {schedule_par.TIME: time, schedule_par.HELD: min(held, ranks)}


def test_no_order_in_turn_is_shorter_than_what_1f1b_takes_as_par():
    orders = schedule_par._orders(4, 4)
    shortest = min(
        schedule_par.in_forwards([first, second]).makespan_s
        for first in orders
        for second in orders
        if _runs([first, second])
    )
    assert schedule_par.par(2, 4, 4)[schedule_par.TIME] == shortest


def _runs(schedule):
    try:
        schedule_par.in_forwards(schedule)
    except ScheduleError:
        return False
    return True


def test_too_many_orders_are_refused_in_words():
    with pytest.raises(ScheduleError, match="Take fewer"):
        schedule_par.par(4, 8, 3)


def test_each_move_is_scored_and_the_best_is_kept(home):
    made = ScheduleEditor(lab.schedule.gpipe(2, 3), held=2, forward_s=1, transfer_s=0.1)
    assert "Rank 0 holds 3 micro-batches at once, and 2 are allowed" in made.sentence
    assert bests.history("14.3 at most 2 held") == ()
    move(made, 1, "B0", -2)
    move(made, 0, "F2", 1)
    assert made.sentence.endswith("yours 14, par 12, your best 14.")
    move(made, 1, "B1", -1)
    assert made.sentence.endswith("yours 12, par 12, your best 12.")
    move(made, 1, "B1", 1)
    assert made.sentence.endswith("yours 14, par 12, your best 12.")
    (first, second) = bests.history("14.3 at most 2 held")
    assert (first.counts, second.counts[schedule_par.TIME]) == (
        {schedule_par.TIME: 14, schedule_par.HELD: 2},
        12,
    )


# -- a schedule that plays


def test_a_schedule_plays_by_its_shortest_step_and_counts_what_is_held():
    plan = lab.schedule.simulate(lab.schedule.one_f_one_b(2, 3), 1, 2)
    assert playing.moments(plan) == list(range(13))
    held = [[playing.held(plan, rank, now_s) for now_s in range(13)] for rank in (0, 1)]
    assert held == [
        [0, 1, 2, 2, 2, 2, 1, 2, 2, 1, 1, 1, 0],
        [0, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 0],
    ]
    for rank in (0, 1):
        assert max(held[rank]) == plan.peak_activations[rank]
    moving = playing.schedule(plan, title="1F1B")
    moving.slider.value = 3
    assert "At 3.00 s rank 0 waits, rank 1 computes B0." in moving.sentence
    moving.slider.value = 12
    assert f"idle for {plan.bubble:.0%} of their time" in moving.sentence
    assert sum(map(len, moving.data("")[0].values())) < 300_000
