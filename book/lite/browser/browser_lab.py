"""labkit for a browser's Python, which has no torch, no processes and no threads.

What isn't here is labkit's own. Guesses last as long as the kernel, nothing is
measured, and an answer that never returns is stopped by restarting the kernel.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import browser_gaps  # type: ignore[import-not-found] # noqa: F401 - before labkit

import labkit
from labkit.core.display import Note
from labkit.core.units import format_quantity
from labkit.lesson.answer_errors import in_words
from labkit.lesson.checks import NotYet, Passed, Todo
from labkit.lesson.exercise_files import exercise
from labkit.lesson.guesses import apart
from labkit.lesson.outcomes import Outcome

# of filelock: nobody else writes to a browser's files
warnings.filterwarnings("ignore", "only soft file lock is available")

T = TypeVar("T")
_guesses: dict[str, float] = {}


def __getattr__(name: str) -> Any:
    return getattr(labkit, name)


def pick(*, ci: T, cpu: T, gpu: T) -> T:
    """The smallest size: a browser's Python is several times slower."""
    return ci


def predict(key: str, guess: Any, unit: str, **_: Any) -> Note:
    """Keep a guess until `record` shows the number under the same key."""
    if guess is ...:
        return Note(f"Write your guess, in {unit}, in place of the dots.")
    _guesses[key] = float(guess)
    return Note(f"Your guess: {format_quantity(_guesses[key], unit)}.")


def record(key: str, value: float, unit: str, *, origin: str, **_: Any) -> Note:
    """A number with its origin, beside the guess that was made for it."""
    number = f"{key}: {format_quantity(float(value), unit)} ({origin})."
    if key not in _guesses:
        return Note(number)
    guess = _guesses[key]
    said = f"You said {format_quantity(guess, unit)}: {apart(value, guess, unit)}."
    return Note(f"{number} {said}")


class Verdict(Outcome):
    """An Outcome whose picture stands below it, without guesses."""

    def draw(self, picture: Callable[[], Any], *, wrong: bool = False) -> None:
        """Show the verdict and, once the answer is passed, what `picture()` returns;
        with `wrong` a wrong answer is drawn too, if it can be.
        """
        from IPython.display import display

        display(self)
        drawing = None
        if self:
            drawing = picture()
        elif wrong and self.state != "todo":
            with contextlib.suppress(Exception):  # the verdict says what is wrong
                drawing = picture()
        if drawing is not None:
            display(Note(drawing) if isinstance(drawing, str) else drawing)


def check(number: str, answer: object) -> Verdict:
    """What the exercise's own check says of an answer, without a time limit."""
    try:
        if answer is ...:
            raise Todo("Replace the dots with your answer.")
        sentence = exercise(number).check(answer)
    except Todo as todo:
        return Verdict(number, "todo", f"{todo} Stuck? lab.hint({number!r})")
    except NotYet as wrong:
        return Verdict(number, "not yet", str(wrong), wrong.details)
    except Exception as error:
        reason = f"Your answer could not be judged: {in_words(error)}"
        return Verdict(number, "not yet", reason)
    details = sentence.details if isinstance(sentence, Passed) else {}
    return Verdict(number, "passed", str(sentence), details)
