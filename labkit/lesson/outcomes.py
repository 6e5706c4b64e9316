"""What a check says of an answer, and what the reader did at each exercise: kept as
attempts and summed up.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from labkit.core import results
from labkit.core.display import LITERAL, Shown, as_html, brief_repr, cut, linked_html
from labkit.core.parameters import checked
from labkit.core.results import Attempt
from labkit.lesson.notebook import shell
from labkit.lesson.notebook_files import stub_number

State = Literal["passed", "not yet", "hint", "solution"]
_STYLE = {
    "todo": ("○", "#8a8a8a"),
    "not yet": ("✗", "#D55E00"),
    "passed": ("✓", "#009E73"),
}
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(frozen=True, repr=False)
class Outcome(Shown):
    """What a check says of an answer; `details` are those of NotYet, and empty for
    other states.
    """

    number: str
    state: Literal["todo", "not yet", "passed"]
    message: str
    details: Mapping[str, object] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether it is passed: `solved and answer(3)` shows what is still open, and
        once it is passed the answer.
        """
        return self.state == "passed"

    def __str__(self) -> str:
        return f"{self.number} {self.state}: {self.message}"

    @checked
    def draw(self, picture: Callable[[], Any], *, wrong: bool = False) -> None:
        """Show the verdict and, once the answer is passed, what `picture()` draws, with
        the guesses that it answers.

        With `wrong` an answer that isn't right is drawn too, if it can be. A picture is
        one output with the verdict.
        """
        from IPython.display import display

        from labkit.lesson.guesses import answered, in_words
        from labkit.plot import Picture

        drawn: Any = None
        try:
            # the verdict says what is wrong
            with contextlib.suppress(*() if self else (Exception,)):
                drawn = picture() if self or (wrong and self.state != "todo") else None
        finally:
            # above the traceback of a picture that can't be drawn stands the verdict
            data, metadata = (
                drawn.data(in_words(answered()))
                if isinstance(drawn, Picture)
                else ({}, {})
            )
            text = f"{self}\n{data.get('text/plain', '')}".rstrip()
            data |= {
                "text/html": self._repr_html_(data.get("text/html", "")),
                "text/plain": text,
            }
            display(data, raw=True, metadata=metadata)
        if not isinstance(drawn, Picture | None):
            display(drawn)

    def _repr_html_(self, figure: str = "") -> str:
        sign, color = _STYLE[self.state]
        text = linked_html(self.message).replace("\n", "<br>")
        words = (
            f"<div style='max-width:48em'><b>{sign} {as_html(self.number)}"
            f" {self.state}.</b> {text}</div>"
        )
        # the words have the page's own colour, which can be read on light and dark; the
        # edge alone is coloured
        return (
            f"<div class='{LITERAL}' style='border-left:4px solid"
            f" {color};padding-left:0.6em'>{words}{figure}</div>"
        )


@dataclass(frozen=True)
class Standing:
    """Where a reader stands with an exercise; it is open where help was read and no
    answer was checked.

    `attempts` counts different answers up to the first that passed, `hints` different
    hints until then, and `solution` says whether that was read until then. `when` is
    the time of the last of all `steps`, in UTC.
    """

    number: str
    state: Literal["passed", "not yet", "open"]
    attempts: int
    hints: int
    solution: bool
    when: str
    steps: tuple[Attempt, ...]

    @property
    def unaided(self) -> bool:
        """Whether it was passed without a hint and without its solution."""
        return self.state == "passed" and not self.hints and not self.solution


def outcomes(path: Path | None = None) -> dict[str, Standing]:
    """Number -> where the reader stands, sorted, from a results file; from this
    reader's own without a path.

    An exercise at which nothing was done is missing. Numbers of exercises that no
    longer exist may be there.
    """
    return standings(
        results.results().entries() if path is None else results.read(path)[0]
    )


def standings(entries: Iterable[results.Entry]) -> dict[str, Standing]:
    """What `outcomes` makes of the entries of a results file."""
    steps: dict[str, list[Attempt]] = {}
    for entry in entries:
        # somebody else's file may hold others
        if isinstance(entry, Attempt) and entry.what.startswith(entry.section):
            steps.setdefault(entry.what, []).append(entry)
    return {number: _standing(number, steps[number]) for number in sorted(steps)}


def _standing(number: str, steps: list[Attempt]) -> Standing:
    states = [step.state for step in steps]
    end = states.index("passed") + 1 if "passed" in states else len(states)
    tried = states[:end].count("not yet") + ("passed" in states)
    state: Literal["passed", "not yet", "open"]
    if "passed" in states:
        state = "passed"
    elif tried:
        state = "not yet"
    else:
        state = "open"
    hints = len({step.step for step in steps[:end] if step.state == "hint"})
    return Standing(
        number,
        state,
        tried,
        hints,
        "solution" in states[:end],
        steps[-1].when,
        tuple(steps),
    )


def _steps(number: str) -> tuple[Attempt, ...]:
    """All that this reader did at an exercise so far."""
    return here.steps if (here := outcomes().get(number)) is not None else ()


def note(
    number: str, state: State, *, answer: str = "", step: int = 0, message: str = ""
) -> None:
    """Keep an attempt, unless the same has been kept: running a notebook again, with
    the same answers, adds nothing.
    """
    kept = {(past.state, past.answer, past.step) for past in _steps(number)}
    if (state, answer, step) not in kept:
        results.results().append(
            Attempt(
                number[:4],
                number,
                state,
                results.now(),
                answer,
                step,
                cut(message, 200),
            )
        )


def answer_code(number: str, answer: object, message: str) -> str:
    """A short code that is the same for the same answer: of the text of the exercise's
    cell.

    Where there is no such cell, outside of notebooks, of the answer's repr and the
    message.
    """
    running = shell()
    cells = running.history_manager.input_hist_parsed if running is not None else ()
    other = _ADDRESS.sub("", brief_repr(answer)) + message
    text = next(
        (cell for cell in reversed(cells) if stub_number(cell) == number), other
    )
    return f"{zlib.crc32(text.encode(errors='replace')):08x}"


def next_hint(number: str) -> int:
    """The hint to read next: the last one again, or the one after it if another answer
    has been checked since.
    """
    step = 0
    tried = False
    for past in _steps(number):
        step, tried = (
            (past.step, False)
            if past.state == "hint"
            else (step, tried or past.state == "not yet")
        )
    return max(step + tried, 1)
