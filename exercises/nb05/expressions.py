"""Work out on the CPU what CuPy's ReductionKernel is given, in the order of a GPU's threads."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from labkit.lesson.checks import NotYet

_THREADS = 512  # of the block that reduces
_SUFFIX = re.compile(r"(?<![\w.])(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)[fF]\b")
_DOUBLE: dict[str, Callable[..., Any]] = {
    "sqrt": np.sqrt,
    **dict.fromkeys(("abs", "fabs"), np.abs),
    "pow": np.power,
    **dict.fromkeys(("max", "fmax"), np.maximum),
    **dict.fromkeys(("min", "fmin"), np.minimum),
    "hypot": np.hypot,
    "exp": np.exp,
    "log": np.log,
}
_FUNCTIONS = {
    **_DOUBLE,
    **{f"{name}f": function for name, function in _DOUBLE.items()},
    **dict.fromkeys(("T", "float", "double"), np.float64),
}
_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Call, ast.Name, ast.Constant, ast.Load,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UAdd, ast.USub,
)  # fmt: skip


class Reduction:
    """A reduction's four expressions, and what a block of threads makes of them."""

    def __init__(self, parts: Mapping[str, object]) -> None:
        self.map = _expression(parts["map"], "map", "x", "y")
        self.reduce = _expression(parts["reduce"], "reduce", "a", "b")
        self.post = _expression(_assigned(parts["post"]), "post", "a")
        identity = _expression(parts["identity"], "identity")
        try:
            self.identity = float(identity())
        except (ArithmeticError, TypeError, ValueError) as error:
            raise NotYet(f"identity `{parts['identity']}` is not a number: {error}.") from error

    def tree(self, x: Any, y: Any) -> float:
        """Each thread takes every 512th pair, starting at the identity; then halves of the block meet."""
        partial = np.full(_THREADS, self.identity)
        for start in range(0, len(x), _THREADS):
            mapped = self._mapped(x[start : start + _THREADS], y[start : start + _THREADS])
            partial[: len(mapped)] = self.reduce(partial[: len(mapped)], mapped)
        while len(partial) > 1:
            half = len(partial) // 2
            partial = self.reduce(partial[:half], partial[half:]) + np.zeros(half)
        return float(self.post(partial[0]))

    def left_to_right(self, x: Any, y: Any) -> float:
        """One pair after the other, as a loop in Python would take them."""
        total = self.identity
        for one in self._mapped(x, y):
            total = self.reduce(total, one)
        return float(self.post(total))

    def _mapped(self, x: Any, y: Any) -> Any:
        return self.map(x, y) + np.zeros(len(x))  # a constant too becomes one number a pair


def _assigned(text: object) -> str:
    """The right-hand side of `z = ...`; NotYet where nothing is assigned."""
    match = re.fullmatch(r"\s*z\s*=(?!=)\s*(.+?)\s*;?\s*", text, re.DOTALL) if isinstance(text, str) else None
    if match is None:
        raise NotYet(f"Expected post to set the output, `z = ...`, got {text!r}.")
    return match[1]


def _expression(text: object, what: str, *names: str) -> Callable[..., Any]:
    """A C++ expression of `names` as a function of them; NotYet, with `what` it is, if it can't be read."""
    made_of = " and ".join(names) or "numbers alone"
    if not isinstance(text, str) or not text.strip():
        raise NotYet(f"Expected {what} as text, a C++ expression of {made_of}; got {text!r}.")
    try:
        tree = ast.parse(" ".join(_SUFFIX.sub(r"\1", text.replace("std::", "")).split()), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = getattr(error, "msg", error)
        raise NotYet(f"{what} `{text}` is no C++ expression that this check can read: {why}.") from error
    for node in ast.walk(tree):
        if wrong := _wrong(node, names, made_of):
            raise NotYet(f"{what} `{text}`: {wrong}")
    code = compile(tree, "<expression>", "eval")
    return lambda *values: eval(code, {"__builtins__": {}}, {**_FUNCTIONS, **dict(zip(names, values, strict=True))})


def _wrong(node: ast.AST, names: tuple[str, ...], made_of: str) -> str:
    """What C++ reads in another way than Python, and names that are not there, in words; "" where all is well."""
    if isinstance(node, ast.BitXor):
        return "in C++ ^ is 'exclusive or' of bits. A square is a product: d * d."
    if isinstance(node, ast.Pow):
        return "C++ has no **. A square is a product: d * d."
    if isinstance(node, ast.Name) and node.id not in (*_FUNCTIONS, *names):
        return f"there is no {node.id} here; it is made of {made_of}."
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _whole(node.left) and _whole(node.right):
        return f"in C++ {ast.unparse(node)} divides whole numbers and drops the rest; 1/2 gives 0: write 1.0/2."
    if not isinstance(node, _NODES) or (isinstance(node, ast.Constant) and type(node.value) not in (int, float)):
        return "use +, -, *, /, numbers and functions such as sqrt or fabs."
    return ""


def _whole(node: ast.AST) -> bool:
    """Whether C++ takes it for a whole number: constants without a point, and what is computed from them."""
    if isinstance(node, ast.BinOp):
        return _whole(node.left) and _whole(node.right)
    if isinstance(node, ast.UnaryOp):
        return _whole(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, int)
