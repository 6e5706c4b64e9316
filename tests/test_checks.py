import numpy as np
import pytest
import torch

from labkit import checks
from labkit.checks import Exercise, NotYet, Outcome, Todo
from labkit.errors import UnknownExercise


@pytest.fixture
def exercise(monkeypatch):
    """Put one check in place of all exercises."""

    def put(judge):
        monkeypatch.setattr(checks, "_exercises", lambda: {"99.1": Exercise(judge, ("first", "second"))})

    return put


def test_a_pass_carries_its_sentence(exercise):
    exercise(lambda answer: f"{answer} is right.")
    assert checks.check("99.1", 3) == Outcome("99.1", "passed", "3 is right.")


def test_an_open_answer_is_todo_and_points_to_the_hint(exercise):
    exercise(lambda answer: "never called")
    outcome = checks.check("99.1", ...)
    assert outcome.state == "todo"
    assert "lab.hint('99.1')" in outcome.message


def test_whatever_the_check_meets_is_an_outcome(exercise):
    def burst(answer):
        raise ZeroDivisionError("of course")

    exercise(burst)
    outcome = checks.check("99.1", 1)
    assert outcome.state == "not yet"
    assert "ZeroDivisionError: of course" in outcome.message


def test_the_outcome_is_shown_safely():
    shown = Outcome("99.1", "not yet", "got '<script>'\nnext")._repr_html_()
    assert "<script>" not in shown
    assert "<br>next" in shown


def test_an_unknown_exercise_names_the_nearest():
    with pytest.raises(UnknownExercise, match=r"00\.1"):
        checks.check("00.11", 1)


def test_hints_come_in_steps_and_end_at_the_solution(exercise):
    exercise(lambda answer: "")
    assert "Hint 1 of 2" in str(checks.hint("99.1"))
    assert "lab.hint('99.1', 2)" in str(checks.hint("99.1"))
    assert "lab.solution('99.1')" in str(checks.hint("99.1", 2))
    assert str(checks.hint("99.1", 7)) == str(checks.hint("99.1", 2))


def test_a_solution_is_shown_as_code():
    shown = checks.solution("00.3")._repr_markdown_()
    assert "```python" in shown
    assert "def efficiency_percent" in shown


@pytest.mark.parametrize("answer", [2.0, 2, np.float32(2), np.array([2.0]), torch.tensor(2.0)])
def test_numbers_of_every_library_count(answer):
    assert "right" in checks.number_close(answer, 2.0, rel=0.01, unit="ms")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (2e-3, "0.001x what we expect. Seconds?"),
        (True, "Expected a number in ms, got True"),
        ("2", "got '2'"),
        (np.ones(3), "one number"),
        (float("nan"), "NaN"),
        (None, "Is there a return"),
        (0.0, "0 ms is not what we expect"),
    ],
)
def test_a_wrong_number_is_told_by_what_factor_or_why(answer, words):
    with pytest.raises(NotYet, match=words.replace(".", r"\.")):
        checks.number_close(answer, 2.0, rel=0.01, unit="ms", hint="Seconds?")


def test_an_expected_zero_accepts_only_zero():
    assert checks.number_close(0, 0.0, rel=0.1, unit="x")
    with pytest.raises(NotYet):
        checks.number_close(0.1, 0.0, rel=0.1, unit="x")


def test_a_function_without_a_body_is_todo_and_one_that_raises_is_told_its_arguments():
    def empty(x): ...

    with pytest.raises(Todo, match="empty returns nothing yet"):
        checks.function(empty, 1)
    assert checks.function(lambda x: np.ones(3), 1)
    with pytest.raises(NotYet, match=r"raised ZeroDivisionError: .* zero"):
        checks.call(lambda x: 1 / x, 0)
    with pytest.raises(NotYet, match="ndarray of shape \\(3,\\)"):
        checks.call(lambda x: x.nothing, np.ones(3))
    with pytest.raises(NotYet, match="without brackets"):
        checks.function(3)


def test_a_mapping_names_what_is_missing():
    keys = {"a": "", "b": ""}
    assert checks.mapping({"a": 1, "b": 2}, keys) == {"a": 1, "b": 2}
    with pytest.raises(Todo, match="Still open: b"):
        checks.mapping({"a": 1, "b": ...}, keys)
    with pytest.raises(NotYet, match=r"missing \['b'\]"):
        checks.mapping({"a": 1}, keys)
    with pytest.raises(NotYet, match="Expected a dict"):
        checks.mapping([1], keys)
