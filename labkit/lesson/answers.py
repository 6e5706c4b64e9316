"""What several notebooks' checks read from an answer: its parts, its whole numbers, the
mistake that a number shows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.core.arguments import is_whole
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, close

# the unit of a number, the words for wrong results, and those for any other
Told = tuple[str, Mapping[float, str], str]


@contextmanager
def about(given: str) -> Iterator[None]:
    """Say for what a NotYet is that is raised inside the `with`: "For 7 images on 2
    ranks: ...". One inside another becomes "For 7 images on 2 ranks, rank 1: ...".
    """
    try:
        yield
    except NotYet as wrong:
        words = str(wrong).replace("Expected", "expected", 1)
        is_about_a_part = words.startswith("For ")
        between = ", " if is_about_a_part else ": "
        words = words.removeprefix("For ")
        raise NotYet(f"For {given}{between}{words}") from wrong


def parts(answer: object, n: int, expected: str, given: str = "") -> tuple[Any, ...]:
    """The n parts of a tuple or list; NotYet for anything else, which says what was
    `expected` (for which `given`).
    """
    if isinstance(answer, tuple | list) and len(answer) == n:
        return tuple(answer)
    raise NotYet(f"{_expected(given)} {expected}, got {brief_repr(answer)}.")


def _expected(given: str) -> str:
    return f"For {given}: expected" if given else "Expected"


def as_list(answer: Any) -> list[Any] | None:
    """A list, tuple or range, or an array or tensor of one dimension or more, as a
    list; None for anything else.
    """
    if isinstance(answer, list | tuple | range):
        return list(answer)
    listed = answer.tolist() if hasattr(answer, "tolist") else None
    return listed if isinstance(listed, list) else None


def array(answer: object, expected: str, given: str) -> NDArray[np.float64]:
    """The answer as an array of numbers; NotYet for anything else."""
    try:
        if answer is not None and not isinstance(answer, dict):
            return np.asarray(answer, dtype=float)
        why = "Is there a return?"
    except (TypeError, ValueError) as error:
        why = f"{error}."
    raise NotYet(f"{_expected(given)} {expected}, got {brief_repr(answer)}. {why}")


def whole_numbers(answer: object, expected: str, given: str = "") -> list[int]:
    """The answer as a list of integers; NotYet for anything else, floats and booleans
    included.
    """
    listed = as_list(answer)
    if listed is None or not all(map(is_whole, listed)):
        dtype = f", {answer.dtype}" if hasattr(answer, "dtype") else ""
        raise NotYet(f"{_expected(given)} {expected}, got {brief_repr(answer)}{dtype}.")
    return [int(number) for number in listed]


def mistake(
    value: float, wrong: Mapping[float, str], otherwise: str, *, rel: float = 1e-6
) -> str:
    """What went wrong: the words of the first `wrong` result that `value` equals,
    within `rel`; else `otherwise`.
    """
    for result, words in wrong.items():
        if math.isclose(value, result, rel_tol=rel):
            return words
    return otherwise


def judge_pair(
    got: object,
    right: tuple[float, float],
    given: str,
    expected: str,
    told: Sequence[Told],
) -> None:
    """NotYet unless the answer is two numbers, each close to the right one; else with
    what is told of that one.
    """
    pair = parts(as_list(got) or got, 2, expected, given)
    for answer, value, (unit, wrong, otherwise) in zip(pair, right, told, strict=True):
        hint = functools.partial(mistake, wrong=wrong, otherwise=otherwise)
        close(unit, hint=hint)(answer, value, given)
