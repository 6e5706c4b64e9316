"""Arithmetic in a kernel's source: which names hold whole numbers, and how many operations a statement does.

An operation is an operator or a mathematical function of the source, not a machine instruction: a compiler may fuse
`a * b + c` into one instruction, which still is 2 FLOP by everybody's count.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field

WHOLE_CALLS = {"grid", "gridsize", "len", "int", "range", "popc", "clz", "ffs", "brev", "ballot_sync", "activemask"}
SAME_CALLS = {"min", "max", "abs", "fabs"}
WHOLE_ATTRIBUTES = {"threadIdx", "blockIdx", "blockDim", "gridDim", "laneid", "warpsize", "size", "ndim", "shape"}


@dataclass
class Work:
    """Operations by function and line of the source."""

    flop: Counter[tuple[str, int]] = field(default_factory=Counter)
    integer: Counter[tuple[str, int]] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.flop or self.integer)

    def add(self, other: Work) -> None:
        """Take `other`'s operations in."""
        self.flop.update(other.flop)
        self.integer.update(other.integer)


class IntegerInference:
    """Judges whether an expression of one function is a whole number, as far as its source shows."""

    def __init__(
        self, function: ast.FunctionDef, label: str, names: set[str], arrays: set[str], outer: set[str]
    ) -> None:
        """`names` are parameters that hold whole numbers, `arrays` those that hold arrays of them, `outer` globals."""
        self._function = label
        parameters = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
        assigned = list(_assignments(function))
        self._arrays = arrays | {name for name, value in assigned if _makes_whole_array(value)}
        self._names = (names & parameters) | outer | {name for name, _ in assigned if name not in parameters}
        while wrong := {name for name, value in assigned if name in self._names and not self.holds(value)}:
            self._names -= wrong

    def holds(self, node: ast.expr | None) -> bool:
        """True where `node` can be nothing but a whole number (or a tuple of them)."""
        match node:
            case ast.Constant():
                return isinstance(node.value, int)
            case ast.Name():
                return node.id in self._names
            case ast.Attribute():
                return bool(WHOLE_ATTRIBUTES & set(_dotted(node)))
            case ast.Subscript(value=ast.Name(id=name)):
                return name in self._arrays
            case ast.Subscript():
                return self.holds(node.value)
            case ast.BinOp():
                return not isinstance(node.op, ast.Div) and self.holds(node.left) and self.holds(node.right)
            case ast.UnaryOp():
                return isinstance(node.op, ast.Not) or self.holds(node.operand)
            case ast.IfExp():
                return self.holds(node.body) and self.holds(node.orelse)
            case ast.Call():
                name = _dotted(node.func)[-1]
                whole = name in WHOLE_CALLS or name.startswith(("int", "uint"))
                return whole or (name in SAME_CALLS and all(map(self.holds, node.args)))
            case ast.Compare() | ast.BoolOp():
                return True
        return False

    def work(self, *nodes: ast.AST | None) -> Work:
        """Operations in `nodes`, each executed once."""
        done = Work()
        for node in (part for root in nodes if root is not None for part in ast.walk(root)):
            match node:
                case ast.BinOp():
                    self._count(done, node, node)
                case ast.AugAssign():
                    whole = ast.BinOp(_loaded(node.target), node.op, node.value)
                    self._count(done, node, whole)
                case ast.UnaryOp(op=ast.USub() | ast.Invert()) if not isinstance(node.operand, ast.Constant):
                    self._count(done, node, node)
                case ast.Call() if flop := _flop_of(_dotted(node.func)):
                    self._count(done, node, node, flop)
        return done

    def _count(self, done: Work, node: ast.expr | ast.stmt, value: ast.expr, n: int = 1) -> None:
        (done.integer if self.holds(value) else done.flop)[self._function, node.lineno] += n


def local_names(function: ast.FunctionDef) -> set[str]:
    """Names that belong to the function: its parameters and all that it assigns."""
    arguments = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return arguments | stored


def _flop_of(path: list[str]) -> int:
    if path[-1] == "fma":
        return 2
    return int(path[0] == "math" or path[-1] in SAME_CALLS)


def _dotted(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [*_dotted(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else ["?"]


def _makes_whole_array(value: ast.expr) -> bool:
    """Whether this makes a shared or local array of whole numbers: `cuda.shared.array(32, int32)`."""
    if not isinstance(value, ast.Call) or _dotted(value.func)[-2:] not in (["shared", "array"], ["local", "array"]):
        return False
    types = [*value.args[1:], *(word.value for word in value.keywords)]
    return any(_dotted(kind)[-1].startswith(("int", "uint")) for kind in types)


def _loaded(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    if isinstance(target, ast.Subscript):
        return ast.Subscript(target.value, target.slice, ast.Load())
    return target


def _assignments(function: ast.FunctionDef) -> list[tuple[str, ast.expr]]:
    """Pairs (name, expression whose wholeness it takes over) for every binding in the function."""
    found: list[tuple[str, ast.expr]] = []
    for node in ast.walk(function):
        match node:
            case ast.Assign():
                for target in node.targets:
                    found += _pairs(target, node.value)
            case ast.AnnAssign(value=ast.expr() as value):
                found += _pairs(node.target, value)
            case ast.AugAssign(target=ast.Name() as target):
                found.append((target.id, ast.BinOp(_loaded(target), node.op, node.value)))
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
