"""Read a kernel's source, rewrite it so that it reports what it does, and compile the
result.
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.log.numba_types import arithmetic_helpers, stand_in
from kerneltrace.log.program import Program
from kerneltrace.log.traced_memory import TracedTuple
from kerneltrace.source.expressions import PREFIX
from kerneltrace.source.kernel_scope import KernelScope, refuse
from kerneltrace.source.lockstep_source import (
    LockstepRewriter,
    NotInLockstep,
    helpers,
    of_lanes,
)
from kerneltrace.source.rewriter import Rewriter
from kerneltrace.source.typed_source import Arithmetic, numbered, typed_source
from kerneltrace.source.value_flow import mark_waits


def instrumented(
    program: Program, fn: types.FunctionType, kinds: tuple[Any, ...] | None
) -> Callable[..., Any]:
    """`fn` as a function (thread, context, *its arguments) that reports to the
    program's log; each `fn` once.

    `kinds` are numba's types of its arguments, None where they are unknown; as in
    numba, other types give another function. Raises KernelError for a source that can't
    be read, that no kernel may have, or that calls itself.
    """
    key = fn, kinds
    if key not in program.functions:
        # the kernel comes first
        label = f"{fn.__name__}()" if program.functions else fn.__name__
        program.functions[key] = None
        program.functions[key] = _instrument(program, fn, label, kinds)
    made = program.functions[key]
    if made is None:
        raise KernelError(
            f"{fn.__name__} calls itself, which kerneltrace can't follow. Write it as a"
            " loop."
        )
    return made


def _instrument(
    program: Program, fn: types.FunctionType, label: str, kinds: tuple[Any, ...] | None
) -> Callable[..., Any]:
    tree = numbered(_parsed(fn))
    scope = KernelScope(fn, tree)
    refuse(tree, label, scope)
    found = typed_source(fn, tree, scope, kinds, kernel=not label.endswith("()"))
    program.is_typed &= found.is_known
    if program.lanes and not found.is_known:
        raise NotInLockstep
    kind = LockstepRewriter if program.lanes else Rewriter
    rewriter = kind(
        program,
        label,
        scope,
        Arithmetic(scope, found),
        functools.partial(instrumented, program),
    )
    args = tree.args
    args.args = [
        ast.arg(PREFIX + "t"),
        ast.arg(PREFIX + "c"),
        *args.posonlyargs,
        *args.args,
    ]
    args.posonlyargs = []
    for arg in (*args.args, *args.kwonlyargs):
        arg.annotation = None
    # __defaults__ below has the values, evaluated once
    args.defaults = [ast.Constant(None) for _ in args.defaults]
    tree.returns = None
    tree.decorator_list = []
    program.names_float64 |= scope.names_float64(tree)
    mark_waits(tree)
    tree.body = rewriter.body(tree)
    program.float64 |= rewriter.arithmetic.float64
    module = ast.fix_missing_locations(ast.Module([tree], []))
    program.files.add(fn.__code__.co_filename)
    names = (
        scope.names
        | rewriter.added
        | {PREFIX + name: value for name, value in _helpers(program).items()}
    )
    # the file's name makes tracebacks show its lines
    exec(compile(module, fn.__code__.co_filename, "exec"), names)
    made: Callable[..., Any] = names[tree.name]
    made.__defaults__ = fn.__defaults__
    return made


def _parsed(fn: types.FunctionType) -> ast.FunctionDef:
    try:
        lines, first = inspect.getsourcelines(fn)
        # ast takes that within a block only, and textwrap trips over comments
        indented = lines[0][:1].isspace()
        body = ast.parse("".join(["if 1:\n" * indented, *lines])).body
        tree = body[0].body if indented else body  # type: ignore[attr-defined]  # indented source stands in an `if`
    except (OSError, TypeError, SyntaxError) as error:
        raise KernelError(
            f"The source of {fn.__name__} can't be read ({error}). Define the kernel"
            " with `def` in a cell or in a file."
        ) from None
    if not isinstance(tree[0], ast.FunctionDef):
        raise KernelError(
            f"{fn.__name__} is not defined with `def`, which kerneltrace needs to"
            " rewrite its source."
        )
    ast.increment_lineno(tree[0], first - 1 - indented)
    return tree[0]


def _helpers(program: Program) -> dict[str, Any]:
    """What the rewritten source calls, by the names it uses, less the prefix."""
    log = program.log
    add = program.log.add

    def branch(value: Any, key: int) -> Any:
        add(-2 * key - 1 if value else -2 * key)
        return value

    def tick(thread: Any, counter: int, value: Any) -> Any:
        thread.times[counter] += 1
        return value

    loops = {"loop": log.loop, "steps": log.steps, "inside": log.inside}
    parts = {
        "br": branch,
        "next": next,
        "tick": tick,
        "tuple": TracedTuple,
        "slice": slice,
    }
    kinds = {
        kind.__name__: stand_in(kind)
        for code in "efdFDbhilBHIL"
        for kind in [np.dtype(code).type]
    } | {"int": int}
    plain = loops | parts | kinds | arithmetic_helpers(program.divided_by_zero)
    if not program.lanes:
        return plain
    return {name: of_lanes(value) for name, value in plain.items()} | helpers(
        program.lanes, program.counters
    )
