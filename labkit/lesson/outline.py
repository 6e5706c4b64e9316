"""The course's outline: its notebooks, their minutes, tracks and milestones, and what
comes next in them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from labkit.core.data_table import TableRow, read_table
from labkit.core.errors import DataError
from labkit.core.paths import DATA
from labkit.core.results import section_of
from labkit.lesson.outcomes import Standing, outcomes


@dataclass(frozen=True)
class Outline:
    """A notebook: its exercises outside of optional parts, its tracks, and the
    exercises to `skip` it by. A page of puzzles counts no minutes.
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
        passed = {n for n, standing in standings.items() if standing.state == "passed"}
        unaided = {n for n, standing in standings.items() if standing.unaided}
        if passed.issuperset(self.exercises):
            return True
        return self.skip != () and unaided.issuperset(self.skip)

    def __str__(self) -> str:
        time = f"{self.minutes} minutes" if self.minutes else "as long as you like"
        return f"{self.number} {self.title} ({time})"


@functools.cache
def outlines() -> dict[str, Outline]:
    """Number -> outline, in order. Raises DataError for a damaged data/course.csv."""
    return {
        outline.number: outline
        for outline in read_table(DATA / "course.csv", _outline, DataError)
    }


def _outline(row: TableRow) -> Outline:
    def parts(column: str) -> tuple[str, ...]:
        return tuple(filter(None, row[column].split("; ")))

    return Outline(
        number=row["file"][:2],
        file=row["file"],
        title=row["title"],
        minutes=int(row["minutes"]),
        exercises=parts("exercises"),
        tracks=parts("tracks"),
        skip=parts("skip"),
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


@dataclass(frozen=True)
class Milestone:
    """One of the course's five parts: what a reader can do after its notebooks."""

    name: str
    you_can: str
    notebooks: tuple[Outline, ...]

    @property
    def minutes(self) -> int:
        """The sum of its notebooks' minutes."""
        return sum(notebook.minutes for notebook in self.notebooks)


@functools.cache
def milestones() -> tuple[Milestone, ...]:
    """The five milestones, in order; appendices belong to none. Raises DataError for a
    damaged data/milestones.csv.
    """
    return tuple(read_table(DATA / "milestones.csv", _milestone, DataError))


def _milestone(row: TableRow) -> Milestone:
    numbers = row["notebooks"].split("; ")
    if missing := [number for number in numbers if number not in outlines()]:
        raise ValueError(f"expected notebooks of course.csv, got {missing[0]!r}")
    return Milestone(
        name=row["milestone"],
        you_can=row["you_can"],
        notebooks=tuple(outlines()[number] for number in numbers),
    )


def appendices() -> list[Outline]:
    """The notebooks of no milestone, in order."""
    within = {
        notebook.number
        for milestone in milestones()
        for notebook in milestone.notebooks
    }
    return [notebook for number, notebook in outlines().items() if number not in within]


def neighbors(number: str) -> dict[str, tuple[Outline | None, Outline | None]]:
    """Track -> the notebooks before and after one on it, None at an end; of a notebook
    on no track, those before and after it in the course, under "".
    """
    here = outlines()[number]
    ways = {name: way for name, way in tracks().items() if here in way}
    around = {}
    for name, way in (ways or {"": list(outlines().values())}).items():
        place = way.index(here)
        before = way[place - 1] if place > 0 else None
        after = way[place + 1] if place + 1 < len(way) else None
        around[name] = (before, after)
    return around


def closing(number: str) -> str:
    """What is done of a notebook's exercises, and what comes next; nothing for an
    unknown notebook.
    """
    if (here := outlines().get(number)) is None:
        return ""
    standings = outcomes()
    tried = [standings[n] for n in here.exercises if n in standings]
    passed = sum(standing.state == "passed" for standing in tried)
    unaided = sum(standing.unaided for standing in tried)
    counts = (
        f"Exercises passed: {passed} of {len(here.exercises)}, {unaided} of them"
        " without help."
    )
    return f"{counts}\n{next_step(here, standings)}"


def next_step(here: Outline, standings: Mapping[str, Standing]) -> str:
    """The exercise to go on with in a notebook or, once it is done, the notebook that
    follows in each of its tracks.
    """
    if not here.done(standings):
        passed = {n for n, standing in standings.items() if standing.state == "passed"}
        number = next(n for n in here.exercises if n not in passed)
        section = f"section {section_of(number)[3:]} of notebook {number[:2]}"
        return f"Next: exercise {number}, in {section}."
    own_tracks = {
        f", track {name}": notebooks
        for name, notebooks in tracks().items()
        if here in notebooks
    }
    choices = []
    for where, notebooks in (own_tracks or {"": list(outlines().values())}).items():
        for notebook in notebooks:
            if notebook.number > here.number and not notebook.done(standings):
                choices.append(f"{notebook}{where}")
                break
    if not choices:
        return "Next: lab.progress() shows what is left."
    return f"Next: {'; or '.join(choices)}."
