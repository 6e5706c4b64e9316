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
from kerneltrace.machine.program import issues
from kerneltrace.machine.traced_thread import KEYED
from kerneltrace.source.expressions import call, expression, filled, load, method
from kerneltrace.source.kernel_scope import parameters, stored_names
from kerneltrace.source.rewriter import Rewriter


class NotInLockstep(Exception):
    """A kernel does something whose result depends on the order of its threads, or that
    only single threads can do.
    """


def _do(name: str, *args: ast.expr) -> ast.Call:
    return method(load("t"), name, *args)


_FUNCTION = """
with _lab_t.calls():
    BEGIN
    BODY
    return _lab_t.given()
"""
_IF = """
if _lab_t.begins(TEST, KEY):
    BODY
if _lab_t.others():
    OTHERS
_lab_t.ends()
"""
_FOR = """
SAVED = _lab_c
for _lab_c, ITEM in _lab_t.loop(KEY, OVER):
    PUT
    BODY
_lab_c = SAVED
"""
_WHILE = """
SAVED = _lab_c
for _lab_c in _lab_t.turns(KEY):
    if _lab_t.goes_on(TEST, TEST_KEY):
        BODY
_lab_c = SAVED
"""


class LockstepRewriter(Rewriter):
    """Rewrites one function for threads in lockstep."""

    count = "_lab_tick(_lab_t, NUMBER, None)"

    def body(self, tree: ast.FunctionDef) -> list[ast.stmt]:
        """The rewritten body of a function; its names are None until
        they are assigned.
        """
        self._own = stored_names(*tree.body) - parameters(tree)
        begin = "".join(f"{name} = None\n" for name in sorted(self._own))
        return filled(_FUNCTION, BEGIN=filled(begin), BODY=self.block(tree.body))

    def _put(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        """Assign a value, which may be evaluated several times, for the threads that
        take part.
        """
        if isinstance(target, ast.Tuple | ast.List):
            return [
                statement
                for number, part in enumerate(target.elts)
                for statement in self._put(
                    part, ast.Subscript(value, ast.Constant(number), ast.Load())
                )
            ]
        if not isinstance(target, ast.Name):
            return [self._store(target, value)]
        return filled(
            "NAME = _lab_t.put(TEXT, VALUE, NAME)",
            NAME=target.id,
            TEXT=ast.Constant(f"{self.label} {target.id}"),
            VALUE=value,
        )

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        self._target_name = ast.unparse(node.targets[0])
        held = self._new_name("v")
        begin = filled("HELD = VALUE", HELD=held, VALUE=self.visit(node.value))
        name = ast.Name(held, ast.Load())
        stored = [part for target in node.targets for part in self._put(target, name)]
        return [*begin, *stored]

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        if not isinstance(node.target, ast.Name):
            return super().visit_AugAssign(node)
        return self._put(node.target, self.visit(self._combined(node, node.target)))

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        return filled(
            _IF,
            KEY=self._test_key(node),
            TEST=self.visit(node.test),
            BODY=self.block(node.body),
            OTHERS=self.block(node.orelse),
        )

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        self._refuse_else(node)
        item = self._new_name("k")
        return filled(
            _FOR,
            SAVED=self._new_name("s"),
            ITEM=item,
            KEY=self._key("for", node.iter),
            OVER=self.visit(node.iter),
            PUT=self._put(node.target, ast.Name(item, ast.Load())),
            BODY=self.block(node.body),
        )

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        self._refuse_else(node)
        return filled(
            _WHILE,
            SAVED=self._new_name("s"),
            KEY=self._key("while", node.test),
            TEST_KEY=self._test_key(node),
            TEST=self.visit(node.test),
            BODY=self.block(node.body),
        )

    def _refuse_else(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            raise NotInLockstep

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
        return expression(
            "_lab_t.choose(TEST, lambda: YES, lambda: NO)",
            TEST=node.test,
            YES=node.body,
            NO=node.orelse,
        )

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        result, *rest = node.values
        way = "both" if isinstance(node.op, ast.And) else "either"
        for value in rest:
            template = f"_lab_t.{way}(FIRST, lambda: SECOND)"
            result = expression(template, FIRST=result, SECOND=value)
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
        if np.uint64 in (typed.result, *typed.operands):
            raise NotInLockstep  # NumPy has no integers for int64 and uint64 together
        return super()._operator(node, typed, kind, left, right)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        path = self.scope.cuda_path(node.func)
        if path == "syncthreads":
            return _do("barrier", self._key("barrier", node, call=path))
        is_atomic = KEYED.get(path) == "atomic" and node is not self._dropped
        is_wait = KEYED.get(path) in ("barrier", "warp") or self._is_grid_barrier(node)
        if is_atomic or is_wait:
            raise NotInLockstep
        return super().visit_Call(node)

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
        return integers(value, self.dtype).astype(np.int64)


def of_lanes(value: Any) -> Any:
    """What replaces a type of integers; any other value as it is."""
    return _LaneInteger(value.dtype) if isinstance(value, IntegerType) else value


def _rounded(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(np.asarray(x, np.float64)).astype(np.int64)


def integers(x: Any, dtype: Any = np.int64) -> Any:
    """Numbers without their fractions in an integer type."""
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
    int: integers,
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
            return function(integers(a), b)

        return divide

    return {
        "tick": tick,
        "int": integers,
        "wrap": lambda value: value,
        "no": np.logical_not,
        "quotient": divided(np.floor_divide),
        "remainder": divided(np.remainder),
        "power": lambda a, n: np.power(integers(a), n),
        "left": lambda a, n: np.left_shift(integers(a), n),
        "right": lambda a, n: np.right_shift(integers(a), n),
    }
