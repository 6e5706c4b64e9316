"""Rewrite the expressions of a kernel: accesses and calls that report themselves,
arithmetic that is numba's.
"""

# ruff: noqa: D102 - the visit_ methods are ast.NodeTransformer's

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.log.numba_types import stand_in
from kerneltrace.log.program import Operations, Program
from kerneltrace.log.traced_thread import BITS, KEYED, WAITING
from kerneltrace.source.kernel_scope import MISSING, KernelScope, refusal
from kerneltrace.source.typed_source import RING, Arithmetic, Typed, conditional

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
_LOW_64 = (1 << 64) - 1
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


def _operands(node: ast.BinOp | ast.AugAssign) -> list[ast.expr]:
    return (
        [node.left, node.right]
        if isinstance(node, ast.BinOp)
        else [node.target, node.value]
    )


class ExpressionRewriter(ast.NodeTransformer):
    """Rewrites the expressions of one function."""

    def __init__(
        self,
        program: Program,
        label: str,
        scope: KernelScope,
        arithmetic: Arithmetic,
        instrumented: Callable[..., Callable[..., Any]],
    ) -> None:
        """`label` names the function; `instrumented(function, types)` prepares one it
        calls.
        """
        self.program = program
        self.label = label
        self.scope = scope
        self.arithmetic = arithmetic
        self.types = arithmetic.types
        self.instrumented = instrumented
        # global names that the rewritten source needs besides its own
        self.added: dict[str, Any] = {}
        self._names = 0
        # of the assignment being rewritten: the name of an array made there
        self._target_name = ""
        # a call whose result the source does not use
        self._dropped: ast.expr | None = None

    def _new_name(self, text: str) -> str:
        self._names += 1
        return f"{text}{self._names}"

    def _bound(self, value: Any) -> ast.expr:
        """A global name bound to `value`."""
        name = self._new_name("g")
        self.added[PREFIX + name] = value
        return load(name)

    def _key(
        self,
        kind: str,
        node: ast.AST,
        operations: Operations = NONE,
        text: str = "",
        call: str = "",
    ) -> ast.expr:
        """The expression `c + site` for a new site at `node`."""
        site = self.program.site(
            kind, node, self.label, operations, text, call, node is not self._dropped
        )
        key = ast.BinOp(load("c"), ast.Add(), ast.Constant(site))
        if self.program.pauses and kind in ("load", "store"):
            return ast.BoolOp(ast.Or(), [self._pause(key), key])
        return key

    def _pause(self, key: ast.expr) -> ast.expr:
        """An expression that pauses the thread before the access of
        `key`, and is None.
        """
        return ast.Yield(method(load("t"), "pause", key))

    def _stand_in(self, value: Any) -> Any:
        return stand_in(value)

    def _error(self, node: ast.AST, words: str) -> KernelError:
        return refusal(self.label, node, words)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit the parts of a node, and count the operations of those that are
        evaluated only sometimes.
        """
        apart = conditional(node)
        for name, value in ast.iter_fields(node):
            parts = value if isinstance(value, list) else [value]
            made = [self._visited(part, part in apart) for part in parts]
            setattr(node, name, made if isinstance(value, list) else made[0])
        return node

    def _visited(self, part: Any, is_conditional: bool) -> Any:
        if is_conditional:
            return self._counted(part)
        return self.visit(part) if isinstance(part, ast.AST) else part

    def _counted(self, node: ast.expr) -> ast.expr:
        work = self.arithmetic.operations(node)
        made: ast.expr = self.visit(node)
        return self._tick(work, node, made) if any(work) else made

    def _tick(self, work: Operations, node: Any, value: ast.expr) -> ast.expr:
        """`value`, with the operations counted that begin at `node`."""
        return call(
            "tick",
            load("t"),
            ast.Constant(self.program.counter(work, self.label, node.lineno)),
            value,
        )

    def _index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self._index(part) for part in node.elts], ast.Load())
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return call(
                "slice",
                *(
                    ast.Constant(None) if part is None else self.visit(part)
                    for part in parts
                ),
            )
        # an index of over 64 bits is out of bounds either way
        return self._low_bits(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        typed = self.types.of(node)
        made = self._low_bits(node)
        if (
            typed is None
            or not typed.is_integer
            or not isinstance(node.op, (*RING, ast.Pow))
        ):
            return made
        if typed.result == np.uint64:
            return ast.BinOp(made, ast.BitAnd(), ast.Constant(_LOW_64))
        held = ast.NamedExpr(ast.Name(PREFIX + "i", ast.Store()), made)
        fits = ast.Compare(
            ast.Constant(-(1 << 63)),
            [ast.LtE(), ast.Lt()],
            [held, ast.Constant(1 << 63)],
        )
        return ast.IfExp(fits, load("i"), call("wrap", load("i")))

    def _low_bits(self, node: ast.expr) -> ast.expr:
        """An expression of which only the low 64 bits matter, since an operator around
        it wraps, or it is an index.
        """
        typed = self.types.of(node)
        if not isinstance(node, ast.BinOp):
            made: ast.expr = self.visit(node)
            return made
        kind = self.arithmetic.conversion(typed, _operands(node))
        ring = typed is not None and typed.is_integer and isinstance(node.op, RING)
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
        typed: Typed | None,
        kind: type | None,
        left: Any,
        right: Any,
    ) -> ast.expr:
        """`left`, converted to `kind`, and `right`, combined as numba combines them."""
        # NumPy's truth values don't add up to 2
        if typed is not None and typed.result != np.bool_:
            own = zip(typed.operands, (left, right), strict=True)
            left, right = (
                call("int", value) if have == np.bool_ else value for have, value in own
            )
        if typed is not None and typed.is_integer and type(node.op) in _HELPED:
            shift = isinstance(node.op, ast.LShift | ast.RShift)
            divides = isinstance(node.op, ast.FloorDiv | ast.Mod)
            if divides and typed.result == np.int64:
                left, right = (
                    (
                        value
                        if self.arithmetic.is_signed(part, own)
                        else call("wrap", value)
                    )
                    for part, own, value in zip(
                        _operands(node), typed.operands, (left, right), strict=True
                    )
                )
            by: Any
            if isinstance(right, ast.Constant):
                by = right.value
            elif not shift:
                by = 0
            else:
                by = 64
            if not (0 <= by < 64 if shift else by):
                key = [self._key("division", node)] if divides else []
                return call(_HELPED[type(node.op)], left, right, *key)
        return ast.BinOp(call(kind.__name__, left) if kind else left, node.op, right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        typed = self.types.of(node)
        self.generic_visit(node)
        if (
            isinstance(node.op, ast.Invert)
            and typed is not None
            and typed.result == np.bool_
        ):
            node.op = ast.Not()
        kind = typed.converted[0] if typed is not None and typed.is_integer else None
        if kind is None or isinstance(node.op, ast.Not):
            return node
        node.operand = call("int", node.operand)
        if kind.kind not in "iu":
            return node
        # In the operand's own type, which may be shorter than the result's.
        own = call(kind.name, node)
        return (
            call("wrap", own)
            if typed is not None and typed.result == np.int64 != kind
            else own
        )

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        typed = self.types.of(node) if len(node.ops) == 1 else None
        kind = self.arithmetic.conversion(
            typed, [node.left, node.comparators[0]], compared=True
        )
        self.generic_visit(node)
        if kind is not None:
            node.left = call(kind.__name__, node.left)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return method(
            self.visit(node.value),
            "ld",
            self._index(node.slice),
            self._key("load", node),
        )

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        made = self.generic_visit(node)
        return (
            call("tuple", made)
            if isinstance(node.ctx, ast.Load) and isinstance(made, ast.Tuple)
            else node
        )

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return (
            self._bound(stand_in(node.value)) if isinstance(node.value, float) else node
        )

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._outer(node) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        outer = self._outer(node)
        if outer is not None:
            return outer
        owner = self.visit(node.value)
        if node.attr in ARRAY_ATTRIBUTES or self.scope.cuda_path(node.value):
            return ast.Attribute(owner, node.attr, ast.Load())
        return method(
            load("t"),
            "attribute",
            owner,
            ast.Constant(node.attr),
            self._key("load", node),
        )

    def _outer(self, node: ast.Name | ast.Attribute) -> ast.expr | None:
        """What replaces a name from the kernel's surroundings; None where the name can
        stay.
        """
        path = self.scope.cuda_path(node)
        if path:
            return ast.Attribute(load("t"), path.replace(".", "_"), ast.Load())
        value = self.scope.resolve(node)
        if value is MISSING:
            return None
        new = self._stand_in(value)
        if isinstance(new, np.ndarray):
            return self._bound(self.program.constant(new, ast.unparse(node)))
        return None if new is value else self._bound(new)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        path = self.scope.cuda_path(node.func)
        typed = self.types.of(node)
        kinds = self.arithmetic.conversions(node)
        source = ast.unparse(node)
        args = [self.visit(arg) for arg in node.args]
        args = [
            call(kind.__name__, arg) if kind else arg
            for kind, arg in zip(kinds, args, strict=True)
        ]
        if path in BITS and typed is not None and typed.converted[0] is not None:
            args.append(ast.Constant(8 * typed.converted[0].itemsize))
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if path == "syncthreads":
            if args:
                raise self._error(node, "cuda.syncthreads() takes no arguments.")
            return ast.Yield(self._key("barrier", node, call=path))
        if path in KEYED:
            text = self._target_name if KEYED[path] == "array" else source
            key = self._key(KEYED[path], node, text=text, call=path)
            self.program.votes |= path.startswith("syncthreads_")
            if KEYED[path] == "atomic":
                # after the arguments, which may read memory themselves
                if self.program.pauses:
                    both = ast.Tuple([args[-1], self._pause(key)], ast.Load())
                    args[-1] = ast.Subscript(both, ast.Constant(0), ast.Load())
                if path == "atomic.cas" and node is not self._dropped:
                    return ast.YieldFrom(method(load("t"), "swap", key, *args))
                return method(
                    load("t"), "atomic", ast.Constant(path.split(".")[1]), key, *args
                )
            made = ast.Call(
                ast.Attribute(load("t"), path.replace(".", "_"), ast.Load()),
                [key, *args],
                keywords,
            )
            return ast.YieldFrom(made) if KEYED[path] in WAITING else made
        function = None if path else self.scope.device_function(node.func)
        if function is None:
            return ast.Call(self.visit(node.func), args, keywords)
        inner = self.instrumented(function, typed and typed.arguments)
        context = call("inside", self._key("call", node))
        made = ast.Call(self._bound(inner), [load("t"), context, *args], keywords)
        return ast.YieldFrom(made) if inspect.isgeneratorfunction(inner) else made
