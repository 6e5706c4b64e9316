"""A kernel's source, rewritten so that every access, branch, loop and barrier reports itself.

`a[i] = b[j]` becomes `a.st(i, b.ld(j, c + 3), c + 4)`: the number is the *site*, this place in the source, and `c` the
context, the loop iterations and calls that led here. `if x:` becomes `if br(x, c + 5):`. Line numbers stay.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable
from typing import Any

from labkit.core.errors import KernelError, nearest
from labkit.gpu.trace.arithmetic import IntegerInference, Work
from labkit.gpu.trace.numbers import stand_in
from labkit.gpu.trace.outside import Outside
from labkit.gpu.trace.program import Program
from labkit.gpu.trace.thread import KEYED, PLAIN, VALUES, WAITS
from labkit.gpu.trace.traced_memory import TracedTuple

P = "_lab_"  # begins every name that the rewriting adds
ARRAY_ATTRIBUTES = {"shape", "size", "ndim", "dtype", "strides", "T", "nbytes", "itemsize"}
REFUSED: tuple[type[ast.AST], ...] = (
    ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Try, ast.With, ast.ClassDef, ast.Yield,
    ast.YieldFrom, ast.Await, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Delete, ast.FunctionDef,
    ast.Dict, ast.Set, ast.Starred,
)  # fmt: skip


def rewritten(
    program: Program, fn: types.FunctionType, label: str, whole: set[str], whole_arrays: set[str]
) -> Callable[..., Any]:
    """`fn` as a function (thread, context, *its arguments) that reports what it does to the program's log."""
    tree = _parse(fn)
    outside = Outside(fn, tree)
    judge = IntegerInference(tree, label, whole, whole_arrays, outside.whole_numbers())
    rewriter, args = _Rewriter(program, tree, label, outside, judge), tree.args
    args.args = [ast.arg(P + "t"), ast.arg(P + "c"), *args.posonlyargs, *args.args]
    args.posonlyargs = []
    for arg in (*args.args, *args.kwonlyargs):
        arg.annotation = None
    args.defaults = [ast.Constant(None) for _ in args.defaults]  # the function's own values come back below
    tree.returns, tree.decorator_list = None, []
    tree.body = rewriter.block(tree.body)
    module = ast.fix_missing_locations(ast.Module([tree], []))
    program.files.add(fn.__code__.co_filename)
    scope = {**outside.names, **rewriter.added, **program.helpers(), P + "tuple": TracedTuple, P + "slice": slice}
    exec(compile(module, fn.__code__.co_filename, "exec"), scope)
    made: Callable[..., Any] = scope[tree.name]
    made.__defaults__ = fn.__defaults__
    return made


def _parse(fn: types.FunctionType) -> ast.FunctionDef:
    try:
        lines, first = inspect.getsourcelines(fn)
        indented = lines[0][:1].isspace()  # ast takes that within a block only, and textwrap trips over comments
        body = ast.parse("".join(["if 1:\n" * indented, *lines])).body
        tree = body[0].body if indented else body  # type: ignore[attr-defined]
    except (OSError, TypeError, SyntaxError) as error:
        raise KernelError(
            f"The source of {fn.__name__} can't be read ({error}). Define the kernel with `def` in a cell or in a file."
        ) from None
    if not isinstance(tree[0], ast.FunctionDef):
        raise KernelError(f"{fn.__name__} is not defined with `def`, which lab.trace needs to rewrite its source.")
    ast.increment_lineno(tree[0], first - 1 - indented)
    return tree[0]


def _load(name: str) -> ast.Name:
    return ast.Name(P + name, ast.Load())


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(_load(name), list(args), [])


def _method(owner: ast.expr, name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(owner, name, ast.Load()), list(args), [])


def _let(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(P + name, ast.Store())], value)


