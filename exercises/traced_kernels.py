"""Judge the reader's CUDA kernels: by tracing them on any machine, and by running them
where there is a GPU.
"""

from __future__ import annotations

import dis
import inspect
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerneltrace import Finding, Trace, python_function, trace
from kerneltrace.errors import KernelError, TraceTooLarge
from labkit.core.display import brief_repr
from labkit.core.units import format_seconds
from labkit.lesson.checks import NotYet, function

Array = NDArray[Any]
GPUS = ("T4", "A100 SXM4 80GB", "H100 SXM5 80GB")


@dataclass(frozen=True)
class Case:
    """A launch of the reader's kernel and what it must leave behind.

    `given` says in words what is special about it; `expected` maps parameter names to
    arrays, and the others must not change.
    """

    given: str
    grid: Any
    block: Any
    args: tuple[Any, ...]
    expected: dict[str, Any]


class ChangedInput(NotYet):
    """A kernel wrote to an array that it should only read."""


def unwritten(*shape: int) -> Array:
    """An output of NaN: it shows which elements nobody wrote, and that a kernel adds to
    what it finds.
    """
    return np.full(shape, np.nan, np.float32)


def kernel(answer: object, parameters: str) -> Any:
    """The answer as a kernel of these parameters ("x, out"); Todo for a stub, NotYet
    for anything else.
    """
    try:
        fn = python_function(answer)
    except TypeError:
        raise NotYet(
            f"Expected a kernel with @cuda.jit, got {brief_repr(answer)}. Pass its name"
            " without brackets."
        ) from None
    if (names := ", ".join(inspect.signature(fn).parameters)) != parameters:
        raise NotYet(f"Expected the kernel's parameters ({parameters}), got ({names}).")
    function(fn)
    # not the x of threadIdx.x
    read = [
        instruction.argval
        for instruction in dis.get_instructions(fn)
        if instruction.opname == "LOAD_GLOBAL"
    ]
    arrays = [name for name in read if isinstance(fn.__globals__.get(name), np.ndarray)]
    if arrays:
        raise NotYet(
            f"It uses {arrays[0]}, an array of the notebook. A kernel's arrays are its"
            f" parameters: {parameters}."
        )
    return answer


def correct(
    answer: object,
    parameters: str,
    cases: Sequence[Case],
    *,
    atomics: bool = False,
    tolerance: float = 1e-5,
) -> list[Trace]:
    """The traces of all cases; NotYet for the first mistake or wrong element, and for
    atomics that none of them needs. `tolerance` is a share of the largest number.

    With a GPU the kernel also runs there, but only after traces without a mistake: an
    access out of bounds could take the whole process with it.
    """
    fn = kernel(answer, parameters)
    names = parameters.split(", ")
    if "cuda" not in type(fn).__module__ or getattr(fn, "targetoptions", {}).get(
        "device"
    ):
        raise NotYet(
            f"{python_function(fn).__name__} is no kernel: it needs @cuda.jit above it,"
            " without device=True."
        )
    traces = [_traced(fn, case, names, tolerance) for case in cases]
    for launch_trace in () if atomics else traces:
        why = (
            "No two threads change one element: a plain read and write will do, and"
            " keeps nobody waiting."
        )
        within(
            launch_trace, "atomics", launch_trace.count(kind="atomic").writes, 0, why
        )
    _on_gpu(fn, cases, names, tolerance)
    return traces


def _traced(fn: Any, case: Case, names: Sequence[str], tolerance: float) -> Trace:
    args = tuple(
        arg.copy() if isinstance(arg, np.ndarray) else arg for arg in case.args
    )
    try:
        launch_trace = trace(fn, case.grid, case.block, *args, blocks="all")
    except TraceTooLarge as error:
        raise NotYet(
            f"With {case.given} it does far more than it has to. Does a loop never end?"
        ) from error
    except KernelError as error:
        raise NotYet(f"With {case.given}: {error}") from error
    notes = [note for note in launch_trace.notes if note.kind != "undefined"]
    # What nobody writes or touches shows in the comparison with what is expected.
    if serious := [
        finding
        for finding in (*launch_trace.findings, *notes)
        if finding.kind not in ("unwritten", "untouched")
    ]:
        raise NotYet(f"With {case.given}: {_in_words(serious)}")
    compare(dict(zip(names, args, strict=True)), case, "", within=tolerance)
    return launch_trace


# what to do about the first of a kernel's mistakes, by its kind
_ADVICE = {
    "outside": "Let a thread do nothing where it has no element: that takes an if.",
    "race": (
        "Give each thread a place of its own, put a barrier between, or use an atomic."
    ),
    "unset": "Write it before it is read.",
}
_SAME_VALUE = re.compile(r"; [^;]* either can come first\. All of them .*?\.(?= \(|$)")


