"""Judge the reader's tile kernels: by tracing their programs on any machine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from exercises.traced_kernels import Array, Case, ChangedInput, compare, kernel
from kerneltrace import tiles
from kerneltrace.errors import KernelError
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet


def jitted(answer: object, parameters: str) -> Any:
    """The answer as a function under @triton.jit with these parameters; Todo for a
    stub, NotYet for anything else.
    """
    fn = getattr(answer, "fn", None)
    if not inspect.isfunction(fn):
        raise NotYet(
            f"Expected a function with @triton.jit above it, got {brief_repr(answer)}."
            " Pass its name alone."
        )
    kernel(fn, parameters)
    return answer


def traced(
    program: Any,
    case: Case,
    advice: str | Callable[[Array], str] = "",
    *,
    within: float | Mapping[str, float] = 1e-5,
    about: str = "nan",
    **constants: Any,
) -> tiles.TileTrace:
    """The trace of a launch that leaves behind what is expected; NotYet for one that
    doesn't.

    The advice is for wrong numbers and for findings of the kind `about`, or made of
    what is found in place of the first array expected.
    """
    args = tuple(
        arg.copy() if isinstance(arg, np.ndarray) else arg for arg in case.args
    )
    results = dict(zip(inspect.signature(program.fn).parameters, args, strict=False))
    try:
        trace = tiles.trace(program, case.grid, *args, **constants)
    except KernelError as error:
        returned = (
            " Does it return all that is asked for?" if "unpack" in str(error) else ""
        )
        raise NotYet(f"With {case.given}: {error}{returned}") from error
    try:
        for finding in trace.findings:
            advice = advice if finding.kind == about else ""
            raise NotYet(f"With {case.given}: {finding}")
        compare(results, case, "", within=within)
    except ChangedInput:
        raise
    except NotYet as error:
        output = results[next(iter(case.expected))]
        words = advice if isinstance(advice, str) else advice(output)
        raise NotYet(f"{error} {words}".rstrip()) from None
    return trace
