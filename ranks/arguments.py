"""Judge what public functions are called with, and quote it: Expected nproc to be a whole number, got 'four'."""

from __future__ import annotations

import inspect
import math
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ranks.errors import BadArgument

_MOST_CHARACTERS = 1_000_000
_PARTS = reprlib.Repr()
_PARTS.maxlist = _PARTS.maxtuple = _PARTS.maxdict = _PARTS.maxset = _PARTS.maxfrozenset = _PARTS.maxarray = 30
_PARTS.maxstring = _PARTS.maxother = 80


def refused(name: str, words: str, value: object, advice: str = "") -> BadArgument:
    """The error about a value that isn't what `words` say."""
    return BadArgument(f"Expected {name} to be {words}, got {brief_repr(value)}. {advice}".rstrip())


def whole(name: str, value: Any, *, least: int = 1, most: int | None = None, advice: str = "") -> int:
    """A whole number within bounds, of Python, NumPy or torch, as Python's; BadArgument for anything else."""
    number = as_number(value)
    words = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
    if type(number) is not int or number < least or number > (most or 10**30):
        raise refused(name, f"a whole number {words}", value, advice)
    return number


def number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = 1e30,
    finite: bool = True,
    advice: str = "",
) -> float:
    """A number within bounds as Python's float; without `finite` NaN, infinity and all sizes. BadArgument otherwise."""
    found = as_number(value)
    try:
        taken = None if found is None else float(found)
    except OverflowError:  # an int beyond the floats
        taken = None
    if taken is not None and (not finite or (above < taken <= most and taken >= least and taken != -math.inf)):
        return taken
    bounds = ((" above", above), (" of at least", least), (" of at most", most if most < 1e30 else math.inf))
    words = " and".join(f"{word} {bound:,g}" for word, bound in bounds if math.isfinite(bound))
    raise refused(name, f"a {'finite ' * finite}number{words}", value, advice)


def text(name: str, value: Any) -> str:
    """Text that UTF-8 can hold, as Python's own str; BadArgument for anything else."""
    if not issubclass(type(value), str):
        raise refused(name, "text", value)
    found = str.__str__(value)
    if len(found) > _MOST_CHARACTERS:
        raise refused(name, f"text of at most {_MOST_CHARACTERS:,} characters", value)
    try:
        found.encode()
    except UnicodeEncodeError:
        raise refused(name, "text that UTF-8 can hold", value) from None
    return found


def path(name: str, value: Any) -> Path:
    """A path that this system can have; BadArgument for anything else."""
    if not issubclass(type(value), str | Path):
        raise refused(name, "a path", value)
    found = Path(text(name, value)) if issubclass(type(value), str) else Path(value)
    try:
        found.exists()
    except OSError as error:
        raise refused(name, "a path that this system can have", value, f"It says: {error.strerror}.") from None
    if "\0" in str(found):
        raise refused(name, "a path without NUL", value)
    return found


def choice(name: str, value: Any, known: Sequence[str]) -> str:
    """One of the known words; BadArgument, which lists them, for anything else."""
    found = str.__str__(value) if issubclass(type(value), str) else None
    if found is None or found not in known:
        raise refused(name, f"one of {', '.join(map(repr, known))}", value)
    return found


def function(name: str, value: Any, *, arguments: int | None = None, optional: bool = False) -> Any:
    """What can be called, with so many arguments if that is said; None too if `optional`. BadArgument otherwise."""
    words = "a function" if arguments is None else f"a function of {arguments} argument{'s' * (arguments != 1)}"
    words += " or None" * optional
    if optional and value is None:
        return None
    if not callable(value):
        raise refused(name, words, value, "Pass its name without brackets.")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # some builtins don't say what they take
        return value
    except Exception:
        raise refused(name, words, value) from None
    try:
        if arguments is not None:
            signature.bind(*[None] * arguments)
    except TypeError:
        has = ", ".join(map(str, signature.parameters)) or "none"
        raise refused(name, words, value, f"This one has {has}.") from None
    return value


def as_number(value: Any) -> int | float | None:
    """`value` as an int or float: Python, NumPy and one-element torch numbers count, also inf and NaN. Else None.

    A bool is no number, nor are a masked value, a date and a duration.
    """
    try:
        if issubclass(type(value), int | float):
            if issubclass(type(value), bool):
                return None
            # what a subclass says of itself doesn't count
            return float.__pos__(value) if issubclass(type(value), float) else int.__pos__(value)
        masked = getattr(value, "mask", None) is not None
        found = None if masked or getattr(getattr(value, "dtype", None), "kind", "f") not in "iuf" else value.item()
        return found if type(found) in (int, float) else None
    except Exception:  # several elements, a tensor without values, an object that refuses all questions
        return None


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
        shown = " ".join((_PARTS.repr if parted else repr)(value).split())
        return cut(shown.encode("utf-8", "backslashreplace").decode(), 60)
    except Exception:  # a message about a bad value must not fail on it
        large = issubclass(type(value), int)
        return "a number of thousands of digits" if large else f"an object of type {kind}"


def cut(words: str, longest: int) -> str:
    """At most `longest` characters of `words`, up to the end of a word where there is one."""
    if len(words) <= longest:
        return words
    head = words[: longest - 3]
    if not words[longest - 3].isspace():
        head = head.rpartition(" ")[0] or head
    return f"{head.rstrip()}..."
