"""Rewrite a kernel's source so that every access, branch, loop and barrier reports itself.

`a[i] = b[j]` becomes `a.st(i, b.ld(j, c + 3), c + 4)`: the number is the *site*, the place in the source, and `c` is
the context, the loop iterations and calls that led there. `if x:` becomes `if br(x, c + 5):`, `cuda.syncthreads()`
becomes `yield c + 6`, and `t` is the thread. Line numbers stay.
"""

# ruff: noqa: D102 - the visit_ methods are ast.NodeTransformer's

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from labkit.core.errors import KernelError, nearest
from labkit.gpu.trace.arithmetic import IntegerInference, Operations
from labkit.gpu.trace.kernel_scope import MISSING, KernelScope
from labkit.gpu.trace.numba_types import stand_in
from labkit.gpu.trace.program import Program
from labkit.gpu.trace.traced_thread import KEYED, PLAIN, VALUES, WAITING

PREFIX = "_lab_"  # begins every name that the rewriting adds, so that none hides a name of the kernel
ARRAY_ATTRIBUTES = {"shape", "size", "ndim", "dtype", "strides", "T", "nbytes", "itemsize"}
NONE = Operations()
REFUSED: tuple[type[ast.AST], ...] = (
    ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Try, ast.With, ast.ClassDef, ast.Yield,
    ast.YieldFrom, ast.Await, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Delete, ast.FunctionDef,
    ast.Dict, ast.Set, ast.Starred,
)  # fmt: skip


def _load(name: str) -> ast.Name:
    return ast.Name(PREFIX + name, ast.Load())


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(_load(name), list(args), [])


def _method(owner: ast.expr, name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(owner, name, ast.Load()), list(args), [])


def _let(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(PREFIX + name, ast.Store())], value)


