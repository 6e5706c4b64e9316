"""Copies of the notebooks as they were shipped, for whoever looks at them: readers work
in notebooks/ itself, and what they wrote must fail no test.

Standard library only: tests/conftest reads it before labkit is imported.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
COPIES = ROOT / "build" / "notebooks"
# What setup keeps where there is no git to ask, as in a folder that was downloaded.
AS_SHIPPED = ROOT / "build" / "as_shipped"


def is_worked_in(text: str) -> bool:
    """Whether somebody opened a notebook and saved it: Jupyter then adds the version of
    Python, and outputs and numbers of runs that no shipped notebook has.
    """
    notebook = json.loads(text)
    language = notebook["metadata"].get("language_info", {})
    return "version" in language or any(map(_has_run, notebook["cells"]))


def _has_run(cell: dict[str, Any]) -> bool:
    if cell["cell_type"] != "code":
        return False
    if "keep_output" in cell["metadata"].get("tags", []):
        return False
    return bool(cell.get("outputs")) or cell.get("execution_count") is not None


def as_shipped(path: Path) -> str | None:
    """The text of a notebook before anybody worked in it: its own, else what the last
    commit holds, else what setup kept; None where none of them is left.
    """
    text = path.read_text(encoding="utf-8")
    if not is_worked_in(text):
        return text
    committed = _committed(path)
    if committed is not None:
        return committed
    kept = AS_SHIPPED / path.name
    return kept.read_text(encoding="utf-8") if kept.exists() else None


def _committed(path: Path) -> str | None:
    command = ["git", "show", f"HEAD:./{path.name}"]
    try:
        shown = subprocess.run(
            command, cwd=path.parent, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    text = shown.stdout.decode("utf-8")
    return None if is_worked_in(text) else text


def keep_shipped() -> None:
    """Keep the notebooks in build/as_shipped where no git has them."""
    if (ROOT / ".git").exists():
        return
    AS_SHIPPED.mkdir(parents=True, exist_ok=True)
    for path in NOTEBOOKS.glob("*.ipynb"):
        text = path.read_text(encoding="utf-8")
        if not is_worked_in(text):
            (AS_SHIPPED / path.name).write_text(text, encoding="utf-8")


def worked_in(source: Path = NOTEBOOKS) -> list[Path]:
    """The notebooks of a folder that somebody worked in."""
    return [
        path
        for path in sorted(source.glob("*.ipynb"))
        if is_worked_in(path.read_text(encoding="utf-8"))
    ]


def write_copies(source: Path = NOTEBOOKS, target: Path = COPIES) -> None:
    """Bring build/notebooks up to date. A notebook that somebody worked in and of which
    no shipped text is left has no copy.
    """
    target.mkdir(parents=True, exist_ok=True)
    texts = {path.name: as_shipped(path) for path in source.glob("*.ipynb")}
    for old in target.glob("*.ipynb"):
        if texts.get(old.name) is None:
            old.unlink()
    for name, text in texts.items():
        copy = target / name
        if text is None:
            continue
        # another run may be reading it
        if not copy.exists() or copy.read_text(encoding="utf-8") != text:
            copy.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    keep_shipped()
