"""How far the reader has come, and what to do next."""

from __future__ import annotations

from labkit.core import results
from labkit.core.display import Table
from labkit.lesson import calibration
from labkit.lesson.outcomes import outcomes
from labkit.lesson.outline import next_step, outlines, tracks

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
    log = results.results()
    rows = []
    begun = {
        name: sum(one.number in {n[:2] for n in standings} for one in way)
        for name, way in tracks().items()
    }
    on = {
        name
        for name, count in begun.items()
        if min(begun.values()) < count == max(begun.values())
    }
    for one in sorted(outlines().values(), key=lambda one: on.isdisjoint(one.tracks)):
        mine = [standings[number] for number in one.exercises if number in standings]
        counts = (
            f"{sum(a.state == 'passed' for a in mine)} of {len(one.exercises)}",
            str(sum(a.unaided for a in mine)),
        )
        ends = ("done", "") if one.done(standings) else ("", ", ".join(one.skip))
        rows.append((f"{one.number} {one.title}", str(one.minutes), *counts, *ends))
    notes = [_SKIP]
    for name, way in tracks().items():
        left = [one.minutes for one in way if not one.done(standings)]
        notes.append(
            f"{name}: {len(way) - len(left)} of {len(way)} notebooks are done,"
            f" {sum(left)} minutes are left."
        )
        notes[-1] += " You are on this track." * (name in on)
    if judged := calibration.calibration().table().rows:
        _, count, close, _, lean = judged[-1]
        notes.append(
            f"Guesses made before measuring: {count}; within a factor of 2: {close};"
            f" you guess: {lean}."
        )
    last = (
        max(standings.values(), key=lambda standing: standing.when).number[:2]
        if standings
        else "00"
    )
    notes += [
        next_step(outlines().get(last, outlines()["00"]), standings),
        *filter(None, [log.note]),
        *log.damaged(),
    ]
    return Table(tuple(rows), _HEAD, "Your progress", tuple(notes))
