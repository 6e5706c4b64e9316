"""Find an exercise's check, hints and solution: everything about those of notebook NN
is in `exercises/nbNN`.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from labkit.core.arguments import nearest
from labkit.core.errors import DataError, UnknownExercise
from labkit.core.paths import EXERCISES, ROOT
from labkit.core.results import section_of

_NUMBER = r"\d\d\.\d\d?[a-z]?"  # "03.2": notebook and section


@dataclass(frozen=True)
class Exercise:
    """A check (answer -> sentence of a pass; raises Todo or NotYet) and hints, from a
    nudge to nearly the answer.
    """

    check: Callable[[Any], str]
    hints: tuple[str, ...]


def exercise(number: str) -> Exercise:
    """The exercise "03.2" (notebook 03, section 2); UnknownExercise names the nearest
    ones.
    """
    if number not in numbers():
        near = ", ".join(_meant(str(number)))
        raise UnknownExercise(f"There is no exercise {number!r}; did you mean {near}?")
    return Exercise(_checks(number[:2])[number], _hints(number[:2])[number])


def hints(number: str) -> tuple[str, ...]:
    """An exercise's hints, without loading its check; none for an unknown exercise."""
    return _hints(number[:2]).get(number, ())


def _meant(number: str) -> list[str]:
    """The exercises that a number may mean: "3.1" and "03" lack a part of theirs."""
    padded = number if re.match(r"\d\d", number) else f"0{number}"
    alike = [known for known in numbers() if padded and known.startswith(padded)]
    return alike[:5] or nearest(number, numbers())


def numbers() -> list[str]:
    """Every exercise's number, in order; reads the hints and loads no check. DataError
    where there are no exercises.
    """
    if not EXERCISES.is_dir():
        raise DataError(
            f"Expected the workbook's exercises in {EXERCISES}. Work in a clone of the"
            " repository."
        )
    return [
        number
        for folder in sorted(EXERCISES.glob("nb*"))
        for number in sorted(_hints(folder.name[2:]), key=order)
    ]


def order(number: str) -> tuple[str, int, str]:
    """What sorts exercises as a notebook has them: "23.9" before "23.10"."""
    section = section_of(number)
    return number[:2], int(section[3:]), number[len(section) :]


def _checks(notebook: str) -> dict[str, Callable[[Any], str]]:
    """Number -> check of one notebook's exercises."""
    try:
        return cast(
            "dict[str, Callable[[Any], str]]",
            importlib.import_module(f"exercises.nb{notebook}.check").CHECKS,
        )
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("exercises"):
            raise
        hiding = getattr(sys.modules.get("exercises"), "__file__", None)
        if hiding:
            trouble = (
                "A module of the same name hides the workbook's exercises: rename"
                f" {hiding}"
            )
        else:
            trouble = (
                f"Python can't import the exercises in {EXERCISES}: run pip install -e"
                f" {ROOT}"
            )
        raise DataError(f"{trouble} and restart the kernel.") from error


@functools.cache
def _hints(notebook: str) -> dict[str, tuple[str, ...]]:
    """Number -> hints of one notebook's exercises, from the numbered lists in its
    hints.md.
    """
    return {
        number: tuple(re.findall(r"(?m)^\d+\. (.*)$", text))
        for number, text in _sections(notebook, "hints.md", "## ")
    }


def _sections(notebook: str, name: str, mark: str) -> Iterator[tuple[str, str]]:
    """The number and the text of each section of a file, which begins with a line of
    `mark` and the number.
    """
    text = _text(notebook, name)
    _, *parts = re.split(rf"(?m)^{mark}({_NUMBER})\n", text)
    return zip(parts[::2], parts[1::2], strict=True)


def _text(notebook: str, name: str) -> str:
    """One of the files of a notebook's exercises; DataError where the exercises are
    missing.
    """
    try:
        return (EXERCISES / f"nb{notebook}" / name).read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"{name} of notebook {notebook}'s exercises can't be read"
            f" ({error.strerror}). Fetch the repository again."
        ) from error


def has_solutions(notebook: str) -> bool:
    """Whether a notebook's solutions are here: the copy for a class (`make handout`)
    has none.
    """
    return (EXERCISES / f"nb{notebook}" / "solution.py").exists()


def solutions(notebook: str) -> dict[str, str]:
    """Number -> code of each solution of a notebook ("03"), from its file's `# %% 03.2`
    blocks.
    """
    sections = _sections(notebook, "solution.py", "# %% ")
    return {number: code.strip() for number, code in sections}
