"""Find the type that numba.cuda gives to each operation of a source, count them, and
decide which need help to compute.

An operation is an operator or a mathematical function of the source, not a machine
instruction: a compiler may fuse `a * b + c` into one instruction, which by convention
still counts as 2 FLOP. Python's integers have no end, and NumPy computes float32 with
an integer in float32; numba computes integers in 64 bits, and float32 with an integer
in float64.
"""

from __future__ import annotations

import ast
import copy
import re
import types
import weakref
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltrace.machine.program import INTEGER_DIVISION, Operations
from kerneltrace.source.front_end import (
    MAKES_ARRAY,
    annotation,
    is_simulator,
    reason,
)
from kerneltrace.source.kernel_scope import MISSING, KernelScope, refusal

_NUMBERS = {str(np.dtype(code)): np.dtype(code) for code in "?bhilqBHILQefdFD"}


@dataclass(frozen=True)
class Typed:
    """An operation: the types of its result and operands, None for what is no number,
    and numba's for a call.
    """

    result: np.dtype[Any] | None
    operands: tuple[np.dtype[Any] | None, ...]
    arguments: tuple[Any, ...]
    """Numba's types to which the operands are converted before the operation."""
    is_steady: bool
    """Whether the result stays in its type, and is not at once converted to another
    one.
    """

    @property
    def converted(self) -> tuple[np.dtype[Any] | None, ...]:
        """The types of the operands after that conversion."""
        return tuple(map(_number, self.arguments))

    @property
    def is_integer(self) -> bool:
        """Whether it computes an integer."""
        return self.result is not None and self.result.kind in "iu"


UNTYPED = Typed(None, (None, None), (None, None), is_steady=True)
"""For what numba computes while it compiles, and for all that is no operation."""


class TypedSource:
    """The types in one function, called with arguments of certain types."""

    def __init__(self, annotated: Any = None) -> None:
        """`annotated` is numba's annotation of the function."""
        self._typed: dict[tuple[int, str], Typed] = {}
        self._variables: dict[str, set[Any]] = {}
        self._converting: set[int] = set()  # stores from or to float64
        self.is_known = annotated is not None
        """Whether there are types: numba's simulator has none."""
        if annotated is None:
            return
        for name, kind in annotated.typemap.items():
            self._variables.setdefault(name.split(".")[0], set()).add(_number(kind))
        for block in annotated.blocks.values():
            for statement in block.body:
                self._add(statement, annotated.typemap, annotated.calltypes)

    def _add(self, statement: Any, types_of: Any, calls: Any) -> None:
        """Note the types of a statement of numba's, if it is an operation."""
        value: Any = getattr(statement, "value", None)
        if type(statement).__name__ in ("SetItem", "StaticSetItem"):
            dtype = _number(getattr(types_of[statement.target.name], "dtype", None))
            if _is_conversion(dtype, _number(types_of[value.name])):
                self._converting.add(statement.loc.line)
        op = getattr(value, "op", "")
        signature = calls.get(value) if op in _OPERANDS else None
        if signature is None:
            return
        # A condition has a call of bool() besides its own operator.
        if op == "call" and re.match(r"\$?bool\d", value.func.name):
            return
        operands = [types_of[operand.name] for operand in _OPERANDS[op](value)]
        result = _number(signature.return_type)
        self._typed[statement.loc.line, "call" if op == "call" else ""] = Typed(
            result,
            tuple(map(_number, operands)),
            tuple(signature.args),
            is_steady=result == _number(types_of[statement.target.name]),
        )

    def of(self, node: ast.AST) -> Typed:
        """The types of an operator or a call; UNTYPED for all else."""
        number = getattr(node, "number", 0)
        if not isinstance(node, ast.Call):
            return self._typed.get((number, ""), UNTYPED)
        # Python notes the call of an attribute at the attribute.
        return self._typed.get((number, "call")) or self._typed.get(
            (getattr(node.func, "number", 0), "call"), UNTYPED
        )

    def converts(self, node: ast.AST) -> bool:
        """Whether a store to an element converts a number from or to float64."""
        # Python notes a store at the element, and some versions at the statement.
        is_store = isinstance(node, ast.Assign | ast.AugAssign | ast.Subscript)
        return is_store and getattr(node, "number", 0) in self._converting

    def has_one_type(self, name: str) -> bool:
        """Whether all values of a variable have one type: one that is 0 and then a
        fraction is a fraction to numba.
        """
        return len(self._variables.get(name, {None})) == 1


