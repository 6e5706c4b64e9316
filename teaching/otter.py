"""Export a notebook's exercises for otter-grader: the learners' notebook, and an
autograder with hidden checks.

What learners get is the folder `student`: the exercises with their public checks, which
needs no otter. What they hand in is that notebook, or the lesson's own. autograder.zip
is yours alone; labkit and the checks are in it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from labkit.core.errors import LabError
from labkit.core.own_folder import writing
from labkit.core.paths import ROOT
from teaching import assignments, handout
from teaching.assignments import require
from teaching.exam import filled

PYTHON = "3.12"  # environment.yml's
# modules of `teaching` that grade
GRADER = (
    *("__init__", "channel", "hidden_check", "judging", "kernel_judge"),
    *("kernel_source", "learner", "sandbox"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The notebook's number, and the folder to write."""
    assignments.add_arguments(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, help="a new folder")


def run(arguments: argparse.Namespace) -> int:
    """Write the export, and say how to grade with it."""
    write(
        arguments.number,
        arguments.output,
        arguments.points,
        unprotected=arguments.unprotected,
    )
    zipped = arguments.output / "autograder.zip"
    print(
        f"Learners get {arguments.output / 'student'}, you keep {zipped}. To grade what"
        " one of them handed in, with a"
    )
    print("results file of its own, so that yours stays as it is:")
    print(
        f"LABKIT_PROFILE=ci LABKIT_HOME=$(mktemp -d) otter run -a {zipped}"
        " submission.ipynb"
    )
    return 0


def write(
    number: str, target: Path, points: Sequence[str] = (), *, unprotected: bool = False
) -> None:
    """Write learners' notebook and the autograder of a notebook ("03"), or of `points`
    ("03.1=2"), into a new folder; `unprotected`, it grades without a sandbox.

    MissingExtra without otter-grader, LabError for an unknown notebook, or where the
    folder can't be written.
    """
    require("otter")
    assignment = assignments.assignment(number, points)
    with writing(target), tempfile.TemporaryDirectory() as made:
        handout.make_empty(target)
        cells = [
            (
                cell | {"metadata": {"otter": {"tests": [question.number]}}}
                if question and question.points
                else cell
            )
            for cell, question in assignment.cells
        ]
        assignment.write(target / "student", cells)
        work = Path(made) / "work"
        handout.write(work)
        for folder in ("tests", "teaching"):
            (work / folder).mkdir()
        for file in GRADER:
            shutil.copy(ROOT / "teaching" / f"{file}.py", work / "teaching")
        for question in assignment.graded:
            test = filled("otter_test.py", question=question)
            (work / "tests" / f"{question.number}.py").write_text(
                test, encoding="utf-8"
            )
        answers = {question.number: question.answer for question in assignment.graded}
        settings = {"answers": answers, "unprotected": unprotected}
        plugin = {"teaching.judging.OtterPlugin": settings}
        (work / "otter_config.json").write_text(
            json.dumps({"plugins": [plugin]}), encoding="utf-8"
        )
        (work / "requirements.txt").write_text(requirements(number), encoding="utf-8")
        _generate(work, target.resolve() / "autograder.zip")


def requirements(number: str) -> str:
    """What an image for grading has to install: what the workbook needs, without its
    editor.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    extra = project["optional-dependencies"]
    more = [line for line in extra["lab"] if not line.startswith("jupyterlab")]
    more += extra["cpu"]
    if number >= "20":
        more += extra["appendix"]
    return "".join(f"{line}\n" for line in [*project["dependencies"], *more])


def _generate(work: Path, target: Path) -> None:
    """Let otter pack its autograder: the tests, the packages and the checks, and how to
    install what they need.
    """
    command = [
        sys.executable,
        "-m",
        "otter",
        "generate",
        "-t",
        "tests",
        "-o",
        str(target),
        "-r",
        "requirements.txt",
    ]
    command += [
        "--no-environment",
        "--python-version",
        PYTHON,
        "labkit",
        "packages",
        "exercises",
        "data",
        "teaching",
    ]
    completed = subprocess.run(
        command, cwd=work, capture_output=True, text=True, check=False
    )
    if completed.returncode:
        raise LabError(
            f"otter generate failed: {completed.stderr.strip().splitlines()[-1:]}"
        )
