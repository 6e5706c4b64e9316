"""Quote values and names in messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def brief_repr(value: object) -> str:
    """`value` as a message quotes it: an array's type and shape, else its repr on one
    line, cut after 60 characters.
    """
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    return cut(" ".join(repr(value).split()), 60)


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


def nearest(name: str, names: Iterable[str], n: int = 3) -> list[str]:
    """The `n` names most like `name`, best first, ignoring case."""
    by_folded = {each.casefold(): each for each in names}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=n, cutoff=0.0)
    return [by_folded[folded] for folded in close]
