"""Run the notebooks as a reader finds them, and keep what they show until something
they stand on changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbclient
import nbformat

from labkit.core import results
from labkit.core.paths import DATA, EXERCISES, NOTEBOOKS, ROOT, SOURCES
from labkit.core.text import printable
from labkit.core.units import format_seconds
from labkit.lesson import notebook_files
from labkit.measure.machine import machine

_TRIES = 2  # runs of a notebook that other programs disturb
# what labkit writes beside a number
_DISTURBED = re.compile(r"(?<!its )machine was busy|in doubt: ")
_WIDGET = "application/vnd.jupyter.widget-view+json"


def run(
    folder: Path, only: Iterable[str], jobs: int, tell: Callable[[str], None]
) -> None:
    """Run the notebooks with these numbers into `folder`, `jobs` at a time; up-to-date
    ones are left.

    A notebook that other programs disturb is run a second time, and the calmer of both
    runs is kept, with the number of cells that were disturbed. What they measure goes
    to a results file of the book's own, `folder`/results. `tell` receives a line of
    progress for each. Raises nbclient's CellExecutionError where a notebook fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    numbers = set(only)
    todo = [
        p
        for p in notebook_files.paths()
        if p.name[:2] in numbers and _key(p) != _kept_key(folder / p.name)
    ]
    with ThreadPoolExecutor(jobs) as pool:
        for line in pool.map(lambda path: _run(path, folder), todo):
            tell(line)


def _run(path: Path, folder: Path) -> str:
    key = _key(path)
    start = time.monotonic()
    runs: list[Any] = []
    while len(runs) < _TRIES and (not runs or disturbed(runs[-1])):
        runs.append(_ran(path, folder))
    notebook = min(runs, key=disturbed)
    seconds = time.monotonic() - start
    notebook.metadata["book"] = {
        "key": key,
        "machine": machine().name,
        "profile": results.profile(),
        "day": results.now()[:10],
        "seconds": round(seconds / len(runs)),
        "disturbed": disturbed(notebook),
    }
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = list(_shown(cell.outputs))
    (folder / path.name).write_text(nbformat.writes(notebook), encoding="utf-8")
    remark = (
        f", disturbed by other programs in {disturbed(notebook)} cells"
        if disturbed(notebook)
        else ""
    )
    return f"{path.name} took {format_seconds(seconds)}{remark}"


def _ran(path: Path, folder: Path) -> Any:
    """A notebook after it has run once."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(NOTEBOOKS)}}
    # the kernel's remarks about itself are not for who builds a book
    quiet = ["--log-level=ERROR"]
    client = nbclient.NotebookClient(
        notebook,
        timeout=900,
        store_widget_state=False,
        resources=where,
        extra_arguments=quiet,
    )
    client.execute(
        env={
            **os.environ,
            "LABKIT_HOME": str(folder / "results"),
            "LABKIT_PROFILE": results.profile(),
        }
    )
    return notebook


def disturbed(notebook: Mapping[str, Any]) -> int:
    """In how many cells of a run notebook other programs took time that
    was measured.
    """
    return sum(
        bool(_DISTURBED.search(json.dumps(cell.get("outputs", []))))
        for cell in notebook["cells"]
    )


def _shown(outputs: Iterable[Any]) -> Iterator[Any]:
    """The outputs without widgets, which have no kernel in a book; what stood beside a
    widget takes its place.
    """
    for output in outputs:
        if "data" in output:
            was_widget = output.data.pop(_WIDGET, None) is not None
            # made empty on purpose: there is nothing to see
            if not "".join(output.data.get("text/html", "x")).strip():
                continue
            if was_widget and set(output.data) <= {"text/plain"}:
                continue
        yield output


def _key(path: Path) -> str:
    """Changes with the notebook, its exercises, the packages, the data, the machine and
    the profile.
    """
    digest = hashlib.sha256(f"{machine().name} {results.profile()}".encode())
    number = path.name[:2]
    for root in (*SOURCES.values(), EXERCISES / f"nb{number}", DATA):
        for file in sorted(
            p for p in root.rglob("*") if p.is_file() and "__pycache__" not in p.parts
        ):
            digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    digest.update(path.read_bytes())
    return digest.hexdigest()


def _kept_key(path: Path) -> str:
    """The key under which a notebook was run; empty where it was not."""
    if not path.exists():
        return ""
    about_run = json.loads(path.read_text(encoding="utf-8"))["metadata"].get("book", {})
    return printable(str(about_run.get("key", "")))
