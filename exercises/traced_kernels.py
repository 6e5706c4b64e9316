"""Judge the reader's CUDA kernels: by tracing them on any machine, and by running them where there is a GPU."""

from __future__ import annotations

import ast
import inspect
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.core.display import brief_repr
from labkit.core.errors import KernelError, TraceTooLarge
from labkit.gpu.trace import Trace, python_function, trace
from labkit.lesson.checks import NotYet, Todo


@dataclass(frozen=True)
class Case:
    """A launch of the reader's kernel and what it must leave behind.

    `expected` maps parameter names to arrays; `given` says in words what is special about the case.
    """

    given: str
    grid: Any
    block: Any
    args: tuple[Any, ...]
    expected: dict[str, Any]


def kernel(answer: object, *, parameters: Sequence[str]) -> Any:
    """The answer as a kernel; Todo while its body has dots in it, NotYet for what is no kernel of these parameters."""
    try:
        fn = python_function(answer)
    except KernelError:
        raise NotYet(
            f"Expected a kernel with @cuda.jit, got {brief_repr(answer)}. Pass its name without brackets."
        ) from None
    if getattr(answer, "targetoptions", {}).get("device"):
        raise NotYet(f"{fn.__name__} has device=True, which makes a function for kernels, and no kernel.")
    if hasattr(answer, "py_func") and "cuda" not in type(answer).__module__:
        raise NotYet(f"{fn.__name__} is made for the CPU: a kernel needs @cuda.jit.")
    names = list(inspect.signature(fn).parameters)
    if names != list(parameters):
        raise NotYet(f"Expected the kernel's parameters ({', '.join(parameters)}), got ({', '.join(names)}).")
    if _has_dots(fn):
        raise Todo(f"Replace the dots in {fn.__name__}.")
    return answer


def _has_dots(fn: Callable[..., Any]) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    except (OSError, TypeError, SyntaxError):
        return False
    indices = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Subscript) for part in ast.walk(node.slice)}
    dots = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value is ...)
    return any(id(node) not in indices for node in dots)


def correct(answer: Any, cases: Sequence[Case], *, tolerance: float = 1e-5, schedules: int = 2) -> list[Trace]:
    """The traces of all cases; NotYet for the first mistake found or the first wrong element.

    Results may differ from the expected ones by `tolerance` times the largest expected value. Every case runs in
    `schedules` orders of its threads. With a GPU the kernel runs there too, once its traces show no mistake: an access
    out of bounds could take the whole process with it.
    """
    traces = [_traced(answer, case, tolerance, schedules) for case in cases]
    _on_gpu(answer, cases, tolerance)
    return traces


def _traced(answer: Any, case: Case, tolerance: float, schedules: int) -> Trace:
    args = tuple(arg.copy() if isinstance(arg, np.ndarray) else arg for arg in case.args)
    try:
        done = trace(answer, case.grid, case.block, *args, schedules=schedules)
    except TraceTooLarge as error:
        raise NotYet(f"With {case.given} it does far more than it has to. Does a loop never end?") from error
    except KernelError as error:
        raise NotYet(f"With {case.given}: {error}") from error
    serious = [finding for finding in done.findings if finding.kind != "unwritten"]
    if serious:
        more = f" (And {len(done.findings) - 1} more.)" if len(done.findings) > 1 else ""
        raise NotYet(f"With {case.given}: {serious[0]}{more}")
    names = list(inspect.signature(python_function(answer)).parameters)
    _compare(dict(zip(names, args, strict=True)), case, tolerance, "")
    return done


def _compare(results: dict[str, Any], case: Case, tolerance: float, where: str) -> None:
    for name, expected in case.expected.items():
        got = np.asarray(results[name])
        expected = np.asarray(expected)
        scale = float(np.abs(expected).max(initial=0.0)) if expected.dtype.kind in "fc" else 0.0
        wrong = ~np.isclose(got, expected, rtol=0.0, atol=tolerance * max(scale, 1e-30))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            place = f"{name}[{', '.join(map(str, at))}]"
            raise NotYet(
                f"With {case.given}{where}: {place} is {got[at]:.6g}, expected {expected[at]:.6g}"
                f" ({int(wrong.sum()):,} of {wrong.size:,} elements are wrong)."
            )


def _on_gpu(answer: Any, cases: Sequence[Case], tolerance: float) -> None:
    from numba import config, cuda

    if config.ENABLE_CUDASIM or not cuda.is_available():  # type: ignore[attr-defined, no-untyped-call]
        return
    compiled = answer if hasattr(answer, "py_func") else cuda.jit(answer)  # type: ignore[no-untyped-call]
    for case in cases:
        if any(isinstance(arg, np.ndarray) and not arg.size for arg in case.args):
            continue  # numba has no device array without elements
        names = list(inspect.signature(compiled.py_func).parameters)
        args = tuple(cuda.to_device(arg) if isinstance(arg, np.ndarray) else arg for arg in case.args)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that so small a grid leaves most of the GPU idle is no news here
            compiled[case.grid, case.block](*args)
        back = (arg.copy_to_host() if hasattr(arg, "copy_to_host") else arg for arg in args)
        _compare(dict(zip(names, back, strict=True)), case, tolerance, " on the GPU")


def within(done: Trace, what: str, got: float, most: float, why: str) -> None:
    """NotYet where a correct kernel needs more than a budget of a count."""
    if got > most:
        raise NotYet(
            f"{done.kernel} computes the right result, but needs {got:,.0f} {what}; {most:,.0f} are enough. {why}"
        )
