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
from collections.abc import Mapping
from typing import Any

from kerneltrace.arguments import as_number
from kerneltrace.errors import KernelError
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

    def __init__(self, fn: Any, configs: Any = ()) -> None:
        self.fn = fn
        self.configs = configs
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


def python_of(kernel: Any) -> Any:
    """The Python function under @triton.jit and what else decorates a kernel."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


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
        if code not in self.functions:
            self.functions[code] = function
            _refuse_syntax(function)
            closed = (cell.cell_contents for cell in function.__closure__ or ())
            names = {
                name: value
                for name, value in function.__globals__.items()
                if name in code.co_names
            }
            names |= dict(zip(code.co_freevars, closed, strict=True))
            mine = {name: self._replaced(name, value) for name, value in names.items()}
            mine |= {
                "__builtins__": {
                    **vars(builtins),
                    "range": self.tl.range,
                    "print": self.tl.print,
                }
            }
            cells = (
                tuple(types.CellType(mine[name]) for name in code.co_freevars) or None
            )
            self.functions[code] = types.FunctionType(
                code, mine, function.__name__, function.__defaults__, cells
            )
            self.functions[code].__kwdefaults__ = function.__kwdefaults__
        return self.functions[code]

    def _replaced(self, name: str, value: Any) -> Any:
        module = getattr(value, "__module__", "") or ""
        own_name = getattr(value, "__name__", "") or str(getattr(value, "name", name))
        if isinstance(value, Language) or (
            inspect.ismodule(value) and own_name.startswith("triton.language")
        ):
            return self.tl
        if name == "triton" and isinstance(
            value, types.ModuleType | types.SimpleNamespace
        ):
            return types.SimpleNamespace(
                language=self.tl, cdiv=self.tl.cdiv, next_power_of_2=next_power_of_2
            )
        if isinstance(value, Constexpr) or (
            module.startswith("triton.") and hasattr(value, "value")
        ):
            return value.value
        if module.startswith("triton.language") or isinstance(value, functools.partial):
            return getattr(self.tl, own_name)
        return (
            self.bound(python_of(value))
            if inspect.isfunction(python_of(value)) and hasattr(value, "fn")
            else value
        )


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
    for node in (node for part in getattr(tree, "body", []) for node in ast.walk(part)):
        line = first + getattr(node, "lineno", 1) - 1
        word = _UNKNOWN_SYNTAX.get(type(node))
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            word = "chain of comparisons such as 0 <= i < n: join two with &"
        if word:
            raise Refused(f"A kernel of Triton has no {word}.", line)
        value = names.get(node.id) if isinstance(node, ast.Name) else None
        if as_number(value) is not None:
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
    given = {arg.arg for arg in ast.walk(tree.args) if isinstance(arg, ast.arg)}
    known = (
        given
        | _BUILTINS
        | {name for name, value in names.items() if _is_of_triton(value)}
    )
    known |= {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    for node in ast.walk(tree):
        annotation = getattr(node, "annotation", None) or ast.Pass()
        for name in (
            one
            for one in ast.walk(annotation)
            if isinstance(one, ast.Name) and one.id not in known
        ):
            words = (
                f"Triton evaluates annotations, and can't use {name.id} in one: quote"
                " it, or leave it out."
            )
            raise Refused(words, above + name.lineno)
        before = set(given) if node is tree else set()
        for one in (
            getattr(node, "body", [])
            if isinstance(getattr(node, "body", []), list)
            else []
        ):
            targets = getattr(
                one, "targets", [one.target] if hasattr(one, "target") else []
            )
            mine = {ast.unparse(target) for target in targets}
            if mine & before and "constexpr" in ast.unparse(
                getattr(one, "annotation", ast.Pass())
            ):
                words = (
                    f"{min(mine)} has a value already: a tl.constexpr is assigned once,"
                    " so take another name."
                )
                raise Refused(words, above + one.lineno)
            before |= mine


def _is_of_triton(value: Any) -> bool:
    """Whether a kernel may use what stands in a global variable: modules, functions
    under jit, and Triton's own.
    """
    module = getattr(value, "__module__", "") or ""
    own = isinstance(value, types.ModuleType | types.SimpleNamespace) or hasattr(
        value, "fn"
    )
    return own or module.startswith(("triton.", "kerneltrace.tiles."))
