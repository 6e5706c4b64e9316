"""Bring back what was missed, at growing intervals: exercises that took help, and guesses that were far off.

The dates are those of FSRS (github.com/open-spaced-repetition/py-fsrs). They follow from the results file alone.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from urllib.parse import quote

import fsrs

from labkit.core import results
from labkit.core.arguments import as_float
from labkit.core.display import Note, brief_repr
from labkit.core.parameters import checked
from labkit.core.paths import NOTEBOOKS
from labkit.core.results import Attempt, Measurement
from labkit.core.units import format_quantity
from labkit.lesson import exercise_files, notebook_files, outcomes
from labkit.lesson.checks import Text
from labkit.lesson.guesses import apart, before_measuring, refusal
from labkit.lesson.outline import outlines

_FAR = 2.0  # a guess was missed that is off by a larger factor
_AT_ONCE = 3  # exercises, and guesses, that one review shows


@checked
def review(guess: str = "", value: object = ...) -> Text | Note:
    """What to do again today: the exercises that were missed, and the guesses that were far off.

    An exercise is answered again where it stands. A guess is made again by its name in the list and a `value`.
    """
    if guess:
        return _made_again(guess, value)
    due, standings, asked = due_today(), outcomes.outcomes(), _missed()
    if not due:
        dates = due_dates().values()
        return Note("Nothing is due today." + (f" The next day is {min(dates)}." if dates else ""))
    numbers = [name for name in due if name in standings][:_AT_ONCE]
    keys = [name for name in due if name in asked][:_AT_ONCE]
    for number in numbers:
        if standings[number].steps[-1].state != "asked":
            outcomes.note(number, "asked")
    shown = [_exercise(number) for number in numbers]
    shown += [
        f"**Guess again: {key}**, in {asked[key][1].unit}. What would you say now? `lab.review({key!r}, ...)`"
        for key in keys
    ]
    return Text("\n\n".join([f"Due today: {len(due)}. Here are {len(shown)}.", *shown]))


def due_today() -> list[str]:
    """The exercises and guesses that are due, those that have waited longest first."""
    today = datetime.fromisoformat(results.now()).date()
    return [name for name, day in due_dates().items() if day <= today]


def due_dates() -> dict[str, date]:
    """When each missed exercise ("03.2") and guess ("03.5 its name") is due again, in UTC; the earliest come first."""
    exist, standings = exercise_files.numbers(), outcomes.outcomes()
    missed = {number: one.steps for number, one in standings.items() if number in exist and not one.unaided}
    dates = {number: _due(_ratings(steps)) for number, steps in missed.items()}
    for key, (_, m) in _missed().items():
        again = [e for e in results.results().entries() if isinstance(e, Attempt) and e.when >= m.when]
        states = [(e.when, e.state) for e in again if (e.section, e.what) == (m.section, m.what)]
        rated = [(when, fsrs.Rating.Good if state == "passed" else fsrs.Rating.Again) for when, state in states]
        dates[key] = _due([(m.when, fsrs.Rating.Again), *rated])
    return dict(sorted(dates.items(), key=lambda item: item[1]))


def _exercise(number: str) -> str:
    """The question of an exercise, with a link to its section."""
    file = outlines()[number[:2]].file
    cells = notebook_files.read(NOTEBOOKS / file)["cells"]
    prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    heading = next((text.splitlines()[0][3:] for text in prose if text.startswith(f"## {number[3]} ")), "")
    start = f"**Exercise {number}.**"
    question = next((text[text.index(start) :] for text in prose if start in text), start)
    link = f"[notebook {number[:2]}, section {heading}]({file}#{quote(heading.replace(' ', '-'))})"
    return f"{question}\n\nClear your answer in {link}, write it anew and check it."


def _made_again(key: str, value: object) -> Note:
    """Keep another guess, and tell the number."""
    key, number = " ".join(key.split()), as_float(value)
    if (missed := _missed().get(key)) is None:
        return Note(f"Expected the name of a guess that lab.review() lists, got {brief_repr(key)}.")
    before, m = missed
    wrong = refusal(math.nan if number is None else number, m.unit, math.inf)
    if number is None or wrong:
        return Note(f"Expected {wrong}, got {brief_repr(value)}.")
    good = number / _FAR <= m.value <= _FAR * number
    results.results().append(Attempt(m.section, m.what, "passed" if good else "not yet", results.now(), f"{number:g}"))
    guess, earlier, was = (format_quantity(quantity, m.unit) for quantity in (number, before, m.value))
    told = f"You say {guess}, after {earlier}; it was {was}: {apart(m.value, number, m.unit)}."
    return Note(f"{told} It comes back on {due_dates()[key]}.")


def _missed() -> dict[str, tuple[float, Measurement]]:
    """Key -> guess and measurement, of the guesses that were off by more than a factor of _FAR, the worst first."""
    far = {m.key: (max(m.value / guess, guess / m.value), guess, m) for guess, m in before_measuring()}
    worst = sorted(far.items(), key=lambda item: -item[1][0])
    return {key: (guess, m) for key, (off, guess, m) in worst if off > _FAR}


def _ratings(steps: Iterable[Attempt]) -> Iterator[tuple[str, fsrs.Rating]]:
    """When and how well an exercise was solved: at first, and each time that a review asked for it."""
    times: list[list[Attempt]] = [[]]
    for step in steps:
        if step.state == "asked":
            times.append([])
        elif all(earlier.state != "passed" for earlier in times[-1]):
            times[-1].append(step)
    for time in filter(None, times):
        states = [step.state for step in time]
        failed = "passed" not in states or "solution" in states
        rating = fsrs.Rating.Again if failed else fsrs.Rating.Hard if len(states) > 1 else fsrs.Rating.Good
        yield time[-1].when, rating


def _due(ratings: Iterable[tuple[str, fsrs.Rating]]) -> date:
    scheduler = fsrs.Scheduler(learning_steps=(), relearning_steps=(), enable_fuzzing=False)  # whole days
    card = fsrs.Card(card_id=1)
    for when, rating in sorted(ratings):
        with contextlib.suppress(ValueError):  # a time that somebody has edited
            card, _ = scheduler.review_card(card, rating, datetime.fromisoformat(when))
    return card.due.date()
