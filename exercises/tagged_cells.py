"""What a notebook's own cells define, for checks, wrong answers and scripts that build on it."""

from __future__ import annotations

from typing import Any

from labkit.core.paths import NOTEBOOKS
from labkit.lesson.notebook_files import read


def tagged_cells(number: str, tag: str, **given: Any) -> dict[str, Any]:
    """The names that the cells of a notebook ("22") with a tag define, run in order after the names `given`."""
    names: dict[str, Any] = {"__name__": __name__, **given}
    path = next(NOTEBOOKS.glob(f"{number}_*.ipynb"))
    for cell in read(path)["cells"]:
        if tag in cell["metadata"].get("tags", []):
            exec("".join(cell["source"]), names)
    return names
