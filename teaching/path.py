"""Write a notebook's 50- or 90-minute path.

The 90-minute path is the notebook without its optional parts, tagged `more`. The
50-minute path also leaves out the cells tagged `skip-50`. The first cell names what is
left out, which makes good homework.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labkit.core.errors import LabError
from labkit.core.results import section_of
from labkit.lesson import exercise_files, notebook_files
from labkit.lesson.notebook_files import Notebook
from scripts import notebooks

# minutes of a path -> tags of the cells that it leaves out
SKIPPED = {50: {"more", "skip-50"}, 90: {"more"}}

# what a learner is asked to do in the next code cell
_TASK = re.compile(r"(?m)^\*\*(?:Exercise \d\d\.\d\d?|Predict\b)")
_SECTION = re.compile(r"## (\d+) ")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument(
        "numbers",
        nargs="+",
        metavar="NN",
        help='notebooks, such as 04; "all" for all of them',
    )
    parser.add_argument(
        "--minutes", type=int, choices=sorted(SKIPPED), default=50, help="default: 50"
    )
    parser.add_argument(
        "--solved", action="store_true", help="with the solutions filled in"
    )
    parser.add_argument(
        "-o",
        dest="out",
        type=Path,
        required=True,
        help="an .ipynb file, or a folder for several",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the paths that the command line asks for."""
    paths = chosen(arguments.numbers)
    alone = arguments.out.suffix == ".ipynb"
    if alone and len(paths) > 1:
        raise LabError(
            f"{len(paths)} notebooks don't fit into one file: name a folder after -o."
        )
    (arguments.out.parent if alone else arguments.out).mkdir(
        parents=True, exist_ok=True
    )
    for path in paths:
        made = shortened(notebook_files.read(path), path.name, arguments.minutes)
        if arguments.solved:
            made = notebook_files.solved(made, exercise_files.solutions(path.name[:2]))
        file = arguments.out if alone else arguments.out / path.name
        file.write_text(
            json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        print(f"{file}: {minutes(path.name[:2], arguments.minutes)} minutes")
    return 0


def chosen(numbers: Sequence[str]) -> list[Path]:
    """The notebooks of these numbers, or all; LabError for a number that no notebook
    has.
    """
    paths = {path.name[:2]: path for path in notebook_files.paths()}
    if "all" in numbers:
        return list(paths.values())
    if unknown := [number for number in numbers if number not in paths]:
        raise LabError(
            f"There is no notebook {unknown[0]!r}. There are {', '.join(paths)}."
        )
    return [paths[number] for number in numbers]


@functools.cache
def headings(number: str) -> dict[str, str]:
    """A notebook's title ("03 What ...") under "", and its sections' headings under
    "1", "2", ...
    """
    (path,) = chosen([number])
    texts = (
        "".join(c["source"])
        for c in notebook_files.read(path)["cells"]
        if c["cell_type"] == "markdown"
    )
    matches = (re.match(r"#(?: \d\d|# (\d+)) .+", text) for text in texts)
    return {match[1] or "": match[0].lstrip("# ") for match in matches if match}


@functools.cache
def minutes(number: str, length: int) -> int:
    """Minutes that a learner needs for a path of a notebook, in whole 5 minutes, by the
    formula for whole ones.
    """
    (path,) = chosen([number])
    return notebooks.minutes(
        {"cells": _kept(notebook_files.read(path), length)}, number
    )


def is_left_out(cell: dict[str, Any], length: int) -> bool:
    """Whether a path of so many minutes goes without the cell."""
    return bool(SKIPPED[length] & set(cell["metadata"].get("tags", [])))


def shortened(notebook: Notebook, name: str, length: int) -> Notebook:
    """A copy of a notebook (nbformat 4 JSON) with the cells of one path; its first cell
    says what is left out.
    """
    cells = _kept(notebook, length)
    title = "".join(cells[0]["source"])
    title = re.sub(
        r"(?m)^\d+ minutes\b",
        f"{notebooks.minutes({'cells': cells}, name[:2])} minutes",
        title,
    )
    if len(cells) < len(notebook["cells"]):
        title += (
            f"\n\nThis is the {length}-minute path. It leaves out"
            f" {rest(notebook, length)}; "
        )
        title += f"notebooks/{name} has everything."
    cells[0]["source"] = title
    return notebook | {"cells": cells}


def _kept(notebook: Notebook, length: int) -> list[dict[str, Any]]:
    """Copies of the cells of a path.

    A prediction or an exercise whose code cell is left out is left out of the text
    above it, too.
    """
    cells: list[dict[str, Any]] = []
    following = None  # the code cell below
    for cell in reversed(copy.deepcopy(notebook["cells"])):
        if cell["cell_type"] == "code":
            following = cell
        elif following is not None and is_left_out(following, length):
            text = "".join(cell["source"])
            task = _TASK.search(text)
            cell["source"] = text[: task.start()].rstrip() if task else text
        if cell["source"] and not is_left_out(cell, length):
            cells.append(cell)
    return cells[::-1]


def rest(notebook: Notebook, length: int) -> str:
    """What a path leaves out, in words: "sections 2 and 3 and exercise 04.5"."""
    sections, exercises = left_out(notebook, length)
    parts = (
        [f"section{'s' * (len(sections) > 1)} {listed(sections)}"] if sections else []
    )
    parts += (
        [f"exercise{'s' * (len(exercises) > 1)} {listed(exercises)}"]
        if exercises
        else []
    )
    return " and ".join(parts) or "what is optional"


def left_out(notebook: Notebook, length: int) -> tuple[list[str], list[str]]:
    """Numbers of the sections that a path goes without, and of the exercises that it
    goes without in other sections.
    """
    sections = []
    exercises = []
    for cell in notebook["cells"]:
        if not is_left_out(cell, length):
            continue
        if cell["cell_type"] == "markdown" and (
            match := _SECTION.match("".join(cell["source"]))
        ):
            sections.append(match[1])
        elif number := notebook_files.stub_of(cell):
            exercises.append(number)
    return sections, [
        number for number in exercises if section_of(number)[3:] not in sections
    ]


def listed(words: Sequence[str]) -> str:
    """Words as a sentence has them: "2, 3 and 5"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
