"""Count the operations of a kernel's source, and decide which of them need help to compute as numba's do.

An operation is an operator or a mathematical function of the source, not a machine instruction: a compiler may fuse
`a * b + c` into one instruction, which by convention still counts as 2 FLOP. Python's integers have no end, and NumPy
computes float32 with an integer in float32; numba computes integers in 64 bits, and float32 with an integer in float64.
"""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

import numpy as np

from labkit.gpu.trace.kernel_scope import KernelScope
from labkit.gpu.trace.typed_source import Typed, TypedSource

RING = (ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift)
"""Operators whose low 64 bits follow from the low 64 bits of their operands."""
_COMPLEX_FLOP: dict[type, int] = {ast.Mult: 6}  # 4 products and 2 sums; all others count 2, as a sum does
_SAME_TYPE = (abs, min, max, pow, round, divmod)


class Operations(NamedTuple):
    """Numbers of operations."""

    flop: int = 0
    integer: int = 0

    def plus(self, other: Operations, times: int = 1) -> Operations:
        """These and `times` as many as `other` has."""
        return Operations(self.flop + times * other.flop, self.integer + times * other.integer)


class Arithmetic:
    """The operations of one function, with the types that numba gives them; without types, it knows of none."""

    def __init__(self, scope: KernelScope, types: TypedSource) -> None:
        self._scope, self.types = scope, types

    def operations(self, root: ast.AST | None) -> Operations:
        """Operations in `root`, each executed once, without those in its `conditional` parts."""
        done, pending = Operations(), [root] if root is not None else []
        while pending:
            node = pending.pop()
            done = done.plus(self._of(node))
            apart = conditional(node)
            pending += [part for part in ast.iter_child_nodes(node) if part not in apart]
        return done

    def _of(self, node: ast.AST) -> Operations:
        typed = self.types.of(node)
        if typed is None:
            return Operations()
        match node:
            case ast.BinOp() | ast.AugAssign():
                return _counted(typed.result, 1, _COMPLEX_FLOP.get(type(node.op), 2))
            case ast.UnaryOp(op=ast.USub() | ast.Invert()):
                return _counted(typed.result, 1, 2)
            case ast.Call():
                kinds = [kind for kind in (typed.result, *typed.operands) if kind is not None and kind.kind in "fc"]
                return _counted(kinds[0] if kinds else typed.result, self._times(node.func), 2)
        return Operations()

    def _times(self, function: ast.expr) -> int:
        """How many operations a call of `function` is."""
        path = self._scope.cuda_path(function)
        if path:
            computes = path.startswith("atomic.") and path not in ("atomic.exch", "atomic.cas")
            return 2 if path == "fma" else int(computes or path == "cbrt")
        return int(self._is_mathematical(self._scope.resolve(function)))

    def _is_mathematical(self, value: Any) -> bool:
        """Whether a global value is a function of `math` or of libdevice, or abs, min, max and the like."""
        module = getattr(value, "__module__", None) or ""
        return value in _SAME_TYPE if module == "builtins" else module == "math" or module.endswith("libdevice")

    def bits(self, node: ast.expr, typed: Typed, side: int) -> int:
        """The most bits of the magnitude of an operand, the left one (0) or the right one (1); 64 for over 63."""
        inner = self.types.of(node) if isinstance(node, ast.BinOp) else None
        if inner is None or not isinstance(node, ast.BinOp) or not inner.is_integer:
            return typed.bits[side]
        left, right = (self.bits(part, inner, i) for i, part in enumerate((node.left, node.right)))
        match node.op:
            case ast.BitAnd() | ast.BitOr() | ast.BitXor():
                return max(left, right)
            case ast.Add() | ast.Sub() | ast.Mult():
                bits = left + right if isinstance(node.op, ast.Mult) else max(left, right) + 1
                return bits if bits < 63 else 64
        return 64

    def overflows(self, node: ast.BinOp) -> bool:
        """Whether an integer may need more bits than its type has, or be negative and unsigned."""
        typed = self.types.of(node)
        if typed is None or not typed.is_integer or not isinstance(node.op, (*RING, ast.Pow)):
            return False
        return typed.result == np.uint64 or self.bits(node, typed, 0) > 63

    def is_signed(self, node: ast.expr, kind: np.dtype[Any] | None) -> bool:
        """Whether an operand of this type fits into int64."""
        return kind is not None and kind != np.uint64 and self._is_steady(node)

    def conversion(self, typed: Typed | None, operands: list[ast.expr], *, compared: bool = False) -> type | None:
        """The type to convert the left operand to, so that NumPy computes in the type that numba computes in."""
        want = None if typed is None else typed.converted[0] if compared else typed.result
        if typed is None or want is None or want.kind not in "fc":
            return None
        kept = [kind for part, kind in zip(operands, typed.operands, strict=True) if kind and self._is_steady(part)]
        floats = [kind for kind in kept if kind.kind in "fc"]
        return None if floats and np.result_type(*floats) == want else want.type

    def conversions(self, node: ast.Call) -> list[type | None]:
        """The types to convert the arguments of a call to; None for those that can stay as they are."""
        typed, function = self.types.of(node), self._scope.resolve(node.func)
        if typed is None or not self._is_mathematical(function):
            return [None] * len(node.args)
        wanted = [typed.result] * len(node.args) if function in (min, max) else typed.converted
        pairs = zip(node.args, typed.operands, strict=False)
        fitting = (have if self._is_steady(part) else None for part, have in pairs)
        return [
            want.type if want is not None and want.kind in "fc" and want != have else None
            for have, want in zip(fitting, wanted, strict=False)
        ]

    def _is_steady(self, node: ast.expr) -> bool:
        """Whether an expression has the type in the trace that numba gives it, and not only one that converts to it."""
        if isinstance(node, ast.Name):
            return self.types.has_one_type(node.id)
        typed = self.types.of(node)
        return not isinstance(node, ast.IfExp | ast.BoolOp | ast.NamedExpr) and (typed is None or typed.is_steady)


def conditional(node: ast.AST) -> list[ast.expr]:
    """The parts of an expression that are evaluated only where a condition holds."""
    match node:
        case ast.IfExp():
            return [node.body, node.orelse]
        case ast.BoolOp():
            return node.values[1:]
        case ast.Compare():
            return node.comparators[1:]
    return []


def _counted(kind: Any, times: int, of_complex: int) -> Operations:
    if kind is None or kind.kind == "b":
        return Operations()
    if kind.kind in "iu":
        return Operations(integer=times)
    return Operations(flop=times * (of_complex if kind.kind == "c" else 1))
