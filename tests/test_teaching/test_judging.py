"""Answers are judged out of the learner's process: cheats score nothing, honest answers in any form do."""

import pytest

from labkit.lesson import exercise_files, notebook_files
from teaching import judging, nbgrader
from teaching.assignments import assignment

pytestmark = [pytest.mark.slow, pytest.mark.complete]  # each starts a process that imports torch

NUMBERS = ("00.3", "00.5")
# Answers that only a cheat can get through; a cheat may bring its own.
WRONG = "def efficiency_percent(*_): return 50.0\ndef accuracy_by_digit(*_): return [50.0] * 10"
AS_ONE_LIKES = """
class Any(float):
    def __eq__(self, other): return True
    __hash__ = None
    def __getattr__(self, name): return lambda *_, **__: Any(0)
    def __abs__(self): return 0.0
    def __sub__(self, other): return 0.0
    __rsub__ = __truediv__ = __rtruediv__ = __sub__
"""
ANSWERS = "\ndef efficiency_percent(*_): return {0}\ndef accuracy_by_digit(*_): return [{0}] * 10"
CHEATS = {
    "isclose is always true": "import math\nmath.isclose = lambda *a, **k: True",
    "import_module brings other checks": """
import importlib, types
real = importlib.import_module
fake = types.SimpleNamespace(CHECKS={"00.3": lambda _: "fooled", "00.5": lambda _: "fooled"})
importlib.import_module = lambda name, *a: fake if name.endswith(".check") else real(name, *a)""",
    "an input transformer drops asserts": """
get_ipython().input_transformers_post.append(lambda lines: [one for one in lines if "assert" not in one])""",
    "lab.check is replaced": "lab.check = lambda number, answer: lab.Outcome(number, 'passed', 'fooled')",
    "the judge is replaced": """
from labkit.lesson import checks
checks.judged = checks._judged = lambda number, *_: checks.Outcome(number, "passed", "fooled")""",
    "the judge has other code": """
from labkit.lesson import checks
def judged(number, answer): return Outcome(number, "passed", "fooled")
checks.judged.__code__ = judged.__code__""",
    "the table of checks is replaced": """
import contextlib, importlib
for notebook in ("nb00", "nb03"):
    with contextlib.suppress(ImportError):
        checks = importlib.import_module(f"exercises.{notebook}.check").CHECKS
        checks.update({number: lambda _: "fooled" for number in checks})""",
    "what restores the judge is replaced": """
from labkit.lesson import checks, process_state
def nothing(self, *_): pass
process_state.KeptFunctions.__exit__.__code__ = nothing.__code__
checks.over_cases = checks.judged = lambda *_, **__: checks.Outcome("", "passed", "fooled")""",
    "comparisons are replaced": """
from labkit.lesson import checks
checks.number_close = checks.over_cases = lambda *a, **k: "fooled" """,
    "builtins are replaced": """
import builtins
builtins.abs = lambda _: 0.0
builtins.isinstance = lambda *_: True""",
    "assertions and exceptions are replaced": """
from labkit.lesson import checks
checks.NotYet.__init__ = lambda *a, **k: None
checks.NotYet.__str__ = lambda self: "passed" """,
    "an outcome that is always passed": """
from labkit.lesson import checks
checks.Outcome.state = property(lambda self: "passed", lambda self, value: None)""",
    "an answer that equals everything": AS_ONE_LIKES + ANSWERS.format("Any(1)"),
    "a way out of the process": "import os\nos._exit(0)",
    "the expected value from the caller's frame": """
import sys
def stolen(*case):
    frame = sys._getframe()
    while frame := frame.f_back:
        if callable(expected := frame.f_locals.get("expected")):
            return expected(*case)
efficiency_percent = accuracy_by_digit = stolen""",
    "the expected value out of the check's code": """
import types
from exercises.nb00 import check
def inner(fn):
    code = next(c for c in fn.__code__.co_consts if isinstance(c, types.CodeType) and c.co_name == "expected")
    return types.FunctionType(code, vars(check))
efficiency_percent, accuracy_by_digit = inner(check.efficiency_percent), inner(check.accuracy_by_digit)""",
    "the solution out of its file": """
from labkit.lesson import exercise_files
for code in exercise_files.solutions("00").values():
    exec(code)""",
    "a table of the known inputs": """
import random
draw = random.Random(2003)
drawn = [(draw.uniform(0.5, 2.0), draw.uniform(0.01, 3.0), n) for n in (2, 1, 3, 16, 97)]
table = {case: 100 * case[0] / case[1] / case[2] for case in [*drawn, (2.0, 0.5, 2)]}
def efficiency_percent(*case): return table[case]""",
    "a reply that is forged": """
import gc, pickle
from multiprocessing.connection import Connection
def forged(*_):
    for one in gc.get_objects():
        if isinstance(one, Connection):
            one.send_bytes(pickle.dumps(("returned", ("passed", "fooled"))))
efficiency_percent = accuracy_by_digit = forged""",
    "a reply that runs code": """
import gc, pickle
from multiprocessing.connection import Connection
FOOL = "import labkit.lesson.checks as c; c._judged = lambda number, *_: c.Outcome(number, 'passed', 'fooled')"
class Bomb:
    def __reduce__(self): return exec, (FOOL,)
def forged(*_):
    for one in gc.get_objects():
        if isinstance(one, Connection):
            one.send_bytes(pickle.dumps(("returned", Bomb())))
efficiency_percent = accuracy_by_digit = forged""",
    "an exception in place of an answer": """
from labkit.lesson import checks
class passed(BaseException): pass
def efficiency_percent(*_): raise passed("passed")
def accuracy_by_digit(*_): raise SystemExit(0)""",
    "random numbers that aren't": """
import random, torch
random.Random = lambda *_: type("Same", (), {"uniform": lambda *_: 1.0})()
torch.randint = lambda *_, **__: torch.zeros(10, dtype=int)
def efficiency_percent(*_): return 50.0""",
}


