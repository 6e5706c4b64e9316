"""Export a notebook's exercises for nbgrader: an assignment in a course folder, judged
out of the learner's process.

The folder is one that nbgrader knows: `nbgrader generate_assignment NAME` in it makes
the learners' copy, and `nbgrader autograde NAME` grades what they handed in. Several
notebooks may share the folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labkit.core.errors import LabError
from labkit.core.own_folder import writing
from teaching import assignments
from teaching.assignments import Question, require
from teaching.exam import filled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The notebook's number, and the course's folder."""
    assignments.add_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="the course's folder; it may exist",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the assignment, and say what to do with it."""
    name = write(
        arguments.number,
        arguments.output,
        arguments.points,
        unprotected=arguments.unprotected,
    )
    print(
        f"The assignment {name} is in {arguments.output}. There, `nbgrader"
        f" generate_assignment {name}` makes the"
    )
    print(
        f"learners' copy in release/{name}; `nbgrader autograde {name}` grades what"
        " lies in submitted/."
    )
    return 0


def write(
    number: str, course: Path, points: Sequence[str] = (), *, unprotected: bool = False
) -> str:
    """Write the assignment of a notebook ("03"), or of `points` ("03.1=2"), into a
    course's folder; its name.

    A nbgrader_config.py that is there stays; a new one says whether hand-ins are
    graded without a sandbox (`unprotected`). MissingExtra without nbgrader, LabError
    for an unknown notebook, or where the folder can't be written or has the assignment
    already.
    """
    require("nbgrader")
    assignment = assignments.assignment(number, points)
    source = course / "source" / assignment.name
    if source.exists():
        raise LabError(f"{source} exists already. Delete it, or name another folder.")
    with writing(course):
        cells: list[dict[str, Any]] = []
        for cell, question in assignment.cells:
            cells.append(cell)
            if question is not None and question.points:
                cells.append(_graded(question))
        assignment.write(source, cells)
        if not (course / "nbgrader_config.py").exists():
            (course / "nbgrader_config.py").write_text(
                filled("nbgrader_config.py", unprotected=unprotected),
                encoding="utf-8",
            )
    return assignment.name


def _graded(question: Question) -> dict[str, Any]:
    """The cell that is worth the points."""
    name = f"exercise_{question.number.replace('.', '_')}"
    settings = {
        "grade": True,
        "grade_id": name,
        "locked": True,
        "points": question.points,
    }
    settings |= {"schema_version": 3, "solution": False, "task": False}
    # what learners see is the check that they have; the verdict takes its place when
    # they have handed in
    words = "It isn't right yet: the cell above says why."
    source = f'# {question.worth}\nassert {question.check}.state == "passed", "{words}"'
    return assignments.text_or_code("code", source, name) | {
        "metadata": {"nbgrader": settings}
    }
