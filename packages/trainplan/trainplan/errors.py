"""The errors of this package: every message says what was expected, what came, and what
to do next.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from gpufacts import UnknownDevice as UnknownDevice

T = TypeVar("T")


class PlanError(Exception):
    """Base of every error that trainplan raises on purpose."""


class BadArgument(PlanError, ValueError):
    """A value that a function can't take; the message says what it expects and what it
    got.
    """


class LayoutError(PlanError, ValueError):
    """A layout that can't be: what doesn't divide or fit, by how much, and the nearest
    that does.
    """


class ScheduleError(PlanError, ValueError):
    """A schedule that can't run: ranks that wait for each other in a circle, or work in
    an impossible order.
    """


class DataError(PlanError):
    """A table that comes with the package is missing or damaged."""


def nearest(name: str, known: Iterable[str], n: int = 3) -> list[str]:
    """The `n` known names most like `name`, best first, ignoring case; never empty
    while `known` is not.
    """
    candidates = {candidate.casefold(): candidate for candidate in known}
    start = name[:200].casefold()
    matches = difflib.get_close_matches(start, candidates, n=n, cutoff=0.0)
    return [candidates[match] for match in matches]


def lookup(
    name: object,
    known: Mapping[str, T],
    what: str,
    error: type[PlanError] = BadArgument,
) -> T:
    """`known[name]`; for another name `error`, with all known names and the nearest.
    `what` says what is looked up.
    """
    if isinstance(name, str) and name in known:
        return known[name]
    near = nearest(str(name), known, n=1)[0]
    raise error(
        f"Expected {what} to be one of {', '.join(known)}; got {brief_repr(name)}. The"
        f" nearest is {near!r}."
    )


def brief_repr(value: object) -> str:
    """`value` as a message quotes it: an array's type and shape, else its repr on one
    line, cut after 60 characters.
    """
    kind = type(value).__name__
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:
            return f"{kind} of shape {tuple(shape)}"
        if isinstance(value, str):
            text = reprlib.repr(value[:80])
        elif isinstance(value, bytes | list | tuple | dict | set):
            text = reprlib.repr(value)  # a long one isn't written in full
        else:
            text = repr(value)
        line = " ".join(text.split())
        text = line.encode("utf-8", "backslashreplace").decode()
        return text if len(text) <= 60 else f"{text[:57]}..."
    except Exception:  # a message about a bad value must not fail on it
        return f"an object of type {kind}"
