"""The door: judge what public functions are called with. TypeError for a wrong type,
ValueError for a wrong value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from numbers import Integral, Real
from typing import Any

from ranks._text import shown


def _expected(name: str, words: str, value: object, advice: str = "") -> str:
    return f"Expected {name} to be {words}, got {shown(value)}. {advice}".rstrip()


def check_count(name: str, value: Any, most: int | None = None, why: str = "") -> None:
    """A whole number from 1 to `most`."""
    words = f"a whole number from 1 to {most}"
    if most is None:
        words = "a whole number of at least 1"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(_expected(name, words, value, why))
    if not 1 <= int(value) <= (most or math.inf):
        raise ValueError(_expected(name, words, value, why))


def check_seconds(name: str, value: Any) -> None:
    """A finite number of seconds above 0."""
    message = f"{_expected(name, 'a finite number above 0', value)} It is in seconds."
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(message)
    if not 0 < float(value) < math.inf:
        raise ValueError(message)


def check_text(name: str, value: Any, choices: Sequence[str] = ()) -> None:
    """Text, and one of the choices if there are any."""
    if isinstance(value, str) and (not choices or value in choices):
        return
    words = f"one of {', '.join(map(repr, choices))}" if choices else "text"
    error = ValueError if isinstance(value, str) else TypeError
    raise error(_expected(name, words, value))


def check_function(name: str, value: Any) -> None:
    """Something that can be called."""
    if not callable(value):
        advice = "Pass its name without brackets."
        if isinstance(value, str):
            advice = "Pass its name without quotes."
        raise TypeError(_expected(name, "a function", value, advice))


def as_float(name: str, value: Any) -> float:
    """A number, or a tensor of one element, as Python's own."""
    if not isinstance(value, str | bool):
        with suppress(TypeError, ValueError, RuntimeError):
            return float(value)
    raise TypeError(_expected(name, "a number", value))
