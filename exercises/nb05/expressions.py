"""Work out on the CPU what CuPy's ReductionKernel is given, in the order of a GPU's threads."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from labkit.lesson.checks import NotYet

_SUFFIX = re.compile(r"(?<![\w.])(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)[fF]\b")
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("sqrt", "sqrtf"), np.sqrt),
    **dict.fromkeys(("abs", "fabs", "fabsf"), np.abs),
    **dict.fromkeys(("pow", "powf"), np.power),
    **dict.fromkeys(("max", "fmax", "fmaxf"), np.maximum),
    **dict.fromkeys(("min", "fmin", "fminf"), np.minimum),
    **dict.fromkeys(("hypot", "hypotf"), np.hypot),
    **dict.fromkeys(("exp", "expf"), np.exp),
    **dict.fromkeys(("log", "logf"), np.log),
    **dict.fromkeys(("T", "float", "double"), np.float64),
}
_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Call, ast.Name, ast.Constant, ast.Load,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UAdd, ast.USub,
)  # fmt: skip
Evaluate = Callable[..., Any]


def expression(text: object, what: str, names: tuple[str, ...]) -> Evaluate:
    """A C++ expression of `names` as a function of them; NotYet, with `what` it is, for what can't be read."""
    if not isinstance(text, str) or not text.strip():
        raise NotYet(f"Expected {what} as text, an expression of C++ in {_listed(names)}; got {text!r}.")
    text = " ".join(text.split())  # C++ doesn't mind where a line ends
    if "?" in text:
        raise NotYet(f"{what} `{text}`: this check doesn't read `?:`. Here +, -, *, / and functions are enough.")
    try:
        tree = ast.parse(_SUFFIX.sub(r"\1", text.replace("std::", "")), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = getattr(error, "msg", error)
        raise NotYet(f"{what} `{text}` is no expression of C++ that this check can read: {why}.") from error
    for node in ast.walk(tree):
        _judge(node, text, what, names)
    code = compile(tree, "<expression>", "eval")
    return lambda *values: eval(code, {"__builtins__": {}}, {**_FUNCTIONS, **dict(zip(names, values, strict=True))})


def _judge(node: ast.AST, text: str, what: str, names: tuple[str, ...]) -> None:
    """NotYet for what C++ reads in another way than Python, and for names that are not there."""
    if isinstance(node, ast.BitXor):
        raise NotYet(f"{what} `{text}`: in C++ ^ is 'exclusive or' of bits. A square is a product: d * d.")
    if isinstance(node, ast.Pow):
        raise NotYet(f"{what} `{text}`: C++ has no **. A square is a product: d * d.")
    if isinstance(node, ast.Name) and node.id not in (*_FUNCTIONS, *names):
        raise NotYet(f"{what} `{text}`: there is no {node.id} here; it is made of {_listed(names)}.")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _whole(node.left) and _whole(node.right):
        raise NotYet(
            f"{what} `{text}`: in C++ {ast.unparse(node)} divides whole numbers and drops the rest; 1/2 gives 0: "
            "write 1.0/2."
        )
    if not isinstance(node, _NODES) or (isinstance(node, ast.Constant) and type(node.value) not in (int, float)):
        raise NotYet(f"{what} `{text}`: use +, -, *, /, numbers and functions such as sqrt or fabs.")


def _whole(node: ast.AST) -> bool:
    """Whether C++ takes it for a whole number: constants without a point, and what is computed of them."""
    if isinstance(node, ast.BinOp):
        return _whole(node.left) and _whole(node.right)
    if isinstance(node, ast.UnaryOp):
        return _whole(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(names) if names else "numbers alone"


def assignment(text: object, what: str, target: str, names: tuple[str, ...]) -> Evaluate:
    """The right-hand side of `target = ...` as a function; NotYet where nothing is assigned."""
    match = re.fullmatch(rf"\s*{target}\s*=(?!=)\s*(.+?)\s*;?\s*", text, re.DOTALL) if isinstance(text, str) else None
    if match is None:
        raise NotYet(f"Expected {what} to set the output, `{target} = ...`, got {text!r}.")
    return expression(match[1], what, names)


def _number(evaluate: Evaluate, text: object) -> float:
    try:
        with np.errstate(all="ignore"):
            return float(evaluate())
    except (ArithmeticError, TypeError, ValueError) as error:
        raise NotYet(f"identity `{text}` is not a number: {error}.") from error


class Reduction:
    """A reduction's four expressions, and what a block of 512 threads makes of them."""

    THREADS = 512

    def __init__(self, parts: Mapping[str, object]) -> None:
        self.map = expression(parts["map"], "map", ("x", "y"))
        self.reduce = expression(parts["reduce"], "reduce", ("a", "b"))
        self.post = assignment(parts["post"], "post", "z", ("a",))
        self.identity = _number(expression(parts["identity"], "identity", ()), parts["identity"])

    def tree(self, x: Any, y: Any) -> float:
        """Each thread takes every 512th pair, starting at the identity; then halves of the block meet."""
        partial = np.full(self.THREADS, self.identity)
        for start in range(0, len(x), self.THREADS):
            mapped = self._mapped(x[start : start + self.THREADS], y[start : start + self.THREADS])
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
