"""How far the reader has come, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labkit.core import results
from labkit.core.display import Table
from labkit.lesson import calibration
from labkit.lesson.outcomes import Standing, outcomes
from labkit.lesson.outline import (
    Outline,
    appendices,
    milestones,
    next_step,
    outlines,
    tracks,
)

_HEAD = ("milestone", "you can then", "done", "to do", "exercises passed", "left")


def progress() -> Table:
    """What is done of each milestone and each track, how many hours are left, how good
    your guesses were, and what to do next.

    A notebook is done when its exercises are passed, those in optional parts aside, or
    the two that its first cell names for who knows it already.
    """
    standings = outcomes()
    parts = [(part.name, part.you_can, part.notebooks) for part in milestones()]
    if further := appendices():
        parts.append(("Appendix", "do the same elsewhere", tuple(further)))
    rows = tuple(
        (name, you_can, *_counts(notebooks, standings))
        for name, you_can, notebooks in parts
    )
    notes = [*_tracks(standings), *_guesses()]
    here = _last_notebook(standings)
    notes.append(f"You are here: {here}.")
    notes.append(next_step(here, standings))
    log = results.results()
    if log.note:
        notes.append(log.note)
    notes += log.damaged()
    return Table(rows, _HEAD, "Your progress", tuple(notes))


def _counts(
    notebooks: Sequence[Outline], standings: Mapping[str, Standing]
) -> tuple[str, str, str, str]:
    """Of a milestone: the notebooks done and to do, the exercises passed, and the time
    left.
    """
    done = [notebook for notebook in notebooks if notebook.done(standings)]
    to_do = [notebook for notebook in notebooks if notebook not in done]
    numbers = {number for notebook in notebooks for number in notebook.exercises}
    passed = sum(
        standing.state == "passed"
        for number, standing in standings.items()
        if number in numbers
    )
    return (
        " ".join(notebook.number for notebook in done),
        " ".join(notebook.number for notebook in to_do),
        f"{passed} of {len(numbers)}",
        hours(sum(notebook.minutes for notebook in to_do)),
    )


def hours(minutes: int) -> str:
    """Minutes as hours and minutes: 195 -> "3 h 15 min"."""
    whole, rest = divmod(minutes, 60)
    parts = [f"{whole} h"] if whole else []
    if rest or not whole:
        parts.append(f"{rest} min")
    return " ".join(parts)


def _tracks(standings: Mapping[str, Standing]) -> list[str]:
    """A sentence for each track: what is done of it, and what is left."""
    own_tracks = _own_tracks(standings)
    sentences = []
    for name, notebooks in tracks().items():
        left = [
            notebook.minutes for notebook in notebooks if not notebook.done(standings)
        ]
        sentence = (
            f"{name}: {len(notebooks) - len(left)} of {len(notebooks)} notebooks are"
            f" done, {hours(sum(left))} are left."
        )
        if name in own_tracks:
            sentence += " You are on this track."
        sentences.append(sentence)
    return sentences


def _guesses() -> list[str]:
    """A sentence on the reader's guesses, where there are any."""
    rows = calibration.calibration().table().rows
    if not rows:
        return []
    _, count, close, _, lean = rows[-1]
    return [
        f"Guesses made before measuring: {count}; within a factor of 2: {close};"
        f" you guess: {lean}."
    ]


def _own_tracks(standings: Mapping[str, Standing]) -> set[str]:
    """The tracks of which most notebooks are begun; none where all have as many."""
    begun = {number[:2] for number in standings}
    counts = {
        name: sum(notebook.number in begun for notebook in notebooks)
        for name, notebooks in tracks().items()
    }
    most = max(counts.values())
    if most == min(counts.values()):
        return set()
    return {name for name, count in counts.items() if count == most}


def _last_notebook(standings: Mapping[str, Standing]) -> Outline:
    """The notebook of the last attempt, or the first of all."""
    first = outlines()["00"]
    if not standings:
        return first
    # of attempts in the same second, the later one
    latest_first = reversed(list(standings.values()))
    last = max(latest_first, key=lambda standing: standing.when)
    return outlines().get(last.number[:2], first)
