"""What is kept of an exercise: over kernels, in damaged files, and where nothing can be written."""

import itertools
import json
import subprocess
import sys
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

    monkeypatch.setattr(checks, "exercise", lambda number: Exercise(judge, ("first", "second", "third")))
    monkeypatch.setattr(checks, "solutions", lambda notebook: {"03.2": "3", "10.6b": "3"})


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A second passes between any two looks at the clock."""
    seconds = itertools.count()
    monkeypatch.setattr(results, "now", lambda: f"2026-11-01T00:00:{next(seconds):02d}+00:00")


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
    assert (first["kind"], first["section"], first["what"], first["state"]) == ("attempt", "03.2", "03.2", "not yet")
    assert first["message"] == "1 is not 3."
    assert first["answer"] != second["answer"]
    assert "step" not in first


def test_the_same_again_is_not_kept_twice(log):
    for _ in range(3):
        for answer in (1, 2, 3):
            checks.check("03.2", answer)
        checks.hint("03.2", 1)
        checks.solution("03.2")
    assert [line["state"] for line in lines(log)] == ["not yet", "not yet", "passed", "hint", "solution"]


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


def test_a_review_that_asked_again_makes_the_same_answer_count():
    checks.check("03.2", 3)
    outcomes.note("03.2", "asked")
    checks.check("03.2", 3)
    assert [step.state for step in outcomes.outcomes()["03.2"].steps] == ["passed", "asked", "passed"]


def test_in_a_notebook_an_answer_is_known_by_the_text_of_its_cell(monkeypatch):
    cells = ["", "# 03.2 about 1 line\nx = len('a')", "# 04.1 about 2 lines\ny = 2", "lab.check('03.2', x)"]
    history = SimpleNamespace(input_hist_parsed=cells)
    monkeypatch.setattr(outcomes, "shell", lambda: SimpleNamespace(history_manager=history))
    checks.check("03.2", 1)
    checks.check("03.2", 1.5)  # measured by the same code
    assert standing()[1] == 1
    cells.append("# 03.2 about 1 line\nx = len('ab')")
    checks.check("03.2", 1)
    assert standing()[1] == 2


KERNEL = """
from labkit.lesson import outcomes
for i in range(20):
    outcomes.note("03.2", "not yet", answer="{name}" + str(i))
"""


def test_two_kernels_at_once_and_one_that_starts_later_see_all(log):
    running = [subprocess.Popen([sys.executable, "-c", KERNEL.format(name=name)]) for name in "ab"]
    assert [process.wait(60) for process in running] == [0, 0]
    checks.check("03.2", 3)
    assert standing() == ("passed", 41, 0, False, True)
    assert len(outcomes.outcomes(log)["03.2"].steps) == 41
    assert outcomes.outcomes(log) == outcomes.outcomes()


@pytest.mark.parametrize(
    "line", ['{"kind": "attempt"', '{"kind": "attempt", "section": "03.2"}', '{"kind": "attempt", "section": 3}', "\0"]
)
def test_damaged_lines_are_skipped_and_told(log, line):
    checks.check("03.2", 1)
    with log.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    checks.check("03.2", 3)
    assert standing() == ("passed", 2, 0, False, True)
    assert len(results.results().damaged()) == 1


def test_a_state_that_is_unknown_is_damage(log):
    log.write_text('{"kind": "attempt", "section": "03.2", "what": "03.2", "state": "done", "when": "2026"}\n')
    assert outcomes.outcomes() == {}
    assert "state" in results.results().damaged()[0]


def test_where_nothing_can_be_written_the_outcome_lasts_as_long_as_the_kernel(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "file" / "inside"))  # no folder can be made in a file
    assert checks.check("03.2", 3).state == "passed"
    assert checks.hint("03.2").text.startswith("**Hint 1")
    assert standing() == ("passed", 1, 0, False, True)
    assert "stay in memory" in results.results().note
