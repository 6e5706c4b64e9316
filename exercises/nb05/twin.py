"""A stand-in for CuPy on a machine without a GPU: its arrays refuse what CuPy's refuse, and count what costs a wait."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

_MIXED = "an array of NumPy's, in main memory, met one on the GPU: make every new array with xp"
_ARRAYS_ARE_MADE_BY = ("array", "asarray")  # CuPy's too copy a NumPy array over


class Log:
    """How often the GPU was given an order, and how often the CPU had to wait for a number from it."""

    def __init__(self) -> None:
        self.orders = 0
        self.fetches = 0


class Twin(NDArrayOperatorsMixin):
    """An array "on the GPU". Whatever is done with it makes another one, as with CuPy; NumPy's arrays are refused."""

    def __init__(self, values: Any, log: Log) -> None:
        self._values, self._log = values, log

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("an array on the GPU does not turn into one of NumPy's by itself (.get() would copy it over)")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return self._run(getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return self._run(function, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self._run(self._values.__getitem__, (key,), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        self._run(self._values.__setitem__, (key, value), {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._values, name)
        if callable(found):
            return lambda *args, **kwargs: self._run(found, args, kwargs)
        return wrap(found, self._log) if isinstance(found, np.ndarray) else found

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __float__(self) -> float:
        return float(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __bool__(self) -> bool:
        return bool(self.get())

    def item(self) -> Any:
        """The one number, fetched."""
        return self.get().item()

    def tolist(self) -> Any:
        """All numbers, fetched."""
        return self.get().tolist()

    def get(self) -> Any:
        """A NumPy array of the same numbers: the CPU waits for them."""
        self._log.fetches += 1
        return np.array(self._values)

    def _run(self, function: Any, args: Any, kwargs: Any) -> Any:
        self._log.orders += 1
        plain = {name: unwrap(value) for name, value in kwargs.items()}
        return wrap(function(*(unwrap(arg) for arg in args), **plain), self._log)


class TwinModule:
    """The module of such arrays: all of NumPy's names."""

    def __init__(self, log: Log, module: ModuleType = np) -> None:
        self._log, self._module = log, module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, ModuleType):
            return TwinModule(self._log, found)
        if isinstance(found, type) or not callable(found):
            return found

        def order(*args: Any, **kwargs: Any) -> Any:
            self._log.orders += 1
            if name not in _ARRAYS_ARE_MADE_BY:
                args = tuple(unwrap(arg) for arg in args)
            else:
                args = tuple(arg._values if isinstance(arg, Twin) else arg for arg in args)
            return wrap(found(*args, **{key: unwrap(value) for key, value in kwargs.items()}), self._log)

        return order


def unwrap(value: Any) -> Any:
    """What NumPy computes with; TypeError for an array that would have to come from main memory."""
    if isinstance(value, Twin):
        return value._values
    if isinstance(value, np.ndarray):
        raise TypeError(_MIXED)
    if isinstance(value, list | tuple):
        return type(value)(unwrap(one) for one in value)
    return value


def wrap(value: Any, log: Log) -> Any:
    """A result as an array on the GPU, where it is an array or a number of NumPy's."""
    if isinstance(value, np.ndarray | np.generic):
        return Twin(value, log)
    if isinstance(value, tuple):
        return tuple(wrap(one, log) for one in value)
    return value


def cupy_here() -> Any:
    """CuPy where it has a GPU to run on, else None."""
    try:
        import cupy
    except ImportError:
        return None
    return cupy if cupy.is_available() else None