class Rewriter(ast.NodeTransformer):
    """Rewrites the statements of one function."""

    def __init__(
        self,
        program: Program,
        label: str,
        scope: KernelScope,
        inference: IntegerInference,
        instrumented: Callable[..., Callable[..., Any]],
    ) -> None:
        """`label` names the function; `instrumented(function, integers, integer_arrays)` prepares one it calls."""
        self.program, self.label, self.scope, self.inference = program, label, scope, inference
        self.instrumented = instrumented
        self.added: dict[str, Any] = {}  # global names that the rewritten source needs besides its own
        self._names = 0
        self._target_name = ""  # of the assignment being rewritten: the name of an array made there
        self._dropped: ast.expr | None = None  # a call whose result the source does not use

    def _new_name(self, text: str) -> str:
        self._names += 1
        return f"{text}{self._names}"

    def _bound(self, value: Any) -> ast.expr:
        """A global name bound to `value`."""
        name = self._new_name("g")
        self.added[PREFIX + name] = value
        return _load(name)

    def _key(self, kind: str, node: ast.AST, operations: Operations = NONE, text: str = "", call: str = "") -> ast.expr:
        """The expression `c + site` for a new site at `node`."""
        site = self.program.site(kind, node, self.label, operations, text, call, node is not self._dropped)
        return ast.BinOp(_load("c"), ast.Add(), ast.Constant(site))

    def _error(self, node: ast.AST, words: str) -> KernelError:
        return KernelError(f"{self.label.removesuffix('()')}, line {getattr(node, 'lineno', '?')}: {words}")

    # -- statements

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Rewrite statements, with a counter before each run of them that is executed together."""
        done: list[ast.stmt] = []
        begin, run = 0, NONE
        for statement in body:
            compound = isinstance(statement, ast.If | ast.While | ast.For)
            # A condition is counted by its branch; the range of a `for` is evaluated once, with what stands before it.
            once = statement.iter if isinstance(statement, ast.For) else None if compound else statement
            run = run.plus(self.inference.operations(once))
            if compound:
                self._count(done, begin, run)
            made = self.visit(statement)
            done += [ast.copy_location(s, statement) for s in (made if isinstance(made, list) else [made])]
            if compound:
                begin, run = len(done), NONE
        self._count(done, begin, run)
        return done or [ast.Pass()]

    def _count(self, done: list[ast.stmt], begin: int, run: Operations) -> None:
        if any(run):
            done[begin:begin] = ast.parse(f"{PREFIX}n[{self.program.counter(run)}] += 1").body

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Refuse what no CUDA kernel can have."""
        if isinstance(node, REFUSED):
            raise self._error(
                node, f"a kernel can't use {ast.unparse(node).splitlines()[0]!r}. Write loops, conditions, assignments."
            )
        return super().generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.stmt:
        key = self._key("branch", node.test, self.inference.operations(node.test))
        return ast.If(_call("br", self.visit(node.test), key), self.block(node.body), self._else(node.orelse))

    def _else(self, orelse: list[ast.stmt], context: str = "") -> list[ast.stmt]:
        return [*([_let("c", _load(context))] if context else []), *self.block(orelse)] if orelse else []

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        if not isinstance(node.target, ast.Name | ast.Tuple):
            raise self._error(node, "the target of a for loop in a kernel is a plain name.")
        saved = self._new_name("s")
        over = _call("loop", self._key("for", node.iter), self.visit(node.iter))
        target = ast.Tuple([ast.Name(PREFIX + "c", ast.Store()), node.target], ast.Store())
        loop = ast.For(target, over, self.block(node.body), self._else(node.orelse, saved))
        return [_let(saved, _load("c")), loop, _let("c", _load(saved))]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        saved, steps = self._new_name("s"), self._new_name("w")
        begin = _let(steps, _call("steps", self._key("while", node.test)))
        forward = _call("next", _load(steps))
        # The loop's iterator gives 0 now and then, for a pause: without it, a thread that waits in a `while` for what
        # another thread writes would never let that thread run.
        step = ast.NamedExpr(
            ast.Name(PREFIX + "c", ast.Store()), ast.BoolOp(ast.Or(), [forward, ast.Yield(ast.Constant(0)), forward])
        )
        key = self._key("branch", node.test, self.inference.operations(node.test))
        test = ast.BoolOp(ast.And(), [step, _call("br", self.visit(node.test), key)])
        loop = ast.While(test, self.block(node.body), self._else(node.orelse, saved))
        return [_let(saved, _load("c")), begin, loop, _let("c", _load(saved))]

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        self._target_name = ast.unparse(node.targets[0])
        swap = isinstance(node.value, ast.Tuple) and isinstance(node.targets[0], ast.Tuple)
        value: Any = super().generic_visit(node.value) if swap else self.visit(node.value)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript | ast.Attribute):
            return [self._store(node.targets[0], value)]
        after: list[ast.stmt] = []
        targets = [self._target(target, after) for target in node.targets]
        return [ast.Assign(targets, value), *after]

    def _target(self, target: ast.expr, after: list[ast.stmt]) -> ast.expr:
        """A target that is a name; what goes to memory is stored by a separate statement in `after`."""
        if isinstance(target, ast.Tuple | ast.List):
            return ast.Tuple([self._target(part, after) for part in target.elts], ast.Store())
        if isinstance(target, ast.Name):
            return target
        held = self._new_name("v")
        after.append(self._store(target, _load(held)))
        return ast.Name(PREFIX + held, ast.Store())

    def _store(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        return ast.Expr(_method(*self._place(target, "st"), value, self._key("store", target)))

    def _place(self, target: ast.expr, method: str) -> tuple[Any, ...]:
        if isinstance(target, ast.Subscript):
            return self.visit(target.value), method, self._index(target.slice)
        if isinstance(target, ast.Attribute):
            return self.visit(target.value), method, ast.Constant(target.attr)
        raise self._error(target, f"a kernel can't assign to {ast.unparse(target)!r}.")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        return ast.Pass() if node.value is None else self.visit_Assign(ast.Assign([node.target], node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        value = self.visit(node.value)
        if isinstance(node.target, ast.Name):
            return [ast.AugAssign(node.target, node.op, value)]
        # The array and the index are evaluated once, as in Python: an index may be an atomic.
        begin: list[ast.stmt] = []
        owner, _, index = self._place(node.target, "ld")
        owner, index = self._once(owner, begin), self._once(index, begin)
        old = _method(owner, "ld", index, self._key("load", node.target))
        new = ast.BinOp(old, node.op, value)
        return [*begin, ast.Expr(_method(owner, "st", index, new, self._key("store", node.target)))]

    def _once(self, node: ast.expr, begin: list[ast.stmt]) -> ast.expr:
        if isinstance(node, ast.Name | ast.Constant):
            return node
        held = self._new_name("o")
        begin.append(_let(held, node))
        return _load(held)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        """A thread that returns early says so: True. A device function's value stays."""
        if node.value is None and not self.label.endswith("()"):
            return ast.Return(ast.Constant(True))
        return super().generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        self._dropped = node.value
        return ast.Expr(self.visit(node.value))

    # -- expressions

    def _index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self._index(part) for part in node.elts], ast.Load())
        if isinstance(node, ast.Slice):
            parts = (ast.Constant(None) if part is None else self.visit(part) for part in (node.lower, node.upper))
            return _call("slice", *parts, node.step or ast.Constant(None))
        made: ast.expr = self.visit(node)
        return made

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return _method(self.visit(node.value), "ld", self._index(node.slice), self._key("load", node))

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        made = super().generic_visit(node)
        return _call("tuple", made) if isinstance(node.ctx, ast.Load) and isinstance(made, ast.Tuple) else node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self._bound(stand_in(node.value)) if isinstance(node.value, float) else node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._outer(node) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        outer = self._outer(node)
        if outer is not None:
            return outer
        owner = self.visit(node.value)
        if node.attr in ARRAY_ATTRIBUTES or self.scope.cuda_path(node.value):
            return ast.Attribute(owner, node.attr, ast.Load())
        return _method(_load("t"), "attribute", owner, ast.Constant(node.attr), self._key("load", node))

    def _outer(self, node: ast.Name | ast.Attribute) -> ast.expr | None:
        """What replaces a name from the kernel's surroundings; None where the name can stay."""
        path = self.scope.cuda_path(node)
        if path:
            if path not in VALUES and path not in PLAIN:
                names = ", ".join(f"cuda.{name}" for name in nearest(path, [*VALUES, *PLAIN, *KEYED], n=2))
                words = f"cuda.{path} is not supported by lab.trace. The nearest it knows: {names}."
                raise self._error(node, words)
            return ast.Attribute(_load("t"), path.replace(".", "_"), ast.Load())
        value = self.scope.resolve(node)
        if value is MISSING:
            return None
        new = stand_in(value)
        if isinstance(new, np.ndarray):
            return self._bound(self.program.constant(new, ast.unparse(node)))
        return None if new is value else self._bound(new)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        path = self.scope.cuda_path(node.func)
        args = [self.visit(arg) for arg in node.args]
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if path == "syncthreads":
            if args:
                raise self._error(node, "cuda.syncthreads() takes no arguments.")
            return ast.Yield(self._key("barrier", node, call=path))
        if path in KEYED:
            text = self._target_name if KEYED[path] == "array" else ""
            key = self._key(KEYED[path], node, text=text, call=path)
            self.program.votes |= path.startswith("syncthreads_")
            if KEYED[path] == "atomic":
                return _method(_load("t"), "atomic", ast.Constant(path.split(".")[1]), key, *args)
            call = ast.Call(ast.Attribute(_load("t"), path.replace(".", "_"), ast.Load()), [key, *args], keywords)
            return ast.YieldFrom(call) if KEYED[path] in WAITING else call
        function = None if path else self.scope.device_function(node.func)
        if function is None:
            return ast.Call(self.visit(node.func), args, keywords)
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        integers = {name for name, arg in zip(names, node.args, strict=False) if self.inference.is_integer(arg)}
        made = self.instrumented(function, integers, set())
        context = _call("inside", self._key("call", node))
        call = ast.Call(self._bound(made), [_load("t"), context, *args], keywords)
        return ast.YieldFrom(call) if inspect.isgeneratorfunction(made) else call
