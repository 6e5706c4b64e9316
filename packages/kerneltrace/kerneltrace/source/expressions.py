"""Rewrite the expressions of a kernel: accesses and calls that report themselves,
arithmetic that is numba's.
"""

# ruff: noqa: D102 - the visit_ methods are ast.NodeTransformer's

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.machine.event_log import SITES
from kerneltrace.machine.numba_types import stand_in
from kerneltrace.machine.program import Operations, Program, Site
from kerneltrace.machine.traced_memory import FromEnd
from kerneltrace.machine.traced_thread import BITS, KEYED, WAITING
from kerneltrace.source.front_end import implementation
from kerneltrace.source.kernel_scope import MISSING, KernelScope
from kerneltrace.source.reuse import Called, Constant, Rewritten
from kerneltrace.source.typed_source import (
    RING,
    UNTYPED,
    Arithmetic,
    Typed,
    conditional,
)

# begins every name that the rewriting adds, so that none hides a name of the kernel
PREFIX = "_lab_"
ARRAY_ATTRIBUTES = {
    "shape",
    "size",
    "ndim",
    "dtype",
    "strides",
    "T",
    "nbytes",
    "itemsize",
}
NONE = Operations()
_HELPED = {
    ast.FloorDiv: "quotient",
    ast.Mod: "remainder",
    ast.LShift: "left",
    ast.RShift: "right",
    ast.Pow: "power",
}
"""Operators on integers that a GPU computes otherwise than Python, for a divisor of 0,
a shift of 64 or more, and a negative power.
"""


def load(name: str) -> ast.Name:
    """A name that the rewriting adds."""
    return ast.Name(PREFIX + name, ast.Load())


def call(name: str, *args: ast.expr) -> ast.Call:
    """A call of a function that the rewriting adds."""
    return ast.Call(load(name), list(args), [])


def method(owner: ast.expr, name: str, *args: ast.expr) -> ast.Call:
    """A call of a method."""
    return ast.Call(ast.Attribute(owner, name, ast.Load()), list(args), [])


def filled(template: str, **parts: Any) -> list[ast.stmt]:
    """The statements of a template, in which names in capitals stand for `parts`: a
    name, an expression, or on a line of its own a list of statements.
    """
    module = ast.parse(template)
    for node in ast.walk(module):
        for attribute in node._attributes:  # its place, which is not one of the kernel
            vars(node).pop(attribute, None)
    _Filling(parts).visit(module)
    return module.body


def expression(template: str, **parts: Any) -> ast.expr:
    """The expression of a template."""
    (statement,) = filled(template, **parts)
    return statement.value  # type: ignore[attr-defined, no-any-return]


class _Filling(ast.NodeTransformer):
    def __init__(self, parts: dict[str, Any]) -> None:
        self._parts = parts

    def visit_Name(self, node: ast.Name) -> Any:
        part = self._parts.get(node.id, node)
        return ast.Name(part, node.ctx) if isinstance(part, str) else part

    def visit_Expr(self, node: ast.Expr) -> Any:
        value = self.visit(node.value)
        return value if isinstance(value, list) else ast.Expr(value)


def _member(path: str) -> ast.expr:
    """What stands for a member of cuda."""
    return expression(f"_lab_t.{path.replace('.', '_')}")


def _operands(node: ast.BinOp | ast.AugAssign) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    return [node.target, node.value]


def _is_harmless(op: ast.operator, right: Any) -> bool:
    """Whether an operator of `_HELPED` computes the same on a GPU as in Python, for
    what stands to its right: a divisor, a shift or an exponent.
    """
    if not isinstance(right, ast.Constant):
        return False
    number: Any = right.value
    if isinstance(op, ast.LShift | ast.RShift):
        return bool(0 <= number < 64)
    return bool(number)


