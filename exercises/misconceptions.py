"""The misconceptions behind wrong answers, from misconceptions.csv, and what kind each
is.

`kind` is "misconception", "slip" (something else is computed or returned) or "gaming"
(it gets round the check). Only misconceptions are taught; the two others say why an
answer is wrong all the same.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from labkit.core.data_table import read_table

FILE = Path(__file__).with_name("misconceptions.csv")


@dataclass(frozen=True)
class Misconception:
    """What is wrong (`title`), what people believe, what is true, where it is taught,
    and the source on hardware.

    `overlaps` names those that may be true of the same code: none of them is offered as
    a wrong option beside this one. A * in the file says that it may be true of any
    code, so that it is never a wrong option.
    """

    name: str
    kind: str
    title: str
    believed: str
    true: str
    notebook: str
    overlaps: frozenset[str]
    source: str

    @property
    def explanation(self) -> str:
        """What is true, below what somebody believed: the second answers the first."""
        return f"The belief behind it: \u201c{self.believed}\u201d {self.true}"


@functools.cache
def misconceptions() -> dict[str, Misconception]:
    """Name -> misconception, in the file's order; what the file lists as overlaps
    counts in both directions.
    """
    rows = read_table(FILE, dict)
    listed = {row["name"]: row["overlaps"].split() for row in rows}
    anywhere = {name for name, others in listed.items() if "*" in others}
    pairs = {
        (a, b)
        for name, others in listed.items()
        for other in others
        for a, b in ((name, other), (other, name))
    }
    pairs |= {(name, other) for name in listed for other in anywhere}
    by_name = {}
    for row in rows:
        overlaps = frozenset(
            b for a, b in pairs if a == row["name"] and b not in (a, "*")
        )
        by_name[row["name"]] = Misconception(**{**row, "overlaps": overlaps})  # type: ignore[arg-type]
    return by_name
