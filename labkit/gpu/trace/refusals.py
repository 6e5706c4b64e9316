"""Refuse what a CUDA kernel can't have, and what lab.trace can't follow, with what to write instead."""

from __future__ import annotations

import ast
import math

from labkit.core.errors import KernelError, nearest
from labkit.gpu.trace.kernel_scope import KernelScope
from labkit.gpu.trace.traced_thread import KEYED, PLAIN, VALUES

REFUSED: tuple[type[ast.AST], ...] = (
    ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Try, ast.With, ast.ClassDef, ast.Yield,
    ast.YieldFrom, ast.Await, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Delete, ast.FunctionDef,
    ast.Dict, ast.Set, ast.Starred, ast.JoinedStr, ast.Match,
)  # fmt: skip
_KNOWN = {*VALUES, *PLAIN, *KEYED}
_SPACES = ("shared", "local", "const", "atomic")
_ALTERNATIVES = {
    "jit": "Call a function that stands outside the kernel, with @cuda.jit(device=True).",
    "to_device": "Copy arrays before the launch, not in the kernel.",
    "device_array": "Allocate before the launch and pass the array, or use cuda.local.array.",
    "synchronize": "It belongs to the host; the threads of a block wait with cuda.syncthreads().",
    "cg": "Cooperative groups are not traced: split the kernel where the whole grid has to wait.",
    "fp16": "Use the operators, and functions of math, on float16 numbers.",
    "random": "Random numbers are not traced: pass an array of them.",
}


def refusal(label: str, node: ast.AST, words: str) -> KernelError:
    """The error for a place in the function that `label` names."""
    return KernelError(f"{label.removesuffix('()')}, line {getattr(node, 'lineno', '?')}: {words}")


def refuse(tree: ast.FunctionDef, label: str, scope: KernelScope) -> None:
    """Raise KernelError for the first part of a function's body that can't be traced."""
    nodes = [node for statement in tree.body for node in ast.walk(statement)]
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, REFUSED) or (isinstance(node, ast.List) and isinstance(node.ctx, ast.Load)):
            text = ast.unparse(node).splitlines()[0]
            words = "Memory of a thread is a cuda.local.array." if isinstance(node, ast.List) else ""
            words = words or "Write loops, conditions, assignments."
            raise refusal(label, node, f"a kernel can't use {text!r}. {words}")
        if isinstance(node, ast.Name | ast.Attribute):
            path = scope.cuda_path(node)
            if path and path not in _KNOWN and path not in _SPACES:
                raise refusal(label, node, f"cuda.{path} is not supported by lab.trace. {_instead(path)}")
            if path in _KNOWN and path not in VALUES and id(node) not in called:
                raise refusal(
                    label, node, f"cuda.{path} is a function, and is not called here. Write cuda.{path}(...)."
                )


def _instead(path: str) -> str:
    known = _ALTERNATIVES.get(path.split(".")[0], "")
    if hasattr(math, path):
        known = f"Write math.{path}, which numba compiles for GPUs."
    if path[-1].isdigit() and path.rstrip("0123456789").rstrip("x")[:3] in (
        "flo",
        "int",
        "uin",
        "dou",
        "cha",
        "sho",
        "lon",
    ):
        known = "Load the parts of a vector one by one, from an array with a dimension for them."
    return known or f"The nearest it knows: {', '.join(f'cuda.{name}' for name in nearest(path, sorted(_KNOWN), n=2))}."
