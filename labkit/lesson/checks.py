"""Judge answers: `check` says todo, not yet or passed and why; `hint` helps in steps; `solution` shows one way.

All there is about the exercises of notebook NN stands in the folder `exercises/nbNN`; its `check.py` builds on the
helpers at the end of this file. A check takes an answer, returns the sentence of a pass, and raises `Todo` or `NotYet`
otherwise. `check` turns all of that into an `Outcome`, also what the reader's own code raises, so that a wrong answer
is a result and never a traceback.
"""

from __future__ import annotations

import functools
import html
import importlib
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from labkit.core.arguments import as_float
from labkit.core.display import Shown, brief_repr, cut
from labkit.core.errors import DataError, LabError, UnknownExercise, nearest
from labkit.core.paths import EXERCISES, ROOT
from labkit.core.units import significant

_NUMBER = r"\d\d\.\d[a-z]?"  # "03.2": notebook and section
_LONGEST_ERROR = 300
_STYLE = {"todo": ("○", "#555"), "not yet": ("✗", "#b34700"), "passed": ("✓", "#00734f")}


class Todo(LabError):
    """The answer is still open; the message says what is asked for."""


class NotYet(LabError):
    """The answer is wrong; the message says why."""


@dataclass(frozen=True)
class Exercise:
    """A check (answer -> sentence of a pass; raises Todo or NotYet) and hints, from a nudge to nearly the answer."""

    check: Callable[[Any], str]
    hints: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Outcome(Shown):
    """What a check says of an answer."""

    number: str
    state: Literal["todo", "not yet", "passed"]
    message: str

    def __str__(self) -> str:
        return f"{self.number} {self.state}: {self.message}"

    def _repr_html_(self) -> str:
        sign, color = _STYLE[self.state]
        text = html.escape(self.message).replace("\n", "<br>")
        return (
            f"<div style='max-width:48em'><b style='color:{color}'>{sign} {self.number} {self.state}.</b> {text}</div>"
        )


@dataclass(frozen=True, repr=False)
class Text(Shown):
    """Markdown for the reader."""

    markdown: str

    def __str__(self) -> str:
        return self.markdown

    def _repr_markdown_(self) -> str:
        return self.markdown


def exercise(number: str) -> Exercise:
    """The exercise "03.2" (notebook 03, section 2); UnknownExercise names the nearest ones."""
    if number not in numbers():
        near = ", ".join(nearest(str(number), numbers()))
        raise UnknownExercise(f"There is no exercise {number!r}; did you mean {near}?")
    return Exercise(_checks(number[:2])[number], _hints(number[:2])[number])


def numbers() -> list[str]:
    """Every exercise's number, sorted. Reads the hints only: no check is loaded."""
    return [number for folder in sorted(EXERCISES.glob("nb*")) for number in sorted(_hints(folder.name[2:]))]


def _checks(notebook: str) -> dict[str, Callable[[Any], str]]:
    """Number -> check of one notebook's exercises."""
    try:
        return cast("dict[str, Callable[[Any], str]]", importlib.import_module(f"exercises.nb{notebook}.check").CHECKS)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("exercises"):
            raise
        hiding = getattr(sys.modules.get("exercises"), "__file__", None)
        raise DataError(
            f"A module of the same name hides the workbook's exercises: rename {hiding} and restart the kernel."
            if hiding
            else f"Python can't import the exercises in {EXERCISES}: run pip install -e {ROOT} and restart the kernel."
        ) from error


@functools.cache
def _hints(notebook: str) -> dict[str, tuple[str, ...]]:
    """Number -> hints of one notebook's exercises, from the numbered lists in its hints.md."""
    parts = re.split(rf"(?m)^## ({_NUMBER})\n", _text(notebook, "hints.md"))
    return {
        number: tuple(re.findall(r"(?m)^\d+\. (.*)$", text))
        for number, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def _text(notebook: str, name: str) -> str:
    """One of the files of a notebook's exercises; DataError where the exercises are missing."""
    try:
        return (EXERCISES / f"nb{notebook}" / name).read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"Expected the workbook's exercises in {EXERCISES}, and {name} of notebook {notebook} can't be read "
            f"({error.strerror}). Work in a clone of the repository, or fetch it again."
        ) from error


def check(number: str, answer: object) -> Outcome:
    """Judge an answer to an exercise. Never raises for a wrong answer, only for an exercise that does not exist."""
    judge = exercise(number).check
    try:
        if answer is ...:
            raise Todo("Replace the dots with your answer.")
        return Outcome(number, "passed", judge(answer))
    except Todo as todo:
        return Outcome(number, "todo", f"{todo} Stuck? lab.hint({number!r})")
    except NotYet as wrong:
        return Outcome(number, "not yet", str(wrong))
    except (Exception, SystemExit) as error:  # whatever an answer does, it is a result; Ctrl-C still stops it
        return Outcome(number, "not yet", f"Your answer could not be judged: {_said(error)}")


