"""Every exercise: dots are 'todo', the solution passes, every wrong
answer is told why.
"""

import importlib
import random
import re

import pytest

from exercises import several_ranks
from labkit.lesson import exercise_files, notebook_files, time_limit
from labkit.measure.machine import threads
from tests.helpers import (
    check,
    code_cells,
    fake_ceilings,
    notebook_paths,
    solved,
    stub_cells,
)
from tests.needs import EXERCISES, marks_of
from tests.test_exercises import ranks_in_turn, virtual_clock

NUMBERS = exercise_files.numbers()
WRONG = {
    number: answers
    for path in notebook_paths()
    for number, answers in importlib.import_module(
        f"exercises.nb{path.name[:2]}.wrong_answers"
    ).WRONG.items()
}
NONSENSE = ["text", [], {}, object(), 0, -1, float("nan"), lambda: 1, type]
HANGS = "wait for each other"  # the words of ranks that a time limit stops

# Solutions that tests/test_notebooks.py alone runs, inside their notebook.
ON_RANKS = ("12.1", "12.2", "12.3", "13.5")  # each check starts processes
OF_THEIR_NOTEBOOK = {  # they use what the notebook has made before
    "00.1",
    "00.6",
    "01.6",
    "05.5",
    "06.7",
    "10.6b",
    "13.4",
    "14.3",
    "14.5",
    "17.2",
    "17.3a",
    "17.3b",
    "17.4a",
    "17.4c",
    "17.5a",
    "17.5b",
    "17.6",
    "22.4",
}

COMPILES = ("06.6", *EXERCISES)  # for seconds: g++, TensorFlow, JAX


@pytest.fixture(autouse=True)
def no_real_time(monkeypatch):
    ranks_in_turn.use(monkeypatch)
    virtual_clock.use(monkeypatch)
    # a machine that others use compiles late
    monkeypatch.setattr(time_limit, "RUN_S", 1000.0)
    monkeypatch.setattr(time_limit, "WAIT_S", 1000.0)
    # a busy machine starts ranks late
    monkeypatch.setattr(several_ranks, "TIMEOUT_S", 120.0)
    for path in notebook_paths():
        name = f"exercises.nb{path.name[:2]}.check.measure_ceilings"
        monkeypatch.setattr(name, fake_ceilings, raising=False)
    with threads(1):  # more would wait for a busy core
        yield


def wrong_cases():
    """One wrong answer of each exercise, always the same; the others nightly.

    Of those on ranks, and with TensorFlow or JAX, that one is for `make test-all`.
    """
    for number, answers in WRONG.items():
        ending = [i for i, (_, words, _) in enumerate(answers) if HANGS not in words]
        chosen = random.Random(number).choice(ending)
        for i, (answer, words, _) in enumerate(answers):
            marks = marks_of(number)
            if i != chosen:
                marks.append(pytest.mark.nightly)
            elif number in ON_RANKS or number in EXERCISES:
                marks.append(pytest.mark.complete)
            yield pytest.param(number, answer, words, id=f"{number}-{i}", marks=marks)


@pytest.mark.parametrize(("number", "answer", "words"), [*wrong_cases()])
def test_a_wrong_answer_is_rejected_and_told_why(number, answer, words, monkeypatch):
    if HANGS in words:
        monkeypatch.setattr(several_ranks, "TIMEOUT_S", 12.0)
    outcome = check(number, answer)
    assert outcome.state == "not yet", outcome
    assert words in outcome.message


@pytest.mark.parametrize("number", NUMBERS)
def test_dots_are_todo_and_nonsense_never_passes(number):
    assert check(number, ...).state == "todo"
    for nonsense in (None, random.Random(number).choice(NONSENSE)):
        outcome = check(number, nonsense)
        assert outcome.state in ("not yet", "todo")
        assert len(outcome.message) > 15


SOLVED_HERE = [
    pytest.param(
        number,
        marks=[
            *marks_of(number),
            *([pytest.mark.complete] if number in COMPILES else []),
        ],
        id=number,
    )
    for number in NUMBERS
    if number not in ON_RANKS and number not in OF_THEIR_NOTEBOOK
]


@pytest.mark.parametrize("number", SOLVED_HERE)
def test_a_solution_passes_and_leaves_the_process_as_it_was(number):
    outcome = check(number, solved(number))
    assert outcome.state == "passed" or "NameError" in outcome.message, outcome


def test_each_exercise_has_two_wrong_answers_two_hints_and_a_solution():
    for number in NUMBERS:
        assert len(WRONG[number]) >= 2, number
        assert len(exercise_files.exercise(number).hints) >= 2, number
        assert number in exercise_files.solutions(number[:2])


@pytest.mark.parametrize("path", notebook_paths(), ids=lambda path: path.stem)
def test_a_notebook_has_its_exercises_each_with_a_blank_and_a_check_below(path):
    own = [number for number in NUMBERS if number.startswith(path.name[:2])]
    most = 9 if path.name.startswith("17") else 5  # 17 has a small one for each case
    if path.name[:2] not in notebook_files.PUZZLES:
        assert 3 <= len(own) <= most
    assert [notebook_files.stub_number(source) for source in stub_cells(path)] == own
    solutions = exercise_files.solutions(path.name[:2])
    assert sorted(solutions, key=exercise_files.order) == own
    effort = r"# \d\d\.\d\d?[a-z]? about \d+ lines?"  # such as '# 03.2 about 3 lines'
    for stub in stub_cells(path):
        assert "..." in stub
        assert re.match(effort, stub)
    text = "\n".join(code_cells(path))
    checked = re.findall(r'lab\.check\("([^"]+)"', text)
    assert list(dict.fromkeys(checked)) == own
