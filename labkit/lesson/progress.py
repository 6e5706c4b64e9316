"""How far the reader has come, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping

from labkit.core import results
from labkit.core.display import Table
from labkit.lesson import calibration
from labkit.lesson.outcomes import Standing, outcomes
from labkit.lesson.outline import Outline, next_step, outlines, tracks

_HEAD = (
    "notebook",
    "minutes",
    "exercises passed",
    "without help",
    "done",
    "to skip it, pass",
)
_SKIP = (
    "Know a notebook already? Pass the two exercises in its last column without a hint,"
    " and it counts as done."
)


def progress() -> Table:
    """What is done of each notebook and each track, how good your guesses were, and
    what to do next.

    A notebook is done when its exercises are passed, those in optional parts aside, or
    the two that let you skip it. The track of which most notebooks are begun comes
    first.
    """
    standings = outcomes()
    own_tracks = _own_tracks(standings)
    notebooks = sorted(
        outlines().values(), key=lambda notebook: own_tracks.isdisjoint(notebook.tracks)
    )
    rows = tuple(_row(notebook, standings) for notebook in notebooks)
    notes = [_SKIP]
    for name, notebooks in tracks().items():
        left = [
            notebook.minutes for notebook in notebooks if not notebook.done(standings)
        ]
        note = (
            f"{name}: {len(notebooks) - len(left)} of {len(notebooks)} notebooks are"
            f" done, {sum(left)} minutes are left."
        )
        if name in own_tracks:
            note += " You are on this track."
        notes.append(note)
    if guesses := calibration.calibration().table().rows:
        _, count, close, _, lean = guesses[-1]
        notes.append(
            f"Guesses made before measuring: {count}; within a factor of 2: {close};"
            f" you guess: {lean}."
        )
    notes.append(next_step(_last_notebook(standings), standings))
    log = results.results()
    if log.note:
        notes.append(log.note)
    notes += log.damaged()
    return Table(rows, _HEAD, "Your progress", tuple(notes))


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


def _row(notebook: Outline, standings: Mapping[str, Standing]) -> tuple[str, ...]:
    tried = [standings[number] for number in notebook.exercises if number in standings]
    passed = sum(standing.state == "passed" for standing in tried)
    is_done = notebook.done(standings)
    return (
        f"{notebook.number} {notebook.title}",
        str(notebook.minutes),
        f"{passed} of {len(notebook.exercises)}",
        str(sum(standing.unaided for standing in tried)),
        "done" if is_done else "",
        "" if is_done else ", ".join(notebook.skip),
    )


def _last_notebook(standings: Mapping[str, Standing]) -> Outline:
    """The notebook of the last attempt, or the first of all."""
    first = outlines()["00"]
    if not standings:
        return first
    last = max(standings.values(), key=lambda standing: standing.when)
    return outlines().get(last.number[:2], first)
