"""Run every notebook on this machine, with the solutions filled in, and keep what was
measured as a recorded run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from labkit.core import results
from labkit.core.errors import LabError
from labkit.core.paths import NOTEBOOKS, RECORDED
from labkit.core.results import Measurement, Verdict
from labkit.core.units import format_seconds
from labkit.lesson import exercise_files, notebook_files
from labkit.measure.machine import machine
from teaching.assignments import require

# runs of a notebook, seconds of a cell
_TRIES = 3
_CELL_S = 1_500
# of a terminal, in a traceback
_COLOR = re.compile(r"\x1b\[[\d;]*m")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "--only",
        default="",
        metavar="NN",
        help="only the notebooks whose name starts so",
    )


def run(arguments: argparse.Namespace) -> int:
    """Record, with a line of progress for each notebook."""
    record(lambda line: print(line, flush=True), only=arguments.only)
    return 0


def record(
    tell: Callable[[str], None], folder: Path = RECORDED, only: str = ""
) -> Path:
    """Run the notebooks (those whose name starts with `only`) at full size; the
    recorded run's path.

    `tell` receives a line of progress for each. What a notebook measured is kept as
    soon as it has ended. One that was disturbed by other programs is run again, twice
    at most. One that fails, or is disturbed each time, leaves the recorded run of this
    machine as it was; the others run all the same, and then a LabError names it.
    """
    todo = [path for path in notebook_files.paths() if path.name.startswith(only)]
    here = machine()
    failed = []
    target = folder / f"{here.slug}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        for i, path in enumerate(todo, start=1):
            tell(f"[{i}/{len(todo)}] {path.name} ...")
            start = time.monotonic()
            try:
                _run_undisturbed(path, home, tell)
            except LabError as error:
                tell(str(error))
                # a traceback may follow, which nobody needs twice
                failed.append(str(error).splitlines()[0])
                continue
            kept = _keep(Path(home) / "results.jsonl", target, path.name[:2])
            took = format_seconds(time.monotonic() - start)
            tell(
                f"[{i}/{len(todo)}] {path.name} took {took}; {kept} entries of"
                f" {here.name} are in {target}"
            )
    if failed:
        raise LabError(" ".join(failed))
    return target


def _keep(file: Path, target: Path, number: str) -> int:
    """Replace a notebook's entries in a recorded run by those of a results file; how
    many there are.
    """
    entries = [
        e
        for e in results.read(file)[0]
        if isinstance(e, Measurement | Verdict) and e.section[:2] == number
    ]
    others = [e for e in results.read(target)[0] if e.section[:2] != number]
    lines = sorted(
        (results.to_line(e) for e in [*others, *entries]),
        key=lambda line: str(json.loads(line)["section"]),
    )
    target.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return len(entries)


def _run_undisturbed(path: Path, home: str, tell: Callable[[str], None]) -> None:
    """Run one notebook until none of its measurements is marked busy, but at most three
    times.
    """
    file = Path(home) / "results.jsonl"
    before = file.read_bytes() if file.exists() else b""
    try:
        for _ in range(_TRIES):
            file.write_bytes(before)
            _run(path, home)
            marked = {
                e.key: e.busy
                for e in results.read(file)[0]
                if isinstance(e, Measurement) and e.busy
            }
            if not marked:
                return
            tell(
                f"{path.name}:"
                f" {'; '.join(f'{key}: {busy}' for key, busy in marked.items())}"
            )
        raise LabError(
            f"{path.name} was run {_TRIES} times, the last time on a busy machine for"
            f" {', '.join(marked)}, so nothing of it was recorded. End other programs,"
            " and record again."
        )
    except LabError:
        file.write_bytes(before)
        raise


def _run(path: Path, home: str) -> None:
    """Run one notebook with its solutions, its state in the folder `home`."""
    filled = notebook_files.solved(
        notebook_files.read(path), exercise_files.solutions(path.name[:2])
    )
    if failed := list(
        _not_passed(ran(path.name, filled, LABKIT_HOME=home, LABKIT_PROFILE="full"))
    ):
        raise LabError(
            f"{path.name}: its own solutions did not pass: {'; '.join(failed)}"
        )


def ran(name: str, notebook: notebook_files.Notebook, **environment: str) -> Any:
    """A notebook (nbformat 4 JSON) after it has run; LabError where a cell fails,
    MissingExtra without nbclient.
    """
    require("nbclient")
    import nbclient
    import nbformat

    made = nbformat.reads(json.dumps(notebook), as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    try:
        nbclient.NotebookClient(
            made, timeout=_CELL_S, store_widget_state=False, resources=resources
        ).execute(env={**os.environ, **environment})
    except (
        nbclient.exceptions.CellControlSignal,
        nbclient.exceptions.DeadKernelError,
    ) as error:
        reason = _COLOR.sub("", str(error))
        raise LabError(f"{name} failed, so nothing of it was kept: {reason}") from error
    return made


def _not_passed(notebook: Any) -> Iterator[str]:
    """The outcomes other than 'passed' among a run notebook's outputs."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            text = "".join(output.get("data", {}).get("text/plain", ""))
            if re.match(r"\d\d\.\d\d?[a-z]? (todo|not yet): ", text):
                yield text
