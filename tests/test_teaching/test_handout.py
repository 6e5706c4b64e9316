"""The copy for a class: answers are judged as here, nothing of the solutions is in it,
and it says so.
"""

import ast
import json
import os
import re
import subprocess
import sys

import pytest

from labkit.core.errors import LabError
from labkit.core.paths import IMPORT_FOLDERS, ROOT
from labkit.lesson import exercise_files, notebook_files
from teaching import handout
from tests.test_teaching.test_assignments import told_only_by_solutions

pytestmark = pytest.mark.slow  # writes a whole copy of the workbook

TALK = """
import labkit as lab
print(lab.__file__)
print(lab.check("00.3", lambda one, every, threads: 100 * one / every / threads))
print(lab.check("00.3", lambda one, every, threads: one / every / threads))
print(lab.solution("00.3"))
print(lab.hint("00.3", 3))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("handout") / "workbook"
    handout.write(folder)
    return folder


def run(copy, *command):
    """Run Python in the copy, with its packages in place of these; what it prints."""
    folders = [copy / folder.relative_to(ROOT) for folder in IMPORT_FOLDERS]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LABKIT_PROFILE": "smoke",
    }
    done = subprocess.run(
        [sys.executable, *command],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def test_answers_are_judged_and_solutions_are_not_there(copy):
    lines = run(copy, "-c", TALK).strip().splitlines()
    assert lines[0].startswith(str(copy))
    assert lines[1].startswith("00.3 passed")
    assert lines[2].startswith("00.3 not yet: ")
    assert (
        lines[3]
        == "This copy of the workbook was made without solutions. `lab.hint('00.3')`"
        " helps in steps."
    )
    assert "lab.solution" not in "".join(lines[4:])


# 15 starts ranks, and uses most of the files beside the notebooks: it takes minutes.
@pytest.mark.complete
@pytest.mark.parametrize(
    "number", ["02", pytest.param("15", marks=pytest.mark.nightly)]
)
def test_a_notebook_of_the_copy_runs(copy, number):
    nbval = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=200"]
    (notebook,) = copy.glob(f"notebooks/{number}_*.ipynb")
    assert " passed" in run(
        copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *nbval, notebook
    )


def test_nothing_of_a_solution_is_in_the_copy(copy):
    files = [path for path in copy.rglob("*") if path.is_file()]
    assert [
        path
        for path in files
        if path.name.startswith(("solution", "wrong_")) or path.suffix == ".pyc"
    ] == []
    texts = {path: path.read_bytes().decode(errors="replace") for path in files}
    # labkit has finished kernels and formulas, which notebooks go on with: lines of a
    # solution, and no whole one
    own = {
        path.relative_to(copy).parts: text
        for path, text in texts.items()
        if path.relative_to(copy).parts[0] not in ("labkit", "packages", "notebooks")
    }
    everything = "".join("".join(texts.values()).split())
    for folder in sorted(exercise_files.EXERCISES.glob("nb*")):
        secret = told_only_by_solutions(folder.name[2:], checked=False)
        # puzzles are written in what other notebooks' finished kernels teach
        is_puzzle = folder.name[2:] in notebook_files.PUZZLES
        told = "\n".join(
            text
            for parts, text in own.items()
            if not is_puzzle or parts[0] != "exercises"
        )
        assert [
            line for line in secret if line in told or json.dumps(line)[1:-1] in told
        ] == [], folder.name
        for number, code in exercise_files.solutions(folder.name[2:]).items():
            whole = "".join(code.split())
            assert len(whole) < 30 or whole not in everything, number


def bodies(code):
    """What each function of a source does, without its name, annotations and words."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef):
            has_words = ast.get_docstring(node) is not None
            yield tuple(map(ast.unparse, node.body[has_words:])), node.name


def test_no_function_of_the_copy_does_line_by_line_what_a_solution_does(copy):
    in_copy = {
        body: path
        for path in copy.rglob("*.py")
        for body, _ in bodies(path.read_text(encoding="utf-8"))
    }
    for folder in sorted(exercise_files.EXERCISES.glob("nb*")):
        for number, code in exercise_files.solutions(folder.name[2:]).items():
            for body, name in bodies(code):
                is_short = len("".join(body)) < 60
                assert is_short or body not in in_copy, (number, name, in_copy[body])


def test_the_copy_has_what_a_reader_needs(copy):
    assert len(list((copy / "notebooks").glob("*.ipynb"))) >= 20
    assert (copy / "exercises" / "nb03" / "hints.md").exists()
    assert not (copy / "tests").exists()
    assert not (copy / "docs" / "teaching").exists()
    assert not (copy / "docs" / "maintaining.md").exists()
    assert os.access(copy / "start", os.X_OK)
    readme = (copy / "README.md").read_text(encoding="utf-8")
    assert "has no solutions" in readme
    assert "contributors" in readme
    assert "## For a class" not in readme
    assert "## To change or cite it" in readme
    assert "](LICENSE)" in readme
    for file in copy.rglob("*.md"):
        text = file.read_text(encoding="utf-8")
        text = re.sub(r"(?ms)^```.*?^```", "", text)  # `kernel[1, 32](x)` is no link
        for target in re.findall(r"\]\((?!\w+:|#)([^)\s#]+)", text):
            assert (file.parent / target).exists(), (file.name, target)

    command = ["make", "-n", "test", "NB=15"]
    made = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=True)
    assert "notebooks/15_how_would_you_train_on_1024_gpus.ipynb" in made.stdout
    for word in ("teaching", "benchmarks", "tests", "build/solved"):
        assert f"{word} " not in made.stdout


def test_nothing_of_a_teacher_is_overwritten_or_handed_out(tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(LabError, match=r"full isn't empty\. Name a new folder"):
        handout.write(tmp_path / "full")
    with pytest.raises(LabError, match="lies within what is copied"):
        handout.write(ROOT / "docs" / "handout")
    cells = [{"cell_type": "code", "source": ["# 03.1 about 3 lines\n", "out = 2 * x"]}]
    answered = tmp_path / "03_answered.ipynb"
    answered.write_text(json.dumps({"cells": cells}))
    monkeypatch.setattr(handout.notebook_files, "paths", lambda: [answered])
    with pytest.raises(
        LabError, match=r"03_answered\.ipynb holds an answer to 03\.1\."
    ):
        handout.write(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
