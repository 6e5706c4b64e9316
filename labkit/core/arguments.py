"""Read what was passed in as a number or as a known name, and quote it in a message."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

from labkit.core.errors import BadArgument
from labkit.core.text import cut, printable

T = TypeVar("T")


def as_number(value: Any) -> int | float | None:
    """`value` as an int or float, also inf and NaN, and also that of NumPy or of a
    tensor of one element; None for anything else and for a bool.
    """
    if hasattr(value, "item"):
        try:
            value = value.item()
        except (RuntimeError, TypeError, ValueError):  # several elements, or no values
            return None
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return int(value) if isinstance(value, Integral) else float(value)


def as_float(value: Any) -> float | None:
    """`value` as a float, also inf and NaN; None for what isn't a number or is too
    large for one.
    """
    number = as_number(value)
    try:
        return None if number is None else float(number)
    except OverflowError:
        return None


def is_whole(value: Any) -> bool:
    """Whether `value` is a single whole number, and no bool."""
    return isinstance(as_number(value), int)


def nearest(name: str, known: Iterable[str], n: int = 3) -> list[str]:
    """The `n` known names most like `name`, best first, ignoring case; never empty
    while `known` is not.
    """
    by_folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(
        name[:200].casefold(), list(by_folded), n=n, cutoff=0.0
    )
    return [by_folded[folded] for folded in close]


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


def is_dtype(value: Any) -> bool:
    """Whether `value` is the name of a dtype, or torch's or NumPy's."""
    is_class = isinstance(value, type) and value.__module__ == "numpy"
    return isinstance(value, str) or is_class or "dtype" in type(value).__name__.lower()


def dtype_name(dtype: Any) -> str:
    """The name of a dtype: 'float32' for torch.float32, numpy.float32 and its dtype."""
    name = dtype.__name__ if isinstance(dtype, type) else str(dtype)
    return name.removeprefix("torch.")


def as_array(values: Any) -> Any:
    """A list, an array or a tensor as a NumPy array."""
    import numpy as np

    # NumPy reads no tensor that needs a gradient or lies on a GPU.
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def is_array(value: Any) -> bool:
    """Whether `as_array` makes an array of numbers of this."""
    try:
        return as_array(value).dtype.kind in "iuf"
    except (TypeError, ValueError):  # rows of different lengths
        return False


_PARTS = reprlib.Repr()
_PARTS.maxlist = 30
_PARTS.maxtuple = 30
_PARTS.maxdict = 30
_PARTS.maxset = 30
_PARTS.maxstring = 80
_PARTS.maxother = 80


def brief_repr(value: object) -> str:
    """`value` as a message quotes it: an array's type and shape, else its repr on one
    line, cut after 60 characters.
    """
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    try:
        if isinstance(value, str | bytes):
            text = repr(value[:80])
        elif type(value) in (list, tuple, dict, set):
            text = _PARTS.repr(value)  # a long one isn't written out whole
        else:
            text = repr(value)
    except Exception:  # a message about a bad value must not fail on it
        return f"an object of type {type(value).__name__}"
    return cut(printable(" ".join(text.split())), 60)
