"""The page's Markdown, with all that its script needs inside of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from book.try_here import recording
from exercises.nb14 import schedule_par
from labkit.core.paths import EXERCISES
from trainplan.schedule import gpipe

HERE = Path(__file__).parent
RANKS = 3
MICROBATCHES = 5
ROOMS = (3, 2)  # micro-batches that a rank may hold, one puzzle for each
_PARTS = (
    EXERCISES / "nb14" / "schedule_editor.js",
    HERE / "steps.js",
    HERE / "schedule.js",
    HERE / "start.js",
)
_HEADING = "## Write your own, in a notebook\n\n"
_LITE = (
    '<a href="PLACE">Notebooks that run in the browser</a> have what only calculates of'
    " notebooks 01, 14 and 15, and the puzzles of 23 that need NumPy alone, with their"
    " checks. The first cell loads Python's packages from the servers of Pyodide's"
    " makers and from the package index. The code was run on a Python that lacks what"
    " a browser's lacks; in a browser with NumPy nobody has tried it yet.\n"
)
_NO_LITE = (
    "Sections of the notebooks can be edited and run in the browser, too, in a"
    " JupyterLite site. It isn't a part of this copy of the book: in a clone of the"
    " workbook, `make lite` builds it.\n"
)


def text(lite: str = "") -> str:
    """The page; `lite` is the address of the JupyterLite site, "" where it isn't a part
    of the book.
    """
    page = (HERE / "page.md").read_text(encoding="utf-8")
    about_lite = _LITE.replace("PLACE", lite) if lite else _NO_LITE
    page = page.replace("LITE", _HEADING + about_lite)
    script = "\n".join(path.read_text(encoding="utf-8") for path in _PARTS)
    # < can't end a script's tag then
    shown = json.dumps(_data()).replace("<", "\\u003c")
    return (
        f'{page}\n<script type="application/json" id="try-data">{shown}</script>\n\n'
        f'<script type="module">\n{script}</script>\n'
    )


def _data() -> dict[str, Any]:
    """What the script shows: schedules with their par, and recorded kernels."""
    return {
        "schedules": [_schedule(room) for room in ROOMS],
        "threads": [recording.recorded(launch) for launch in recording.visitors()],
        "puzzles": [recording.recorded(launch) for launch in recording.puzzles()],
    }


def _schedule(room: int) -> dict[str, Any]:
    par = schedule_par.par(RANKS, MICROBATCHES, room)
    return {
        "order": gpipe(RANKS, MICROBATCHES),
        "room": room,
        "par": par[schedule_par.TIME],
    }