def _in_words(mistakes: Sequence[Finding]) -> str:
    """The first mistake, how many more there are, and what to do."""
    first = mistakes[0]
    words = str(first)
    advice = _ADVICE.get(first.kind, "")
    if first.kind == "race" and not first.mistake:
        words = _SAME_VALUE.sub(".", words)
        advice = (
            "It is done several times; one thread is enough. Has each thread an index"
            " of its own, counted over all blocks? And does its loop go on by all"
            " threads of the grid?"
        )
    more = f"(And {len(mistakes) - 1} more.)" if len(mistakes) > 1 else ""
    return " ".join(filter(None, (words, more, advice)))


def compare(
    results: dict[str, Any],
    case: Case,
    where: str,
    *,
    within: float | Mapping[str, float] = 1e-5,
) -> None:
    """NotYet for the first element that is off by more than `within` (of all arrays, or
    by name) times the largest expected one.
    """
    for name, argument in zip(results, case.args, strict=True):
        got = np.asarray(results[name])
        expected = np.asarray(case.expected.get(name, argument))
        scale = (
            float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
            if expected.dtype.kind in "fc"
            else 0.0
        )
        share = within if isinstance(within, float) else within.get(name, 0.0)
        wrong = ~np.isclose(got, expected, rtol=0.0, atol=share * max(scale, 1e-30))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            place = f"{name}[{', '.join(map(str, at))}]"
            if name not in case.expected:
                raise ChangedInput(
                    f"With {case.given}{where}: it has changed {place} from"
                    f" {expected[at]:.6g} to {got[at]:.6g}. {name} is an input: write"
                    f" to {' and '.join(case.expected)} only."
                )
            raise NotYet(
                f"With {case.given}{where}: {place} is {got[at]:.6g}, expected"
                f" {expected[at]:.6g} ({int(wrong.sum()):,} of {wrong.size:,} elements"
                f" are wrong).{_why_nan(name, got[at], np.asarray(argument)[at])}"
            )


def _why_nan(name: str, got: Any, before: Any) -> str:
    """Why an element is NaN that was NaN before the launch; empty for others."""
    if got == got or before == before:
        return ""
    return (
        f" {name} is filled with nan before the launch: no thread wrote this element,"
        " or it was read before it was written, as += does."
    )


def _on_gpu(
    fn: Any, cases: Sequence[Case], names: Sequence[str], tolerance: float
) -> None:
    from numba import config, cuda

    if config.ENABLE_CUDASIM or not cuda.is_available():  # set at import
        return
    for case in cases:
        if any(isinstance(arg, np.ndarray) and not arg.size for arg in case.args):
            continue  # numba has no device array without elements
        args = tuple(
            cuda.to_device(arg) if isinstance(arg, np.ndarray) else arg
            for arg in case.args
        )
        with warnings.catch_warnings():
            # of a grid too small to fill the GPU: it is meant to be
            warnings.simplefilter("ignore")
            fn[case.grid, case.block](*args)
        back = (
            arg.copy_to_host() if hasattr(arg, "copy_to_host") else arg for arg in args
        )
        results = dict(zip(names, back, strict=True))
        compare(results, case, " on the GPU", within=tolerance)


def unremarked(done: Trace, *kinds: str) -> None:
    """NotYet for the first remark of these kinds that a review of the trace makes, with
    its calculated cost.
    """
    for remark in (
        remark for kind in kinds for remark in done.review(GPUS[0]).of(kind)
    ):
        raise NotYet(
            f"{done.kernel} computes the right result, but has {remark.kind} in line"
            f" {remark.line}, `{remark.source}`: {remark.sentence} Without that it"
            f" would take {remark.share:.0%} less time on a {GPUS[0]}, calculated."
        )


def times(done: Trace, size: str, grid: Any, longer: float = 1.0) -> str:
    """Sentences: how long it would take on three GPUs for `size`, with such a grid and
    loops, and what wastes time.
    """
    each = (
        f"{format_seconds(done.estimate(gpu, grid=grid, longer=longer).seconds)} on"
        f" {gpu}"
        for gpu in GPUS
    )
    wastes = (
        remark
        for kind in ("float64", "barrier")
        for remark in done.review(GPUS[0]).of(kind)
    )
    still = "".join(
        f" A review remarks line {remark.line}, `{remark.source}`: {remark.sentence}"
        for remark in wastes
    )
    return (
        f" Calculated for {size}, right within about a factor of 2:"
        f" {', '.join(each)}.{still}"
    )


def within(done: Any, what: str, got: float, most: float, why: str) -> None:
    """NotYet where a correct kernel needs more of something than its budget."""
    if got > most:
        raise NotYet(
            f"{done.kernel} computes the right result, but needs {got:,.0f} {what};"
            f" {most:,.0f} are enough. {why}"
        )
