"""Work out on the CPU what CuPy's ReductionKernel is given: compiled by NVRTC, in the
order of a GPU's threads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kerneltrace import compile_cuda, trace
from kerneltrace.errors import CompileError, KernelError, MissingCompiler
from labkit.lesson.checks import NotYet

_THREADS = 512  # of the block that reduces
_UNWRITTEN = 0x7FF0_0000_DEAD_BEEF  # a signaling NaN, which no computation gives
# The brackets are those that CuPy puts round each expression.
_FRAME = Path(__file__).with_name("reduction.cu.in").read_text(encoding="utf-8")
_MADE_OF = {
    "map": "x and y",
    "reduce": "a and b",
    "post": "a",
    "identity": "numbers alone",
}
_ADVICE = {
    r"\*\*": "C++ has no **. A square is a product: d * d.",
    r"\^": "In C++ ^ is 'exclusive or' of bits. A square is a product: d * d.",
    r";": "CuPy puts each expression into brackets, where no semicolon may stand.",
    r"(?<![\w.])\d+\s*/\s*\d+(?![\w.])": (
        "C++ divides whole numbers without a rest, and 1/2 is 0: write 1.0/2."
    ),
}


class Reduction:
    """A reduction's four expressions on float64 numbers, and what a block of threads
    makes of them.
    """

    def __init__(self, parts: Mapping[str, object]) -> None:
        self._parts = {name: parts[name] for name in _MADE_OF}
        for name, text in self._parts.items():
            if not isinstance(text, str) or not text.strip():
                raise NotYet(
                    f"Expected {name} as text, a C++ expression of {_MADE_OF[name]};"
                    f" got {text!r}."
                )
        try:
            self._built = compile_cuda(
                _FRAME.format(**self._parts), compute_capability=(8, 0)
            )
        except MissingCompiler as error:
            raise NotYet(str(error)) from error
        except CompileError as error:
            made_of = "; ".join(
                f"{name} is made of {values}" for name, values in _MADE_OF.items()
            )
            message = str(error).split(" Correct that line")[0]
            raise NotYet(f"{message} {self.advice() or f'Here {made_of}.'}") from error
        self._identity = float(self._run("identity", n=1)[0])

    def tree(self, x: Any, y: Any) -> float:
        """Each thread takes every 512th pair, starting at the identity; then halves of
        the block meet.
        """
        partial = np.full(_THREADS, self._identity)
        mapped = self._run("map", x, y, n=len(x))
        for start in range(0, len(x), _THREADS):
            part = mapped[start : start + _THREADS]
            partial[: len(part)] = self._run(
                "reduce", partial[: len(part)], part, n=len(part)
            )
        while len(partial) > 1:
            half = len(partial) // 2
            partial = self._run("reduce", partial[:half], partial[half:], n=half)
        return float(partial[0])

    def left_to_right(self, x: Any, y: Any) -> float:
        """One pair after the other, as a loop in Python would take them."""
        total = np.array([self._identity])
        trace(
            self._built,
            1,
            1,
            self._run("map", x, y, n=len(x)),
            total,
            len(x),
            name="fold",
        )
        return float(total[0])

    def post(self, total: float) -> float:
        """What is made of the one number that is left."""
        return float(self._run("post", np.array([total]), n=1)[0])

    def advice(self) -> str:
        """What C++ reads otherwise than Python in these expressions, in words; "" if
        there is nothing.
        """
        text = "\n".join(map(str, self._parts.values()))
        return " ".join(
            words for pattern, words in _ADVICE.items() if re.search(pattern, text)
        )

    def _run(self, part: str, *arrays: Any, n: int) -> Any:
        out = np.full(n, _UNWRITTEN, np.uint64).view(np.float64)
        if not n:
            return out
        try:
            launch_trace = trace(
                self._built,
                1,
                n,
                *(array.copy() for array in arrays),
                out,
                name=part,
                max_steps=1000,
            )
        except KernelError as error:
            raise NotYet(
                f"{part} `{self._parts[part]}` can't be worked out without a GPU:"
                f" {error}"
            ) from error
        if any(finding.kind == "endless" for finding in launch_trace.findings):
            raise NotYet(f"{part} `{self._parts[part]}` has a loop that does not end.")
        if (out.view(np.uint64) == _UNWRITTEN).any():
            raise NotYet(
                f"Expected {part} to set the output, `z = ...`, got"
                f" {self._parts[part]!r}."
            )
        return out
