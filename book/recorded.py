"""The page of the recorded runs: what each machine measured at full
size, side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from labkit.core import results
from labkit.core.paths import RECORDED
from labkit.core.results import Measurement
from labkit.lesson import notebook_files

_ABOUT = (
    "What whole runs of the notebooks at full size measured, a column for each machine."
    " A row holds the same work: the same size, number format and unit. A number that"
    " was simulated or calculated there says so, and so does one that was taken while"
    " other programs were busy. An empty field was not measured on that machine."
)


def page(folder: Path = RECORDED) -> str:
    """The page in Markdown, with a table for each notebook that a recorded run in
    `folder` has.
    """
    numbers = [
        entry
        for path in sorted(folder.glob("*.jsonl"))
        for entry in results.read(path)[0]
    ]
    full = [m for m in numbers if isinstance(m, Measurement) and m.profile == "full"]
    machines = sorted({m.machine for m in full})
    parts = ["# Recorded runs", _ABOUT]
    titles = {path.name[:2]: path for path in notebook_files.paths()}
    for number in sorted({m.section[:2] for m in full} & set(titles)):
        title = "".join(
            notebook_files.read(titles[number])["cells"][0]["source"]
        ).splitlines()[0]
        parts += [
            f"#{title}",
            _table([m for m in full if m.section[:2] == number], machines),
        ]
    return "\n\n".join(parts) + "\n"


def _table(numbers: Iterable[Measurement], machines: list[str]) -> str:
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for m in numbers:
        work = ", ".join(filter(None, (m.size, m.dtype)))
        rows.setdefault((m.section, m.what, work, m.unit), {})[m.machine] = _shown(m)
    lines = [
        ["Section", "What", "Size and format", *machines],
        ["---"] * (3 + len(machines)),
    ]
    for (section, what, work, _), row in sorted(rows.items()):
        lines.append(
            [section, what, work, *(row.get(machine, "") for machine in machines)]
        )
    return "\n".join(f"| {' | '.join(map(plain, cells))} |" for cells in lines)


def _shown(m: Measurement) -> str:
    notes = [
        word
        for word in (
            "" if m.origin == "measured" else m.origin,
            m.busy and "machine busy",
        )
        if word
    ]
    return m.amount + (f" ({', '.join(notes)})" if notes else "")


def plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", text)
