"""The misconceptions behind wrong answers, from misconceptions.csv, and what kind each is.

`kind` is "misconception", "slip" (something else is computed or returned) or "gaming" (it gets round the check).
Only misconceptions are taught; the two others say why an answer is wrong all the same.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("misconceptions.csv")


@dataclass(frozen=True)
class Misconception:
    """What is wrong (`title`), what people believe, what is true, where it is taught, and the source on hardware.

    `overlaps` names those that may be true of the same code: none of them is offered as a wrong option beside this one.
    """

    name: str
    kind: str
    title: str
    believed: str
    true: str
    notebook: str
    overlaps: frozenset[str]
    source: str


@functools.cache
def misconceptions() -> dict[str, Misconception]:
    """Name -> misconception, in the file's order; overlaps count in both directions."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    pairs = {(row["name"], other) for row in rows for other in row["overlaps"].split()}
    pairs |= {(b, a) for a, b in pairs}
    return {
        row["name"]: Misconception(**{**row, "overlaps": frozenset(b for a, b in pairs if a == row["name"])})  # type: ignore[arg-type]
        for row in rows
    }