_OPERANDS: dict[str, Any] = {
    "binop": lambda value: (value.lhs, value.rhs),
    "inplace_binop": lambda value: (value.lhs, value.rhs),
    "unary": lambda value: (value.value,),
    "call": lambda value: (*value.args, *(arg for _, arg in value.kws)),
}
_cache: weakref.WeakKeyDictionary[types.FunctionType, dict[Any, Any]] = (
    weakref.WeakKeyDictionary()
)


def numbered(tree: ast.FunctionDef) -> ast.FunctionDef:
    """The same tree with a `number` for each node, by which TypedSource finds its
    types.
    """
    for number, node in enumerate(ast.walk(tree), 1):
        node.number = number  # type: ignore[attr-defined]  # ours
    return tree


def without_annotations(tree: ast.FunctionDef) -> None:
    """Leave out what a function's definition evaluates."""
    for node in ast.walk(tree.args):
        if isinstance(node, ast.arg):
            node.annotation = None
    # the function's __defaults__ have the values, evaluated once
    tree.args.defaults = [ast.Constant(None) for _ in tree.args.defaults]
    tree.returns = None
    tree.decorator_list = []


def typed_source(
    fn: types.FunctionType,
    tree: ast.FunctionDef,
    scope: KernelScope,
    kinds: Any,
    *,
    kernel: bool,
) -> Any:
    """The types in `fn`, whose numbered source is `tree`, for arguments of the numba
    types `kinds`.

    They are found once for a function and its surroundings. Raises KernelError with
    numba's words for what it rejects.
    """
    if kinds is None or is_simulator():
        return TypedSource()
    names = (*fn.__code__.co_names, *fn.__code__.co_freevars)
    outer = [scope.names.get(name) for name in names]
    cached = _cache.setdefault(fn, {})
    key = (kinds, kernel, *map(id, outer))
    if key not in cached:
        # `outer` is kept, so that no other object gets its id
        cached[key] = _typed(fn, tree, scope, kinds, kernel), outer
    return cached[key][0]


def _typed(
    fn: types.FunctionType,
    tree: ast.FunctionDef,
    scope: KernelScope,
    kinds: Any,
    kernel: bool,
) -> TypedSource:
    # Numba keeps the line of each operation. So each node gets a line of its own.
    lined = copy.deepcopy(tree)
    without_annotations(lined)
    node: Any
    for node in ast.walk(lined):
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = node.number
            node.col_offset = node.end_col_offset = 0
    names = dict(scope.names)
    module = ast.fix_missing_locations(ast.Module([lined], []))
    file = f"<types of {fn.__name__}>"
    exec(compile(module, file, "exec"), names)
    function = names[fn.__name__]
    function.__defaults__ = fn.__defaults__
    try:
        annotated = annotation(function, kinds, kernel=kernel)
    except Exception as error:
        number, words = reason(error, file)
        by_number = {getattr(node, "number", 0): node for node in ast.walk(tree)}
        place = by_number.get(number, tree)
        culprit = fn.__name__
        if place is not tree:
            culprit = ast.unparse(place).splitlines()[0]
        if words.startswith(MAKES_ARRAY) and isinstance(place, ast.Subscript):
            words = (
                "It is a part of an array, such as a row: give an index for each"
                " dimension, as in a[row, column]."
            )
        words = f"numba can't compile `{culprit}` for a GPU. {words}"
        raise refusal(fn.__name__, place, words) from None
    return TypedSource(annotated)


def _number(kind: Any) -> np.dtype[Any] | None:
    """The NumPy type of a numba type; None for what is no number."""
    return _NUMBERS.get(str(getattr(kind, "literal_type", kind)))


def _is_conversion(one: Any, other: Any) -> bool:
    """Whether a number of one type becomes one of the other by a conversion from or to
    float64.
    """
    if one is None or other is None:  # which equals float64 for NumPy
        return False
    return bool((one == np.float64) != (other == np.float64))


