"""What the names in a kernel stand for once numba has compiled it, and numba.cuda's
objects for those of numba-cuda-mlir, its successor.
"""

from __future__ import annotations

import dis
import importlib
import itertools
import linecache
import types
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kerneltrace.machine.traced_memory import Array
from kerneltrace.simulator.device_array import SimulatedArray

SUCCESSOR = "numba_cuda_mlir"


class Compiled(NamedTuple):
    """A function with what its names stand for."""

    fn: types.FunctionType
    device_arrays: tuple[Array, ...]
    """Those among its surroundings, and of the functions that it calls."""


_compiled: weakref.WeakKeyDictionary[types.FunctionType, dict[Any, Any]] = (
    weakref.WeakKeyDictionary()
)
_ufuncs = itertools.count()
_called: weakref.WeakKeyDictionary[Any, tuple[Any, tuple[Array, ...]]] = (
    weakref.WeakKeyDictionary()
)
"""Device functions by those of numba or its successor, each with its device arrays."""


def as_compiled(fn: types.FunctionType, kinds: Any) -> Compiled:
    """The same function with what its names stood for when it was first asked for with
    arguments of the types `kinds`.

    Numba compiles numbers and host arrays into a kernel, and the address of a device
    array ("Global Variables and Captured Values", numba-cuda's documentation).
    """
    by_kinds = _compiled.setdefault(fn, {})
    if kinds not in by_kinds:
        by_kinds[kinds] = _fixed(fn)
    return by_kinds[kinds]  # type: ignore[no-any-return]  # a Compiled


def numba_type(kind: Any) -> Any:
    """Numba's type for one of its successor's."""
    if not type(kind).__module__.startswith(SUCCESSOR):
        return kind
    numba: Any = importlib.import_module("numba")
    if hasattr(kind, "ndim"):
        return numba.types.Array(numba_type(kind.dtype), kind.ndim, kind.layout)
    return getattr(numba.types, str(kind), kind)


def exec_with_source(source: str, names: dict[str, Any]) -> None:
    """What numba executes to make the kernel of a ufunc, with a source that can be
    read.
    """
    file = f"<ufunc {next(_ufuncs)}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    exec(compile(source, file, "exec"), names)


def _fixed(fn: types.FunctionType) -> Compiled:
    code = fn.__code__
    steps = dis.get_instructions(code)  # co_names has attributes' names, too
    names = {step.argval for step in steps if step.opname == "LOAD_GLOBAL"}
    around = {name: fn.__globals__[name] for name in names if name in fn.__globals__}
    cells = [cell.cell_contents for cell in fn.__closure__ or ()]
    fixed = {name: _fixed_value(value) for name, value in around.items()}
    closure = tuple(types.CellType(_fixed_value(value)) for value in cells) or None
    surroundings = fn.__globals__ | fixed
    made = types.FunctionType(code, surroundings, fn.__name__, fn.__defaults__, closure)
    made.__module__ = fn.__module__
    return Compiled(made, _device_arrays([*around.values(), *cells]))


def _device_arrays(values: Sequence[Any]) -> tuple[Array, ...]:
    arrays: list[Array] = []
    for value in values:
        if isinstance(value, SimulatedArray):
            arrays.append(value.array)
        elif _is_dispatcher(value):
            arrays += _device_function(value)[1]
    return tuple(arrays)


def _fixed_value(value: Any) -> Any:
    """What a compiled kernel has for a value of its surroundings."""
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    if isinstance(value, SimulatedArray):
        return value.array
    if isinstance(value, types.ModuleType):
        return _module(value)
    if _is_dispatcher(value):
        return _device_function(value)[0]
    homes = type(value).__module__, str(getattr(value, "__module__", ""))
    if not any(home.startswith(SUCCESSOR) for home in homes):
        return value
    cuda: Any = importlib.import_module("numba.cuda")
    name = getattr(value, "__name__", "") or getattr(value, "name", "")
    return getattr(cuda, name, numba_type(value))


def _is_dispatcher(value: Any) -> bool:
    """Whether a value is a function of a suite with @cuda.jit or @jit."""
    if not (hasattr(value, "py_func") and hasattr(value, "targetoptions")):
        return False
    return value.py_func.__module__.partition(".")[0] not in ("numba", SUCCESSOR)


def _device_function(dispatcher: Any) -> tuple[Any, tuple[Array, ...]]:
    if dispatcher not in _called:
        _called[dispatcher] = dispatcher, ()  # for one that calls itself
        cuda: Any = importlib.import_module("numba.cuda")
        inline = dispatcher.targetoptions.get("inline", "never")
        fn, arrays = _fixed(dispatcher.py_func)
        _called[dispatcher] = cuda.jit(device=True, inline=inline)(fn), arrays
    return _called[dispatcher]


def _module(module: types.ModuleType) -> types.ModuleType:
    parts = module.__name__.split(".")
    if parts[0] != SUCCESSOR:
        return module
    path = [part for part in parts[1:] if part not in ("cuda", "numba_cuda")]
    name = ".".join(["numba", "cuda", *path] if parts[1:] else ["numba"])
    try:
        return importlib.import_module(name)
    except ImportError:
        return module
