"""Refuse what a function can't take: TypeError for another type, else ValueError."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any


def number(name: str, value: Any, unit: str) -> None:
    """Refuse all but a finite number above 0."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not 0 < value < math.inf:
        error = ValueError if real else TypeError
        words = "a finite number above 0"
        raise error(expected(name, words, value, f"It is in {unit}."))


def count(name: str, value: Any, least: int, most: int) -> None:
    """Refuse all but a whole number within bounds."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        error = ValueError if whole else TypeError
        words = f"a whole number from {least:,} to {most:,}"
        raise error(expected(name, words, value))


def function(name: str, value: Any, arguments: int) -> None:
    """Refuse what can't be called with so many arguments."""
    words = f"a function of {arguments or 'no'} argument{'s' * (arguments != 1)}"
    if not callable(value):
        advice = "Pass its name without brackets."
        raise TypeError(expected(name, words, value, advice))
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # some builtins don't say what they take
        return
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        advice = f"This one has {', '.join(signature.parameters) or 'none'}."
        raise TypeError(expected(name, words, value, advice)) from None


def choice(name: str, value: Any, names: Iterable[str]) -> None:
    """Refuse all but one of the names, and say which is nearest."""
    names = list(names)
    words = f"one of {', '.join(names)}"
    if not isinstance(value, str):
        raise TypeError(expected(name, words, value))
    if value not in names:
        (near,) = difflib.get_close_matches(value, names, n=1, cutoff=0.0)
        raise ValueError(expected(name, words, value, f"The nearest is {near!r}."))


def instance(name: str, value: Any, kind: type) -> None:
    """Refuse what isn't of a class."""
    if not isinstance(value, kind):
        raise TypeError(expected(name, f"a {kind.__name__}", value))


def expected(name: str, words: str, value: Any, advice: str = "") -> str:
    """What was expected, what came, and what to do."""
    return f"Expected {name} to be {words}, got {brief_repr(value)}. {advice}".rstrip()


def brief_repr(value: Any) -> str:
    """A value as a message quotes it: the shape of an array, else at most 60
    characters.
    """
    shape = getattr(value, "shape", None)
    if shape:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
