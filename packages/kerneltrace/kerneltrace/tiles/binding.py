"""Give a kernel's Python the names of a run: its `tl`, its `range`, and the functions
that it calls.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import textwrap
import types
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.ptx.triton import python_of
from kerneltrace.tiles import transfers as transfers  # it enters its functions
from kerneltrace.tiles.language import Constexpr, Language
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
    ast.Break: "break",
    ast.Continue: "continue",
    ast.Lambda: "lambda",
    ast.Try: "try",
    ast.Yield: "yield",
    ast.Dict: "dict",
    ast.Set: "set",
    ast.Import: "import",
    ast.ImportFrom: "import",
    ast.Global: "global",
    ast.Delete: "del",
    ast.Raise: "raise",
    ast.ClassDef: "class",
}


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


class Names:
    """The functions of a run by the code of their originals; their names of Triton are
    those of `tl`.
    """

    def __init__(self, tl: Language) -> None:
        self.tl = tl
        self.functions: dict[types.CodeType, Any] = {}

    def bound(self, function: Any) -> Any:
        """A kernel's function, or one that it calls, in the run; Refused for what
        Triton would not compile.
        """
        code = function.__code__
        if code in self.functions:
            return self.functions[code]
        self.functions[code] = function
        _refuse_syntax(function)
        names = {
            name: value
            for name, value in function.__globals__.items()
            if name in code.co_names
        }
        for name, cell in zip(
            code.co_freevars, function.__closure__ or (), strict=True
        ):
            names[name] = cell.cell_contents
        namespace = {name: self._replaced(name, value) for name, value in names.items()}
        own = {"range": self.tl.range, "print": self.tl.print}
        namespace["__builtins__"] = {**vars(builtins), **own}
        cells = tuple(types.CellType(namespace[name]) for name in code.co_freevars)
        bound = types.FunctionType(
            code, namespace, function.__name__, function.__defaults__, cells or None
        )
        bound.__kwdefaults__ = function.__kwdefaults__
        self.functions[code] = bound
        return bound

    def _replaced(self, name: str, value: Any) -> Any:
        module = getattr(value, "__module__", "") or ""
        own_name = getattr(value, "__name__", "") or str(getattr(value, "name", name))
        is_namespace = isinstance(value, types.ModuleType | types.SimpleNamespace)
        if isinstance(value, Language) or (
            inspect.ismodule(value) and own_name.startswith("triton.language")
        ):
            return self.tl
        if name == "triton" and is_namespace:
            return types.SimpleNamespace(
                language=self.tl, cdiv=self.tl.cdiv, next_power_of_2=next_power_of_2
            )
        if isinstance(value, Constexpr) or (
            module.startswith("triton.") and hasattr(value, "value")
        ):
            return value.value
        if module.startswith("triton.language") or isinstance(value, functools.partial):
            return getattr(self.tl, own_name)
        function = python_of(value)
        if inspect.isfunction(function) and function is not value:
            return self.bound(function)
        return value


def _refuse_syntax(function: Any) -> None:
    try:
        lines, first = inspect.getsourcelines(function)
        (tree,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, SyntaxError, ValueError):
        return  # typed into a prompt
    around = inspect.getclosurevars(function)
    names = {**around.globals, **around.nonlocals}
    if isinstance(tree, ast.FunctionDef):
        _refuse_annotations(
            tree, {**function.__globals__, **around.nonlocals}, first - 1
        )
    for part in getattr(tree, "body", []):
        for node in ast.walk(part):
            line = first + getattr(node, "lineno", 1) - 1
            word = _UNKNOWN_SYNTAX.get(type(node))
            if isinstance(node, ast.Compare) and len(node.ops) > 1:
                word = "chain of comparisons such as 0 <= i < n: join two with &"
            if word:
                raise Refused(f"A kernel of Triton has no {word}.", line)
            if isinstance(node, ast.Name):
                _refuse_number(node.id, names.get(node.id), line)


def _refuse_number(name: str, value: Any, line: int) -> None:
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
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
