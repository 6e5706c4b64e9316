"""The world outside a kernel: what its names stand for where they are not its own."""

from __future__ import annotations

import ast
import builtins
import sys
import types
from typing import Any

import numpy as np

from labkit.gpu.trace.arithmetic import local_names
from labkit.gpu.trace.program import python_function
from labkit.gpu.trace.thread import KEYED, PLAIN, VALUES

_MISSING = object()


def is_cuda(value: Any) -> bool:
    """Whether `value` is numba's `cuda` module: built in, simulated, or of the package numba-cuda."""
    return isinstance(value, types.ModuleType) and value.__name__ in ("numba.cuda", "numba.cuda.simulator")


class Outside:
    """Names of a function's globals, closure and builtins."""

    def __init__(self, fn: types.FunctionType, tree: ast.FunctionDef) -> None:
        cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        self.names: dict[str, Any] = {**vars(builtins), **fn.__globals__}
        self.names |= {name: cell.cell_contents for name, cell in cells}
        self._local = local_names(tree)
        self._imported = _members_of_cuda()

    def find(self, node: ast.expr) -> Any:
        """What a name or a dotted name stands for; judge it with `known`."""
        if isinstance(node, ast.Name):
            return _MISSING if node.id in self._local else self.names.get(node.id, _MISSING)
        if isinstance(node, ast.Attribute):
            owner = self.find(node.value)
            return getattr(owner, node.attr, _MISSING) if isinstance(owner, types.ModuleType | type) else _MISSING
        return _MISSING

    def known(self, value: Any) -> bool:
        """Whether `find` found something outside."""
        return value is not _MISSING

    def is_array(self, value: Any) -> bool:
        """Whether a global is an array, which numba compiles in as constant memory."""
        return isinstance(value, np.ndarray)

    def whole_numbers(self) -> set[str]:
        """Outer names that hold whole numbers, such as TILE."""
        return {name for name, value in self.names.items() if isinstance(value, int) and name not in self._local}

    def cuda_path(self, node: ast.expr) -> str:
        """`atomic.add` for `cuda.atomic.add`, whatever `cuda` or a part of it is called here; empty for all else."""
        if isinstance(node, ast.Name):
            return self._imported.get(id(self.find(node)), "")
        if not isinstance(node, ast.Attribute):
            return ""
        if is_cuda(self.find(node.value)):
            return node.attr
        path = self.cuda_path(node.value)
        return f"{path}.{node.attr}" if path and path not in VALUES else ""

    def device_function(self, node: ast.expr) -> types.FunctionType | None:
        """The Python function that a call inside the kernel runs; None for builtins, types and library functions."""
        value = self.find(node)
        if value is _MISSING or isinstance(value, type | types.BuiltinFunctionType):
            return None
        inner = getattr(value, "py_func", None) or getattr(value, "fn", None) or value
        if not isinstance(inner, types.FunctionType) or inner.__module__.split(".")[0] in ("numpy", "math"):
            return None
        return python_function(value)


def _members_of_cuda() -> dict[int, str]:
    """Dotted names of what `from numba.cuda import ...` brings, by identity."""
    module = sys.modules.get("numba.cuda")
    found: dict[int, str] = {}
    for path in (*VALUES, *PLAIN, *KEYED, "shared", "local", "const", "atomic"):
        value: Any = module
        for part in path.split("."):
            value = getattr(value, part, None)
        if value is not None and not isinstance(value, int):
            found[id(value)] = path
    return found
