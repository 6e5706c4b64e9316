"""What the reader did at each exercise: kept in the results file as attempts, and summed up by `outcomes`."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from labkit.core import results
from labkit.core.display import brief_repr, cut
from labkit.core.results import Attempt
from labkit.lesson.notebook import shell
from labkit.lesson.record_runs import stub_number

_LONGEST_MESSAGE = 200
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(frozen=True)
class Standing:
    """Where a reader stands with the exercise `number`; `steps` are all that is kept of it, the oldest first.

    What was done after the first pass doesn't count.
    """

    number: str
    steps: tuple[Attempt, ...]

    @property
    def state(self) -> Literal["passed", "not yet", "open"]:
        """Open where no answer was checked, passed where any answer was right."""
        found = {step.state for step in self.steps}
        return "passed" if "passed" in found else "not yet" if "not yet" in found else "open"

    @property
    def attempts(self) -> int:
        """How many different answers were checked, the right one included."""
        return sum(step.state in ("passed", "not yet") for step in self._until_passed())

    @property
    def hints(self) -> int:
        """How many different hints were read."""
        return len({step.step for step in self._until_passed() if step.state == "hint"})

    @property
    def solution(self) -> bool:
        """Whether the solution was read before a pass."""
        return any(step.state == "solution" for step in self._until_passed())

    @property
    def unaided(self) -> bool:
        """Whether it was passed without a hint and without its solution."""
        return self.state == "passed" and not self.hints and not self.solution

    @property
    def when(self) -> str:
        """When the last step was taken, in UTC, as ISO 8601."""
        return self.steps[-1].when

    def _until_passed(self) -> tuple[Attempt, ...]:
        return self.steps[: next((i for i, step in enumerate(self.steps, 1) if step.state == "passed"), None)]


def outcomes(path: Path | None = None) -> dict[str, Standing]:
    """Number -> where the reader stands, sorted, from a results file; from this reader's own without a path.

    An exercise at which nothing was done is missing. Numbers of exercises that no longer exist may be there.
    """
    entries = results.results().entries() if path is None else results.read(path)[0]
    steps: dict[str, list[Attempt]] = {}
    for entry in entries:
        if isinstance(entry, Attempt) and entry.what.startswith(entry.section):  # else it is about a guess
            steps.setdefault(entry.what, []).append(entry)
    return {number: Standing(number, tuple(steps[number])) for number in sorted(steps)}


def note(attempt: Attempt) -> None:
    """Keep an attempt, unless the same has been kept since `lab.review` asked for it.

    So running a notebook again, with the same answers, adds nothing.
    """
    known: set[tuple[str, str, int]] = set()
    for entry in results.results().entries():
        if isinstance(entry, Attempt) and (entry.section, entry.what) == (attempt.section, attempt.what):
            if entry.state == "asked":
                known.clear()
            known.add((entry.state, entry.answer, entry.step))
    if (attempt.state, attempt.answer, attempt.step) not in known:
        results.results().append(attempt)


def note_answer(number: str, state: Literal["passed", "not yet"], message: str, answer: object) -> None:
    """Keep what a check said of an answer, which is known again by the text of the exercise's cell.

    Where there is no such cell, outside of notebooks, by its repr and the message.
    """
    cells = getattr(shell(), "user_ns", {}).get("In", ())
    text = next((cell for cell in reversed(cells) if stub_number(cell) == number), None)
    if text is None:
        text = _ADDRESS.sub("", brief_repr(answer)) + message
    code = f"{zlib.crc32(text.encode(errors='replace')):08x}"
    note(Attempt(number[:4], number, state, results.now(), code, message=cut(message, _LONGEST_MESSAGE)))


def note_help(number: str, state: Literal["hint", "solution"], step: int = 0) -> None:
    """Keep that a hint (which one: `step`) or the solution was read."""
    note(Attempt(number[:4], number, state, results.now(), step=step))


def next_hint(number: str) -> int:
    """The hint to read next: the last one again, or the one after it if another answer has been checked since."""
    step, tried = 0, False
    for attempt in outcomes()[number].steps if number in outcomes() else ():
        step, tried = (attempt.step, False) if attempt.state == "hint" else (step, tried or attempt.state == "not yet")
    return max(step + tried, 1)
