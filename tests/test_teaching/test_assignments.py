"""Every notebook's exercises as an assignment: each is there, what it builds on is
there, no solution is.
"""

import builtins
import json
import random

import nbformat
import pytest

from labkit.core.errors import LabError
from labkit.lesson import exercise_files, notebook_files
from labkit.lesson.checks import check
from teaching import assignments, nbgrader, otter, path as paths
from teaching.assignments import assignment
from teaching.hidden_check import judge
from tests.helpers import notebook_paths
from tests.selection import sampled

pytestmark = pytest.mark.slow  # writes whole notebooks

PATHS = [pytest.param(path, id=path.stem) for path in notebook_paths()]


@pytest.fixture(autouse=True)
def graders_are_here(monkeypatch):
    """What is written for a grader needs none to be looked at."""
    for module in (otter, nbgrader):
        monkeypatch.setattr(module, "require", lambda package: None)


def told_only_by_solutions(number, *, checked=True):
    """The lines of a notebook's solutions that stand neither in the notebook nor, if
    `checked`, in the check's file.
    """
    (path,) = paths.chosen([number])
    told = path.read_text(encoding="utf-8")
    # not __pycache__
    for file in (exercise_files.EXERCISES / f"nb{number}").glob("*.*"):
        secret = (
            "solution.py",
            "wrong_answers.py",
            *(() if checked else ("check.py",)),
        )
        told += file.read_text(encoding="utf-8") if file.name not in secret else ""
    lines = [
        line.strip()
        for code in exercise_files.solutions(number).values()
        for line in code.splitlines()
    ]
    return [
        line
        for line in lines
        if len(line) > 25 and line not in told and json.dumps(line)[1:-1] not in told
    ]


@pytest.mark.parametrize("path", sampled(PATHS, 6))
def test_every_exercise_is_asked_and_no_solution_told(path, tmp_path):
    number = path.name[:2]
    own = [n for n in exercise_files.numbers() if n[:2] == path.name[:2]]
    found = assignment(number)
    assert [question.number for question in found.questions] == own
    nbgrader.write(number, tmp_path)
    (written,) = tmp_path.rglob("*.ipynb")
    text = written.read_text(encoding="utf-8")
    assert [n for n in own if f'lab.check(\\"{n}\\"' in text] == own
    secret = told_only_by_solutions(number)
    assert secret
    assert [line for line in secret if json.dumps(line)[1:-1] in text] == []
    nbformat.validate(nbformat.reads(text, as_version=4))


@pytest.mark.parametrize("path", PATHS)
def test_the_cells_above_set_every_name_that_a_right_answer_needs(path):
    solutions = exercise_files.solutions(path.name[:2])
    known = set(vars(builtins)) | {"__name__", "get_ipython"}
    for cell, _ in assignment(path.name[:2]).cells:
        if cell["cell_type"] == "code":
            number = notebook_files.stub_number(cell["source"])
            read, own = assignments._names(
                solutions[number] if number else cell["source"]
            )
            assert read - known == set(), cell["source"]
            known |= own


def test_an_answer_that_knows_the_public_inputs_fails_on_new_ones():
    draw = random.Random(2003)  # as check.py draws
    drawn = [
        (draw.uniform(0.5, 2.0), draw.uniform(0.01, 3.0), n) for n in (2, 1, 3, 16, 97)
    ]
    by_heart = {
        case: 100 * case[0] / case[1] / case[2] for case in [*drawn, (2.0, 0.5, 2)]
    }

    def efficiency_percent(*case):
        return by_heart[case]

    assert check("00.3", efficiency_percent).state == "passed"
    outcome = judge("00.3", efficiency_percent, "salt")
    assert (outcome.state, "KeyError" in outcome.message) == ("not yet", True)
    before = random.getstate()
    assert (
        judge("00.3", lambda one, every, n: 100 * one / every / n, "salt").state
        == "passed"
    )
    assert random.getstate() == before


def test_exercises_and_their_points_are_chosen(tmp_path):
    found = assignment("03", ["03.6=2.5", "03.1"])
    assert [(q.number, q.points) for q in found.questions] == [
        ("03.1", 1.0),
        ("03.6", 2.5),
    ]
    assert "03.1, 1 point; 03.6, 2.5 points" in found.cells[0][0]["source"]
    name = nbgrader.write("03", tmp_path, ["03.6=2.5", "03.1"])
    cells = nbformat.read(
        tmp_path / "source" / name / f"{name}.ipynb", as_version=4
    ).cells
    points = {
        c.metadata.nbgrader.grade_id: c.metadata.nbgrader.points
        for c in cells
        if "nbgrader" in c.metadata
    }
    assert points == {"exercise_03_1": 1.0, "exercise_03_6": 2.5}


def test_practice_has_its_public_check_and_no_points(tmp_path):
    made = assignment("02")
    points = {question.number: question.points for question in made.questions}
    assert points == {"02.1": 1.0, "02.5": 1.0, "02.6": 1.0, "02.7": 0.0}
    assert "02.6, 1 point; 02.7, practice" in made.cells[0][0]["source"]
    nbgrader.write("02", tmp_path)
    (written,) = tmp_path.rglob("*.ipynb")
    cells = nbformat.read(written, as_version=4).cells
    graded = [c.metadata.nbgrader.grade_id for c in cells if "nbgrader" in c.metadata]
    assert graded == ["exercise_02_1", "exercise_02_5", "exercise_02_6"]
    assert any('lab.check("02.7"' in cell.source for cell in cells)
    with pytest.raises(LabError, match=r"12\.1 is practice, which no grader counts"):
        assignment("12", ["12.1"])


@pytest.mark.parametrize("wrong", ["03.9", "03.1=-1", "03.1=many"])
def test_points_that_make_no_sense_are_told(wrong):
    words = r"Expected exercises out of 03\.1, 03\.2, .*each alone or as NN\.S=1"
    with pytest.raises(LabError, match=words):
        assignment("03", [wrong])


def test_what_cannot_be_written_is_told(tmp_path, monkeypatch):
    for write in (otter.write, nbgrader.write):
        with pytest.raises(
            LabError, match=r"There is no notebook '99'\. There are 00, 01, "
        ):
            write("99", tmp_path)
    nbgrader.write("00", tmp_path)
    nbgrader.write("01", tmp_path)
    with pytest.raises(LabError, match=r"00_start_here exists already\. Delete it"):
        nbgrader.write("00", tmp_path)
    with pytest.raises(LabError, match="isn't empty"):
        otter.write("00", tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LabError, match=r"This needs otter: run `make extras`"):
        assignments.require("otter")
