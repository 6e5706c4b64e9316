"""Names and values as messages quote them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")
_LONGEST = 60  # characters of a quoted value


def nearest(name: str, names: Iterable[str], n: int = 3) -> list[str]:
    """The `n` names most like `name`, best first, ignoring case; never empty while
    `names` is not.
    """
    by_folded = {each.casefold(): each for each in names}
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=n, cutoff=0.0)
    return [by_folded[match] for match in matches]


def lookup(name: str, values: Mapping[str, T], what: str) -> T:
    """`values[name]`; for another name ValueError, with all names and the nearest.
    `what` says what is looked up.
    """
    if name in values:
        return values[name]
    near = nearest(name, values, n=1)[0]
    separator = "; " if any("," in each for each in values) else ", "
    raise ValueError(
        f"Expected {what} to be one of {separator.join(values)}; got"
        f" {brief_repr(name)}. The nearest is {near!r}."
    )


def brief_repr(value: object) -> str:
    """The repr of a value on one line, cut where it is long."""
    text = " ".join(repr(value).split())
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 3]}..."
