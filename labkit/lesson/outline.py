"""The course's outline: its notebooks, their minutes and tracks, and what comes next in
them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from kerneltrace.data_table import TableRow, read_table
from labkit.core.errors import DataError
from labkit.core.paths import DATA
from labkit.lesson.outcomes import Standing, outcomes


@dataclass(frozen=True)
class Outline:
    """A notebook: its exercises outside of optional parts, its tracks, and the
    exercises to `skip` it by.
    """

    number: str
    file: str
    title: str
    minutes: int
    exercises: tuple[str, ...]
    tracks: tuple[str, ...]
    skip: tuple[str, ...]

    def done(self, standings: Mapping[str, Standing]) -> bool:
        """Whether all exercises are passed, or those of `skip` without help."""
        passed = {number for number, one in standings.items() if one.state == "passed"}
        unaided = {number for number, one in standings.items() if one.unaided}
        return passed.issuperset(self.exercises) or (
            self.skip != () and unaided.issuperset(self.skip)
        )

    def __str__(self) -> str:
        return f"{self.number} {self.title} ({self.minutes} minutes)"


@functools.cache
def outlines() -> dict[str, Outline]:
    """Number -> outline, in order. Raises DataError for a damaged data/course.csv."""
    return {
        outline.number: outline
        for outline in read_table(DATA / "course.csv", _outline, DataError)
    }


def _outline(row: TableRow) -> Outline:
    exercises, tracks, skip = (
        tuple(filter(None, row[name].split("; ")))
        for name in ("exercises", "tracks", "skip")
    )
    return Outline(
        row["file"][:2],
        row["file"],
        row["title"],
        int(row["minutes"]),
        exercises,
        tracks,
        skip,
    )


def tracks() -> dict[str, list[Outline]]:
    """Track -> its notebooks, in order."""
    names = dict.fromkeys(
        track for outline in outlines().values() for track in outline.tracks
    )
    return {
        name: [outline for outline in outlines().values() if name in outline.tracks]
        for name in names
    }


def closing(number: str) -> str:
    """What is done of a notebook's exercises, and what comes next; nothing for an
    unknown notebook.
    """
    if (here := outlines().get(number)) is None:
        return ""
    standings = outcomes()
    passed = [
        standings[n].unaided
        for n in here.exercises
        if n in standings and standings[n].state == "passed"
    ]
    counts = (
        f"Exercises passed: {len(passed)} of {len(here.exercises)}, {sum(passed)} of"
        " them without help."
    )
    return f"{counts}\n{next_step(here, standings)}"


def next_step(here: Outline, standings: Mapping[str, Standing]) -> str:
    """The exercise to go on with in a notebook or, once it is done, the notebook that
    follows in each of its tracks.
    """
    if not here.done(standings):
        number = next(
            n
            for n in here.exercises
            if n not in standings or standings[n].state != "passed"
        )
        return (
            f"Next: exercise {number}, in section {number[3]} of notebook {number[:2]}."
        )
    ways = {track: way for track, way in tracks().items() if here in way} or {
        "": list(outlines().values())
    }
    after = {
        track: next(
            (str(o) for o in way if o.number > here.number and not o.done(standings)),
            "",
        )
        for track, way in ways.items()
    }
    listed = [
        f"{outline}{track and f', track {track}'}"
        for track, outline in after.items()
        if outline
    ]
    return (
        f"Next: {'; or '.join(listed)}."
        if listed
        else "Next: lab.progress() shows what is left."
    )
