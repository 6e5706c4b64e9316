"""What the reader did at each exercise: kept in the results file as attempts, and summed up by `outcomes`."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from labkit.core import results
from labkit.core.display import brief_repr, cut
from labkit.core.results import Attempt
from labkit.lesson.notebook import shell
from labkit.lesson.notebook_files import stub_number

State = Literal["passed", "not yet", "hint", "solution", "asked"]
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(frozen=True)
class Standing:
    """Where a reader stands with an exercise; it is open where help was read and no answer was checked.

    `attempts` counts different answers up to the first that passed, `hints` different hints until then, and `solution`
    says whether that was read until then. `when` is the time of the last of all `steps`, in UTC.
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
    """Number -> where the reader stands, sorted, from a results file; from this reader's own without a path.

    An exercise at which nothing was done is missing. Numbers of exercises that no longer exist may be there.
    """
    return standings(results.results().entries() if path is None else results.read(path)[0])


def standings(entries: Iterable[results.Entry]) -> dict[str, Standing]:
    """What `outcomes` makes of the entries of a results file."""
    steps: dict[str, list[Attempt]] = {}
    for entry in entries:
        if isinstance(entry, Attempt) and entry.what.startswith(entry.section):  # else it is about a guess
            steps.setdefault(entry.what, []).append(entry)
    return {number: _standing(number, steps[number]) for number in sorted(steps)}


def _standing(number: str, steps: list[Attempt]) -> Standing:
    states = [step.state for step in steps]
    end = states.index("passed") + 1 if "passed" in states else len(states)
    tried = states[:end].count("not yet") + ("passed" in states)
    state: Literal["passed", "not yet", "open"] = "passed" if "passed" in states else "not yet" if tried else "open"
    hints = len({step.step for step in steps[:end] if step.state == "hint"})
    return Standing(number, state, tried, hints, "solution" in states[:end], steps[-1].when, tuple(steps))


def _steps(number: str) -> tuple[Attempt, ...]:
    """All that this reader did at an exercise so far."""
    here = outcomes().get(number)
    return here.steps if here is not None else ()


def note(number: str, state: State, *, answer: str = "", step: int = 0, message: str = "") -> None:
    """Keep an attempt, unless the same has been kept since `lab.review` last asked for the exercise.

    So running a notebook again, with the same answers, adds nothing.
    """
    known: set[tuple[str, str, int]] = set()
    for past in _steps(number):
        known = set() if past.state == "asked" else known | {(past.state, past.answer, past.step)}
    if (state, answer, step) not in known:
        results.results().append(Attempt(number[:4], number, state, results.now(), answer, step, cut(message, 200)))


def answer_code(number: str, answer: object, message: str) -> str:
    """A short code that is the same for the same answer: of the text of the exercise's cell.

    Where there is no such cell, outside of notebooks, of the answer's repr and the message.
    """
    running = shell()
    cells = running.history_manager.input_hist_parsed if running is not None else ()
    other = _ADDRESS.sub("", brief_repr(answer)) + message
    text = next((cell for cell in reversed(cells) if stub_number(cell) == number), other)
    return f"{zlib.crc32(text.encode(errors='replace')):08x}"


def next_hint(number: str) -> int:
    """The hint to read next: the last one again, or the one after it if another answer has been checked since."""
    step, tried = 0, False
    for past in _steps(number):
        step, tried = (past.step, False) if past.state == "hint" else (step, tried or past.state == "not yet")
    return max(step + tried, 1)
