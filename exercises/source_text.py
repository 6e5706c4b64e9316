"""Turn a notebook's function into text for a file: its source, and the imports that it
needs.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import sys
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeGuard

from labkit.core.errors import BadMeasurement


def is_plain_function(work: object) -> TypeGuard[FunctionType]:
    """Whether `work` was made with def, so that it has a name and its own source."""
    return inspect.isfunction(work) and work.__name__ != "<lambda>"


def with_imports(work: FunctionType, *, advice: str) -> tuple[str, str]:
    """Import lines and source of a function: all that a file needs to define it.

    Modules, and functions and classes that a module defines, are imported. Raises
    BadMeasurement, ending with `advice`, for a function that uses a variable or another
    function of the notebook, or whose source isn't known.
    """
    try:
        source = textwrap.dedent(inspect.getsource(work))
    except OSError as error:
        raise BadMeasurement(
            f"Python doesn't know the source of {work.__name__}. {advice}"
        ) from error
    namespace = work.__globals__
    used = {*_globals_of(work.__code__), *_names_of_the_header(source)}
    outside = sorted(
        name
        for name in used
        if not hasattr(builtins, name) and namespace.get(name) is not work
    )
    imports = {name: _import_of(name, namespace.get(name)) for name in outside}
    foreign = sorted(
        {name for name, line in imports.items() if not line}
        | set(work.__code__.co_freevars)
    )
    if foreign:
        which = "is the notebook's" if len(foreign) == 1 else "are the notebook's"
        raise BadMeasurement(
            f"Expected {work.__name__} to define all that it uses, but"
            f" {', '.join(foreign)} {which}. {advice}"
        )
    return "\n".join(imports.values()), source


def _import_of(name: str, value: Any) -> str:
    """The line that imports `value` as `name`; empty if no module defines it."""
    if isinstance(value, ModuleType):
        return (
            f"import {value.__name__} as {name}"
            if value.__name__ != name
            else f"import {name}"
        )
    home = getattr(value, "__module__", None) or "__main__"
    own = getattr(value, "__qualname__", "")
    if home == "__main__" or getattr(sys.modules.get(home), own, None) is not value:
        return ""
    return (
        f"from {home} import {own} as {name}"
        if own != name
        else f"from {home} import {name}"
    )


def _globals_of(code: CodeType) -> Iterator[str]:
    """Global names that a function's code looks up, in functions and classes defined
    inside it too.
    """
    instructions = list(dis.get_instructions(code))
    # a class's own names
    own = {each.argval for each in instructions if each.opname == "STORE_NAME"}
    for each in instructions:
        if each.opname == "LOAD_GLOBAL" or (
            each.opname == "LOAD_NAME" and each.argval not in {*own, "__name__"}
        ):
            yield each.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)


def _names_of_the_header(source: str) -> Iterator[str]:
    """Names in a function's decorators, defaults and annotations, which are looked up
    when it is defined.
    """
    (definition,) = ast.parse(source).body
    if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        definition.body = []
        yield from (
            node.id for node in ast.walk(definition) if isinstance(node, ast.Name)
        )
