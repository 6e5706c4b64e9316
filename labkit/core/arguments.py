"""Read what was passed in as a number or as a known name, and quote it in a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from kerneltrace.arguments import (
    as_number as as_number,
    brief_repr as brief_repr,
    cut as cut,
    is_whole as is_whole,
)
from labkit.core.errors import BadArgument, nearest

T = TypeVar("T")


def as_float(value: Any) -> float | None:
    """`value` as a float, also inf and NaN; None for what isn't a number or is too
    large for one.
    """
    number = as_number(value)
    try:
        return None if number is None else float(number)
    except OverflowError:
        return None


def lookup(
    name: object,
    known: Mapping[str, T],
    what: str,
    error: type[Exception] = BadArgument,
) -> T:
    """`known[name]`; for another name `error`, with all known names and the nearest.
    `what` says what is looked up.
    """
    if isinstance(name, str) and name in known:
        return known[name]
    near = f" The nearest is {nearest(str(name), known, n=1)[0]!r}." if known else ""
    raise error(
        f"Expected {what} to be one of {', '.join(known)}; got"
        f" {brief_repr(name)}.{near}"
    )
