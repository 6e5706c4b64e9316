"""What a check says of an answer, and what the reader did at each exercise: kept as
attempts and summed up.
"""

from __future__ import annotations

import ast
import contextlib
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from labkit.core import results
from labkit.core.display import (
    LITERAL,
    Note,
    Shown,
    as_html,
    brief_repr,
    cut,
    linked_html,
)
from labkit.core.parameters import checked
from labkit.core.results import Attempt
from labkit.core.text import printable
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
    """What a check says of an answer; `details` are those of its NotYet or Passed."""

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
        return printable(f"{self.number} {self.state}: {self.message}")

    @checked
    def draw(self, picture: Callable[[], Any], *, wrong: bool = False) -> None:
        """Show the verdict and, once the answer is passed, what `picture()` returns: a
        figure, with the guesses that it answers, or text or a table.

        With `wrong` an answer that isn't right is drawn too, if it can be. A picture is
        one output with the verdict.
        """
        from IPython.display import display

        from labkit.lesson.guesses import answered, in_words
        from labkit.plot import Picture

        drawing: Any = None
        try:
            if self:
                drawing = picture()
            elif wrong and self.state != "todo":
                with contextlib.suppress(Exception):  # the verdict says what is wrong
                    drawing = picture()
        finally:
            # above the traceback of a picture that can't be drawn stands the verdict
            data: dict[str, str] = {}
            metadata: dict[str, Any] = {}
            if isinstance(drawing, Picture):
                data, metadata = drawing.data(in_words(answered()))
            text = f"{self}\n{data.get('text/plain', '')}".rstrip()
            html = self._repr_html_(data.get("text/html", ""))
            data |= {"text/html": html, "text/plain": text}
            display(data, raw=True, metadata=metadata)
        if isinstance(drawing, str):
            drawing = Note(drawing)  # without quotation marks
        if not isinstance(drawing, Picture | None):
            display(drawing)

    def _repr_html_(self, figure: str = "") -> str:
        sign, color = _STYLE[self.state]
        text = linked_html(self.message).replace("\n", "<br>")
        verdict = f"<b>{sign} {as_html(self.number)} {self.state}.</b>"
        words = f"<div style='max-width:48em'>{verdict} {text}</div>"
        # the words have the page's own color, which can be read on light and dark; the
        # edge alone is colored
        style = f"border-left:4px solid {color};padding-left:0.6em"
        return f"<div class='{LITERAL}' style='{style}'>{words}{figure}</div>"


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
    if path is None:
        return standings(results.results().entries())
    entries, _ = results.read(path)
    return standings(entries)


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
    state: Literal["passed", "not yet", "open"]
    until_passed = steps
    if "passed" in states:
        state = "passed"
        until_passed = steps[: states.index("passed") + 1]
    elif "not yet" in states:
        state = "not yet"
    else:
        state = "open"
    attempts = [step for step in until_passed if step.state in ("not yet", "passed")]
    hints = {step.step for step in until_passed if step.state == "hint"}
    return Standing(
        number=number,
        state=state,
        attempts=len(attempts),
        hints=len(hints),
        solution=any(step.state == "solution" for step in until_passed),
        when=steps[-1].when,
        steps=tuple(steps),
    )


def _steps(number: str) -> tuple[Attempt, ...]:
    """All that this reader did at an exercise so far."""
    standing = outcomes().get(number)
    return () if standing is None else standing.steps


def note(
    number: str, state: State, *, answer: str = "", step: int = 0, message: str = ""
) -> None:
    """Keep an attempt, unless the same has been kept: running a notebook again, with
    the same answers, adds nothing.
    """
    kept = {(past.state, past.answer, past.step) for past in _steps(number)}
    if (state, answer, step) in kept:
        return
    attempt = Attempt(
        section=results.section_of(number),
        what=number,
        state=state,
        when=results.now(),
        answer=answer,
        step=step,
        message=cut(message, 200),
    )
    results.results().append(attempt)


def answer_code(number: str, answer: object, message: str) -> str:
    """A short code that is the same for the same answer: of the text of the exercise's
    cell.

    Where there is no such cell, outside of notebooks, of the answer's repr and the
    message.
    """
    text = _last_cell(number) or _ADDRESS.sub("", brief_repr(answer)) + message
    return f"{zlib.crc32(text.encode(errors='replace')):08x}"


def is_broken(number: str) -> bool:
    """Whether the exercise's cell was run last with a syntax error, so that its answer
    is still the one before.
    """
    try:
        ast.parse(_last_cell(number))
    except (SyntaxError, ValueError):
        return True
    return False


def _last_cell(number: str) -> str:
    """The exercise's cell as it was run last; empty where it wasn't, and outside of
    notebooks.
    """
    running = shell()
    cells = running.history_manager.input_hist_parsed if running is not None else ()
    last = ""
    for cell in cells:
        if stub_number(cell) == number:
            last = cell
    return last


def next_hint(number: str) -> int:
    """The hint to read next: the last one again, or the one after it if another answer
    has been checked since.
    """
    step = 0
    answered_since = False
    for past in _steps(number):
        if past.state == "hint":
            step = past.step
            answered_since = False
        elif past.state == "not yet":
            answered_since = True
    if step == 0 or answered_since:
        step += 1
    return step
