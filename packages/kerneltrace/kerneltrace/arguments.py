"""Judge what a function was called with, convert it to Python's own types, and quote it
in a message.

Numbers of Python, NumPy and torch count; a bool, NaN and what is masked don't. Each
function raises the `error` that its caller names, with a sentence: what was expected,
what came.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from typing import Any

# Beyond these no quantity here has a meaning, and a product of a few of them would
# leave the floats.
_LEAST = 1e-30
_MOST = 10**30
_LONGEST_TEXT = 1_000_000
_PARTS = reprlib.Repr()
_PARTS.maxlist = _PARTS.maxtuple = _PARTS.maxdict = _PARTS.maxset = (
    _PARTS.maxfrozenset
) = _PARTS.maxarray = 30
_PARTS.maxstring = _PARTS.maxother = 80


def as_number(value: Any) -> int | float | None:
    """`value` as an int or float, also inf and NaN; None for what is no single number,
    and for a bool.
    """
    try:
        if issubclass(type(value), int | float):
            if issubclass(type(value), bool):
                return None
            # what a subclass says of itself doesn't count
            return (
                float.__pos__(value)
                if issubclass(type(value), float)
                else int.__pos__(value)
            )
        masked = getattr(value, "mask", None) is not None
        number = (
            None
            if masked
            or getattr(getattr(value, "dtype", None), "kind", "f") not in "iuf"
            else value.item()
        )
        return number if type(number) in (int, float) else None
    except Exception:
        # several elements, a tensor without values, an object that refuses all
        # questions
        return None


def is_whole(value: Any) -> bool:
    """Whether `value` is a single whole number, and no bool."""
    return type(as_number(value)) is int


def whole(
    name: str,
    value: Any,
    error: type[Exception],
    *,
    least: int,
    most: int | None = None,
    advice: str = "",
) -> int:
    """`value` as an int of at least `least`, and at most `most`."""
    number = as_number(value)
    if type(number) is int and least <= number <= (_MOST if most is None else most):
        return number
    bounds = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
    raise _refused(name, f"a whole number {bounds}", value, error, advice)


def positive(
    name: str,
    value: Any,
    error: type[Exception],
    *,
    or_zero: bool = False,
    advice: str = "",
) -> float:
    """`value` as a finite number above 0, or from 0 on."""
    number = as_number(value)
    if number is not None and (_LEAST <= number <= _MOST or (or_zero and number == 0)):
        return number
    words = "of at least 0" if or_zero else "above 0"
    raise _refused(name, f"a finite number {words}", value, error, advice)


def flag(name: str, value: Any, error: type[Exception]) -> bool:
    """`value` as True or False, also NumPy's."""
    if type(value) is bool:
        return value
    if (
        type(value).__module__ == "numpy"
        and getattr(getattr(value, "dtype", None), "kind", "") == "b"
    ):
        return bool(value.item())
    raise _refused(name, "True or False", value, error)


def text(name: str, value: Any, error: type[Exception], *, advice: str = "") -> str:
    """`value` as text that UTF-8 can hold, of at most a million characters."""
    if issubclass(type(value), str):
        plain = str.__str__(value)
        if len(plain) > _LONGEST_TEXT:
            raise _refused(
                name, f"text of at most {_LONGEST_TEXT:,} characters", plain, error
            )
        # halves of pairs
        if any("\ud800" <= character <= "\udfff" for character in plain):
            raise _refused(name, "text that UTF-8 can hold", plain, error)
        return plain
    raise _refused(name, "text", value, error, advice)


def whole_pair(
    name: str, value: Any, error: type[Exception], *, example: str
) -> tuple[int, int]:
    """A tuple or list of two whole numbers from 0 on, such as the `example`."""
    if (
        issubclass(type(value), tuple | list)
        and len(value) == 2
        and all(map(is_whole, value))
    ):
        return whole(name, value[0], error, least=0), whole(
            name, value[1], error, least=0
        )
    raise _refused(name, f"a pair of whole numbers such as {example}", value, error)


def _refused(
    name: str, words: str, value: Any, error: type[Exception], advice: str = ""
) -> Exception:
    return error(
        f"Expected {name} to be {words}, got {brief_repr(value)}. {advice}".rstrip()
    )


def nearest(name: str, known: Iterable[str], n: int = 3) -> list[str]:
    """The `n` known names most like `name`, best first, ignoring case; never empty
    while `known` is not.
    """
    folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(
        name[:200].casefold(), list(folded), n=n, cutoff=0.0
    )
    return [folded[c] for c in close]


def brief_repr(value: object) -> str:
    """`value` as a message quotes it: an array's type and shape, else its repr on one
    line, cut after 60 characters.
    """
    kind = type(value).__name__
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:
            return f"{kind} of shape {tuple(shape)}"
        if issubclass(type(value), str | bytes):
            value = value[:80]  # type: ignore[index]  # mypy does not narrow by issubclass
        # such may be long, and is not written out whole
        parted = type(value) in (list, tuple, dict, set, frozenset)
        quoted = " ".join((_PARTS.repr if parted else repr)(value).split())
        return cut(quoted.encode("utf-8", "backslashreplace").decode(), 60)
    except Exception:  # a message about a bad value must not fail on it
        large = issubclass(type(value), int)
        return (
            "a number of thousands of digits" if large else f"an object of type {kind}"
        )


def cut(words: str, longest: int) -> str:
    """At most `longest` characters of a text, up to the end of a word where there is
    one.
    """
    if len(words) <= longest:
        return words
    head = words[: longest - 3]
    if not words[longest - 3].isspace():
        head = head.rpartition(" ")[0] or head
    return f"{head.rstrip()}..."
