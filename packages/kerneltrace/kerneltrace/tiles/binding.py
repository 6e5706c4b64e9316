"""Give a kernel's Python the names of a run: its `tl`, its `range`, and the functions
that it calls.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import types
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.ptx.triton import python_of
from kerneltrace.tiles import transfers as transfers  # it enters its functions
from kerneltrace.tiles.language import TL, Constexpr, Language
from kerneltrace.tiles.tensors import Refused

_BUILTINS = {
    "float",
    "int",
    "list",
    "len",
    "max",
    "min",
    "print",
    "range",
    "getattr",
    "hasattr",
    "isinstance",
}
"""Python's names that a kernel of Triton may use, in annotations too
(triton/compiler/code_generator.py).
"""
_UNKNOWN_SYNTAX = {
    "Break",
    "Continue",
    "Lambda",
    "Try",
    "Yield",
    "Dict",
    "Set",
    "Import",
    "ImportFrom",
    "Global",
    "Delete",
    "Raise",
    "ClassDef",
}
"""Of the classes of ast."""


class Jit:
    """What @triton.jit makes where Triton is not installed: a kernel for tiles.trace,
    or a function that one calls.
    """

    def __init__(self, fn: Any, configs: Any = (), values: Any = ()) -> None:
        self.fn = fn
        self.configs = configs
        self.values = values
        self.__name__ = fn.__name__
        self.__doc__ = fn.__doc__

    def __getitem__(self, grid: Any) -> Any:
        raise KernelError(
            f"Without Triton a launch is tiles.trace({self.__name__}, {grid!r}, ...),"
            " arguments as here."
        )


def next_power_of_2(n: int) -> int:
    """The least power of two that is no less than n."""
    return 1 << max(n - 1, 0).bit_length()


def bound(function: Any, functions: dict[types.CodeType, Any]) -> Any:
    """A kernel's function, or one that it calls, in a run; Refused for what Triton
    would not compile.

    `functions` are those of the run by the code of their originals.
    """
    code = function.__code__
    if code not in functions:
        functions[code] = function
        functions[code] = _bound(function, functions)
    return functions[code]


def _bound(function: Any, functions: dict[types.CodeType, Any]) -> Any:
    """A copy of a function whose names are those of the run."""
    code = function.__code__
    around = inspect.getclosurevars(function)
    names = {**around.globals, **around.nonlocals}
    _refuse_syntax(function, names)
    namespace = {
        name: _replaced(name, value, functions) for name, value in names.items()
    }
    namespace["__builtins__"] = {
        **vars(builtins),
        "range": TL.range,
        "print": TL.print,
    }
    cells = tuple(types.CellType(namespace[name]) for name in code.co_freevars)
    own = types.FunctionType(
        code, namespace, function.__name__, function.__defaults__, cells or None
    )
    own.__kwdefaults__ = function.__kwdefaults__
    return own


def _replaced(name: str, value: Any, functions: dict[types.CodeType, Any]) -> Any:
    module = getattr(value, "__module__", "") or ""
    own_name = getattr(value, "__name__", "") or str(getattr(value, "name", name))
    is_namespace = isinstance(value, types.ModuleType | types.SimpleNamespace)
    if isinstance(value, Language) or (
        inspect.ismodule(value) and own_name.startswith("triton.language")
    ):
        return TL
    if name == "triton" and is_namespace:
        return types.SimpleNamespace(
            language=TL, cdiv=TL.cdiv, next_power_of_2=next_power_of_2
        )
    if isinstance(value, Constexpr) or (
        module.startswith("triton.") and hasattr(value, "value")
    ):
        return value.value
    if module.startswith("triton.language"):
        return getattr(TL, own_name)
    function = python_of(value)
    if inspect.isfunction(function) and function is not value:
        return bound(function, functions)
    return value


def _refuse_syntax(function: Any, names: Mapping[str, Any]) -> None:
    """Refused for what Triton doesn't compile of a function; `names` are those around
    it that it uses.
    """
    try:
        lines, first = inspect.getsourcelines(function)
        (tree,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, SyntaxError, ValueError):
        return  # typed into a prompt
    if isinstance(tree, ast.FunctionDef):
        _refuse_annotations(tree, {**function.__globals__, **names}, first - 1)
    for part in getattr(tree, "body", []):
        for node in ast.walk(part):
            line = first + getattr(node, "lineno", 1) - 1
            word = type(node).__name__
            if isinstance(node, ast.Compare) and len(node.ops) > 1:
                raise Refused(
                    "A kernel of Triton has no chain of comparisons such as 0 <= i < n:"
                    " join two with &.",
                    line,
                )
            if word in _UNKNOWN_SYNTAX:
                raise Refused(f"A kernel of Triton has no {word.lower()}.", line)
            value = names.get(node.id) if isinstance(node, ast.Name) else None
            if isinstance(value, int | float | np.number) and not isinstance(
                value, bool
            ):
                name = ast.unparse(node)
                raise Refused(
                    f"{name} is a number of the module: write {name} ="
                    f" tl.constexpr({value}), or pass it.",
                    line,
                )


def _refuse_annotations(
    tree: ast.FunctionDef, names: Mapping[str, Any], above: int
) -> None:
    """Refused for an annotation that Triton can't evaluate, and for a tl.constexpr that
    is assigned to before.

    `names` are those around the function, `above` the lines of its file above its
    source.
    """
    parameters = {arg.arg for arg in ast.walk(tree.args) if isinstance(arg, ast.arg)}
    assigned = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    of_triton = {name for name, value in names.items() if _is_of_triton(value)}
    usable = parameters | _BUILTINS | of_triton | assigned
    for node in ast.walk(tree):
        annotation = getattr(node, "annotation", None) or ast.Pass()
        for name in ast.walk(annotation):
            if isinstance(name, ast.Name) and name.id not in usable:
                words = (
                    f"Triton evaluates annotations, and can't use {name.id} in one:"
                    " quote it, or leave it out."
                )
                raise Refused(words, above + name.lineno)
        body = getattr(node, "body", [])
        if isinstance(body, list):
            _refuse_late_constants(body, parameters if node is tree else set(), above)


def _refuse_late_constants(
    body: list[ast.stmt], names: Collection[str], above: int
) -> None:
    """Refused for a tl.constexpr whose name is among `names`, or assigned to before."""
    before = set(names)
    for statement in body:
        target = getattr(statement, "target", None)
        targets = [target] if target else getattr(statement, "targets", [])
        assigned = {ast.unparse(target) for target in targets}
        annotation = ast.unparse(getattr(statement, "annotation", ast.Pass()))
        if assigned & before and "constexpr" in annotation:
            words = (
                f"{min(assigned)} has a value already: a tl.constexpr is assigned once,"
                " so take another name."
            )
            raise Refused(words, above + statement.lineno)
        before |= assigned


def _is_of_triton(value: Any) -> bool:
    """Whether a kernel may use what stands in a global variable: modules, functions
    under jit, and Triton's own.
    """
    if isinstance(value, types.ModuleType | types.SimpleNamespace):
        return True
    module = getattr(value, "__module__", "") or ""
    return hasattr(value, "fn") or module.startswith(("triton.", "kerneltrace.tiles."))
