"""Judge what was passed in: numbers of every library, functions; and quote it in a message."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Mapping
from typing import Any, TypeVar

from labkit.core.errors import BadArgument, nearest

T = TypeVar("T")
_PARTS = reprlib.Repr()
_PARTS.maxlist = _PARTS.maxtuple = _PARTS.maxdict = _PARTS.maxset = _PARTS.maxfrozenset = _PARTS.maxarray = 30
_PARTS.maxstring = _PARTS.maxother = 80


def as_number(value: Any) -> int | float | None:
    """`value` as an int or float: Python, NumPy and one-element torch numbers count, also inf and NaN. Else None.

    A bool is no number, nor are a masked value, a date and a duration.
    """
    try:
        if issubclass(type(value), int | float):
            if issubclass(type(value), bool):
                return None
            # what a subclass says of itself doesn't count
            return float.__pos__(value) if issubclass(type(value), float) else int.__pos__(value)  # keeps -0.0
        masked = getattr(value, "mask", None) is not None
        number = None if masked or getattr(getattr(value, "dtype", None), "kind", "f") not in "iuf" else value.item()
        return number if type(number) in (int, float) else None
    except Exception:  # several elements, a tensor without values, an object that refuses all questions
        return None


def as_float(value: Any) -> float | None:
    """`value` as a float, also inf and NaN; None for what isn't a number or is too large for one."""
    number = as_number(value)
    try:
        return None if number is None else float(number)
    except OverflowError:
        return None


def is_whole(value: Any) -> bool:
    """Whether `value` can stand for a count: an integer of Python, NumPy or torch, and no bool."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def lookup(name: object, known: Mapping[str, T], what: str, error: type[Exception] = BadArgument) -> T:
    """`known[name]`; for another name `error`, with all known names and the nearest. `what` says what is looked up."""
    if isinstance(name, str) and name in known:
        return known[name]
    near = f" The nearest is {nearest(str(name), known, n=1)[0]!r}." if known else ""
    raise error(f"Expected {what} to be one of {', '.join(known)}; got {brief_repr(name)}.{near}")


def brief_repr(value: object) -> str:
    """`value` as a message quotes it: an array's type and shape, else its repr on one line, cut after 60 characters."""
    kind = type(value).__name__
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:
            return f"{kind} of shape {tuple(shape)}"
        if issubclass(type(value), str | bytes):
            value = value[:80]  # type: ignore[index]  # mypy does not narrow by issubclass
        parted = type(value) in (list, tuple, dict, set, frozenset)  # such may be long, and is not written out whole
        text = " ".join((_PARTS.repr if parted else repr)(value).split())
        return cut(text.encode("utf-8", "backslashreplace").decode(), 60)
    except Exception:  # a message about a bad value must not fail on it
        large = issubclass(type(value), int)
        return "a number of thousands of digits" if large else f"an object of type {kind}"


def cut(text: str, longest: int) -> str:
    """At most `longest` characters of `text`, up to the end of a word where there is one."""
    if len(text) <= longest:
        return text
    head = text[: longest - 3]
    if not text[longest - 3].isspace():
        head = head.rpartition(" ")[0] or head
    return f"{head.rstrip()}..."
