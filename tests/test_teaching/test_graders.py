"""otter-grader and nbgrader grade what learners hand in: all right, half right with a cheat, and nothing done."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.core.paths import ROOT
from labkit.lesson import exercise_files, notebook_files
from teaching import nbgrader, otter
from tests.needs import needs

pytestmark = [needs("otter", "nbgrader"), pytest.mark.complete]

CHEAT = "lab.check = lambda number, answer: print(number, 'passed')"


def handed_in(path, *, solved, cheat=""):
    """The learners' notebook with the solutions of these exercises, as text; a cheat is added to its first code."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    solutions = {n: code for n, code in exercise_files.solutions(path.name[:2]).items() if n in solved}
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
        number = notebook_files.stub_number(cell["source"]) if cell["cell_type"] == "code" else None
        if number in solutions:
            cell["source"] = f"{cell['source'].splitlines()[0]}\n{solutions[number]}"
        elif cell["source"].startswith("import labkit"):
            cell["source"] += f"\n{cheat}"
    return json.dumps(notebook)


def run(command, folder, home):
    """Run a program of the environment in a folder; its output, once it has succeeded."""
    found = Path(sys.executable).parent
    paths = {"PATH": f"{found}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "LABKIT_HOME": str(home)}
    done = subprocess.run(
        [str(found / command[0]), *command[1:]], cwd=folder, env={**os.environ, **paths, "LABKIT_PROFILE": "ci"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def otter_export(tmp_path_factory):
    folder = tmp_path_factory.mktemp("otter") / "03"
    otter.write("03", folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solved", "cheat"), [(["03.1", "03.2", "03.5", "03.6", "03.7"], ""), (["03.1", "03.6"], CHEAT)],
    ids=["right", "half"],
)  # fmt: skip
def test_otter_gives_a_point_for_each_right_kernel(solved, cheat, otter_export, tmp_path):
    (notebook,) = (otter_export / "student").iterdir()
    (tmp_path / "submission.ipynb").write_text(handed_in(notebook, solved=solved, cheat=cheat), encoding="utf-8")
    run(["otter", "run", "-a", otter_export / "autograder.zip", "submission.ipynb"], tmp_path, tmp_path / "home")
    tests = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["tests"]
    scores = {test["name"]: (test["score"], test["max_score"]) for test in tests if "score" in test}
    assert scores == {n: (float(n in solved), 1.0) for n in ("03.1", "03.2", "03.5", "03.6", "03.7")}
    said = "".join(test["output"] for test in tests)
    assert ("saxpy has no body yet" in said, "03.2 todo" in said) == ("03.6" not in solved, "03.2" not in solved)


@pytest.mark.slow
def test_nbgrader_hides_its_tests_and_gives_a_point_for_each_right_answer(tmp_path):
    name = nbgrader.write("00", tmp_path)
    run(["nbgrader", "generate_assignment", name], tmp_path, tmp_path / "home")
    released = tmp_path / "release" / name / f"{name}.ipynb"
    text = released.read_text(encoding="utf-8")
    assert "lab.check" in text
    assert "judge(" not in text
    students = {"all": ["00.1", "00.3", "00.5", "00.6"], "half": ["00.3", "00.6"], "none": []}
    for student, solved in students.items():
        folder = tmp_path / "submitted" / student / name
        folder.mkdir(parents=True)
        text = handed_in(released, solved=solved, cheat=CHEAT if student == "half" else "")
        (folder / f"{name}.ipynb").write_text(text, encoding="utf-8")
    run(["nbgrader", "autograde", name], tmp_path, tmp_path / "home")
    told = "from nbgrader.api import Gradebook\nwith Gradebook('sqlite:///gradebook.db') as book:\n"
    told += f"    print({{s['student']: (s['score'], s['max_score']) for s in book.submission_dicts('{name}')}})"
    scores = run(["python", "-c", told], tmp_path, tmp_path / "home").strip().splitlines()[-1]
    assert ast.literal_eval(scores) == {student: (float(len(solved)), 4.0) for student, solved in students.items()}
