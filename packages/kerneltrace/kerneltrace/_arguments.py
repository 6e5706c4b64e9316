"""Judge an argument of a public function: a TypeError or a ValueError says what was
expected and what came.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from kerneltrace._text import brief_repr


def whole(
    name: str, value: Any, *, least: int, most: float = math.inf, advice: str = ""
) -> int:
    """`value` as an int from `least` to `most`."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if is_whole and least <= value <= most:
        return int(value)
    bounds = f"from {least:,} to {most:,}"
    if most == math.inf:
        bounds = f"of at least {least:,}"
    raise _refusal(name, f"a whole number {bounds}", value, is_whole, advice)


def positive(name: str, value: Any) -> float:
    """`value` as a finite number above 0."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and 0 < value < math.inf:
        return float(value)
    raise _refusal(name, "a finite number above 0", value, is_number)


def flag(name: str, value: Any) -> bool:
    """`value` as True or False."""
    if isinstance(value, bool):
        return value
    raise _refusal(name, "True or False", value)


def text(name: str, value: Any, advice: str = "") -> str:
    """`value` as text."""
    if isinstance(value, str):
        return value
    raise _refusal(name, "text", value, advice=advice)


def as_capability(value: Any) -> tuple[int, int]:
    """`value` as a compute capability."""
    if isinstance(value, tuple | list) and len(value) == 2:
        major, minor = value
        if isinstance(major, Integral) and isinstance(minor, Integral):
            return int(major), int(minor)
    expected = "a pair of whole numbers such as (8, 0)"
    raise _refusal("compute_capability", expected, value)


def _refusal(
    name: str, expected: str, value: Any, has_type: bool = False, advice: str = ""
) -> Exception:
    error = ValueError if has_type else TypeError
    words = f"Expected {name} to be {expected}, got {brief_repr(value)}. {advice}"
    return error(words.rstrip())
