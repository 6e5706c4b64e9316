"""Judge what was passed in: numbers of every library, functions, names, devices; and
quote it in a message.
"""

from __future__ import annotations

import difflib
import inspect
import reprlib
from collections.abc import Iterable
from typing import Any, TypeVar, cast

import torch

from steptime.errors import BadArgument

T = TypeVar("T")
# beyond these, no quantity here has a meaning
_LEAST = 1e-30
_MOST = 1e30
_PARTS = reprlib.Repr()
_PARTS.maxlist = _PARTS.maxtuple = _PARTS.maxdict = _PARTS.maxset = (
    _PARTS.maxfrozenset
) = 30
_PARTS.maxstring = _PARTS.maxother = 80


def as_number(value: Any) -> int | float | None:
    """`value` as an int or float: Python, NumPy and one-element torch numbers count,
    also inf and NaN. Else None.
    """
    try:
        if issubclass(type(value), bool):
            return None
        # what a subclass says of itself doesn't count
        if issubclass(type(value), int | float):
            return (
                float.__pos__(value)
                if issubclass(type(value), float)
                else int.__pos__(value)
            )
        masked = getattr(value, "mask", None) is not None
        # torch's dtypes have none
        kind = getattr(getattr(value, "dtype", None), "kind", "f")
        number = value.item() if not masked and kind in "iuf" else None
        return number if type(number) in (int, float) else None
    except Exception:
        # several elements, a tensor without values, an object that refuses all
        # questions
        return None


def number(name: str, value: Any, unit: str) -> float:
    """A finite number above 0."""
    plain = as_number(value)
    if plain is None or not _LEAST <= plain <= _MOST:
        raise expected(name, "a finite number above 0", value, f"It is in {unit}.")
    return float(plain)


def count(name: str, value: Any, least: int, most: int) -> int:
    """A whole number within bounds."""
    plain = as_number(value)
    if type(plain) is not int or not least <= plain <= most:
        raise expected(name, f"a whole number from {least:,} to {most:,}", value)
    return plain


def function(name: str, value: Any, arguments: int) -> Any:
    """Something that can be called with so many arguments."""
    words = f"a function of {arguments or 'no'} argument{'s' * (arguments != 1)}"
    if not callable(value):
        raise expected(name, words, value, "Pass its name without brackets.")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # some builtins don't say what they take
        return value
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        raise expected(
            name,
            words,
            value,
            f"This one has {', '.join(signature.parameters) or 'none'}.",
        ) from None
    return value


def choice(name: str, value: Any, known: Iterable[str]) -> str:
    """One of the known names."""
    names = list(known)
    text = str.__str__(value) if issubclass(type(value), str) else ""
    if text in names:
        return text
    near = difflib.get_close_matches(text[:200], names, n=1, cutoff=0.0) if text else []
    raise expected(
        name,
        f"one of {', '.join(names)}",
        value,
        f"The nearest is {near[0]!r}." if near else "",
    )


def device(value: Any) -> str:
    """A device, "cpu" or "cuda"; for None, "cuda" where torch has a GPU."""
    has_gpu = torch.cuda.is_available()
    if value is None:
        return "cuda" if has_gpu else "cpu"
    name = choice("device", value, ("cpu", "cuda"))
    if name == "cuda" and not has_gpu:
        raise BadArgument(
            "Expected a GPU that torch can use for device='cuda', found none. Pass"
            " device='cpu'."
        )
    return name


def instance(name: str, value: Any, kind: type[T]) -> T:
    """A value of a class."""
    # isinstance would believe what a value says of its class
    if not issubclass(type(value), kind):
        raise expected(name, f"a {kind.__name__}", value)
    return cast(T, value)


def expected(name: str, words: str, value: Any, advice: str = "") -> BadArgument:
    """The error that says what was expected, what came, and what to do."""
    return BadArgument(
        f"Expected {name} to be {words}, got {brief_repr(value)}. {advice}".rstrip()
    )


def brief_repr(value: Any) -> str:
    """`value` as a message quotes it: an array's type and shape, else its repr on one
    line, cut after 60 characters.
    """
    kind = type(value).__name__
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:
            return f"{kind} of shape {tuple(shape)}"
        if issubclass(type(value), str | bytes):
            value = value[:80]
        # such may be long, and is not written out whole
        parted = type(value) in (list, tuple, dict, set, frozenset)
        text = (
            " ".join((_PARTS.repr if parted else repr)(value).split())
            .encode("utf-8", "backslashreplace")
            .decode()
        )
        return text if len(text) <= 60 else f"{text[:57]}..."
    except Exception:  # a message about a bad value must not fail on it
        return f"an object of type {kind}"
