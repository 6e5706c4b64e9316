"""Arithmetic in a kernel's source: which expressions are integers, and how many operations a statement performs.

An operation is an operator or a mathematical function of the source, not a machine instruction: a compiler may fuse
`a * b + c` into one instruction, which by convention still counts as 2 FLOP.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

INTEGER_CALLS = {"grid", "gridsize", "len", "int", "range", "popc", "clz", "ffs", "brev", "ballot_sync", "activemask"}
SAME_TYPE_CALLS = {"min", "max", "abs", "fabs"}  # integers give an integer, floating-point numbers do not
INTEGER_ATTRIBUTES = {"threadIdx", "blockIdx", "blockDim", "gridDim", "laneid", "warpsize", "size", "ndim", "shape"}


class Operations(NamedTuple):
    """Numbers of operations."""

    flop: int = 0
    integer: int = 0

    def plus(self, other: Operations, times: int = 1) -> Operations:
        """These and `times` as many as `other` has."""
        return Operations(self.flop + times * other.flop, self.integer + times * other.integer)


class IntegerInference:
    """Decides whether an expression of one function is an integer, as far as its source shows."""

    def __init__(self, function: ast.FunctionDef, integers: set[str], arrays: set[str], outer: set[str]) -> None:
        """`integers` and `arrays` are parameters that hold integers or arrays of them, `outer` global integers."""
        parameters = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
        assigned = list(_assignments(function))
        self._arrays = arrays | {name for name, value in assigned if _makes_integer_array(value)}
        # Assume that every assigned name is an integer, then drop those assigned something else, until none is left:
        # the other way round, `i = i + 1` could never be inferred.
        self._names = (integers & parameters) | outer | {name for name, _ in assigned if name not in parameters}
        while wrong := {name for name, value in assigned if name in self._names and not self.is_integer(value)}:
            self._names -= wrong

    def is_integer(self, node: ast.expr | None) -> bool:
        """Whether `node` can only be an integer (or a tuple of integers)."""
        match node:  # whatever their ctx: the target of an augmented assignment comes here too
            case ast.Constant():
                return isinstance(node.value, int)
            case ast.Name():
                return node.id in self._names
            case ast.Attribute():
                return bool(INTEGER_ATTRIBUTES & set(_dotted(node)))
            case ast.Subscript(value=ast.Name(id=name)):
                return name in self._arrays
            case ast.Subscript():
                return self.is_integer(node.value)
            case ast.BinOp():
                return not isinstance(node.op, ast.Div) and self.is_integer(node.left) and self.is_integer(node.right)
            case ast.UnaryOp():
                return isinstance(node.op, ast.Not) or self.is_integer(node.operand)
            case ast.IfExp():
                return self.is_integer(node.body) and self.is_integer(node.orelse)
            case ast.Call():
                name = _dotted(node.func)[-1]
                integer = name in INTEGER_CALLS or name.startswith(("int", "uint"))
                return integer or (name in SAME_TYPE_CALLS and all(map(self.is_integer, node.args)))
            case ast.Compare() | ast.BoolOp():
                return True
        return False

    def operations(self, root: ast.AST | None) -> Operations:
        """Operations in `root`, each executed once."""
        done = Operations()
        for node in ast.walk(root) if root is not None else ():
            match node:
                case ast.BinOp():
                    done = done.plus(self._of(node))
                case ast.AugAssign():
                    done = done.plus(self._of(ast.BinOp(node.target, node.op, node.value)))
                case ast.UnaryOp(op=ast.USub() | ast.Invert()) if not isinstance(node.operand, ast.Constant):
                    done = done.plus(self._of(node))
                case ast.Call():
                    done = done.plus(self._of(node), _operations_of_call(_dotted(node.func)))
        return done

    def _of(self, node: ast.expr) -> Operations:
        return Operations(integer=1) if self.is_integer(node) else Operations(flop=1)


def local_names(function: ast.FunctionDef) -> set[str]:
    """Names that belong to the function: its parameters and everything it assigns."""
    arguments = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return arguments | stored


def _operations_of_call(path: list[str]) -> int:
    if path[-1] == "fma":
        return 2
    return int(path[0] == "math" or path[-1] in SAME_TYPE_CALLS)


def _dotted(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [*_dotted(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else ["?"]


def _makes_integer_array(value: ast.expr) -> bool:
    """Whether `value` allocates a shared or local array of integers: `cuda.shared.array(32, int32)`."""
    if not isinstance(value, ast.Call) or _dotted(value.func)[-2:] not in (["shared", "array"], ["local", "array"]):
        return False
    types = [*value.args[1:], *(keyword.value for keyword in value.keywords)]
    return any(_dotted(kind)[-1].startswith(("int", "uint")) for kind in types)


def _assignments(function: ast.FunctionDef) -> list[tuple[str, ast.expr]]:
    """Pairs (name, expression that decides its type) for every binding in the function."""
    found: list[tuple[str, ast.expr]] = []
    for node in ast.walk(function):
        match node:
            case ast.Assign():
                for target in node.targets:
                    found += _pairs(target, node.value)
            case ast.AnnAssign(value=ast.expr() as value):
                found += _pairs(node.target, value)
            case ast.AugAssign(target=ast.Name() as target):
                found.append((target.id, ast.BinOp(target, node.op, node.value)))
            case ast.For():
                found += _pairs(node.target, node.iter)
            case ast.NamedExpr():
                found.append((node.target.id, node.value))
    return found


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    if isinstance(target, ast.Tuple):
        values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
        return [pair for part, its in zip(target.elts, values, strict=False) for pair in _pairs(part, its)]
    return []
