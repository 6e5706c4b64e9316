"""Read a kernel's source, rewrite it so that it reports what it does, and compile the
result.
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.machine.numba_types import arithmetic_helpers, stand_in
from kerneltrace.machine.program import Program
from kerneltrace.machine.traced_memory import TracedTuple
from kerneltrace.source.expressions import PREFIX
from kerneltrace.source.kernel_scope import KernelScope, refuse
from kerneltrace.source.lockstep_source import (
    LockstepRewriter,
    NotInLockstep,
    helpers,
    of_lanes,
)
from kerneltrace.source.reuse import keep, made_again, rewritten
from kerneltrace.source.rewriter import Rewriter
from kerneltrace.source.typed_source import Arithmetic, numbered, typed_source
from kerneltrace.source.value_flow import in_local_memory, mark_waits


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
    is_kernel = not program.functions  # it comes first
    if is_kernel and made_again(program, fn, kinds, _prefixed_helpers):
        return cast(Callable[..., Any], program.functions[key])
    if key not in program.functions:
        label = fn.__name__ if is_kernel else f"{fn.__name__}()"
        program.functions[key] = None
        program.functions[key] = _instrument(program, fn, label, kinds)
        if is_kernel:
            keep(program, fn, kinds)
    function = program.functions[key]
    if function is None:
        raise KernelError(
            f"{fn.__name__} calls itself, which kerneltrace can't follow. Write it as a"
            " loop."
        )
    return function


def _instrument(
    program: Program, fn: types.FunctionType, label: str, kinds: tuple[Any, ...] | None
) -> Callable[..., Any]:
    tree = numbered(_parsed(fn))
    scope = KernelScope(fn, tree)
    refuse(tree, label, scope)
    typed = typed_source(fn, tree, scope, kinds, kernel=not label.endswith("()"))
    program.is_typed &= typed.is_known
    if program.lanes and not typed.is_known:
        raise NotInLockstep
    kind = LockstepRewriter if program.lanes else Rewriter
    arithmetic = Arithmetic(scope, typed, in_local_memory(tree))
    rewriter = kind(
        program, label, scope, arithmetic, functools.partial(instrumented, program)
    )
    _simplify_signature(tree)
    program.names_float64 |= scope.names_float64(tree)
    mark_waits(tree)
    tree.body = rewriter.body(tree)
    program.note(arithmetic.lines)
    program.in_memory |= arithmetic.in_memory
    module = ast.fix_missing_locations(ast.Module([tree], []))
    file = fn.__code__.co_filename
    program.files.add(file)
    names = scope.names | rewriter.added
    # the file's name makes tracebacks show its lines
    code = compile(module, file, "exec")
    program.rewritten.append(
        rewritten(program, fn, kinds, code, tree.name, dict(names), rewriter.added)
    )
    names |= _prefixed_helpers(program)
    exec(code, names)
    function: Callable[..., Any] = names[tree.name]
    function.__defaults__ = fn.__defaults__
    return function


def _simplify_signature(tree: ast.FunctionDef) -> None:
    """Let a function take its thread and context first, and leave out all but the
    names.
    """
    args = tree.args
    own = [ast.arg(PREFIX + "t"), ast.arg(PREFIX + "c")]
    args.args = [*own, *args.posonlyargs, *args.args]
    args.posonlyargs = []
    for arg in (*args.args, *args.kwonlyargs):
        arg.annotation = None
    # the function's __defaults__ have the values, evaluated once
    args.defaults = [ast.Constant(None) for _ in args.defaults]
    tree.returns = None
    tree.decorator_list = []


def _parsed(fn: types.FunctionType) -> ast.FunctionDef:
    try:
        lines, first = inspect.getsourcelines(fn)
        if lines[0][:1].isspace():
            # ast takes that within a block only, and textwrap trips over comments
            block = ast.parse("".join(["if 1:\n", *lines])).body[0]
            tree = block.body[0]  # type: ignore[attr-defined]  # it is an `if`
            first -= 1
        else:
            tree = ast.parse("".join(lines)).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise KernelError(
            f"The source of {fn.__name__} can't be read ({error}). Define the kernel"
            " with `def` in a cell or in a file."
        ) from None
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError(
            f"{fn.__name__} is not defined with `def`, which kerneltrace needs to"
            " rewrite its source."
        )
    ast.increment_lineno(tree, first - 1)
    return tree


def _prefixed_helpers(program: Program) -> dict[str, Any]:
    return {PREFIX + name: value for name, value in _helpers(program).items()}


def _helpers(program: Program) -> dict[str, Any]:
    """What the rewritten source calls, by the names it uses, less the prefix."""
    log = program.log
    add = log.add

    def branch(value: Any, key: int) -> Any:
        add(-2 * key - 1 if value else -2 * key)
        return value

    def tick(thread: Any, counter: int, value: Any) -> Any:
        thread.times[counter] += 1
        return value

    functions = {
        "loop": log.loop,
        "steps": log.steps,
        "inside": log.inside,
        "br": branch,
        "next": next,
        "tick": tick,
        "tuple": TracedTuple,
        "slice": slice,
        "int": int,
    }
    for code in "efdFDbhilBHIL":
        kind = np.dtype(code).type
        functions[kind.__name__] = stand_in(kind)
    functions |= arithmetic_helpers(program.divided_by_zero)
    if not program.lanes:
        return functions
    of_all = {name: of_lanes(function) for name, function in functions.items()}
    return of_all | helpers(program.lanes, program.counters)