class ExpressionRewriter(ast.NodeTransformer):
    """Rewrites the expressions of one function."""

    def __init__(
        self,
        program: Program,
        label: str,
        scope: KernelScope,
        arithmetic: Arithmetic,
        rewritten: Callable[..., Rewritten],
    ) -> None:
        """`label` names the function; `rewritten(function, types)` rewrites one it
        calls.
        """
        self.program = program
        self.label = label
        self.scope = scope
        self.arithmetic = arithmetic
        self.types = arithmetic.types
        self.rewritten = rewritten
        # global names that the rewritten source needs besides its own
        self.added: dict[str, Any] = {}
        self._names = 0
        # of the assignment being rewritten: the name of an array made there
        self._target_name = ""
        # a call whose result the source does not use
        self._dropped: ast.expr | None = None

    def _new_name(self, text: str) -> str:
        self._names += 1
        return f"{PREFIX}{text}{self._names}"

    def _bound(self, value: Any) -> ast.expr:
        """A global name bound to `value`."""
        name = self._new_name("g")
        self.added[name] = value
        return ast.Name(name, ast.Load())

    def _key(
        self,
        kind: str,
        node: ast.AST,
        operations: Operations = NONE,
        text: str = "",
        call: str = "",
    ) -> ast.expr:
        """The expression `c + site` for a new site at `node`; `text` describes it where
        the source does not.
        """
        sites = self.program.sites
        if len(sites) == SITES:
            raise KernelError(
                f"The kernel has over {SITES} accesses and branches in its source."
                " Trace a part of it."
            )
        site = Site(
            kind,
            getattr(node, "lineno", 0),
            self.label,
            text or ast.unparse(node),
            operations,
            call,
            used=node is not self._dropped,
            waits=getattr(node, "waits", (0, False)),
            file=self.scope.file,
        )
        sites.append(site)
        return ast.BinOp(load("c"), ast.Add(), ast.Constant(len(sites) - 1))

    def _pause(self, key: ast.expr) -> ast.expr:
        """An expression that pauses the thread before the access of
        `key`, and is None.
        """
        return ast.Yield(method(load("t"), "pause", key))

    def _paused(self, key: ast.expr, owner: ast.expr, index: ast.expr) -> ast.expr:
        """The key of an access to `owner[index]`, before which the thread pauses if the
        program says so and other threads can reach the element: no tuple, no local
        array.
        """
        if not self.program.pauses:
            return key
        return expression(
            "PAUSE or KEY if _lab_t.is_reachable(OWNER, INDEX) else KEY",
            PAUSE=self._pause(key),
            KEY=key,
            OWNER=owner,
            INDEX=index,
        )

    def _held(self, value: ast.expr) -> tuple[ast.expr, ast.expr]:
        """`value`, and an expression that gives it again after it was evaluated."""
        if not self.program.pauses:
            return value, value
        name = self._new_name("o")
        kept = ast.NamedExpr(ast.Name(name, ast.Store()), value)
        return kept, ast.Name(name, ast.Load())

    def _stand_in(self, value: Any) -> Any:
        return stand_in(value)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit the parts of a node, and mark those that are evaluated only
        sometimes.
        """
        for part in conditional(node):
            part.is_conditional = True  # type: ignore[attr-defined]  # ours
        return super().generic_visit(node)

    def visit(self, node: ast.AST) -> Any:
        """Visit a node, and count the operations of one that is so marked."""
        if not hasattr(node, "is_conditional"):
            return super().visit(node)
        work = self.arithmetic.operations(node)
        value = super().visit(node)
        if not any(work):
            return value
        counter = self.program.counter(work, self.label, getattr(node, "lineno", 0))
        return call("tick", load("t"), ast.Constant(counter), value)

    def _index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self._index(part) for part in node.elts], ast.Load())
        if isinstance(node, ast.Slice):
            bounds = [
                self.visit(part) if part else ast.Constant(None)
                for part in (node.lower, node.upper, node.step)
            ]
            return call("slice", *bounds)
        if _is_from_end(node):
            return self._bound(FromEnd(ast.literal_eval(node)))
        # an index of over 64 bits is out of bounds either way
        return self._low_bits(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        typed = self.types.of(node)
        result = self._low_bits(node)
        if not typed.is_integer or not isinstance(node.op, (*RING, ast.Pow)):
            return result
        if typed.result == np.uint64:
            return expression("RESULT & (1 << 64) - 1", RESULT=result)
        return expression(
            "_lab_i if -(2**63) <= (_lab_i := RESULT) < 2**63 else _lab_wrap(_lab_i)",
            RESULT=result,
        )

    def _low_bits(self, node: ast.expr) -> ast.expr:
        """An expression of which only the low 64 bits matter, since an operator around
        it wraps, or it is an index.
        """
        typed = self.types.of(node)
        if not isinstance(node, ast.BinOp):
            value: ast.expr = self.visit(node)
            return value
        kind = self.arithmetic.conversion(typed, _operands(node))
        ring = typed.is_integer and isinstance(node.op, RING)
        left = self._low_bits(node.left) if ring else self.visit(node.left)
        right = (
            self._low_bits(node.right)
            if ring and not isinstance(node.op, ast.LShift)
            else self.visit(node.right)
        )
        return self._operator(node, typed, kind, left, right)

    def _operator(
        self,
        node: ast.BinOp | ast.AugAssign,
        typed: Typed,
        kind: type | None,
        left: Any,
        right: Any,
    ) -> ast.expr:
        """`left`, converted to `kind`, and `right`, combined as numba combines them."""
        if typed.result != np.bool_:
            # NumPy's truth values don't add up to 2
            left, right = (
                call("int", value) if dtype == np.bool_ else value
                for value, dtype in zip((left, right), typed.operands, strict=True)
            )
        if typed.is_integer and type(node.op) in _HELPED:
            divides = isinstance(node.op, ast.FloorDiv | ast.Mod)
            if divides and typed.result == np.int64:
                is_signed = self.arithmetic.is_signed
                sides = zip((left, right), _operands(node), typed.operands, strict=True)
                left, right = (
                    value if is_signed(part, dtype) else call("wrap", value)
                    for value, part, dtype in sides
                )
            if not _is_harmless(node.op, right):
                key = [self._key("division", node)] if divides else []
                return call(_HELPED[type(node.op)], left, right, *key)
        return ast.BinOp(call(kind.__name__, left) if kind else left, node.op, right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        typed = self.types.of(node)
        self.generic_visit(node)
        if isinstance(node.op, ast.Invert) and typed.result == np.bool_:
            node.op = ast.Not()
        kind = typed.converted[0] if typed.is_integer else None
        if kind is None or isinstance(node.op, ast.Not):
            return node
        node.operand = call("int", node.operand)
        if kind.kind not in "iu":
            return node
        # In the operand's own type, which may be shorter than the result's.
        value = call(kind.name, node)
        is_longer = typed.result == np.int64 and kind != np.int64
        return call("wrap", value) if is_longer else value

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        typed = self.types.of(node) if len(node.ops) == 1 else UNTYPED
        kind = self.arithmetic.conversion(
            typed, [node.left, node.comparators[0]], compared=True
        )
        self.generic_visit(node)
        if kind is not None:
            node.left = call(kind.__name__, node.left)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        array, array_again = self._held(self.visit(node.value))
        index, index_again = self._held(self._index(node.slice))
        key = self._paused(self._key("load", node), array_again, index_again)
        return method(array, "ld", index, key)

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        self.generic_visit(node)
        return call("tuple", node) if isinstance(node.ctx, ast.Load) else node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        is_float = isinstance(node.value, float)
        return self._bound(stand_in(node.value)) if is_float else node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._outer(node) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        outer = self._outer(node)
        if outer is not None:
            return outer
        owner = self.visit(node.value)
        if node.attr in ARRAY_ATTRIBUTES or self.scope.cuda_path(node.value):
            return ast.Attribute(owner, node.attr, ast.Load())
        owner, owner_again = self._held(owner)
        name = ast.Constant(node.attr)
        key = self._paused(self._key("load", node), owner_again, name)
        return method(load("t"), "attribute", owner, name, key)

    def _outer(self, node: ast.Name | ast.Attribute) -> ast.expr | None:
        """What replaces a name from the kernel's surroundings; None where the name can
        stay.
        """
        path = self.scope.cuda_path(node)
        if path:
            return _member(path)
        value = self.scope.resolve(node)
        if value is MISSING:
            return None
        replacement = self._stand_in(value)
        if isinstance(replacement, np.ndarray):
            return self._bound(Constant(replacement, ast.unparse(node)))
        return None if replacement is value else self._bound(replacement)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        path = self.scope.cuda_path(node.func)
        typed = self.types.of(node)
        source = ast.unparse(node)
        args = [
            call(kind.__name__, self.visit(arg)) if kind else self.visit(arg)
            for kind, arg in zip(
                self.arithmetic.conversions(node), node.args, strict=True
            )
        ]
        if path in BITS and typed.converted[0] is not None:
            args.append(ast.Constant(8 * typed.converted[0].itemsize))
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if path == "syncthreads":
            return ast.Yield(self._key("barrier", node, call=path))
        if self._is_grid_barrier(node):
            key = self._key("barrier", node, call="grid.sync")
            return ast.YieldFrom(method(load("t"), "grid_sync", key))
        if path in KEYED:
            return self._keyed_call(node, path, source, args, keywords)
        function = None if path else self.scope.device_function(node.func)
        if function is None:
            return ast.Call(self.visit(node.func), args, keywords)
        kinds = None if typed is UNTYPED else typed.arguments
        if kinds is not None and function is self.scope.resolve(node.func):
            function = implementation(function, kinds)
        can_wait = self.rewritten(function, kinds).can_wait
        context = call("inside", self._key("call", node))
        inner = self._bound(Called((function, kinds)))
        result = ast.Call(inner, [load("t"), context, *args], keywords)
        return ast.YieldFrom(result) if can_wait else result

    def _is_grid_barrier(self, node: ast.Call) -> bool:
        """Whether a call is `sync()` of `cuda.cg.this_grid()`, numba's only object with
        such a method.
        """
        is_sync = isinstance(node.func, ast.Attribute) and node.func.attr == "sync"
        return is_sync and self.scope.resolve(node.func) is MISSING

    def _keyed_call(
        self,
        node: ast.Call,
        path: str,
        source: str,
        args: list[ast.expr],
        keywords: list[ast.keyword],
    ) -> ast.expr:
        """The call of a member of cuda that reports itself."""
        if path == "atomic.compare_and_swap":  # of an array's first element
            path = "atomic.cas"
            args.insert(1, ast.Constant(0))
        kind = KEYED[path]
        text = self._target_name if kind == "array" else source
        key = self._key(kind, node, text=text, call=path)
        self.program.votes |= path.startswith("syncthreads_")
        if kind == "atomic":
            return self._atomic_call(node, path, key, args)
        function = _member(path)
        result = ast.Call(function, [key, *args], keywords)
        return ast.YieldFrom(result) if kind in WAITING else result

    def _atomic_call(
        self, node: ast.Call, path: str, key: ast.expr, args: list[ast.expr]
    ) -> ast.expr:
        if self.program.pauses:
            # after the arguments, which may read memory themselves
            pause = self._pause(key)
            args[-1] = expression("(VALUE, PAUSE)[0]", VALUE=args[-1], PAUSE=pause)
        if path == "atomic.cas" and node is not self._dropped:
            return ast.YieldFrom(method(load("t"), "swap", key, *args))
        op = ast.Constant(path.removeprefix("atomic."))
        return method(load("t"), "atomic", op, key, *args)


def _is_from_end(index: ast.expr) -> bool:
    """Whether an index is a negative number in the source, as in `a[-1]`."""
    return (
        isinstance(index, ast.UnaryOp)
        and isinstance(index.op, ast.USub)
        and isinstance(index.operand, ast.Constant)
        and type(index.operand.value) is int
        and index.operand.value > 0
    )
