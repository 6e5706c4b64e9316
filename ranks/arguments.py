"""Judge what public functions are called with, and write values, times and sizes into messages."""

from __future__ import annotations

import inspect
import math
import reprlib
from collections.abc import Sequence
from typing import Any

from ranks.errors import BadArgument

_PARTS = reprlib.Repr()
_PARTS.maxlist = _PARTS.maxtuple = _PARTS.maxdict = _PARTS.maxset = _PARTS.maxfrozenset = _PARTS.maxarray = 30
_PARTS.maxstring = _PARTS.maxother = 80


def refused(name: str, words: str, value: object, advice: str = "") -> BadArgument:
    """The error about a value that isn't what `words` say."""
    return BadArgument(f"Expected {name} to be {words}, got {brief_repr(value)}. {advice}".rstrip())


def whole(name: str, value: Any, *, most: int | None = None, advice: str = "") -> int:
    """A whole number from 1 to `most`, of Python, NumPy or torch, as Python's own; BadArgument for anything else."""
    found = as_number(value)
    if type(found) is not int or not 1 <= found <= (most or 10**30):
        raise refused(name, "a whole number " + (f"from 1 to {most}" if most else "of at least 1"), value, advice)
    return found


def number(name: str, value: Any) -> float:
    """Any number, NaN and infinity too, as Python's float; BadArgument for anything else."""
    try:
        return float(as_number(value))  # type: ignore[arg-type]  # None is refused below
    except (TypeError, OverflowError):
        raise refused(name, "a number", value) from None


def quantity(name: str, value: Any, unit: str, *, zero: bool = False) -> float:
    """A finite number above 0, or with `zero` of at least 0, as Python's float; BadArgument for anything else."""
    found = as_number(value)
    if found is None or not 0 <= found <= 1e308 or (found == 0 and not zero):
        raise refused(name, f"a finite number {'of at least' if zero else 'above'} 0", value, f"It is in {unit}.")
    return float(found)


def text(name: str, value: Any) -> str:
    """Text that UTF-8 can hold, as Python's own str; BadArgument for anything else."""
    try:
        found = str.__str__(value)
        found.encode()
    except (TypeError, UnicodeEncodeError):
        raise refused(name, "text", value) from None
    return found


def choice(name: str, value: Any, known: Sequence[str]) -> str:
    """One of the known words; BadArgument, which lists them, for anything else."""
    found = str.__str__(value) if issubclass(type(value), str) else None
    if found is None or found not in known:
        raise refused(name, f"one of {', '.join(map(repr, known))}", value)
    return found


def check_function(name: str, value: Any, *, arguments: int | None = None) -> None:
    """BadArgument for what can't be called, or not with as many arguments."""
    words = "a function" if arguments is None else f"a function of {arguments} argument{'s' * (arguments != 1)}"
    if not callable(value):
        raise refused(name, words, value, "Pass its name without brackets.")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # some builtins don't say what they take
        return
    except Exception:
        raise refused(name, words, value) from None
    try:
        if arguments is not None:
            signature.bind(*[None] * arguments)
    except TypeError:
        has = ", ".join(map(str, signature.parameters)) or "none"
        raise refused(name, words, value, f"This one has {has}.") from None


def as_number(value: Any) -> int | float | None:
    """`value` as an int or float: Python, NumPy and one-element torch numbers count, also inf and NaN. Else None.

    A bool is no number, nor are a masked value, a date and a duration.
    """
    try:
        if issubclass(type(value), int | float):
            kind = float if issubclass(type(value), float) else int
            # what a subclass says of itself doesn't count
            return None if issubclass(type(value), bool) else kind.__pos__(value)
        masked = getattr(value, "mask", None) is not None
        found = None if masked or getattr(getattr(value, "dtype", None), "kind", "f") not in "iuf" else value.item()
        return found if type(found) in (int, float) else None
    except Exception:  # several elements, a tensor without values, an object that refuses all questions
        return None


def brief_repr(value: object) -> str:
    """`value` as a message quotes it: an array's type and shape, else its repr on one line, cut after 60 characters."""
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:
            return f"{type(value).__name__} of shape {tuple(shape)}"
        if issubclass(type(value), str | bytes):
            value = value[:80]  # type: ignore[index]  # mypy does not narrow by issubclass
        parted = type(value) in (list, tuple, dict, set, frozenset)  # such may be long, and is not written out whole
        shown = " ".join((_PARTS.repr if parted else repr)(value).split())
        return cut(shown.encode("utf-8", "backslashreplace").decode(), 60)
    except Exception:  # a message about a bad value must not fail on it
        large = issubclass(type(value), int)
        return "a number of thousands of digits" if large else f"an object of type {type(value).__name__}"


def cut(words: str, longest: int) -> str:
    """At most `longest` characters of `words`, up to the end of a word where there is one."""
    if len(words) <= longest:
        return words
    head = words[: longest - 3]
    if not words[longest - 3].isspace():
        head = head.rpartition(" ")[0] or head
    return f"{head.rstrip()}..."


def format_seconds(seconds: float) -> str:
    """A duration of up to minutes as text of three digits: 0.00123 -> '1.23 ms'."""
    for size, unit in ((60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size * (2 if unit == "min" else 1):
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{_three_digits(seconds / 1e-9)} ns"


def format_bytes(n_bytes: float) -> str:
    """A size of mebibytes or more as text: 3 * 2**30 -> '3.00 GiB'."""
    size, unit = (2.0**30, "GiB") if n_bytes >= 2**30 else (2.0**20, "MiB")
    return f"{_three_digits(n_bytes / size)} {unit}"


def _three_digits(value: float) -> str:
    decimals = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"
