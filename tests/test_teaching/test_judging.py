"""Answers are judged out of the learner's process: cheats score nothing, honest answers
in any form do.
"""

import pytest

from labkit.lesson import exercise_files, notebook_files
from teaching import judging, nbgrader
from teaching.assignments import assignment

# each starts a process that imports torch
pytestmark = [pytest.mark.slow, pytest.mark.complete]

NUMBERS = ("00.3", "00.5")
# Answers that only a cheat can get through; a cheat may bring its own.
WRONG = (
    "def efficiency_percent(*_): return 50.0\ndef accuracy_by_digit(*_): return [50.0]"
    " * 10"
)
AS_ONE_LIKES = """
class Any(float):
    def __eq__(self, other): return True
    __hash__ = None
    def __getattr__(self, name): return lambda *_, **__: Any(0)
    def __abs__(self): return 0.0
    def __sub__(self, other): return 0.0
    __rsub__ = __truediv__ = __rtruediv__ = __sub__
"""
ANSWERS = (
    "\ndef efficiency_percent(*_): return {0}\ndef accuracy_by_digit(*_): return [{0}]"
    " * 10"
)
CHEATS = {
    "isclose is always true": "import math\nmath.isclose = lambda *a, **k: True",
    "the judge has other code": (
        """
from labkit.lesson import checks
def judged(number, answer): return Outcome(number, "passed", "fooled")
checks.judged.__code__ = judged.__code__"""
    ),
    "the table of checks is replaced": (
        """
import contextlib, importlib
for notebook in ("nb00", "nb03"):
    with contextlib.suppress(ImportError):
        checks = importlib.import_module(f"exercises.{notebook}.check").CHECKS
        checks.update({number: lambda _: "fooled" for number in checks})"""
    ),
    "what restores the judge is replaced": (
        """
from labkit.lesson import checks, process_state
def nothing(self, *_): pass
process_state.KeptFunctions.__exit__.__code__ = nothing.__code__
checks.over_cases = checks.judged = lambda *_, **__: checks.Outcome("", "passed", "fooled")"""
    ),
    "an outcome that is always passed": (
        """
from labkit.lesson import checks
checks.Outcome.state = property(lambda self: "passed", lambda self, value: None)"""
    ),
    "an answer that equals everything": AS_ONE_LIKES + ANSWERS.format("Any(1)"),
    "a way out of the process": "import os\nos._exit(0)",
    "the expected value from the caller's frame": (
        """
import sys
def stolen(*case):
    frame = sys._getframe()
    while frame := frame.f_back:
        if callable(expected := frame.f_locals.get("expected")):
            return expected(*case)
efficiency_percent = accuracy_by_digit = stolen"""
    ),
    "a reply that runs code": (
        """
import gc, pickle
from multiprocessing.connection import Connection
FOOL = "import labkit.lesson.checks as c; c._judged = lambda number, *_: c.Outcome(number, 'passed', 'fooled')"
class Bomb:
    def __reduce__(self): return exec, (FOOL,)
def forged(*_):
    for one in gc.get_objects():
        if isinstance(one, Connection):
            one.send_bytes(pickle.dumps(("returned", Bomb())))
efficiency_percent = accuracy_by_digit = forged"""
    ),
    "random numbers that aren't": (
        """
import random, torch
random.Random = lambda *_: type("Same", (), {"uniform": lambda *_: 1.0})()
torch.randint = lambda *_, **__: torch.zeros(10, dtype=int)
def efficiency_percent(*_): return 50.0"""
    ),
}


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


# Each starts a process that imports torch: all of them run at night.
FAR_APART = [
    "the judge has other code",
    "the table of checks is replaced",
    "an answer that equals everything",
    "the expected value from the caller's frame",
    "a reply that runs code",
]
every_cheat = [
    pytest.param(name, marks=() if name in FAR_APART else pytest.mark.nightly)
    for name in CHEATS
]


@pytest.mark.parametrize("cheat", every_cheat)
def test_no_cheat_scores(cheat):
    cells = [
        source for source in cells_of("00") if not notebook_files.stub_number(source)
    ]
    cells.insert(1, f"{WRONG}\n{CHEATS[cheat]}")
    assert "passed" not in states(cells, "00", NUMBERS).values()


def test_no_replacement_scores_where_the_check_runs_beside_the_answer():
    cells = [
        source for source in cells_of("03") if not notebook_files.stub_number(source)
    ]
    wrong = "@cuda.jit\ndef double(x, out):\n    out[0] = x[0]\nrelu = double"
    questions = {
        q.number: q.answer for q in assignment("03", ["03.1", "03.2"]).questions
    }
    for cheat in (
        "the table of checks is replaced",
        "what restores the judge is replaced",
    ):
        judged = judging.verdicts(
            [*cells[:2], f"{wrong}\n{CHEATS[cheat]}", *cells[2:]], questions
        )
        assert [outcome.state for outcome in judged.values()] == ["not yet", "not yet"]
        assert "out[0]" in judged["03.1"].message, "in the check's own words"


def test_an_honest_answer_passes_whatever_stands_beside_it():
    def renamed(source):
        return source.replace("efficiency_percent", "mine")

    cheat = CHEATS["what restores the judge is replaced"]
    cells = cells_of("00", cheat, renamed, solved=NUMBERS)
    assert states(cells, "00", NUMBERS) == dict.fromkeys(NUMBERS, "passed")


def test_an_open_answer_and_a_cell_that_fails_pass_nothing():
    assert set(states(cells_of("00"), "00", NUMBERS).values()) == {"todo"}
    assert set(states(["raise ValueError"], "00", NUMBERS).values()) == {"not yet"}


def test_the_cell_says_what_is_judged():
    (question,) = assignment("00", ["00.3=2"]).questions
    cell = nbgrader._graded(question)
    assert judging._ASKED.findall(cell["source"]) == [("00.3", "efficiency_percent")]
