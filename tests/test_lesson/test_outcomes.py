"""What is kept of an exercise: over kernels, in damaged files, and where nothing can be
written.
"""

import itertools
import json
from types import SimpleNamespace

import pytest

from labkit.core import results
from labkit.lesson import checks, outcomes
from labkit.lesson.exercise_files import Exercise

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def log(home):
    """The path of this test's results file."""
    return home / "results.jsonl"


@pytest.fixture(autouse=True)
def exercise(monkeypatch):
    """One exercise in place of all, whose answer is 3, with three hints."""

    def judge(answer):
        if answer != 3:
            raise checks.NotYet(f"{answer} is not 3.")
        return "3 is right."

    monkeypatch.setattr(
        checks, "exercise", lambda number: Exercise(judge, ("first", "second", "third"))
    )
    monkeypatch.setattr(
        checks, "solutions", lambda notebook: {"03.2": "3", "10.6b": "3"}
    )


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A second passes between any two looks at the clock."""
    seconds = itertools.count()
    monkeypatch.setattr(
        results, "now", lambda: f"2026-11-01T00:00:{next(seconds):02d}+00:00"
    )


def standing(number="03.2"):
    found = outcomes.outcomes()[number]
    return found.state, found.attempts, found.hints, found.solution, found.unaided


def lines(log):
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def test_an_open_exercise_is_not_kept_and_answers_are(log):
    checks.check("03.2", ...)
    assert outcomes.outcomes() == {}
    checks.check("03.2", 1)
    assert standing() == ("not yet", 1, 0, False, False)
    checks.check("03.2", 3)
    assert standing() == ("passed", 2, 0, False, True)
    first, second = lines(log)
    assert (first["kind"], first["section"], first["what"], first["state"]) == (
        "attempt",
        "03.2",
        "03.2",
        "not yet",
    )
    assert first["message"] == "1 is not 3."
    assert first["answer"] != second["answer"]
    assert "step" not in first


def test_the_same_again_is_not_kept_twice(log):
    for _ in range(3):
        for answer in (1, 2, 3):
            checks.check("03.2", answer)
        checks.hint("03.2", 1)
        checks.solution("03.2")
    assert [line["state"] for line in lines(log)] == [
        "not yet",
        "not yet",
        "passed",
        "hint",
        "solution",
    ]


def test_help_counts_until_the_pass_and_a_pass_stays_one():
    checks.check("10.6b", 1)
    checks.hint("10.6b", 1)
    checks.hint("10.6b", 3)
    assert standing("10.6b") == ("not yet", 1, 2, False, False)
    checks.check("10.6b", 3)
    checks.solution("10.6b")
    checks.hint("10.6b", 2)
    checks.check("10.6b", 4)
    assert standing("10.6b") == ("passed", 2, 2, False, False)
    checks.solution("03.2")
    assert standing() == ("open", 0, 0, True, False)


def test_a_hint_goes_on_after_another_try_and_not_by_running_its_cell_again():
    def shown():
        return str(checks.hint("03.2"))

    checks.check("03.2", 1)
    assert "Hint 1 of 3" in shown()
    assert "Hint 1 of 3" in shown()
    checks.check("03.2", 1)
    assert "Hint 1 of 3" in shown()
    checks.check("03.2", 2)
    assert "Hint 2 of 3" in shown()
    assert "Hint 1 of 3" in str(checks.hint("03.2", 1))
    for answer in (5, 6, 7):
        checks.check("03.2", answer)
        checks.hint("03.2")
    assert "Hint 3 of 3" in shown()


@pytest.fixture
def cells(monkeypatch):
    """The cells that a notebook has run so far, for a test to fill."""
    run = []
    history = SimpleNamespace(input_hist_parsed=run)
    monkeypatch.setattr(
        outcomes, "shell", lambda: SimpleNamespace(history_manager=history)
    )
    return run


def test_in_a_notebook_an_answer_is_known_by_the_text_of_its_cell(cells):
    cells += [
        "",
        "# 03.2 about 1 line\nx = len('a')",
        "# 04.1 about 2 lines\ny = 2",
        "lab.check('03.2', x)",
    ]
    checks.check("03.2", 1)
    checks.check("03.2", 1.5)  # measured by the same code
    assert standing()[1] == 1
    cells.append("# 03.2 about 1 line\nx = len('ab')")
    checks.check("03.2", 1)
    assert standing()[1] == 2


def test_an_answer_from_before_a_syntax_error_is_not_judged(cells):
    cells += ["# 03.2 about 1 line\nx = 1", "# 03.2 about 1 line\nx = = 2"]
    outcome = checks.check("03.2", 1)
    assert outcome.state == "todo"
    assert "syntax error" in outcome.message
    assert outcomes.outcomes() == {}
    cells.append("# 03.2 about 1 line\nx = 2")
    assert "syntax error" not in checks.check("03.2", 2).message
