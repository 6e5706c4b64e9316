"""Resolve the names that a kernel takes from its surroundings, and refuse what no
kernel can have.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
import sys
import types
from typing import Any

from kerneltrace._text import brief_repr, nearest
from kerneltrace.errors import KernelError
from kerneltrace.machine.traced_thread import KEYED, PLAIN, VALUES

MISSING = object()
"""What `resolve` gives for a name that is not from the surroundings: None may be a
value.
"""


def python_function(kernel: Any) -> types.FunctionType:
    """The Python function behind a kernel: compiled, simulated, or plain. TypeError
    where there is none.
    """
    inner = _behind(kernel)
    if isinstance(inner, types.FunctionType):
        return inner
    raise TypeError(
        "Expected a kernel, a function written against numba's `cuda`, with or without"
        f" @cuda.jit, or CUDA C++ as text; got {brief_repr(kernel)}."
    )


def _behind(value: Any) -> Any:
    return getattr(value, "py_func", None) or getattr(value, "fn", None) or value


def stored_names(*nodes: ast.AST) -> set[str]:
    """The names that are assigned somewhere in these nodes."""
    return {
        part.id
        for node in nodes
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }


def parameters(tree: ast.FunctionDef) -> set[str]:
    """The names of a function's parameters."""
    return {arg.arg for arg in ast.walk(tree.args) if isinstance(arg, ast.arg)}


class KernelScope:
    """Names of a function's globals, closure and builtins."""

    def __init__(self, fn: types.FunctionType, tree: ast.FunctionDef) -> None:
        cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        self.names: dict[str, Any] = {**vars(builtins), **fn.__globals__}
        self.names |= {name: cell.cell_contents for name, cell in cells}
        self.file = fn.__code__.co_filename
        self._local = stored_names(tree) | parameters(tree)
        self._imported = _members_of_cuda()

    def resolve(self, node: ast.AST) -> Any:
        """The value of a name or dotted name from the surroundings; MISSING where there
        is none.
        """
        if isinstance(node, ast.Name) and node.id not in self._local:
            return self.names.get(node.id, MISSING)
        if isinstance(node, ast.Attribute):
            owner = self.resolve(node.value)
            if isinstance(owner, types.ModuleType | type):
                return getattr(owner, node.attr, MISSING)
        return MISSING

    def names_float64(self, tree: ast.FunctionDef) -> bool:
        """Whether a source asks for float64 by name."""
        return any(
            str(getattr(value, "__name__", value)) == "float64"
            for value in map(self.resolve, ast.walk(tree))
        )

    def cuda_path(self, node: ast.expr) -> str:
        """`atomic.add` for `cuda.atomic.add`, whatever name `cuda` or a part of it has
        here; empty for all else.
        """
        if isinstance(node, ast.Name):
            return self._imported.get(id(self.resolve(node)), "")
        if not isinstance(node, ast.Attribute):
            return ""
        owner = self.resolve(node.value)
        if isinstance(owner, types.ModuleType) and owner.__name__ in (
            "numba.cuda",
            "numba.cuda.simulator",
        ):
            return node.attr if node.attr not in ("libdevice", "random") else ""
        path = self.cuda_path(node.value)
        return f"{path}.{node.attr}" if path and path not in VALUES else ""

    def device_function(self, node: ast.expr) -> types.FunctionType | None:
        """The Python function that a call inside the kernel runs; None for builtins,
        types and library functions.
        """
        value = self.resolve(node)
        if value is MISSING or isinstance(value, type | types.BuiltinFunctionType):
            return None
        inner = _behind(value)
        library = ("numpy", "math", "numba", "numba_cuda")
        if not isinstance(inner, types.FunctionType):
            return None
        home = inner.__module__ or ""
        is_library = home.split(".")[0] in library and home != "numba.cuda.random"
        return None if is_library else inner


