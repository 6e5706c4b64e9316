"""Judge what public functions are called with, and write values and times into
messages.
"""

from __future__ import annotations

import inspect
import math
import reprlib
from collections.abc import Sequence
from typing import Any

from ranks.errors import BadArgument

_PARTS = reprlib.Repr()
_PARTS.maxlist = _PARTS.maxtuple = _PARTS.maxdict = _PARTS.maxset = (
    _PARTS.maxfrozenset
) = _PARTS.maxarray = 30
_PARTS.maxstring = _PARTS.maxother = 80


def refused(name: str, words: str, value: object, advice: str = "") -> BadArgument:
    """The error about a value that isn't what `words` say."""
    return BadArgument(
        f"Expected {name} to be {words}, got {brief_repr(value)}. {advice}".rstrip()
    )


def whole(name: str, value: Any, *, most: int | None = None, advice: str = "") -> int:
    """A whole number from 1 to `most`, of Python, NumPy or torch, as Python's own;
    BadArgument for anything else.
    """
    plain = as_number(value)
    if type(plain) is not int or not 1 <= plain <= (most or 10**30):
        raise refused(
            name,
            "a whole number " + (f"from 1 to {most}" if most else "of at least 1"),
            value,
            advice,
        )
    return plain


def number(name: str, value: Any) -> float:
    """Any number, NaN and infinity too, as Python's float; BadArgument for anything
    else.
    """
    try:
        return float(as_number(value))  # type: ignore[arg-type]  # None is refused below
    except (TypeError, OverflowError):
        raise refused(name, "a number", value) from None


def seconds(name: str, value: Any) -> float:
    """A finite number of seconds above 0, as Python's float; BadArgument for anything
    else.
    """
    plain = as_number(value)
    if plain is None or not 0 < plain <= 1e308:
        raise refused(name, "a finite number above 0", value, "It is in seconds.")
    return float(plain)


def text(name: str, value: Any, known: Sequence[str] = ()) -> str:
    """Text that UTF-8 can hold, and one of the known words if there are any;
    BadArgument for anything else.
    """
    if (
        type(value) is not str
        or (known and value not in known)
        or value.encode("utf-8", "ignore").decode() != value
    ):
        raise refused(
            name, f"one of {', '.join(map(repr, known))}" if known else "text", value
        )
    return value


def check_function(name: str, value: Any, *, arguments: int | None = None) -> None:
    """BadArgument for what can't be called, or not with as many arguments."""
    words = (
        "a function"
        if arguments is None
        else f"a function of {arguments} argument{'s' * (arguments != 1)}"
    )
    if not callable(value):
        raise refused(name, words, value, "Pass its name without brackets.")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # some builtins don't say what they take
        return
    try:
        signature.bind(*[None] * arguments) if arguments is not None else None
    except TypeError:
        has = ", ".join(map(str, signature.parameters)) or "none"
        raise refused(name, words, value, f"This one has {has}.") from None


def as_number(value: Any) -> int | float | None:
    """A number of Python, NumPy or torch as an int or float; None for all else: bools,
    masked values, durations too.
    """
    try:
        if issubclass(type(value), int | float):
            kind = float if issubclass(type(value), float) else int
            # not what a subclass says
            return None if issubclass(type(value), bool) else kind.__pos__(value)
        masked = getattr(value, "mask", None) is not None
        plain = (
            None
            if masked
            or getattr(getattr(value, "dtype", None), "kind", "f") not in "iuf"
            else value.item()
        )
        return plain if type(plain) in (int, float) else None
    except Exception:
        # several elements, a tensor without values, an object that refuses all
        # questions
        return None


def brief_repr(value: object) -> str:
    """`value` as a message quotes it: an array's type and shape, else its repr on one
    line, cut after 60 characters.
    """
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:
            return f"{type(value).__name__} of shape {tuple(shape)}"
        if issubclass(type(value), str | bytes):
            value = value[:80]  # type: ignore[index]  # mypy does not narrow by issubclass
        # such may be long, and is not written out whole
        parted = type(value) in (list, tuple, dict, set, frozenset)
        shown = " ".join((_PARTS.repr if parted else repr)(value).split())
        return cut(shown.encode("utf-8", "backslashreplace").decode(), 60)
    except Exception:  # a message about a bad value must not fail on it
        large = issubclass(type(value), int)
        return (
            "a number of thousands of digits"
            if large
            else f"an object of type {type(value).__name__}"
        )


def cut(words: str, longest: int) -> str:
    """At most `longest` characters of `words`, up to the end of a word where there is
    one.
    """
    if len(words) <= longest:
        return words
    head = words[: longest - 3]
    if not words[longest - 3].isspace():
        head = head.rpartition(" ")[0] or head
    return f"{head.rstrip()}..."


def format_seconds(value: float) -> str:
    """A duration of up to minutes as text of three digits: 0.00123 -> '1.23 ms'."""
    size, unit = next(
        ((s, u) for s, u in ((60.0, "min"), (1.0, "s"), (1e-3, "ms")) if value >= s),
        (1e-6, "µs"),
    )
    decimals = 2 - math.floor(math.log10(value / size)) if value > 0 else 0
    return f"{round(value / size, decimals):,.{max(decimals, 0)}f} {unit}"