def hint(number: str, step: int = 1) -> Text:
    """The hint number `step` of an exercise; the first is a nudge, the last nearly the answer."""
    hints = exercise(number).hints
    step = min(max(step, 1), len(hints))
    more = (
        f"\n\nMore: `lab.hint({number!r}, {step + 1})`"
        if step < len(hints)
        else f"\n\nStill stuck: `lab.solution({number!r})`"
    )
    return Text(f"**Hint {step} of {len(hints)}.** {hints[step - 1]}{more}")


def solution(number: str) -> Text:
    """One right answer, as code with its comments (exercises/nbNN/solution.py)."""
    exercise(number)
    return Text(f"One way to solve {number}:\n```python\n{solutions(number[:2])[number]}\n```")


def solutions(notebook: str) -> dict[str, str]:
    """Number -> code of each solution of a notebook ("03"), from its file's `# %% 03.2` blocks."""
    parts = re.split(rf"(?m)^# %% ({_NUMBER})\n", _text(notebook, "solution.py"))
    return {number: code.strip() for number, code in zip(parts[1::2], parts[2::2], strict=True)}


# What checks are built from.


def number_close(answer: object, expected: float, *, rel: float, unit: str, hint: str = "", given: str = "") -> str:
    """Compare a number with the expected one; the factor between them is the diagnosis. `rel` is relative.

    Within 5 % the message is that the answer was rounded, and the hint follows in case it was not.
    """
    value = as_number(answer, unit, given)
    if math.isclose(value, expected, rel_tol=rel, abs_tol=1e-12 if expected == 0 else 0.0):
        return f"{significant(value, 4)} {unit} is right{f' for {given}' if given else ''}."
    where = f"For {given}: " if given else ""
    if expected == 0 or value == 0:
        raise NotYet(f"{where}{value:g} {unit} is not what we expect. {hint}".rstrip())
    if abs(value / expected - 1) < 0.05:
        got, right = _told_apart(value, expected)
        raise NotYet(
            f"{where}{got} {unit} is close, but {right} {unit} was expected: return it unrounded. {hint}".rstrip()
        )
    raise NotYet(f"{where}{value:.4g} {unit} is {value / expected:.3g}x what we expect. {hint}".rstrip())


def as_number(answer: object, unit: str, given: str = "") -> float:
    """The answer as a float: Python, NumPy and one-element torch numbers count; NotYet for anything else."""
    where = f"For {given}: expected" if given else "Expected"
    if answer is None or answer is ...:
        raise NotYet(f"{where} a number in {unit}, got nothing. Is there a return?")
    value = as_float(answer)
    if value is None and math.prod(getattr(answer, "shape", ())) != 1:
        raise NotYet(f"{where} one number in {unit}, got {type(answer).__name__} with several.")
    if value is None:
        raise NotYet(f"{where} a number in {unit}, got {brief_repr(answer)}.")
    if math.isnan(value):
        raise NotYet(f"{where} a number in {unit}, got NaN: something divided 0 by 0, or a value was never set.")
    return value


def function(answer: object, *example: Any) -> Callable[..., Any]:
    """The answer as a function; Todo when it still returns nothing for the `example` arguments."""
    if not callable(answer):
        raise NotYet(f"Expected a function, got {brief_repr(answer)}. Pass its name without brackets.")
    tried = call(answer, *example)
    if tried is None or tried is ...:
        name = getattr(answer, "__name__", "it")
        raise Todo(f"{name} returns nothing yet: write its body.")
    return cast("Callable[..., Any]", answer)


def call(fn: Callable[..., Any], *args: Any) -> Any:
    """Call the reader's function; whatever it raises becomes a NotYet with the error and the arguments."""
    try:
        return fn(*args)
    except (Exception, SystemExit) as error:
        given = ", ".join(brief_repr(arg) for arg in args)
        name = getattr(fn, "__name__", "Your function")
        raise NotYet(f"{name}({given}) raised {_said(error)}") from error


def mapping(answer: object, keys: Mapping[str, str]) -> dict[str, Any]:
    """The answer as a dict with just these keys (key -> what it stands for); Todo while an entry is `...`."""
    if not isinstance(answer, dict):
        raise NotYet(f"Expected a dict with the keys {sorted(keys)}, got {brief_repr(answer)}.")
    missing, extra = sorted(set(keys) - set(answer)), sorted(map(str, set(answer) - set(keys)))
    if missing or extra:
        not_asked_for = brief_repr(extra) if extra else "none"
        raise NotYet(f"Expected the keys {sorted(keys)}: missing {missing or 'none'}, not asked for {not_asked_for}.")
    still_open = [key for key, value in answer.items() if value is ...]
    if still_open:
        raise Todo(f"Still open: {', '.join(still_open)}.")
    return answer


def _said(error: BaseException) -> str:
    text = cut(str(error), _LONGEST_ERROR)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _told_apart(value: float, expected: float) -> tuple[str, str]:
    """Both numbers with as few digits as show that they differ."""
    for digits in range(4, 17):
        if (texts := (f"{value:.{digits}g}", f"{expected:.{digits}g}"))[0] != texts[1]:
            break
    return texts
