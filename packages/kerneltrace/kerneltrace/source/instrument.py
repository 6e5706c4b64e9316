"""Read a kernel's source, rewrite it so that it reports what it does, and compile the
result.
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
import weakref
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
from kerneltrace.source.reuse import Called, Constant, Rewritten, keep, kept
from kerneltrace.source.rewriter import Rewriter
from kerneltrace.source.typed_source import (
    Arithmetic,
    numbered,
    typed_source,
    without_annotations,
)
from kerneltrace.source.value_flow import in_local_memory, mark_waits


def instrumented(
    program: Program, fn: types.FunctionType, kinds: tuple[Any, ...] | None
) -> Callable[..., Any]:
    """`fn` as a function (thread, context, *its arguments) that reports to the
    program's log, and so the functions that it calls.

    `kinds` are numba's types of its arguments, None where they are unknown; as in
    numba, other types give another function. Raises KernelError for a source that can't
    be read, that no kernel may have, or that calls itself.
    """
    recipe = kept(program, fn, kinds)
    if recipe is None:
        _rewritten(program, fn, kinds, label=fn.__name__)
        recipe = keep(program, fn, kinds)
    vars(program).update(recipe.fields)
    program.counters = [np.zeros(3, int) for _ in program.counted]
    program.functions = dict.fromkeys([(fn, kinds)])  # the kernel first
    helpers = _helpers(program)
    for each in recipe.functions:
        added = {name: _bound(program, value) for name, value in each.added.items()}
        names = each.names | added | helpers
        exec(each.code, names)
        function = each.fn()
        names[each.name].__defaults__ = function and function.__defaults__
        program.functions[function, each.kinds] = names[each.name]
    return cast(Callable[..., Any], program.functions[fn, kinds])


def _bound(program: Program, value: Any) -> Any:
    """What a name that the rewriting added stands for in a run."""
    if isinstance(value, Called):
        return program.functions[value.key]
    if isinstance(value, Constant):
        value = program.constant(*value)
    return program.lanes.array(value) if program.lanes else value


def _rewritten(
    program: Program, fn: types.FunctionType, kinds: Any, label: str = ""
) -> Rewritten:
    """A function of the program, rewritten once; `label` names the kernel."""
    key = fn, kinds
    if key not in program.rewritten:
        program.rewritten[key] = None
        function = _rewrite(program, fn, kinds, label or f"{fn.__name__}()")
        # anew, after those that it calls
        del program.rewritten[key]
        program.rewritten[key] = function
    rewritten = program.rewritten[key]
    if rewritten is None:
        raise KernelError(
            f"{fn.__name__} calls itself, which kerneltrace can't follow. Write it as a"
            " loop."
        )
    return cast(Rewritten, rewritten)


def _rewrite(
    program: Program, fn: types.FunctionType, kinds: Any, label: str
) -> Rewritten:
    tree = numbered(_parsed(fn))
    scope = KernelScope(fn, tree)
    refuse(tree, label, scope)
    typed = typed_source(fn, tree, scope, kinds, kernel=not label.endswith("()"))
    program.is_typed &= typed.is_known
    if program.lanes and not typed.is_known:
        raise NotInLockstep
    kind = LockstepRewriter if program.lanes else Rewriter
    arithmetic = Arithmetic(scope, typed, in_local_memory(tree))
    called = functools.partial(_rewritten, program)
    rewriter = kind(program, label, scope, arithmetic, called)
    _simplify_signature(tree)
    program.names_float64 |= scope.names_float64(tree)
    mark_waits(tree)
    tree.body = rewriter.body(tree)
    program.note(arithmetic.lines)
    program.in_memory |= arithmetic.in_memory
    module = ast.fix_missing_locations(ast.Module([tree], []))
    file = fn.__code__.co_filename
    program.files.add(file)
    # the file's name makes tracebacks show its lines
    code = compile(module, file, "exec")
    can_wait = any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(tree))
    return Rewritten(
        weakref.ref(fn), kinds, code, tree.name, scope.names, rewriter.added, can_wait
    )


def _simplify_signature(tree: ast.FunctionDef) -> None:
    """Let a function take its thread and context first, and leave out all but the
    names.
    """
    without_annotations(tree)
    args = tree.args
    own = [ast.arg(PREFIX + "t"), ast.arg(PREFIX + "c")]
    args.args = [*own, *args.posonlyargs, *args.args]
    args.posonlyargs = []


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


def _helpers(program: Program) -> dict[str, Any]:
    """What the rewritten source calls, by the names it uses."""
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
        "steps": functools.partial(log.contexts, pauses=True),
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
    if program.lanes:
        functions = {name: of_lanes(function) for name, function in functions.items()}
        functions |= helpers(program.lanes, program.counters)
    return {PREFIX + name: function for name, function in functions.items()}
