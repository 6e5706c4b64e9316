"""Find out which type numba.cuda gives to each operation of a function's source."""

from __future__ import annotations

import ast
import copy
import re
import types
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.gpu.compiler.front_end import annotation, is_simulator, reason
from labkit.gpu.trace.kernel_scope import KernelScope
from labkit.gpu.trace.refusals import refusal

_NUMBERS = {str(np.dtype(code)): np.dtype(code) for code in "?bhilqBHILQefdFD"}


@dataclass(frozen=True)
class Typed:
    """An operation: the types of its result and operands, None for what is no number, and numba's for a call."""

    result: np.dtype[Any] | None
    operands: tuple[np.dtype[Any] | None, ...]
    bits: tuple[int, ...]
    """The most bits of the magnitude of each operand."""
    arguments: tuple[Any, ...]
    """Numba's types to which the operands are converted before the operation."""
    is_steady: bool
    """Whether the result stays in its type, and is not at once converted to another one."""

    @property
    def converted(self) -> tuple[np.dtype[Any] | None, ...]:
        """The types of the operands after that conversion."""
        return tuple(map(_number, self.arguments))

    @property
    def is_integer(self) -> bool:
        """Whether it computes an integer."""
        return self.result is not None and self.result.kind in "iu"


class TypedSource:
    """The types in one function, called with arguments of certain types."""

    def __init__(self, blocks: Any = None, types_of: Any = None, calls: Any = None) -> None:
        self._typed: dict[tuple[int, str], Typed] = {}
        self._variables: dict[str, set[Any]] = {}
        self.is_known = blocks is not None
        """Whether there are types: numba's simulator has none."""
        for name, kind in (types_of or {}).items():
            self._variables.setdefault(name.split(".")[0], set()).add(_number(kind))
        for statement in (statement for block in (blocks or {}).values() for statement in block.body):
            value: Any = getattr(statement, "value", None)
            op = getattr(value, "op", "")
            signature = calls.get(value) if op in _OPERANDS else None
            # A condition has a call of bool() besides its own operator.
            if signature is not None and not (op == "call" and re.match(r"\$?bool\d", value.func.name)):
                kinds = [types_of[operand.name] for operand in _OPERANDS[op](value)]
                result = _number(signature.return_type)
                self._typed[statement.loc.line, "call" if op == "call" else ""] = Typed(
                    result, tuple(map(_number, kinds)), tuple(map(_bits, kinds)), tuple(signature.args),
                    result == _number(types_of[statement.target.name]),
                )  # fmt: skip

    def of(self, node: ast.AST) -> Typed | None:
        """The types of an operator or a call; None for what numba computes while it compiles, and for all else."""
        number = getattr(node, "number", 0)
        if not isinstance(node, ast.Call):
            return self._typed.get((number, ""))
        # Python notes the call of an attribute at the attribute.
        return self._typed.get((number, "call")) or self._typed.get((getattr(node.func, "number", 0), "call"))

    def has_one_type(self, name: str) -> bool:
        """Whether all values of a variable have one type: one that is 0 and then a fraction is a fraction to numba."""
        return len(self._variables.get(name, {None})) == 1


_OPERANDS: dict[str, Any] = {
    "binop": lambda value: (value.lhs, value.rhs),
    "inplace_binop": lambda value: (value.lhs, value.rhs),
    "unary": lambda value: (value.value,),
    "call": lambda value: (*value.args, *(given for _, given in value.kws)),
}
_cache: weakref.WeakKeyDictionary[types.FunctionType, dict[Any, Any]] = weakref.WeakKeyDictionary()


def numbered(tree: ast.FunctionDef) -> ast.FunctionDef:
    """The same tree with a `number` for each node, by which TypedSource finds its types."""
    for number, node in enumerate(ast.walk(tree), 1):
        node.number = number  # type: ignore[attr-defined]  # ours
    return tree


def typed_source(fn: types.FunctionType, tree: ast.FunctionDef, scope: KernelScope, kinds: Any, *, kernel: bool) -> Any:
    """The types in `fn`, whose numbered source is `tree`, for arguments of the numba types `kinds`.

    They are found once for a function and what it takes from its surroundings. Raises KernelError with numba's words
    for what numba rejects.
    """
    if kinds is None or is_simulator():
        return TypedSource()
    outer = [scope.names.get(name) for name in (*fn.__code__.co_names, *fn.__code__.co_freevars)]
    known, key = _cache.setdefault(fn, {}), (kinds, kernel, *map(id, outer))
    if key not in known:
        known[key] = _typed(fn, tree, scope, kinds, kernel), outer  # kept, so that no other object gets its id
    return known[key][0]


def _typed(fn: types.FunctionType, tree: ast.FunctionDef, scope: KernelScope, kinds: Any, kernel: bool) -> TypedSource:
    # Numba keeps the line of each operation. So each node gets a line of its own.
    lined = copy.deepcopy(tree)
    lined.decorator_list, lined.returns = [], None
    node: Any
    for node in ast.walk(lined):
        if isinstance(node, ast.arg):
            node.annotation = None
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = node.number
            node.col_offset = node.end_col_offset = 0
    defaults, lined.args.defaults = fn.__defaults__, [ast.Constant(None) for _ in lined.args.defaults]
    names = dict(scope.names)
    module = ast.fix_missing_locations(ast.Module([lined], []))
    name = f"<types of {fn.__name__}>"
    exec(compile(module, name, "exec"), names)
    names[fn.__name__].__defaults__ = defaults
    try:
        found = annotation(names[fn.__name__], kinds, kernel=kernel)
    except Exception as error:
        number, words = reason(error, name)
        node = next((node for node in ast.walk(tree) if getattr(node, "number", 0) == number), tree)
        what = fn.__name__ if node is tree else ast.unparse(node).splitlines()[0]
        raise refusal(fn.__name__, node, f"numba can't compile `{what}` for a GPU. {words}") from None
    return TypedSource(found.blocks, found.typemap, found.calltypes)


def _number(kind: Any) -> np.dtype[Any] | None:
    """The NumPy type of a numba type; None for what is no number."""
    return _NUMBERS.get(str(getattr(kind, "literal_type", kind)))


def _bits(kind: Any) -> int:
    literal = getattr(kind, "literal_value", None)
    if isinstance(literal, int):
        return literal.bit_length()
    dtype = _number(kind)
    return 64 if dtype is None else 8 * dtype.itemsize - (dtype.kind == "i")
