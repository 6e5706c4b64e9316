"""Rewrite a kernel's source so that every access, branch, loop and barrier reports
itself.

`a[i] = b[j]` becomes `a.st(i, b.ld(j, c + 3), c + 4)`: the number is the *site*, the
place in the source, and `c` is the context, the loop iterations and calls that led
there. `if x:` becomes `if br(x, c + 5):`, `cuda.syncthreads()` becomes `yield c + 6`,
and `t` is the thread. Line numbers stay.
"""

# ruff: noqa: D102, N802 - the visit_ methods are ast.NodeTransformer's

from __future__ import annotations

import ast
from typing import Any

from kerneltrace.machine.program import Operations
from kerneltrace.source.expressions import (
    PREFIX,
    ExpressionRewriter,
    call,
    load,
    method,
)


def let(name: str, value: ast.expr) -> ast.stmt:
    """An assignment to a name that the rewriting adds."""
    return ast.Assign([ast.Name(PREFIX + name, ast.Store())], value)


class Rewriter(ExpressionRewriter):
    """Rewrites the statements of one function."""

    def body(self, tree: ast.FunctionDef) -> list[ast.stmt]:
        """The rewritten body of a function."""
        return self.block(tree.body)

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Rewrite statements, with a counter before each run of them that is executed
        together.
        """
        statements: list[ast.stmt] = []
        begin = 0
        run = Operations()
        first = next(iter(body), ast.Pass())
        for statement in body:
            compound = isinstance(statement, ast.If | ast.While | ast.For)
            # A condition is counted by its branch; the range of a `for` is evaluated
            # once, with what stands before it.
            once: ast.AST | None
            if isinstance(statement, ast.For):
                once = statement.iter
            elif compound:
                once = None
            else:
                once = statement
            run = run.plus(self.arithmetic.operations(once))
            if compound:
                self._count(statements, begin, run, first)
            rewritten = self.visit(statement)
            statements += [
                ast.copy_location(s, statement)
                for s in (rewritten if isinstance(rewritten, list) else [rewritten])
            ]
            if compound:
                begin = len(statements)
                run = Operations()
                first = statement
        self._count(statements, begin, run, first)
        return statements or [ast.Pass()]

    def _count(
        self, statements: list[ast.stmt], begin: int, run: Operations, first: ast.stmt
    ) -> None:
        if any(run):
            number = self.program.counter(run, self.label, first.lineno)
            statements[begin:begin] = ast.parse(f"{PREFIX}t.times[{number}] += 1").body

    def visit_If(self, node: ast.If) -> Any:
        key = self._key("branch", node.test, self.arithmetic.operations(node.test))
        return ast.If(
            call("br", self.visit(node.test), key),
            self.block(node.body),
            self._else(node.orelse),
        )

    def _else(self, orelse: list[ast.stmt], context: str = "") -> list[ast.stmt]:
        if not orelse:
            return []
        before = [let("c", load(context))] if context else []
        return [*before, *self.block(orelse)]

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        if not isinstance(node.target, ast.Name | ast.Tuple):
            raise self._error(
                node, "the target of a for loop in a kernel is a plain name."
            )
        saved = self._new_name("s")
        over = call("loop", self._key("for", node.iter), self.visit(node.iter))
        target = ast.Tuple(
            [ast.Name(PREFIX + "c", ast.Store()), node.target], ast.Store()
        )
        loop = ast.For(
            target, over, self.block(node.body), self._else(node.orelse, saved)
        )
        return [let(saved, load("c")), loop, let("c", load(saved))]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        saved = self._new_name("s")
        steps = self._new_name("w")
        begin = let(steps, call("steps", self._key("while", node.test)))
        forward = call("next", load(steps))
        # The loop's iterator gives 0 now and then, for a pause: without it, a thread
        # that waits in a `while` for what another thread writes would never let that
        # thread run.
        step = ast.NamedExpr(
            ast.Name(PREFIX + "c", ast.Store()),
            ast.BoolOp(ast.Or(), [forward, ast.Yield(ast.Constant(0)), forward]),
        )
        key = self._key("branch", node.test, self.arithmetic.operations(node.test))
        test = ast.BoolOp(ast.And(), [step, call("br", self.visit(node.test), key)])
        loop = ast.While(test, self.block(node.body), self._else(node.orelse, saved))
        return [let(saved, load("c")), begin, loop, let("c", load(saved))]

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        self._target_name = ast.unparse(node.targets[0])
        swap = isinstance(node.value, ast.Tuple) and isinstance(
            node.targets[0], ast.Tuple
        )
        value: Any = self.generic_visit(node.value) if swap else self.visit(node.value)
        if len(node.targets) == 1 and isinstance(
            node.targets[0], ast.Subscript | ast.Attribute
        ):
            return [self._store(node.targets[0], value)]
        after: list[ast.stmt] = []
        targets = [self._target(target, after) for target in node.targets]
        return [ast.Assign(targets, value), *after]

    def _target(self, target: ast.expr, after: list[ast.stmt]) -> ast.expr:
        """A target that is a name; what goes to memory is stored by a separate
        statement in `after`.
        """
        if isinstance(target, ast.Tuple | ast.List):
            return ast.Tuple(
                [self._target(part, after) for part in target.elts], ast.Store()
            )
        if isinstance(target, ast.Name):
            return target
        held = self._new_name("v")
        after.append(self._store(target, load(held)))
        return ast.Name(PREFIX + held, ast.Store())

    def _store(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        return ast.Expr(
            method(*self._place(target, "st"), value, self._key("store", target))
        )

    def _place(self, target: ast.expr, way: str) -> tuple[Any, ...]:
        if isinstance(target, ast.Subscript):
            return self.visit(target.value), way, self._index(target.slice)
        if isinstance(target, ast.Attribute):
            return self.visit(target.value), way, ast.Constant(target.attr)
        raise self._error(target, f"a kernel can't assign to {ast.unparse(target)!r}.")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        return (
            ast.Pass()
            if node.value is None
            else self.visit_Assign(ast.Assign([node.target], node.value))
        )

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        if isinstance(node.target, ast.Name):
            return [
                ast.Assign([node.target], self.visit(self._combined(node, node.target)))
            ]
        typed = self.types.of(node)
        kind = self.arithmetic.conversion(typed, [node.target, node.value])
        value = self.visit(node.value)
        # The array and the index are evaluated once, as in Python: an index may be an
        # atomic.
        begin: list[ast.stmt] = []
        owner, _, index = self._place(node.target, "ld")
        owner = self._once(owner, begin)
        index = self._once(index, begin)
        old = method(owner, "ld", index, self._key("load", node.target))
        new = self._operator(node, typed, kind, old, value)
        return [
            *begin,
            ast.Expr(method(owner, "st", index, new, self._key("store", node.target))),
        ]

    def _combined(self, node: ast.AugAssign, target: ast.Name) -> ast.BinOp:
        whole = ast.BinOp(ast.Name(target.id, ast.Load()), node.op, node.value)
        whole.number = node.number  # type: ignore[attr-defined]  # by which its types are found
        return whole

    def _once(self, node: ast.expr, begin: list[ast.stmt]) -> ast.expr:
        if isinstance(node, ast.Name | ast.Constant):
            return node
        held = self._new_name("o")
        begin.append(let(held, node))
        return load(held)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        """A thread that returns early says so: True. A device
        function's value stays.
        """
        if node.value is None and not self.label.endswith("()"):
            return ast.Return(ast.Constant(True))
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        self._dropped = node.value
        return ast.Expr(self.visit(node.value))
