"""Numbers, text and lists of other libraries as Python's own, whatever the value says of itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

_MOST_ITEMS = 1_000_000


class Refused(Exception):
    """A value that isn't what was expected: words for the message, and `where` in the parameter it is, "[2]"."""

    def __init__(self, words: str, value: object, advice: str = "", where: str = "") -> None:
        self.words, self.value, self.advice, self.where = words, value, advice, where


def as_number(value: Any) -> int | float | None:
    """A number of Python, NumPy or torch as Python's own; None for what is none, such as a bool or a date."""
    kind = type(value)
    if kind is int or kind is float:
        return value  # type: ignore[no-any-return]
    try:
        if issubclass(kind, int | float):  # what a subclass says of itself doesn't count
            number = float.__pos__(value) if issubclass(kind, float) else int.__pos__(value)
            return None if kind is bool else number
        odd = getattr(value, "mask", None) is not None or getattr(value.dtype, "kind", "f") not in "iuf"
        item = None if odd else value.item()
        return item if type(item) in (int, float) else None
    except Exception:  # several elements, a tensor without values, an object that refuses all questions
        return None


def as_plain(value: Any, *, dtype: bool) -> str | int | float | None:
    """Text or a number as Python's own; where a dtype may come, the name of one of torch or NumPy; else None."""
    kind = type(value)
    home = str(value.__module__ if kind is type else kind.__module__).partition(".")[0]
    if dtype and home in ("torch", "numpy") and (kind is type or "dtype" in kind.__name__.lower()):
        return str(value.__name__ if kind is type else value).removeprefix("torch.")
    if not issubclass(kind, str):
        return None if dtype else as_number(value)
    text = str.__str__(value).removeprefix("torch.")
    return text if text.encode(errors="replace").decode() == text else None  # not half of a surrogate pair


def as_tuple(value: Any, take: Callable[[Any], Any], words: str, *, least: int) -> tuple[Any, ...]:
    """What `take` makes of each item of a list or array. Raises Refused with `words`, or with what `take` says."""
    try:
        if issubclass(type(value), str | bytes | Mapping | set):
            raise TypeError
        items = list(itertools.islice(iter(value), _MOST_ITEMS + 1))
    except Exception:
        raise Refused(words, value) from None
    if not least <= len(items) <= _MOST_ITEMS:
        raise Refused(words, value)
    for i, item in enumerate(items):
        try:
            items[i] = take(item)
        except Refused as refused:
            raise Refused(refused.words, refused.value, refused.advice, f"[{i}]{refused.where}") from None
    return tuple(items)
