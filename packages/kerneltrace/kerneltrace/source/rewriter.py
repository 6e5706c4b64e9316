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
    ExpressionRewriter,
    call,
    expression,
    filled,
    method,
)
from kerneltrace.source.kernel_scope import refusal

# Both loops give the context of their turns, which ends with them.
_FOR = """
SAVED = _lab_c
for _lab_c, TARGET in _lab_loop(KEY, OVER):
    BODY
else:
    _lab_c = SAVED
    OTHERWISE
_lab_c = SAVED
"""
# The loop's iterator gives 0 now and then, for a pause: without it, a thread that waits
# in a `while` for what another thread writes would never let that thread run.
_WHILE = """
SAVED = _lab_c
STEPS = _lab_steps(KEY)
while (
    _lab_c := _lab_next(STEPS) or (yield 0) or _lab_next(STEPS)
) and _lab_br(TEST, TEST_KEY):
    BODY
else:
    _lab_c = SAVED
    OTHERWISE
_lab_c = SAVED
"""
# The array and the index are evaluated once, as in Python: an index may be an atomic.
_CHANGE = """
ARRAY = OWNER
PLACE = INDEX
ARRAY.st(PLACE, NEW, KEY)
"""


class Rewriter(ExpressionRewriter):
    """Rewrites the statements of one function."""

    count = "_lab_t.times[NUMBER] += 1"
    """The statement that counts a run of statements."""

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
            once = getattr(statement, "iter", None) if compound else statement
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
            statements[begin:begin] = filled(self.count, NUMBER=ast.Constant(number))

    def visit_If(self, node: ast.If) -> Any:
        key = self._test_key(node)
        return ast.If(
            call("br", self.visit(node.test), key),
            self.block(node.body),
            node.orelse and self.block(node.orelse),
        )

    def _test_key(self, node: ast.If | ast.While) -> ast.expr:
        work = self.arithmetic.operations(node.test)
        return self._key("branch", node.test, work)

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        if not isinstance(node.target, ast.Name | ast.Tuple):
            raise refusal(
                self.label,
                node,
                "the target of a for loop in a kernel is a plain name.",
            )
        return filled(
            _FOR,
            SAVED=self._new_name("s"),
            KEY=self._key("for", node.iter),
            OVER=self.visit(node.iter),
            TARGET=node.target,
            BODY=self.block(node.body),
            OTHERWISE=self.block(node.orelse),
        )

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        return filled(
            _WHILE,
            SAVED=self._new_name("s"),
            STEPS=self._new_name("w"),
            KEY=self._key("while", node.test),
            TEST_KEY=self._test_key(node),
            TEST=self.visit(node.test),
            BODY=self.block(node.body),
            OTHERWISE=self.block(node.orelse),
        )

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
        after.append(self._store(target, ast.Name(held, ast.Load())))
        return ast.Name(held, ast.Store())

    def _store(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        owner, index = self._place(target)
        owner, owner_again = self._held(owner)
        index, index_again = self._held(index)
        key = self._paused(self._key("store", target), owner_again, index_again)
        return ast.Expr(method(owner, "st", index, value, key))

    def _place(self, target: ast.expr) -> tuple[Any, ast.expr]:
        """The array and the index of an element in memory."""
        if isinstance(target, ast.Subscript):
            return self.visit(target.value), self._index(target.slice)
        if isinstance(target, ast.Attribute):
            return self.visit(target.value), ast.Constant(target.attr)
        raise refusal(
            self.label, target, f"a kernel can't assign to {ast.unparse(target)!r}."
        )

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return ast.Pass()
        return self.visit_Assign(ast.Assign([node.target], node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        if isinstance(node.target, ast.Name):
            return [
                ast.Assign([node.target], self.visit(self._combined(node, node.target)))
            ]
        typed = self.types.of(node)
        kind = self.arithmetic.conversion(typed, [node.target, node.value])
        value = self.visit(node.value)
        owner, index = self._place(node.target)
        names = {"ARRAY": self._new_name("o"), "PLACE": self._new_name("o")}
        element = [ast.Name(name, ast.Load()) for name in names.values()]
        read = self._paused(self._key("load", node.target), *element)
        old = expression("ARRAY.ld(PLACE, KEY)", KEY=read, **names)
        return filled(
            _CHANGE,
            OWNER=owner,
            INDEX=index,
            NEW=self._operator(node, typed, kind, old, value),
            KEY=self._paused(self._key("store", node.target), *element),
            **names,
        )

    def _combined(self, node: ast.AugAssign, target: ast.Name) -> ast.BinOp:
        whole = ast.BinOp(ast.Name(target.id, ast.Load()), node.op, node.value)
        whole.number = node.number  # type: ignore[attr-defined]  # by which its types are found
        return whole

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
