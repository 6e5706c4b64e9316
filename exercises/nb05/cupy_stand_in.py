"""A stand-in for CuPy on a machine without a GPU: its arrays refuse what CuPy's refuse,
and count what costs a wait.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

_ARRAYS_ARE_MADE_BY = ("array", "asarray")  # CuPy's too copy a NumPy array to the GPU


class StandInArray(NDArrayOperatorsMixin):
    """An array "on the GPU". Operations on it return another one, as with CuPy; NumPy's
    arrays are refused.
    """

    def __init__(self, values: Any, module: StandInModule) -> None:
        self._values = values
        self._module = module

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            "an array on the GPU does not turn into one of NumPy's by itself (.get()"
            " would copy it over)"
        )

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        return self._module.run(getattr(ufunc, method), inputs, kwargs)

    def __array_function__(
        self, function: Any, types: Any, args: Any, kwargs: Any
    ) -> Any:
        return self._module.run(function, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        self._module.copies += any(isinstance(part, list | range) for part in parts)
        return self._module.run(self._values.__getitem__, (key,))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._module.run(self._values.__setitem__, (key, value))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("item", "tolist"):
            return getattr(self.get(), name)
        attribute = getattr(self._values, name)
        if callable(attribute):
            return lambda *args, **kwargs: self._module.run(attribute, args, kwargs)
        return self._module.wrap(attribute)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    __float__, __int__, __bool__ = (
        lambda self, kind=kind: kind(self.get()) for kind in (float, int, bool)
    )

    def get(self) -> Any:
        """A NumPy array of the same numbers: the CPU waits for them."""
        self._module.fetches += 1
        return np.array(self._values)


class StandInModule:
    """The module of such arrays, with all of NumPy's names.

    `launches` counts kernels, `fetches` waits, and `copies` indices that come from main
    memory.
    """

    def __init__(self) -> None:
        self.launches = self.fetches = self.copies = 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(np, name)
        if isinstance(attribute, type | ModuleType) or not callable(attribute):
            return attribute
        if name in _ARRAYS_ARE_MADE_BY:
            return lambda values, *args, **kwargs: self.wrap(
                attribute(getattr(values, "_values", values), *args, **kwargs)
            )
        return lambda *args, **kwargs: self.run(attribute, args, kwargs)

    def run(self, function: Any, args: Any, kwargs: Any = None) -> Any:
        """Call a function of NumPy on what the arrays hold, as one kernel."""
        self.launches += 1
        named = {name: _unwrap(value) for name, value in (kwargs or {}).items()}
        return self.wrap(function(*(_unwrap(arg) for arg in args), **named))

    def wrap(self, value: Any) -> Any:
        """A result as an array on the GPU, if it is an array or a number of NumPy's."""
        if isinstance(value, tuple):
            return tuple(self.wrap(part) for part in value)
        return (
            StandInArray(value, self)
            if isinstance(value, np.ndarray | np.generic)
            else value
        )


def _unwrap(value: Any) -> Any:
    """What NumPy computes with; TypeError for an array that would have to come from
    main memory.
    """
    if isinstance(value, StandInArray):
        return value._values
    if isinstance(value, np.ndarray):
        raise TypeError(
            "an array of NumPy's, in main memory, met one on the GPU: make every new"
            " array with xp"
        )
    if isinstance(value, list | tuple):
        return type(value)(_unwrap(part) for part in value)
    return value


def cupy_here() -> Any:
    """CuPy if it has a GPU to run on, else None."""
    try:
        import cupy
    except ImportError:
        return None
    return cupy if cupy.is_available() else None
