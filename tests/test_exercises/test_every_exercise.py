"""Every exercise: what is open is 'todo', the solution passes in the notebook, every wrong answer is told why."""

import importlib
import re

import pytest

from exercises import several_ranks
from labkit.lesson import exercise_files, notebook_files
from labkit.measure.machine import threads
from tests.helpers import check, code_cells, fake_ceilings, notebook_paths, stub_cells
from tests.needs import marks_of
from tests.selection import sampled
from tests.test_exercises import ranks_in_turn, virtual_clock

NUMBERS = exercise_files.numbers()
WRONG = {
    number: answers
    for path in notebook_paths()
    for number, answers in importlib.import_module(f"exercises.nb{path.name[:2]}.wrong_answers").WRONG.items()
}


@pytest.fixture(autouse=True)
def no_real_time(monkeypatch):
    ranks_in_turn.use(monkeypatch)
    virtual_clock.use(monkeypatch)
    monkeypatch.setattr(several_ranks, "TIMEOUT_S", 120.0)  # a busy machine starts ranks late
    with threads(1):  # more would wait for a busy core
        yield


@pytest.fixture(autouse=True)
def same_ceilings(monkeypatch):
    for path in notebook_paths():
        monkeypatch.setattr(f"exercises.nb{path.name[:2]}.check.measure_ceilings", fake_ceilings, raising=False)


HANGS = "wait for each other"  # the words of ranks that a time limit stops


def marks(number, i):
    """The marks of a wrong answer: `make test` gives each exercise one for a misconception, and none that hangs."""
    words, misconceptions = WRONG[number][i][1], [misconception for *_, misconception in WRONG[number]]
    left_out = misconceptions[i] in misconceptions[:i] or HANGS in words
    return [*marks_of(number), *([pytest.mark.complete] if left_out else [])]


CASES = [
    pytest.param(number, answer, words, id=f"{number}-{i}", marks=marks(number, i))
    for number in WRONG
    for i, (answer, words, _) in enumerate(WRONG[number])
]


@pytest.mark.parametrize(("number", "answer", "words"), CASES)
def test_a_wrong_answer_is_rejected_and_told_why(number, answer, words, monkeypatch):
    if HANGS in words:
        monkeypatch.setattr(several_ranks, "TIMEOUT_S", 12.0)
    outcome = check(number, answer)
    assert outcome.state == "not yet", outcome
    assert words in outcome.message


@pytest.mark.parametrize("number", NUMBERS)
def test_an_open_answer_is_todo(number):
    assert check(number, ...).state == "todo"


NONSENSE = [None, "text", [], {}, object(), 0, -1, float("nan"), lambda: 1, type]


@pytest.mark.parametrize(("number", "nonsense"), sampled([(n, each) for n in NUMBERS for each in NONSENSE], 100))
def test_nonsense_is_an_outcome_that_never_passes(number, nonsense):
    outcome = check(number, nonsense)
    assert outcome.state in ("not yet", "todo")
    assert len(outcome.message) > 15


@pytest.mark.parametrize("number", NUMBERS)
def test_at_least_two_wrong_answers_hints_and_a_solution(number):
    assert len(WRONG[number]) >= 2
    assert len(exercise_files.exercise(number).hints) >= 2
    assert number in exercise_files.solutions(number[:2])


@pytest.mark.parametrize("path", notebook_paths(), ids=lambda path: path.stem)
def test_a_notebook_has_its_exercises_each_with_a_blank_and_a_check_below(path):
    own = [number for number in NUMBERS if number.startswith(path.name[:2])]
    assert 3 <= len(own) <= (9 if path.name.startswith("17") else 5)  # 17 has a small one for each case
    assert [notebook_files.stub_number(source) for source in stub_cells(path)] == own
    assert sorted(exercise_files.solutions(path.name[:2])) == own
    for stub in stub_cells(path):
        assert "..." in stub
        assert re.match(r"# \d\d\.\d[a-z]? about \d+ lines?", stub), "an effort hint, such as '# 03.2 about 3 lines'"
    checked = [n for source in code_cells(path) for n in re.findall(r'lab\.check\("([^"]+)"', source)]
    assert list(dict.fromkeys(checked)) == own
