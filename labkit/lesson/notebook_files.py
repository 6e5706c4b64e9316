"""The numbered notebooks as files: where they are, and each exercise's blank replaced
by its solution.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labkit.core.paths import NOTEBOOKS

_STUB = re.compile(r"# (\d\d\.\d\d?[a-z]?)\b.*")

Notebook = dict[str, Any]

PUZZLES = frozenset({"23"})
"""Pages of puzzles, each on one screen, for as long as one likes: exempt from the
counts of exercises, guesses and minutes, and no part of a semester.
"""


def stub_number(source: str) -> str | None:
    """The exercise whose blank a code cell is: its first line reads "# 03.2 ..."; None
    for any other cell.
    """
    stub = _STUB.match(source)
    return stub[1] if stub else None


def stub_of(cell: Mapping[str, Any]) -> str | None:
    """The exercise whose blank a cell (nbformat 4 JSON) is; None for any other cell,
    text too.
    """
    return stub_number("".join(cell["source"])) if cell["cell_type"] == "code" else None


def read(path: Path) -> Notebook:
    """A notebook's JSON."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def solved(notebook: Notebook, solutions: Mapping[str, str]) -> Notebook:
    """A copy of a notebook (nbformat 4 JSON) with each exercise's blank replaced by its
    solution.
    """
    filled = copy.deepcopy(notebook)
    for cell in filled["cells"]:
        if (number := stub_of(cell)) is not None:
            first_line = "".join(cell["source"]).splitlines()[0]
            cell["source"] = f"{first_line}\n{solutions[number]}"
    return filled


def paths() -> list[Path]:
    """The numbered notebooks, in order."""
    return sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def tagged_cells(number: str, tag: str, **given: Any) -> dict[str, Any]:
    """The names that the cells of a notebook ("22") with a tag define, run in order
    after the names `given`.
    """
    names: dict[str, Any] = {"__name__": __name__, **given}
    for cell in read(next(NOTEBOOKS.glob(f"{number}_*.ipynb")))["cells"]:
        if tag in cell["metadata"].get("tags", []):
            exec("".join(cell["source"]), names)
    return names
