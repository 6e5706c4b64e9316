"""Kinds of plain values that parameters take: numbers, text, paths, choices; each judges and converts a value."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.core.arguments import as_number
from labkit.core.errors import nearest

# Beyond these no quantity here has a meaning, and a product of a few of them would leave the floats.
_LEAST, _MOST = 1e-30, 1e30
MOST_ITEMS = _MOST_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class Number:
    """Bounds of a number. Without `finite` NaN, infinity and all sizes are taken. `advice` ends the message."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    finite: bool = True
    advice: str = ""


@dataclass(frozen=True)
class Items:
    """The least number of items of a list or dict."""

    least: int


class Refused(Exception):
    """A value that isn't what was expected: words for the message, and `where` in the parameter it is, "[2]"."""

    def __init__(self, words: str, value: object, advice: str = "", where: str = "") -> None:
        self.words, self.value, self.advice, self.where = words, value, advice, where


@dataclass(frozen=True)
class Kind:
    """`take` returns a value as the function gets it, or raises Refused; `words` say what is taken."""

    words: str
    take: Callable[[Any], Any]


ANYTHING = Kind("anything", lambda value: value)


def number_kind(bounds: Number, *, whole: bool) -> Kind:
    """Numbers within bounds; the function gets Python's own."""
    least, above, most = bounds.least, bounds.above, bounds.most
    low = _LEAST if above == 0 and not whole else -_MOST if least is None else least
    high = _MOST if most is None else most
    words = "a whole number" if whole else "a finite number" if bounds.finite else "a number"
    if least is not None and most is not None:
        words += f" from {least:,} to {most:,}"
    else:
        limits = ((" of at least", least), (" above", above), (" of at most", most))
        words += " and".join(f"{word} {limit:,}" for word, limit in limits if limit is not None)

    def take(value: Any) -> Any:
        number = value if type(value) is int or type(value) is float else as_number(value)
        if number is None or (whole and type(number) is not int):
            raise Refused(words, value, bounds.advice)
        if low <= number <= high and (above is None or number > above):
            return number if whole or abs(number) < 2**63 else float(number)  # NumPy has no larger integers
        if not bounds.finite and (type(number) is float or abs(number) <= sys.float_info.max):
            return number
        odd = number == number and number and not _LEAST <= abs(number) <= _MOST and abs(number) != float("inf")
        raise Refused(words, value, "Its size has to be within 1e-30 and 1e30." if odd else bounds.advice)

    return Kind(words, take)


def _text(value: Any) -> str:
    if not issubclass(type(value), str):
        raise Refused("text", value)
    text = str.__str__(value)
    if len(text) > _MOST_CHARACTERS:
        raise Refused(f"text of at most {_MOST_CHARACTERS:,} characters", text)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused("text that UTF-8 can hold", text) from None
    return text


def _bool(value: Any) -> bool:
    try:
        found = value if type(value) is bool or not hasattr(value, "dtype") else value.item()
    except Exception:
        found = None
    if type(found) is not bool:
        raise Refused("True or False", value)
    return found


def _path(value: Any) -> Path:
    if not issubclass(type(value), str | Path):
        raise Refused("a path", value)
    path = value if issubclass(type(value), Path) else Path(_text(value))
    try:
        path.exists()
    except OSError as error:
        raise Refused("a path that this system can have", value, f"It says: {error.strerror}.") from None
    if "\0" in str(path):
        raise Refused("a path without NUL", value)
    return path


def _dtype(value: Any) -> str:
    kind = type(value)
    if kind is type and value.__module__ == "numpy":
        return str(value.__name__)
    if kind.__module__.partition(".")[0] in ("torch", "numpy") and "dtype" in kind.__name__.lower():
        return str(value).removeprefix("torch.")
    if not issubclass(kind, str):
        raise Refused(DTYPE.words, value)
    return _text(value).removeprefix("torch.")


DTYPE = Kind("a dtype such as 'float32' or torch.float32", _dtype)


def choice_kind(known: tuple[Any, ...]) -> Kind:
    """The values of a Literal."""
    words = f"one of {', '.join(map(repr, known))}" if len(known) > 1 else repr(known[0])

    def take(value: Any) -> Any:
        text = str.__str__(value) if issubclass(type(value), str) else ""
        number = as_number(value)
        for one in known:
            if value is one or (isinstance(one, str) and text == one) or (number is not None and number == one):
                return one
        texts = [one for one in known if isinstance(one, str)] if text else []
        raise Refused(words, value, f"The nearest is {nearest(text, texts, 1)[0]!r}." if texts else "")

    return Kind(words, take)


def _array(value: Any) -> Any:
    """An array, tensor or (nested) list of numbers as a NumPy array."""
    import numpy as np

    words = "an array or list of numbers"
    try:
        if type(value) is range and len(value) > MOST_ITEMS:
            raise MemoryError
        found = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except Exception:
        raise Refused(words, value) from None
    if found.dtype.kind not in "iuf" or np.ma.isMaskedArray(value):
        raise Refused(words, value)
    return found


ARRAY = Kind("an array or list of numbers", _array)
SIMPLE: dict[Any, Kind] = {
    str: Kind("text", _text),
    bool: Kind("True or False", _bool),
    Path: Kind("a path", _path),
    type(None): choice_kind((None,)),
}
