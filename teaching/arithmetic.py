"""Arithmetic that somebody wrote into a file, and texts with its results: numbers,
names, comparisons and a few functions. Nothing else can be reached from it.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
import string
from collections.abc import Callable, Mapping
from typing import Any

from labkit.core.errors import BadArgument

Value = float | int | bool | str
Names = Mapping[str, Value]

_MOST_CHARACTERS = 300
_MOST_EXPONENT = 64
_MOST = 1e30
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": math.ceil,
    "exp": math.exp,
    "floor": math.floor,
    "gcd": math.gcd,
    "log": math.log,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": round,
    "sqrt": math.sqrt,
}


def value(expression: str, names: Names) -> Value:
    """What an expression of these names is: `2 * (ranks - 1) / ranks * gigabytes`.

    Raises BadArgument for whatever isn't arithmetic, for a name that isn't there, and
    for a result that isn't a number below 1e30 or a text.
    """
    tree = _parsed(expression)
    try:
        return _value(tree, names)  # type: ignore[no-any-return]
    except (ArithmeticError, TypeError, ValueError) as error:
        raise BadArgument(f"{expression!r} can't be calculated: {error}") from error


@functools.lru_cache(maxsize=4096)
def _parsed(expression: str) -> ast.expr:
    if len(expression) > _MOST_CHARACTERS:
        raise BadArgument(
            f"Expected at most {_MOST_CHARACTERS} characters of arithmetic, got"
            f" {len(expression)}: {expression[:40]!r}..."
        )
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadArgument(
            f"Expected arithmetic such as 2 * (n - 1) / n, got {expression!r}."
        ) from error


def _value(node: ast.expr, names: Names) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as constant):
            return constant
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.BinOp() | ast.UnaryOp() | ast.Compare() if _operators(node):
            return _bounded(_operated(node, names))
        case ast.BoolOp():
            combine = all if isinstance(node.op, ast.And) else any
            return combine(_value(part, names) for part in node.values)
        case ast.IfExp():
            chosen = node.body if _value(node.test, names) else node.orelse
            return _value(chosen, names)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*[_value(a, names) for a in node.args]))
    raise BadArgument(
        f"{ast.unparse(node)!r} isn't allowed here. Use numbers, {', '.join(names)},"
        f" + - * / // % **, comparisons, and, or, not, if-else, and"
        f" {', '.join(_FUNCTIONS)}."
    )


def _operators(node: ast.BinOp | ast.UnaryOp | ast.Compare) -> list[Any]:
    """The functions of a node's operators, none if one of them isn't allowed."""
    signs = node.ops if isinstance(node, ast.Compare) else [node.op]
    if any(type(sign) not in _OPERATORS for sign in signs):
        return []
    return [_OPERATORS[type(sign)] for sign in signs]


def _operated(node: ast.BinOp | ast.UnaryOp | ast.Compare, names: Names) -> Any:
    functions = _operators(node)
    if isinstance(node, ast.UnaryOp):
        return functions[0](_value(node.operand, names))
    if isinstance(node, ast.BinOp):
        left = _value(node.left, names)
        right = _value(node.right, names)
        if isinstance(left, str) or isinstance(right, str):
            raise BadArgument("texts can be compared, not calculated with")
        if isinstance(node.op, ast.Pow) and abs(right) > _MOST_EXPONENT:
            raise BadArgument(f"an exponent goes up to {_MOST_EXPONENT}, got {right}")
        return functions[0](left, right)
    values = [_value(part, names) for part in (node.left, *node.comparators)]
    pairs = zip(functions, values, values[1:], strict=False)
    return all(function(left, right) for function, left, right in pairs)


def _bounded(result: Any) -> Any:
    if isinstance(result, complex) or not abs(result) < _MOST:  # nan isn't either
        raise BadArgument(f"the result has to be a number below {_MOST:g}")
    return result


def filled_in(text: str, names: Names) -> str:
    """The text with the values of what it has in braces: "{rate} GB/s", "{n / 8:,.1f}".

    Without a format after the colon a whole number has commas, as 10,240. A brace of
    the text itself is doubled. Raises BadArgument as `value` does.
    """
    parts = []
    try:
        for literal, field, form, _ in string.Formatter().parse(text):
            parts.append(literal)
            if field is not None:
                parts.append(_shown(value(field, names), form or ""))
    except ValueError as error:
        raise BadArgument(f"{text!r}: {error}") from error
    return "".join(parts)


def _shown(result: Value, form: str) -> str:
    if isinstance(result, str):
        return result
    if not re.fullmatch(r",?(\.\d)?[dfeg%]?", form):
        raise BadArgument(
            f"expected a format such as ,.1f after the colon, got {form!r}"
        )
    if form.endswith("d"):
        return format(round(result), form)
    if form in ("", ","):
        form = ",d" if isinstance(result, int) else ",.10g"
    return format(result, form)