def cells_of(number, cheat="", change=None, solved=()):
    """An assignment's code with the solutions of `solved`, and a cheat after its first cell."""
    solutions, made = exercise_files.solutions(number), []
    for cell, _ in assignment(number).cells:
        stub = notebook_files.stub_number(cell["source"]) if cell["cell_type"] == "code" else None
        if cell["cell_type"] == "code":
            made.append(solutions[stub] if stub in solved else cell["source"])
    made = [change(source) if change else source for source in made]
    return [made[0], *([cheat] if cheat else []), *made[1:]]


def states(cells, number, numbers):
    questions = {question.number: question.answer for question in assignment(number).questions}
    return {n: o.state for n, o in judging.verdicts(cells, {n: questions[n] for n in numbers}).items()}


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS)
def test_no_cheat_scores(cheat):
    cells = [source for source in cells_of("00") if not notebook_files.stub_number(source)]
    found = states([cells[0], f"{WRONG}\n{cheat}", *cells[1:]], "00", NUMBERS)
    assert "passed" not in found.values()


@pytest.mark.parametrize(
    "cheat", ["", *(name for name in CHEATS if "replaced" in name or "judge" in name or "always" in name)]
)
def test_no_replacement_scores_where_the_check_runs_beside_the_answer(cheat):
    cells = [source for source in cells_of("03") if not notebook_files.stub_number(source)]
    wrong = "@cuda.jit\ndef double(x, out):\n    out[0] = x[0]\nrelu = double"
    questions = {question.number: question.answer for question in assignment("03", ["03.1", "03.2"]).questions}
    found = judging.verdicts([*cells[:2], f"{wrong}\n{CHEATS.get(cheat, '')}", *cells[2:]], questions)
    assert [outcome.state for outcome in found.values()] == ["not yet", "not yet"]
    assert "out[0]" in found["03.1"].message, found  # in the check's own words, as without a cheat


@pytest.mark.parametrize("cheat", [name for name in CHEATS if "code" in name or "replace" in name])
def test_an_honest_answer_passes_whatever_stands_beside_it(cheat):
    if "builtins" not in cheat:
        assert set(states(cells_of("00", CHEATS[cheat], solved=NUMBERS), "00", NUMBERS).values()) == {"passed"}


def test_a_function_under_another_name_passes_as_its_public_check_did():
    def renamed(source):
        return source.replace("efficiency_percent", "mine")

    assert states(cells_of("00", change=renamed, solved=NUMBERS), "00", NUMBERS) == dict.fromkeys(NUMBERS, "passed")


def test_an_open_answer_and_a_cell_that_fails_pass_nothing():
    assert set(states(cells_of("00"), "00", NUMBERS).values()) == {"todo"}
    assert set(states(["raise ValueError"], "00", NUMBERS).values()) == {"not yet"}


def test_the_cell_says_what_is_judged():
    (cell,) = (nbgrader._graded(question) for question in assignment("00", ["00.3=2"]).questions)
    assert judging._ASKED.findall(cell["source"]) == [("00.3", "efficiency_percent")]