RING = (ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift)
"""Operators whose low 64 bits follow from the low 64 bits of their operands."""
_CONVERSION = Operations(instructions=1, double=1)
"""From or to float64, by whose units (CUDA C++ Programming Guide, "Arithmetic
Instructions").
"""
# 4 products and 2 sums; all others count 2, as a sum does
_COMPLEX_FLOP: dict[type, int] = {ast.Mult: 6}
_SAME_TYPE = (abs, min, max, pow, round, divmod)


class Arithmetic:
    """The operations of one function, with the types that numba gives them; without
    types, it knows of none.
    """

    def __init__(
        self, scope: KernelScope, types: TypedSource, in_memory: set[str]
    ) -> None:
        """`in_memory` are the local arrays that are not in registers."""
        self._scope = scope
        self.types = types
        self.in_memory = in_memory
        self.lines: defaultdict[str, dict[int, str]] = defaultdict(dict)
        """As in Program."""

    def operations(self, root: ast.AST | None) -> Operations:
        """Operations in `root`, each executed once, without those in its `conditional`
        parts.
        """
        total = Operations()
        pending = [(root, False)] if root is not None else []
        while pending:
            node, in_index = pending.pop()
            operations = self._of(node)
            if not in_index or self._divides_by_unknown(node):
                operations = self._with_instructions(node, operations)
            if operations.local:
                self._note("local", node)
            if self.types.converts(node):
                total = total.plus(_CONVERSION)
            total = total.plus(operations)
            apart = conditional(node)
            index = getattr(node, "slice", None)
            for part in ast.iter_child_nodes(node):
                if part not in apart:
                    pending.append((part, in_index or part is index))
        return total

    def _with_instructions(self, node: ast.AST, operations: Operations) -> Operations:
        """Operations with the instructions that they become."""
        typed = self.types.of(node)
        if not any(operations) or self._is_constant(node):
            return operations
        if operations.integer and self._divides_by_unknown(node):
            self._note("divisions", node)
            n = INTEGER_DIVISION
            return operations._replace(instructions=n, divisions=n)
        if operations.integer:
            return operations._replace(instructions=1)
        if self._is_fused(node, typed):
            return operations
        is_slow = isinstance(getattr(node, "op", None), ast.Div) or (
            isinstance(node, ast.Call) and self._is_function(node.func)
        )
        is_double = any(
            kind is not None and kind == np.float64
            for kind in (typed.result, *typed.converted)
        )
        if is_double:
            self._note("double", node)
        n = 1 + (self._widened(node, typed) if is_double else 0)
        return operations._replace(
            instructions=n,
            double=n if is_double else 0,
            special=int(is_slow and not is_double),
        )

    def _widened(self, node: ast.AST, typed: Typed) -> int:
        """The operands of an operation on float64 that are converted to it."""
        operands = getattr(node, "args", [])
        if isinstance(node, ast.BinOp):
            operands = [node.left, node.right]
        return sum(
            _is_conversion(dtype, np.float64) and not self._is_constant(operand)
            for operand, dtype in zip(operands, typed.operands, strict=False)
        )

    def _note(self, kind: str, node: ast.AST) -> None:
        self.lines[kind].setdefault(getattr(node, "lineno", 0), ast.unparse(node))

    def _divides_by_unknown(self, node: ast.AST) -> bool:
        """Whether a division of integers is by what the compiler doesn't know."""
        if not self.types.of(node).is_integer:
            return False
        if not isinstance(getattr(node, "op", None), ast.FloorDiv | ast.Mod):
            return False
        divisor: Any = getattr(node, "right", getattr(node, "value", None))
        return not self._is_constant(divisor)

    def _is_fused(self, node: ast.AST, typed: Typed) -> bool:
        """Whether a sum becomes one instruction with a product in it."""
        if not isinstance(getattr(node, "op", None), ast.Add | ast.Sub):
            return False
        for name in ("left", "right", "value"):
            part = getattr(node, name, None)
            if part and isinstance(getattr(part, "op", None), ast.Mult):
                product = self.types.of(part)
                if product is not UNTYPED and product.result == typed.result:
                    return True
        return False

    def _is_constant(self, node: ast.AST) -> bool:
        """Whether the compiler works it out: an expression of literals and of names
        from outside the kernel.
        """
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                value = self._scope.resolve(part)
                name = str(getattr(value, "__name__", ""))
                if value is MISSING or name.startswith("numba.cuda"):
                    return False
        return True

    def _is_function(self, function: ast.expr) -> bool:
        """Whether a call is of a function such as exp, not of abs, min or fma, which
        are single instructions.
        """
        value = self._scope.resolve(function)
        return self._is_mathematical(value) and value not in _SAME_TYPE

    def _of(self, node: ast.AST) -> Operations:
        array = getattr(node, "value", None)
        if isinstance(node, ast.Subscript) and isinstance(array, ast.Name):
            return Operations(local=int(array.id in self.in_memory))
        typed = self.types.of(node)
        match node:
            case ast.BinOp() | ast.AugAssign():
                return _counted(typed.result, 1, _COMPLEX_FLOP.get(type(node.op), 2))
            case ast.UnaryOp(op=ast.USub() | ast.Invert()):
                return _counted(typed.result, 1, 2)
            case ast.Call():
                numbers = filter(None, (typed.result, *typed.operands))
                floats = (kind for kind in numbers if kind.kind in "fc")
                kind = next(floats, typed.result)
                return _counted(kind, self._times(node.func), 2)
        return Operations()

    def _times(self, function: ast.expr) -> int:
        """How many operations a call of `function` is."""
        path = self._scope.cuda_path(function)
        if path:
            computes = path.startswith("atomic.") and path not in (
                "atomic.exch",
                "atomic.cas",
            )
            return 2 if path == "fma" else int(computes or path == "cbrt")
        return int(self._is_mathematical(self._scope.resolve(function)))

    def _is_mathematical(self, value: Any) -> bool:
        """Whether a global value is a function of `math` or of libdevice, or abs, min,
        max and the like.
        """
        if isinstance(value, np.ufunc):
            return True
        module = getattr(value, "__module__", None) or ""
        if module == "builtins":
            return value in _SAME_TYPE
        return module == "math" or module.endswith("libdevice")

    def is_signed(self, node: ast.expr, kind: np.dtype[Any] | None) -> bool:
        """Whether an operand of this type fits into int64."""
        return kind is not None and kind != np.uint64 and self._is_steady(node)

    def conversion(
        self, typed: Typed, operands: list[ast.expr], *, compared: bool = False
    ) -> type | None:
        """The type to convert the left operand to, so that NumPy computes in the type
        that numba computes in.
        """
        target = typed.converted[0] if compared else typed.result
        if target is None or target.kind not in "fc":
            return None
        floats = [
            kind
            for part, kind in zip(operands, typed.operands, strict=True)
            if kind and kind.kind in "fc" and self._is_steady(part)
        ]
        return None if floats and np.result_type(*floats) == target else target.type

    def conversions(self, node: ast.Call) -> list[type | None]:
        """The types to convert the arguments of a call to; None for those that can stay
        as they are.
        """
        typed = self.types.of(node)
        function = self._scope.resolve(node.func)
        if typed is UNTYPED or not self._is_mathematical(function):
            return [None] * len(node.args)
        if function in (min, max):
            targets: Any = [typed.result] * len(node.args)
        else:
            targets = typed.converted
        conversions: list[type | None] = []
        for part, kind, target in zip(node.args, typed.operands, targets, strict=False):
            is_float = target is not None and target.kind in "fc"
            fits = target == kind and self._is_steady(part)
            conversions.append(target.type if is_float and not fits else None)
        return conversions

    def _is_steady(self, node: ast.expr) -> bool:
        """Whether an expression has the type in the trace that numba gives it, and not
        only one that converts to it.
        """
        if isinstance(node, ast.Name):
            return self.types.has_one_type(node.id)
        is_chosen = isinstance(node, ast.IfExp | ast.BoolOp | ast.NamedExpr)
        return not is_chosen and self.types.of(node).is_steady


def conditional(node: ast.AST) -> list[ast.expr]:
    """The parts of an expression that are evaluated only where a condition holds."""
    match node:
        case ast.IfExp():
            return [node.body, node.orelse]
        case ast.BoolOp():
            return node.values[1:]
        case ast.Compare():
            return node.comparators[1:]
    return []


def _counted(kind: Any, times: int, of_complex: int) -> Operations:
    if kind is None or kind.kind == "b":
        return Operations()
    if kind.kind in "iu":
        return Operations(integer=times)
    return Operations(flop=times * (of_complex if kind.kind == "c" else 1))
