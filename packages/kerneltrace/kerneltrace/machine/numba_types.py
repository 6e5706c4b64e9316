"""Replace the types, constants and mathematical functions that a kernel uses by ones
that compute as numba does.

numba computes literals and Python floats in float64, integers in 64 bits, and `math`
functions in the type of their argument; Python has one float and one unbounded integer.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.machine.traced_memory import TracedTuple, wrapped


class IntegerType:
    """An integer type: calling it casts as C does, to a Python integer
    of that range.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)

    def __call__(self, value: Any = 0) -> int:
        """`value` without its fraction, as `wrapped` stores it."""
        if not isinstance(value, float | np.floating):
            value = int(value)
        return int(wrapped(value, self.dtype))


def as_dtype(kind: Any) -> np.dtype[Any]:
    """The NumPy type that a kernel names by a numba type, a NumPy type, or an
    IntegerType.
    """
    if isinstance(kind, IntegerType):
        return kind.dtype
    if type(kind).__module__.startswith("numba"):
        from numba.np.numpy_support import as_dtype as of_numba

        return np.dtype(of_numba(kind))
    plain: np.dtype[Any] = np.dtype(kind)
    return plain


def _rounded(x: Any, digits: Any = None) -> Any:
    """Round to `digits` decimal places in float64, whatever the type of `x`; `x` itself
    where that overflows.
    """
    if digits is None or not isinstance(x, np.floating):
        return round(x, digits)
    result = np.float64(x).round(digits)
    return type(x)(result) if np.isfinite(result) else x


_OF_PYTHON: dict[Any, Callable[..., Any]] = {
    divmod: lambda a, b: TracedTuple(divmod(a, b)),
    float: np.float64,
    int: IntegerType(np.int64),
    round: _rounded,
}


def stand_in(value: Any) -> Any:
    """What replaces a global `value` in a traced kernel; `value` itself where it can
    stay.
    """
    if type(value) is float:
        return np.float64(value)
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if type(value) is tuple:
        return TracedTuple(value)
    if isinstance(value, type | BuiltinFunctionType) and value in _OF_PYTHON:
        return _OF_PYTHON[value]
    if isinstance(value, type) and issubclass(value, np.integer):
        return IntegerType(value)
    if type(value).__module__.startswith("numba.core.types") and hasattr(
        value, "bitwidth"
    ):
        dtype = as_dtype(value)
        if dtype.names:
            return dtype
        return IntegerType(dtype) if dtype.kind in "iu" else dtype.type
    module = getattr(value, "__module__", None) or ""
    if module == "math" and callable(value):
        return _typed(value)
    return _libdevice(value) if module.endswith("cuda.libdevice") else value


def _typed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A `math` function that returns its argument's type, and NaN or infinity where
    `math` would raise.
    """
    name = function.__name__
    if name in ("floor", "ceil", "trunc"):
        return lambda x: int(function(float(x)))
    ufunc = getattr(np, name, None)
    if name == "ldexp":
        return np.ldexp

    def elementwise(*xs: Any) -> Any:
        assert isinstance(ufunc, np.ufunc)
        result = ufunc(
            *(np.float64(x) if isinstance(x, int | float) else x for x in xs)
        )
        return TracedTuple(result) if ufunc.nout > 1 else result

    def scalar(x: Any) -> Any:
        kind = type(x) if isinstance(x, np.floating) else np.float64
        try:
            return kind(function(x))
        except ValueError:
            return kind("nan")
        except OverflowError:
            return kind("inf")

    return elementwise if isinstance(ufunc, np.ufunc) else scalar


def _libdevice(function: Any) -> Callable[..., Any]:
    """A function of numba.cuda.libdevice on floating-point numbers: those whose names
    end in f take float32.
    """
    name = function.__name__.removeprefix("fast_")
    short = name.endswith("f") and name != "erf"
    plain = name.removesuffix("f") if short else name
    kind = np.float32 if short else np.float64
    compute: Any = (
        _OWN.get(plain) or getattr(np, plain, None) or getattr(math, plain, None)
    )
    if compute is None:
        raise KernelError(
            f"libdevice.{function.__name__} is not supported by kerneltrace. Write"
            " operators and functions of math, which numba compiles to libdevice where"
            " it needs to."
        )
    return lambda *xs: kind(compute(*map(kind, xs)))


_OWN = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "fma": lambda a, b, c: np.float64(a) * b + np.float64(c),
}
"""Functions of libdevice that neither NumPy nor `math` has."""


def arithmetic_helpers(
    divided_by_zero: Callable[[int, int], None],
) -> dict[str, Callable[..., int]]:
    """Arithmetic on integers as numba's code does it, where Python's differs;
    `divided_by_zero` reports a division.
    """

    def divided(function: Callable[[int, int], int]) -> Callable[[int, int, int], int]:
        def divide(a: int, b: int, key: int) -> int:
            if b:
                return function(a, b)
            divided_by_zero(key, a)
            return 0

        return divide

    def power(a: int, n: int) -> int:
        if n >= 0:
            return a**n  # type: ignore[no-any-return]
        return a ** (n % 2) if a in (1, -1) else 0

    return {
        "quotient": divided(operator.floordiv),
        "remainder": divided(operator.mod),
        # PTX ISA, "shl" and "shr": a shift by more than 63 counts as one by 64.
        "left": lambda a, n: a << n if 0 <= n < 64 else 0,
        "right": lambda a, n: a >> (n if 0 <= n < 64 else 64),
        "power": power,
        "wrap": lambda value: wrapped(value, np.dtype(np.int64)),
    }
