"""Rewrite a kernel's source so that all threads of many blocks execute it together,
statement by statement.

A name holds a NumPy array with a value for each thread, or one value for all. `if x:`
becomes `if t.begins(x, c + 5):`, which narrows the threads that take part, and `v = x`
becomes `v = t.put("v", x, v)`, which changes the value of these.
"""

# ruff: noqa: D102, N802 - the visit_ methods are ast.NodeTransformer's

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltrace.machine.numba_types import IntegerType, stand_in
from kerneltrace.machine.program import Operations, issues
from kerneltrace.machine.traced_thread import KEYED
from kerneltrace.source.expressions import call, load, method
from kerneltrace.source.rewriter import Rewriter, let


class NotInLockstep(Exception):
    """A kernel does something whose result depends on the order of its threads, or that
    only single threads can do.
    """


def _do(name: str, *args: ast.expr) -> ast.Call:
    return method(load("t"), name, *args)


def _later(node: ast.expr) -> ast.expr:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), node)


class LockstepRewriter(Rewriter):
    """Rewrites one function for threads in lockstep."""

    def body(self, tree: ast.FunctionDef) -> list[ast.stmt]:
        """The rewritten body of a function; its names are None until
        they are assigned.
        """
        nodes = [node for part in tree.body for node in ast.walk(part)]
        stored = {
            node.id
            for node in nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        self._own = stored - {
            arg.arg for arg in ast.walk(tree.args) if isinstance(arg, ast.arg)
        }
        begin = [
            ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None))
            for name in sorted(self._own)
        ]
        end = ast.Return(_do("given"))
        inside = ast.With(
            [ast.withitem(_do("calls"))], [*begin, *self.block(tree.body), end]
        )
        return [inside]

    def _count(
        self, statements: list[ast.stmt], begin: int, run: Operations, first: ast.stmt
    ) -> None:
        if any(run):
            statements.insert(
                begin, ast.Expr(self._tick(run, first, ast.Constant(None)))
            )

    def _put(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        """Assign a value, which may be evaluated several times, for the threads that
        take part.
        """
        if isinstance(target, ast.Tuple | ast.List):
            parts = (
                ast.Subscript(value, ast.Constant(i), ast.Load())
                for i in range(len(target.elts))
            )
            return [
                statement
                for part_target, part in zip(target.elts, parts, strict=True)
                for statement in self._put(part_target, part)
            ]
        if not isinstance(target, ast.Name):
            return [self._store(target, value)]
        old = ast.Name(target.id, ast.Load())
        return [
            ast.Assign(
                [target],
                _do("put", ast.Constant(f"{self.label} {target.id}"), value, old),
            )
        ]

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        self._target_name = ast.unparse(node.targets[0])
        held = self._new_name("v")
        stored = [
            statement
            for target in node.targets
            for statement in self._put(target, load(held))
        ]
        return [let(held, self.visit(node.value)), *stored]

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        if not isinstance(node.target, ast.Name):
            return super().visit_AugAssign(node)
        return self._put(node.target, self.visit(self._combined(node, node.target)))

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        key = self._key("branch", node.test, self.arithmetic.operations(node.test))
        begin = ast.If(
            _do("begins", self.visit(node.test), key), self.block(node.body), []
        )
        return [
            begin,
            ast.If(_do("others"), self.block(node.orelse), []),
            ast.Expr(_do("ends")),
        ]

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        saved = self._new_name("s")
        item = self._new_name("k")
        over = _do("loop", self._key("for", node.iter), self.visit(node.iter))
        names: list[ast.expr] = [
            ast.Name(load(name).id, ast.Store()) for name in ("c", item)
        ]
        body = [*self._put(node.target, load(item)), *self.block(node.body)]
        loop = ast.For(ast.Tuple(names, ast.Store()), over, body, self._no_else(node))
        return [let(saved, load("c")), loop, let("c", load(saved))]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        saved = self._new_name("s")
        turns = _do("turns", self._key("while", node.test))
        key = self._key("branch", node.test, self.arithmetic.operations(node.test))
        body = ast.If(
            _do("goes_on", self.visit(node.test), key), self.block(node.body), []
        )
        loop = ast.For(
            ast.Name(load("c").id, ast.Store()), turns, [body], self._no_else(node)
        )
        return [let(saved, load("c")), loop, let("c", load(saved))]

    def _no_else(self, node: ast.For | ast.While) -> list[ast.stmt]:
        if node.orelse:
            raise NotInLockstep
        return []

    def visit_Break(self, node: ast.Break) -> ast.stmt:
        return ast.Expr(_do("breaks"))

    def visit_Continue(self, node: ast.Continue) -> ast.stmt:
        return ast.Expr(_do("continues"))

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        return ast.Expr(_do("returns", self.visit(node.value or ast.Constant(None))))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._own:
            return _do("get", ast.Constant(f"{self.label} {node.id}"), node)
        return super().visit_Name(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return _do("choose", node.test, _later(node.body), _later(node.orelse))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        result, *rest = node.values
        for value in rest:
            result = _do(
                "both" if isinstance(node.op, ast.And) else "either",
                result,
                _later(value),
            )
        return result

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) == 1:
            return super().visit_Compare(node)
        if not all(
            isinstance(part, ast.Name | ast.Constant) for part in node.comparators[:-1]
        ):
            raise NotInLockstep
        parts = zip(
            [node.left, *node.comparators], node.ops, node.comparators, strict=False
        )
        pairs: list[ast.expr] = [
            ast.Compare(copy.deepcopy(a), [op], [b]) for a, op, b in parts
        ]
        return self.visit_BoolOp(ast.BoolOp(ast.And(), pairs))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        rewritten = super().visit_UnaryOp(node)
        negates = isinstance(rewritten, ast.UnaryOp) and isinstance(
            rewritten.op, ast.Not
        )
        return call("no", rewritten.operand) if negates else rewritten  # type: ignore[attr-defined]

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        return self._low_bits(node)  # arrays of int64 wrap by themselves

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        raise NotInLockstep

    def _operator(
        self, node: Any, typed: Any, kind: type | None, left: Any, right: Any
    ) -> ast.expr:
        if typed is not None and np.uint64 in (typed.result, *typed.operands):
            raise NotInLockstep  # NumPy has no integers for int64 and uint64 together
        return super()._operator(node, typed, kind, left, right)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        path = self.scope.cuda_path(node.func)
        if path == "syncthreads":
            return _do("barrier", self._key("barrier", node, call=path))
        if KEYED.get(path) in ("barrier", "warp") or (
            KEYED.get(path) == "atomic" and node is not self._dropped
        ):
            raise NotInLockstep
        return super().visit_Call(node)

    def _bound(self, value: Any) -> ast.expr:
        return super()._bound(self.program.lanes.array(value))

    def _stand_in(self, value: Any) -> Any:
        try:
            replacement = _FUNCTIONS.get(value)
        except TypeError:  # it has no hash
            replacement = None
        return replacement or of_lanes(stand_in(value))


class LaneRange:
    """A `range` whose bounds may differ from thread to thread."""

    def __init__(self, start: Any, stop: Any = None, step: Any = 1) -> None:
        start, stop = (0, start) if stop is None else (start, stop)
        self.start: Any = start
        self.step = step
        if np.any(np.equal(step, 0)):
            raise NotInLockstep
        self.counts = np.maximum(0, -((start - stop) // step))


class _LaneInteger(IntegerType):
    """A type of integers that casts arrays."""

    def __call__(self, value: Any = 0) -> Any:
        """Values without their fractions, wrapped into the type's range, as int64."""
        if self.dtype == np.uint64:
            raise NotInLockstep
        return _integer(value, self.dtype).astype(np.int64)


def of_lanes(value: Any) -> Any:
    """What replaces a type of integers; any other value as it is."""
    return _LaneInteger(value.dtype) if isinstance(value, IntegerType) else value


def _rounded(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(np.asarray(x, np.float64)).astype(np.int64)


def _integer(x: Any, dtype: Any = np.int64) -> Any:
    values = np.asarray(x)
    info = np.iinfo(dtype)
    if (
        values.dtype.kind == "f"
        and not ((values >= info.min) & (values < info.max)).all()
    ):
        raise NotInLockstep  # a single number is cut to the range
    return values.astype(dtype)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    range: LaneRange,
    int: _integer,
    bool: lambda x: np.asarray(x).astype(bool),
    abs: np.abs,
    min: lambda a, b: np.where(b < a, b, a),
    max: lambda a, b: np.where(b > a, b, a),
    math.floor: _rounded(np.floor),
    math.ceil: _rounded(np.ceil),
    math.trunc: _rounded(np.trunc),
}
"""Functions of Python's that take arrays here. All others, of NumPy,
take them anyway.
"""


def helpers(lanes: Any, counters: list[Any]) -> dict[str, Any]:
    """What the rewritten source calls, where it differs from what
    single threads call.
    """

    def tick(lanes: Any, counter: int, value: Any) -> Any:
        counters[counter] += issues(*map(lanes.those, lanes.places))
        return value

    def divided(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any, int], Any]:
        def divide(a: Any, b: Any, key: int) -> Any:
            if np.any(lanes.those(np.equal(b, 0))):
                raise NotInLockstep
            return function(_integer(a), b)

        return divide

    return {
        "tick": tick,
        "int": _integer,
        "wrap": lambda value: value,
        "no": np.logical_not,
        "quotient": divided(np.floor_divide),
        "remainder": divided(np.remainder),
        "power": lambda a, n: np.power(_integer(a), n),
        "left": lambda a, n: np.left_shift(_integer(a), n),
        "right": lambda a, n: np.right_shift(_integer(a), n),
    }