class _Rewriter(ast.NodeTransformer):
    def __init__(
        self, program: Program, tree: ast.FunctionDef, label: str, outside: Outside, whole: IntegerInference
    ) -> None:
        self.program, self.tree, self.label, self.outside, self.whole = program, tree, label, outside, whole
        self.added: dict[str, Any] = {}
        self._count = 0
        self._target_name = ""  # of the assignment being rewritten: the name of an array made there

    def _fresh(self, text: str) -> str:
        self._count += 1
        return f"{text}{self._count}"

    def _bound(self, value: Any) -> ast.expr:
        """A global name bound to `value`."""
        name = self._fresh("g")
        self.added[P + name] = value
        return _load(name)

    def _key(self, kind: str, node: ast.AST, work: Work | None = None, text: str = "") -> ast.expr:
        """The expression `c + site` for a new site at `node`."""
        site = self.program.site(kind, node, self.label, work, text)
        return ast.BinOp(_load("c"), ast.Add(), ast.Constant(site))

    def _fail(self, node: ast.AST, words: str) -> KernelError:
        return KernelError(f"{self.tree.name}, line {getattr(node, 'lineno', '?')}: {words}")

    # -- statements

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Statements rewritten, with a counter before each run of them that is executed together."""
        done: list[ast.stmt] = []
        begin, work = 0, Work()
        for statement in body:
            compound = isinstance(statement, ast.If | ast.While | ast.For)
            work.add(self.whole.work(statement.iter if isinstance(statement, ast.For) else None))
            if compound:
                self._counted(done, begin, work)
            else:
                work.add(self.whole.work(statement))
            made = self.visit(statement)
            done += [ast.copy_location(s, statement) for s in (made if isinstance(made, list) else [made])]
            if compound:
                begin, work = len(done), Work()
        self._counted(done, begin, work)
        return done or [ast.Pass()]

    def _counted(self, done: list[ast.stmt], begin: int, work: Work) -> None:
        if work:
            done[begin:begin] = ast.parse(f"{P}n[{self.program.segment(work)}] += 1").body

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Refuse what no CUDA kernel can have."""
        if isinstance(node, REFUSED):
            raise self._fail(
                node, f"a kernel can't use {ast.unparse(node).splitlines()[0]!r}. Write loops, conditions, assignments."
            )
        return super().generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.stmt:
        key = self._key("branch", node.test, self.whole.work(node.test))
        return ast.If(_call("br", self.visit(node.test), key), self.block(node.body), self._else(node.orelse))

    def _else(self, orelse: list[ast.stmt], context: str = "") -> list[ast.stmt]:
        return [*([_let("c", _load(context))] if context else []), *self.block(orelse)] if orelse else []

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        if not isinstance(node.target, ast.Name | ast.Tuple):
            raise self._fail(node, "a for loop in a kernel counts with a plain name.")
        saved = self._fresh("s")
        over = _call("loop", self._key("for", node.iter), self.visit(node.iter))
        target = ast.Tuple([ast.Name(P + "c", ast.Store()), node.target], ast.Store())
        loop = ast.For(target, over, self.block(node.body), self._else(node.orelse, saved))
        return [_let(saved, _load("c")), loop, _let("c", _load(saved))]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        saved, steps = self._fresh("s"), self._fresh("w")
        begin = _let(steps, _call("steps", self._key("while", node.test)))
        forward = _call("next", _load(steps))
        # The loop's iterator gives 0 now and then, for a pause.
        step = ast.NamedExpr(
            ast.Name(P + "c", ast.Store()), ast.BoolOp(ast.Or(), [forward, ast.Yield(ast.Constant(0)), forward])
        )
        key = self._key("branch", node.test, self.whole.work(node.test))
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
        """A target that is a name; what goes to memory is stored in a statement of its own afterwards."""
        if isinstance(target, ast.Tuple | ast.List):
            return ast.Tuple([self._target(part, after) for part in target.elts], ast.Store())
        if isinstance(target, ast.Name):
            return target
        held = self._fresh("v")
        after.append(self._store(target, _load(held)))
        return ast.Name(P + held, ast.Store())

    def _store(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        return ast.Expr(_method(*self._place(target, "st"), value, self._key("store", target)))

    def _place(self, target: ast.expr, method: str) -> tuple[Any, ...]:
        if isinstance(target, ast.Subscript):
            return self.visit(target.value), method, self._index(target.slice)
        if isinstance(target, ast.Attribute):
            return self.visit(target.value), method, ast.Constant(target.attr)
        raise self._fail(target, f"a kernel can't assign to {ast.unparse(target)!r}.")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        return ast.Pass() if node.value is None else self.visit_Assign(ast.Assign([node.target], node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        value = self.visit(node.value)
        if isinstance(node.target, ast.Name):
            return [ast.AugAssign(node.target, node.op, value)]
        begin: list[ast.stmt] = []
        owner, _, index = self._place(node.target, "ld")
        owner, index = self._once(owner, begin), self._once(index, begin)
        old = _method(owner, "ld", index, self._key("load", node.target))
        new = ast.BinOp(old, node.op, value)
        return [*begin, ast.Expr(_method(owner, "st", index, new, self._key("store", node.target)))]

    def _once(self, node: ast.expr, begin: list[ast.stmt]) -> ast.expr:
        if isinstance(node, ast.Name | ast.Constant):
            return node
        held = self._fresh("o")
        begin.append(_let(held, node))
        return _load(held)

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
        if node.attr in ARRAY_ATTRIBUTES or self.outside.cuda_path(node.value):
            return ast.Attribute(owner, node.attr, ast.Load())
        return _method(_load("t"), "attribute", owner, ast.Constant(node.attr), self._key("load", node))

    def _outer(self, node: ast.Name | ast.Attribute) -> ast.expr | None:
        """What stands in for a name from outside the kernel; None where the name is the kernel's own."""
        path = self.outside.cuda_path(node)
        if path:
            if path not in VALUES and path not in PLAIN:
                raise self._unsupported(node, path)
            return ast.Attribute(_load("t"), path.replace(".", "_"), ast.Load())
        value = self.outside.find(node)
        if not self.outside.known(value):
            return None
        new = stand_in(value)
        if self.outside.is_array(new):
            return self._bound(self.program.constant(new, ast.unparse(node)))
        return None if new is value else self._bound(new)

    def _unsupported(self, node: ast.AST, path: str) -> KernelError:
        names = ", ".join(f"cuda.{name}" for name in nearest(path, [*VALUES, *PLAIN, *KEYED], n=2))
        return self._fail(node, f"cuda.{path} is not supported by lab.trace. The nearest it knows: {names}.")

    def visit_Call(self, node: ast.Call) -> ast.expr:
        path = self.outside.cuda_path(node.func)
        args = [self.visit(arg) for arg in node.args]
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if path == "syncthreads":
            if args:
                raise self._fail(node, "cuda.syncthreads() takes nothing in its brackets.")
            return ast.Yield(self._key("barrier", node))
        if path in KEYED:
            key = self._key(KEYED[path], node, text=self._target_name if KEYED[path] == "array" else "")
            self.program.votes |= path.startswith("syncthreads_")
            if KEYED[path] == "atomic":
                return _method(_load("t"), "atomic", ast.Constant(path.split(".")[1]), key, *args)
            call = ast.Call(ast.Attribute(_load("t"), path.replace(".", "_"), ast.Load()), [key, *args], keywords)
            return ast.YieldFrom(call) if KEYED[path] in WAITS else call
        function = None if path else self.outside.device_function(node.func)
        if function is None:
            return ast.Call(self.visit(node.func), args, keywords)
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        whole = {name for name, arg in zip(names, node.args, strict=False) if self.whole.holds(arg)}
        made = self.program.function(function, whole, set())
        context = _call("inside", self._key("call", node))
        call = ast.Call(self._bound(made), [_load("t"), context, *args], keywords)
        return ast.YieldFrom(call) if inspect.isgeneratorfunction(made) else call
