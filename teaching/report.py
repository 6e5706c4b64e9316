"""Write one HTML file about all that a reader guessed and measured: boards first, then
tables. It needs no network.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from exercises.nb16 import course
from labkit.core import results
from labkit.core.display import Table
from labkit.core.own_folder import writing
from labkit.core.results import Measurement
from labkit.lesson import journal, outline
from labkit.lesson.boards import SpeedBoard
from labkit.lesson.progress import progress
from labkit.measure.bench import Timing
from labkit.measure.machine import machine
from teaching import path as paths
from teaching.exam import filled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        default=Path("report.html"),
        help="default: report.html",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the page."""
    with writing(arguments.file):
        write_page(arguments.file)
    print(f"{arguments.file} is written. Open it in a browser; it needs no network.")
    return 0


def write_page(path: Path) -> None:
    """Write the page about this reader's results on this machine. Raises OSError where
    `path` can't be written.
    """
    log = results.results()
    here = machine()
    shown = progress()
    claims = course.claims()
    sources = {
        e["source"]: e["link"] for claim in claims.claims for e in claim.evidence
    }
    parts = {
        "Progress": Table(shown.rows, shown.headings, notes=shown.notes[:1]),
        "Guesses": course.calibration(),
    }
    measured = [
        e
        for e in log.entries()
        if isinstance(e, Measurement) and e.machine == here.name
    ]
    notebooks = []
    for number in outline.outlines():
        summary = journal.summary(number)
        headings = paths.headings(number)
        if summary.rows or summary.verdicts:
            notebooks.append(
                (
                    headings[""],
                    summary,
                    _boards([m for m in measured if m.section[:2] == number], headings),
                )
            )
    sentences = [f"From {log.path}, {results.now()}.", *shown.notes[1:]]
    fields = {
        "sentences": sentences,
        "parts": parts,
        "claims": claims,
        "sources": sources,
        "notebooks": notebooks,
    }
    path.write_text(
        filled("report.html", title=f"Speed of training on {here.name}", **fields),
        encoding="utf-8",
    )


def _boards(
    measured: Iterable[Measurement], headings: dict[str, str]
) -> list[SpeedBoard]:
    """Each board as its last readings make it: rows of one section, unit, size and
    number format stand together.
    """
    boards: dict[tuple[str, ...], SpeedBoard] = {}
    for m in measured:
        if not m.samples or min(m.samples) <= 0 or (m.items is None) != (m.unit == "s"):
            continue
        key = m.section, m.unit, m.size, m.dtype
        heading = headings.get(m.section[-1], m.section)
        board = boards.setdefault(
            key, SpeedBoard(m.section, heading, unit=m.unit, size=m.size, dtype=m.dtype)
        )
        seconds = (
            m.samples
            if m.items is None
            else tuple(m.items / rate for rate in m.samples)
        )
        board.add(
            m.what,
            Timing(m.what, seconds[0], seconds),
            items=m.items,
            simulated=m.origin == "simulated",
        )
    return list(boards.values())
