"""A case of the clinic: what looks and answers cost, what is refused, and that a cell
may run again.
"""

import math

import pytest

from exercises.nb17 import clinic, evidence
from labkit.core.errors import BadArgument
from labkit.lesson.checks import NotYet, Todo


class BrokenRun:
    """Its cause is "flu", and tea, which takes 5 minutes, mends it."""

    def alarm(self):
        return "It coughs."

    def judge(self, cause, mend):
        if (cause, mend) == ("flu", {"drink": "tea"}):
            return "It is well.", 5
        raise NotYet(
            "It still coughs.", **({"minutes": 30} if cause in ("flu", "cold") else {})
        )


@pytest.fixture
def case(monkeypatch):
    looks = {
        f"look {i}": {"minutes": str(10 * i), "shows": "", "source": ""}
        for i in range(1, 6)
    }
    monkeypatch.setattr(clinic, "LOOKS", looks)
    monkeypatch.setattr(evidence, "show", lambda broken, name: "shown")
    return clinic.Case("17.3a", 0, BrokenRun())


def right(case, sure=0.8):
    return case.answer(cause="flu", mend={"drink": "tea"}, sure=sure)


def test_a_look_costs_once(case):
    case.ask("look 1")
    case.ask("look 1", "look 2")
    assert (case.asked, case.minutes) == ({"look 1": 10, "look 2": 20}, 30)


@pytest.mark.parametrize("name", ["lok 3", "", 3, None, ["look 3"]])
def test_a_wrong_name_is_a_message_and_costs_nothing(case, name, capsys):
    case.ask(name, "look 1")
    assert "There is no look" in capsys.readouterr().out
    assert case.asked == {"look 1": 10}


def test_a_wrong_answer_is_charged_once_and_a_misspelled_one_not_at_all(case):
    for cause in ("cold", "cold", "flu", "flv"):
        with pytest.raises(NotYet, match="It still coughs"):
            clinic.judge(
                "17.3a", case.answer(cause=cause, mend={"drink": "milk"}, sure=0.5)
            )
    assert case.minutes == 60
    case.ask("look 1")
    told = clinic.judge("17.3a", right(case))
    assert told == "It is well. It cost 75 minutes: look 1 10; answers and mends 65."


def test_an_open_answer_is_todo_and_one_to_another_case_is_refused(case):
    for cause, mend, sure in (
        (..., {"drink": "tea"}, 1),
        ("flu", ..., 1),
        ("flu", {"drink": "tea"}, ...),
    ):
        with pytest.raises(Todo):
            clinic.judge("17.3a", case.answer(cause=cause, mend=mend, sure=sure))
    for answer in (right(case), ("flu", {"drink": "tea"}), None):
        with pytest.raises(NotYet, match=r"answer.* of case 17\.3b"):
            clinic.judge("17.3b", answer)


@pytest.mark.parametrize("sure", [-0.1, 1.1, 80, "sure", None, float("nan")])
def test_how_sure_is_a_probability(case, sure):
    with pytest.raises(NotYet, match="a probability from 0 to 1"):
        clinic.judge("17.3a", right(case, sure))
    assert case.minutes == 0


def test_the_score_counts_what_is_solved_and_how_far_probabilities_were_off(case):
    case.ask("look 2")
    other = clinic.Case("17.3b", 4, BrokenRun())
    score = clinic.Score([case, other])
    assert (score.minutes, score.brier) == (None, None)
    assert "none yet" in str(score)
    with pytest.raises(NotYet):
        clinic.judge("17.3b", other.answer(cause="cold", mend={}, sure=0.9))
    clinic.judge("17.3a", right(case))
    assert score.minutes == 25
    assert score.brier == pytest.approx((0.9**2 + 0.2**2) / 2)
    assert [row[-1] for row in score.table().rows] == ["25", "open", "25"]


@pytest.mark.slow
def test_a_case_is_the_same_when_its_cell_runs_again_and_another_number_is_refused():
    assert clinic.case("17.4a", 2) is clinic.case("17.4a", 2)
    for number, seed in (
        ("00.1", 0),
        ("17.4b", 0),
        ("17.9", 0),
        (17, 0),
        ([1], 0),
        ("17.2", -1),
        ("17.2", "x"),
    ):
        with pytest.raises(BadArgument, match="Expected one of the cases") as refused:
            clinic.case(number, seed)
        # what IPython shows of it
        assert refused.value._render_traceback_() == [str(refused.value)]


def test_the_score_has_the_first_case_of_each_exercise(monkeypatch):
    monkeypatch.setattr(clinic, "_opened", {})
    monkeypatch.setattr(clinic, "broken", lambda number, seed: BrokenRun())
    for number, seed in (("17.4a", 2), ("17.3b", 1), ("17.4a", 5)):
        clinic.case(number, seed)
    played = clinic.score().cases
    assert [(case.number, case.seed) for case in played] == [("17.3b", 1), ("17.4a", 2)]


def test_playing_without_thought_pays_for_every_look_or_for_wrong_answers(case):
    note = str(clinic.Score([case, case]).without_thought())
    assert "everything: 300 minutes" in note
    assert "Guessing: 120 minutes" in note


def test_the_steps_are_counted_in_which_two_losses_differ():
    losses = {
        "this run": [1.0, 1.2, 0.8, math.nan],
        "last week's": [1.0, 1.0, 1.0, 1.0],
    }
    assert clinic.steps_away(losses, percent=10) == 2
    assert clinic.steps_away(losses, percent=25) == 0
