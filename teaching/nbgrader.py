"""Export a notebook's exercises for nbgrader: an assignment in a course folder, with hidden tests.

The folder is one that nbgrader knows: `nbgrader generate_assignment NAME` in it makes the learners' copy, without the
hidden tests, and `nbgrader autograde NAME` grades what they handed in. Several notebooks may share the folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from labkit.core.errors import LabError
from labkit.core.own_folder import writing
from teaching.assignments import Question, assignment, hidden_code, new_salt, require
from teaching.exam import filled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The notebook's number, and the course's folder."""
    parser.add_argument("number", metavar="NN", help="the notebook's number, such as 03")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the course's folder; it may exist")


def run(arguments: argparse.Namespace) -> int:
    """Write the assignment, and say what to do with it."""
    name = write(arguments.number, arguments.output)
    print(f"The assignment {name} is in {arguments.output}. There, `nbgrader generate_assignment {name}` makes the")
    print(f"learners' copy in release/{name}; `nbgrader autograde {name}` grades what lies in submitted/.")
    return 0


def write(number: str, course: Path) -> str:
    """Write the assignment of a notebook ("03") into a course's folder; its name.

    A nbgrader_config.py that is there stays. MissingExtra without nbgrader, LabError for an unknown notebook, or where
    the folder can't be written or has the assignment already.
    """
    require("nbgrader")
    found, salt = assignment(number), new_salt()
    source = course / "source" / found.name
    if source.exists():
        raise LabError(f"{source} exists already. Delete it, or name another folder.")
    with writing(course):
        cells: list[dict[str, Any]] = []
        for cell, question in found.cells:
            cells += [cell] if question is None else [_public(question, cell), _graded(question, salt)]
        found.write(source, cells)
        if not (course / "nbgrader_config.py").exists():
            (course / "nbgrader_config.py").write_text(filled("nbgrader_config.py"), encoding="utf-8")
    return found.name


def _outcome(question: Question) -> str:
    return f"outcome_{question.slug}"


def _public(question: Question, cell: dict[str, Any]) -> dict[str, Any]:
    """The cell that shows the check's words, and keeps its outcome for the graded one."""
    return cell | {"source": f"{_outcome(question)} = {question.check}\n{_outcome(question)}"}


def _graded(question: Question, salt: str) -> dict[str, Any]:
    """A cell worth one point."""
    settings = {"grade": True, "grade_id": f"exercise_{question.slug}", "locked": True, "points": 1}
    settings |= {"schema_version": 3, "solution": False, "task": False}
    source = filled("graded.py", code=hidden_code(), question=question, outcome=_outcome(question), salt=salt)
    return {
        "cell_type": "code", "id": f"graded-{question.slug}", "metadata": {"nbgrader": settings}, "outputs": [],
        "execution_count": None, "source": source,
    }  # fmt: skip
