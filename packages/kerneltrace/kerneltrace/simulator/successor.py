"""Kernels of numba-cuda-mlir, numba-cuda's successor, as kernels of numba.cuda: their
source is the same, and the names in it stand for other objects.
"""

from __future__ import annotations

import dis
import functools
import importlib
import types
import weakref
from typing import Any

PACKAGE = "numba_cuda_mlir"
_translated: weakref.WeakKeyDictionary[types.FunctionType, types.FunctionType] = (
    weakref.WeakKeyDictionary()
)


def as_numba(fn: types.FunctionType) -> types.FunctionType:
    """The same function with numba.cuda's objects for its successor's; itself where it
    names none of these.
    """
    if fn not in _translated:
        _translated[fn] = _function(fn)
    return _translated[fn]


def numba_type(kind: Any) -> Any:
    """Numba's type for one of its successor's."""
    if not type(kind).__module__.startswith(PACKAGE):
        return kind
    numba: Any = importlib.import_module("numba")
    if hasattr(kind, "ndim"):
        return numba.types.Array(numba_type(kind.dtype), kind.ndim, kind.layout)
    return getattr(numba.types, str(kind), kind)


def _function(fn: types.FunctionType) -> types.FunctionType:
    code = fn.__code__
    steps = dis.get_instructions(code)  # co_names has attributes' names, too
    names = {step.argval for step in steps if step.opname == "LOAD_GLOBAL"}
    around = {name: fn.__globals__[name] for name in names if name in fn.__globals__}
    replaced = {name: _counterpart(value) for name, value in around.items()}
    cells = [cell.cell_contents for cell in fn.__closure__ or ()]
    contents = [_counterpart(value) for value in cells]
    pairs = [*zip(around.values(), replaced.values(), strict=True)]
    pairs += zip(cells, contents, strict=True)
    if all(new is old for old, new in pairs):
        return fn
    closure = tuple(map(types.CellType, contents)) or None
    surroundings = fn.__globals__ | replaced
    made = types.FunctionType(code, surroundings, fn.__name__, fn.__defaults__, closure)
    made.__module__ = fn.__module__
    return made


def _counterpart(value: Any) -> Any:
    """Numba's object for one of its successor's; `value` itself for all else."""
    if isinstance(value, types.ModuleType):
        return _module(value)
    homes = type(value).__module__, str(getattr(value, "__module__", ""))
    if not any(home.startswith(PACKAGE) for home in homes):
        return value
    if hasattr(value, "py_func"):
        return _device_function(value)
    cuda: Any = importlib.import_module("numba.cuda")
    name = getattr(value, "__name__", "") or getattr(value, "name", "")
    return getattr(cuda, name, numba_type(value))


@functools.cache
def _device_function(dispatcher: Any) -> Any:
    cuda: Any = importlib.import_module("numba.cuda")
    return cuda.jit(device=True)(as_numba(dispatcher.py_func))


def _module(module: types.ModuleType) -> types.ModuleType:
    parts = module.__name__.split(".")
    if parts[0] != PACKAGE:
        return module
    path = [part for part in parts[1:] if part not in ("cuda", "numba_cuda")]
    name = ".".join(["numba", "cuda", *path] if parts[1:] else ["numba"])
    try:
        return importlib.import_module(name)
    except ImportError:
        return module