def _members_of_cuda() -> dict[int, str]:
    """Dotted names of the members of numba.cuda, by identity: `from numba.cuda import
    ...` may rename them.
    """
    module = sys.modules.get("numba.cuda")
    paths: dict[int, str] = {}
    for path in (*VALUES, *PLAIN, *KEYED, *_SPACES):
        value: Any = module
        for part in path.split("."):
            value = getattr(value, part, None)
        # warpsize is an int, which others may share
        if value is not None and not isinstance(value, int):
            paths[id(value)] = path
    return paths


REFUSED = (
    "Lambda",
    "ListComp",
    "SetComp",
    "DictComp",
    "GeneratorExp",
    "Try",
    "With",
    "ClassDef",
    "Yield",
    "YieldFrom",
    "Await",
    "Import",
    "ImportFrom",
    "Global",
    "Nonlocal",
    "Delete",
    "FunctionDef",
    "Dict",
    "Set",
    "Starred",
    "JoinedStr",
    "Match",
)
_MACHINE_CODE = ("ExternFunction", "_Intrinsic", "ForeignFunction")
"""Numba's classes of functions without Python source: linked ones and intrinsics."""
_KNOWN = {*VALUES, *PLAIN, *KEYED}
_SPACES = ("shared", "local", "const", "atomic", "cg")
_ALTERNATIVES = {
    "jit": (
        "Call a function that stands outside the kernel, with @cuda.jit(device=True)."
    ),
    "to_device": "Copy arrays before the launch, not in the kernel.",
    "device_array": (
        "Allocate before the launch and pass the array, or use cuda.local.array."
    ),
    "synchronize": (
        "It belongs to the host; the threads of a block wait with cuda.syncthreads()."
    ),
    "fp16": "Use the operators, and functions of math, on float16 numbers.",
}


def refusal(label: str, node: ast.AST, words: str) -> KernelError:
    """The error for a place in the function that `label` names."""
    return KernelError(
        f"{label.removesuffix('()')}, line {getattr(node, 'lineno', '?')}: {words}"
    )


def refuse(tree: ast.FunctionDef, label: str, scope: KernelScope) -> None:
    """Raise KernelError for the first part of a function's body that
    can't be traced.
    """
    nodes = [node for statement in tree.body for node in ast.walk(statement)]
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        is_list = isinstance(node, ast.List) and isinstance(node.ctx, ast.Load)
        if is_list or type(node).__name__ in REFUSED:
            text = ast.unparse(node).splitlines()[0]
            advice = "Write loops, conditions, assignments."
            if is_list:
                advice = "Memory of a thread is a cuda.local.array."
            raise refusal(label, node, f"a kernel can't use {text!r}. {advice}")
        if isinstance(node, ast.Name | ast.Attribute):
            path = scope.cuda_path(node)
            _refuse_member(node, label, path, id(node) in called)
            if not path and type(scope.resolve(node)).__name__ in _MACHINE_CODE:
                words = f"{ast.unparse(node)} is machine code, which isn't run here."
                raise refusal(label, node, words)


def _refuse_member(node: ast.AST, label: str, path: str, is_called: bool) -> None:
    """Raise KernelError for a member of cuda that is unknown, or a function that is not
    called.
    """
    if path and path not in _KNOWN and path not in _SPACES:
        words = f"cuda.{path} is not supported by kerneltrace. {_instead(path)}"
        raise refusal(label, node, words)
    if path in _KNOWN and path not in VALUES and not is_called:
        raise refusal(
            label,
            node,
            f"cuda.{path} is a function, and is not called here. Write"
            f" cuda.{path}(...).",
        )


def _instead(path: str) -> str:
    advice = _ALTERNATIVES.get(path.split(".")[0], "")
    if hasattr(math, path):
        advice = f"Write math.{path}, which numba compiles for GPUs."
    if re.match(r"(float|u?int|double|u?char|u?short|u?long)\w*\d$", path):
        advice = (
            "Load the parts of a vector one by one, from an array with a dimension for"
            " them."
        )
    if advice:
        return advice
    near = [f"cuda.{name}" for name in nearest(path, sorted(_KNOWN), n=2)]
    return f"The nearest it knows: {', '.join(near)}."
