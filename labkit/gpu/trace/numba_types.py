"""Replace the types, constants and mathematical functions that a kernel uses by ones that compute as numba does.

numba computes literals and Python floats in float64, integers in 64 bits, and `math` functions in the type of their
argument; Python has one float and one unbounded integer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labkit.gpu.trace.traced_memory import TracedTuple, wrapped

# Functions of `math` that NumPy calls differently.
_NUMPY_NAMES = {"pow": "power", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"}
_NUMPY_NAMES |= {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}


class IntegerType:
    """An integer type: calling it casts as C does, to a Python integer of that range."""

    def __init__(self, dtype: Any) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)

    def __call__(self, value: Any = 0) -> int:
        """`value` without its fraction, wrapped into the type's range."""
        return int(wrapped(int(value), self.dtype))


def as_dtype(given: Any) -> np.dtype[Any]:
    """The NumPy type that a kernel names by a numba type, a NumPy type, or an IntegerType."""
    if isinstance(given, IntegerType):
        return given.dtype
    if type(given).__module__.startswith("numba"):
        from numba.np.numpy_support import as_dtype as of_numba

        return np.dtype(of_numba(given))
    plain: np.dtype[Any] = np.dtype(given)
    return plain


def stand_in(value: Any) -> Any:
    """What replaces a global `value` in a traced kernel; `value` itself where it can stay."""
    if type(value) is float:
        return np.float64(value)
    if type(value) is tuple:
        return TracedTuple(value)
    if value is divmod:
        return lambda a, b: TracedTuple(divmod(a, b))
    if value is float:
        return np.float64
    if isinstance(value, type) and issubclass(value, np.integer):
        return IntegerType(value)
    if type(value).__module__.startswith("numba.core.types") and hasattr(value, "bitwidth"):
        dtype = as_dtype(value)
        return IntegerType(dtype) if dtype.kind in "iu" else dtype.type
    if getattr(value, "__module__", "") == "math" and callable(value):
        return _typed(value)
    return value


def _typed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A `math` function that returns its argument's type, and NaN or infinity where `math` would raise."""
    name = function.__name__
    if name in ("floor", "ceil", "trunc"):
        return lambda x: int(function(x))
    ufunc = getattr(np, _NUMPY_NAMES.get(name, name), None)
    if isinstance(ufunc, np.ufunc):
        return lambda *xs: ufunc(*(np.float64(x) if isinstance(x, int | float) else x for x in xs))
    return lambda x: type(x)(function(x)) if isinstance(x, np.floating) else np.float64(function(x))
