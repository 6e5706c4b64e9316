"""Answers are judged out of the learner's process: cheats score nothing, honest answers
in any form do, and a process that ends costs one exercise.
"""

import pytest

from labkit.lesson import exercise_files, notebook_files
from teaching import judging, learner, nbgrader, sandbox
from teaching.assignments import assignment
from tests.needs import needs
from tests.selection import sampled
from tests.test_teaching.cheats import CHEATS, FAR_APART, WRONG

# each starts processes that import torch
pytestmark = [pytest.mark.slow, pytest.mark.complete, needs("bwrap")]

NUMBERS = ("00.3", "00.5")


@pytest.fixture(autouse=True)
def in_a_sandbox(tmp_path, monkeypatch):
    """No cheat runs without one."""
    assert sandbox.refusal() == ""
    monkeypatch.setattr(learner, "CELL_S", 20.0)


def cells_of(number, cheat="", change=None, solved=()):
    """An assignment's code with the solutions of `solved`, and a cheat after its first
    cell.
    """
    solutions = exercise_files.solutions(number)
    made = []
    for cell, _ in assignment(number).cells:
        if cell["cell_type"] == "code":
            stub = notebook_files.stub_number(cell["source"])
            source = solutions[stub] if stub in solved else cell["source"]
            made.append(change(source) if change else source)
    return [source for source in (made[0], cheat, *made[1:]) if source]


def states(cells, number, numbers):
    questions = {
        question.number: question.answer for question in assignment(number).questions
    }
    return {
        n: o.state
        for n, o in judging.verdicts(cells, {n: questions[n] for n in numbers}).items()
    }


@pytest.mark.parametrize("cheat", sampled(FAR_APART, 2))
def test_no_cheat_scores(cheat, tmp_path):
    cells = [
        source for source in cells_of("00") if not notebook_files.stub_number(source)
    ]
    code = CHEATS[cheat].replace("COURSE", str(tmp_path))
    cells.insert(1, f"{WRONG}\n{code}")
    assert "passed" not in states(cells, "00", NUMBERS).values()
    assert list(tmp_path.iterdir()) == []


def test_no_cheat_scores_for_a_kernel():
    cells = [
        source for source in cells_of("03") if not notebook_files.stub_number(source)
    ]
    wrong = "@cuda.jit\ndef double(x, out):\n    out[0] = x[0]\nrelu = double"
    questions = {
        q.number: q.answer for q in assignment("03", ["03.1", "03.2"]).questions
    }
    for cheat in ("the table of checks is replaced", "a thread that answers"):
        judged = judging.verdicts(
            [*cells[:2], f"{wrong}\n{CHEATS[cheat]}", *cells[2:]], questions
        )
        assert "passed" not in [outcome.state for outcome in judged.values()]


def test_an_honest_answer_passes_whatever_stands_beside_it():
    def renamed(source):
        return source.replace("efficiency_percent", "mine")

    cheat = CHEATS["every function that judges"]
    cells = cells_of("00", cheat, renamed, solved=NUMBERS)
    assert states(cells, "00", NUMBERS) == dict.fromkeys(NUMBERS, "passed")


def test_an_open_answer_and_a_cell_that_fails_pass_nothing():
    assert set(states(cells_of("00"), "00", NUMBERS).values()) == {"todo"}
    assert set(states(["raise ValueError"], "00", NUMBERS).values()) == {"not yet"}


ENDS = {
    "ends": "import os\nos._exit(0)",
    "is endless": "while True: pass",
    "can't be interrupted": "import itertools\nsum(itertools.repeat(0))",
}


@pytest.mark.parametrize("how", sampled(list(ENDS), 1))
def test_a_cell_that_ends_its_process_costs_one_exercise(how):
    """It stands in the place of the answer to 00.3."""
    cells = cells_of("00", solved=("00.5",))
    ended = [
        ENDS[how] if notebook_files.stub_number(source) == "00.3" else source
        for source in cells
    ]
    judged = states(ended, "00", NUMBERS)
    assert judged == {"00.3": "not yet", "00.5": "passed"}


def test_an_answer_that_ends_its_process_costs_one_exercise():
    def changed(source):
        if notebook_files.stub_number(source) == "00.3" or "def efficiency" in source:
            return f"{source}\ndef efficiency_percent(*_):\n    import os; os._exit(0)"
        return source

    cells = cells_of("00", change=changed, solved=NUMBERS)
    judged = states(cells, "00", NUMBERS)
    assert judged == {"00.3": "not yet", "00.5": "passed"}


def test_the_cell_says_what_is_judged():
    (question,) = assignment("00", ["00.3=2"]).questions
    cell = nbgrader._graded(question)
    assert judging._ASKED.findall(cell["source"]) == [("00.3", "efficiency_percent")]
