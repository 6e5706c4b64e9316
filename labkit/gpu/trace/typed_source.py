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

from labkit.core.errors import KernelError
from labkit.gpu.compiler.front_end import annotation, is_simulator
from labkit.gpu.trace.kernel_scope import KernelScope

_NUMBERS = {str(np.dtype(code)): np.dtype(code) for code in "?bhilqBHILQefdFD"}
_ADVICE = {
    "of <class 'function'>": "A function that a kernel calls needs @cuda.jit(device=True) above it.",
    "unsupported type": "Of global names a kernel can use numbers, tuples, arrays and device functions.",
    "shape": "The shape of a shared or local array is a number in the source or a global one, or 0 for dynamic memory.",
    "not defined": "Import or define it before the kernel.",
    "none": "A kernel returns nothing: write its results into an array.",
}
"""What to do about an error of numba, by a part of its message."""


@dataclass(frozen=True)
class Typed:
    """An operation: the types of its result and operands, None for what is no number, and numba's for a call."""

    result: np.dtype[Any] | None
    operands: tuple[np.dtype[Any] | None, ...]
    bits: tuple[int, ...]
    """The most bits of the magnitude of each operand."""
    arguments: tuple[Any, ...]
    """Numba's types to which the operands are converted before the operation."""

    @property
    def is_integer(self) -> bool:
        """Whether it computes an integer."""
        return self.result is not None and self.result.kind in "iu"


class TypedSource:
    """The types in one function, called with arguments of certain types."""

    def __init__(self, blocks: Any = None, types_of: Any = None, calls: Any = None) -> None:
        self._typed: dict[int, Typed] = {}
        self._variables: dict[str, set[Any]] = {}
        self.is_known = blocks is not None
        """Whether there are types: numba's simulator has none."""
        for name, kind in (types_of or {}).items():
            self._variables.setdefault(name.split(".")[0], set()).add(_number(kind))
        for statement in (statement for block in (blocks or {}).values() for statement in block.body):
            value = getattr(statement, "value", None)
            signature = calls.get(value) if getattr(value, "op", "") in _OPERANDS else None
            if signature is not None:
                kinds = [types_of[operand.name] for operand in _OPERANDS[value.op](value)]
                self._typed[statement.loc.line] = Typed(
                    _number(types_of[statement.target.name]), tuple(map(_number, kinds)), tuple(map(_bits, kinds)),
                    tuple(signature.args),
                )  # fmt: skip

    def of(self, node: ast.AST) -> Typed | None:
        """The types of an operator or a call; None for what numba computes while it compiles, and for all else."""
        found = self._typed.get(getattr(node, "number", 0))
        if found is None and isinstance(node, ast.Call):  # Python notes the call of an attribute at the attribute
            found = self._typed.get(getattr(node.func, "number", 0))
        return found

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
    for node in ast.walk(lined):
        if isinstance(node, ast.arg):
            node.annotation = None
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = node.number
            node.col_offset = node.end_col_offset = 0
    defaults, lined.args.defaults = fn.__defaults__, [ast.Constant(None) for _ in lined.args.defaults]
    names = dict(scope.names)
    exec(compile(ast.Module([lined], []), f"<types of {fn.__name__}>", "exec"), names)
    names[fn.__name__].__defaults__ = defaults
    try:
        found = annotation(names[fn.__name__], kinds, kernel=kernel)
    except Exception:
        found = _of_original(fn, kinds, kernel)  # for the lines in numba's message
    return TypedSource(found.blocks, found.typemap, found.calltypes)


def _of_original(fn: types.FunctionType, kinds: Any, kernel: bool) -> Any:
    try:
        return annotation(fn, kinds, kernel=kernel)
    except Exception as error:
        said = re.sub(r"\x1b\[[\d;]*m", "", str(error)).strip()
        advice = next((f"\n{words}" for part, words in _ADVICE.items() if part in said), "")
        raise KernelError(f"numba can't compile {fn.__name__} for a GPU: {said}{advice}") from None


def _number(kind: Any) -> np.dtype[Any] | None:
    """The NumPy type of a numba type; None for what is no number."""
    return _NUMBERS.get(str(getattr(kind, "literal_type", kind)))


def _bits(kind: Any) -> int:
    literal = getattr(kind, "literal_value", None)
    if isinstance(literal, int):
        return literal.bit_length()
    dtype = _number(kind)
    return 64 if dtype is None else 8 * dtype.itemsize - (dtype.kind == "i")
