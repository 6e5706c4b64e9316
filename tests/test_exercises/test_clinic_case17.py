"""A case of the clinic: what looks and wrong answers cost, and what is refused. The broken run here is made up."""

import pytest

from exercises.nb17 import clinic
from exercises.nb17.evidence import Evidence
from labkit.core.errors import BadArgument, UnknownExercise
from labkit.lesson.checks import NotYet, Todo


class BrokenRun:
    """Its cause is "flu", and tea mends it."""

    def alarm(self):
        return "It coughs."

    def evidence(self):
        free = {"eyes": Evidence("its eyes", 0, lambda: "red")}
        return free | {f"look {i}": Evidence(f"look {i}", 10 * i, lambda: "shown") for i in range(1, 6)}

    def judge(self, cause, mend):
        if (cause, mend) == ("flu", {"drink": "tea"}):
            return "It is well."
        raise NotYet("It still coughs.", **({"minutes": 30} if cause in ("flu", "cold") else {}))


@pytest.fixture
def case():
    return clinic.Case("17.3a", 0, BrokenRun)


def right(case):
    return case.answer(cause="flu", mend={"drink": "tea"})


def test_a_look_costs_once_and_a_free_one_nothing(case):
    case.ask("look 1", "eyes")
    case.ask("look 1", "look 2")
    assert (case.asked, case.minutes) == ({"look 1": 10, "look 2": 20}, 30)


def test_more_than_three_looks_are_refused_and_not_charged(case):
    case.ask("look 1", "look 2")
    with pytest.raises(BadArgument, match="at most 3 looks in all, got look 1, look 2, look 3, look 4"):
        case.ask("look 3", "look 4")
    assert case.minutes == 30
    with pytest.raises(BadArgument, match="no evidence 'lok 3'; did you mean look 3"):
        case.ask("lok 3")


def test_a_wrong_answer_is_charged_once_and_a_misspelt_one_not_at_all(case):
    for cause in ("cold", "cold", "flu", "flv"):
        with pytest.raises(NotYet, match="It still coughs"):
            clinic.judge("17.3a", case.answer(cause=cause, mend={"drink": "milk"}))
    assert case.minutes == 60
    case.ask("look 1")
    told = clinic.judge("17.3a", right(case))
    assert told == "It is well. It cost 70 minutes: look 1 10; wrong answers 60."


def test_what_follows_a_right_answer_is_free(case):
    clinic.judge("17.3a", right(case))
    with pytest.raises(NotYet):
        clinic.judge("17.3a", case.answer(cause="cold", mend={}))
    assert (case.minutes, case.solved) == (0, True)


def test_an_open_answer_is_todo_and_one_to_another_case_is_refused(case):
    for cause, mend in ((..., {"drink": "tea"}), ("flu", ...)):
        with pytest.raises(Todo):
            clinic.judge("17.3a", case.answer(cause=cause, mend=mend))
    for answer in (right(case), ("flu", {"drink": "tea"}), None):
        with pytest.raises(NotYet, match=r"answer.* of case 17\.3b"):
            clinic.judge("17.3b", answer)


def test_the_score_counts_what_is_solved(case):
    case.ask("look 2")
    other = clinic.Case("17.3b", 4, BrokenRun)
    score = clinic.score([case, other])
    assert score.minutes is None
    assert "none yet" in str(score)
    clinic.judge("17.3a", right(case))
    assert score.minutes == 20
    assert [row[-1] for row in score.table().rows] == ["20", "open", "20"]


@pytest.mark.slow
def test_cases_are_there_for_notebook_17_only():
    assert clinic.case("17.3a", 2).seed == 2
    with pytest.raises(UnknownExercise):
        clinic.case("17.9")
    with pytest.raises(BadArgument, match="Expected a case of notebook 17"):
        clinic.case("00.1")
