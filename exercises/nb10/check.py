"""Checks of notebook 10, what the graph can do for speed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from exercises.nb10.breaking import breaks
from labkit.core.display import brief_repr, cut
from labkit.core.errors import LabError
from labkit.core.units import format_si
from labkit.lesson.answers import about, as_list, parts
from labkit.lesson.checks import (
    NotYet,
    Todo,
    as_number,
    call,
    function,
    mapping,
    number_close,
    over_cases,
)
from labkit.train.graphs import operators
from labkit.train.graphs.compiling import quiet
from steptime import each_read
from trainplan.costs import break_even_steps

_MOST_OPERATORS = 3
_MOST = 0.5  # the limit that 10.3's inputs are on both sides of


def overhead(answer: object) -> str:
    """(overhead in s, elements whose work takes as long) from the times of an operator
    at two sizes.
    """
    draw = random.Random(3101)
    cases = []
    for small, large in ((4096, 8192), (10, 11), (1000, 3_000_000), (1, 1_000_000)):
        fixed_s = draw.uniform(1e-6, 9e-6)
        each_s = 10 ** draw.uniform(-10, -8)
        cases.append((small, fixed_s + small * each_s, large, fixed_s + large * each_s))
    over_cases(
        answer,
        [*cases, (1, 3e-6, 64, 3e-6), (1, 3e-6, 64, 2e-6)],
        _overhead,
        _judge_overhead,
    )
    return "Right for neighboring sizes, far ones, and where the work does not show."


def _overhead(
    small: int, small_s: float, large: int, large_s: float
) -> tuple[float, float]:
    each_s = (large_s - small_s) / (large - small)
    if each_s <= 0:
        return small_s, math.inf
    return small_s - small * each_s, small_s / each_s - small


def _judge_overhead(
    got: object, expected: tuple[float, float], case: str, small: int, *_: float
) -> None:
    pair = as_list(got) or got
    overhead_s, count = parts(pair, 2, "two numbers, (overhead in s, elements)", case)
    elements = as_number(count, "elements", case)
    if expected[1] == math.inf:
        number_close(
            overhead_s,
            expected[0],
            rel=1e-6,
            unit="s of overhead",
            given=case,
            hint="All of small_s, then.",
        )
        if elements != math.inf:
            raise NotYet(
                f"For {case}: the work does not show at all, so elements is math.inf;"
                f" got {elements:g}."
            )
        return
    hint = (
        "Not all of small_s is overhead: subtract the time of its own elements."
        if small > 1
        else ""
    )
    number_close(
        overhead_s, expected[0], rel=1e-4, unit="s of overhead", given=case, hint=hint
    )
    hint = (
        "How many elements take as long as the overhead? Divide it by the seconds per"
        " element."
    )
    number_close(
        elements, expected[1], rel=1e-4, unit="elements", given=case, hint=hint
    )


def chain(answer: object) -> str:
    """relu(x * scale + shift) * 0.5 in at most three operators, which take new memory
    for the result alone.
    """
    fn = function(answer)
    generator = torch.Generator().manual_seed(3102)

    def given(*shape: int) -> list[Tensor]:
        return list(torch.randn(3, *shape, generator=generator))

    for name, inputs in {
        "(1000,)": given(1000),
        "(7, 13)": given(7, 13),
        "(1,)": given(1),
        "(0,)": given(0),
        "(9, 5), transposed": [part.T for part in given(5, 9)],
        "(33,), float64": [part.double() for part in given(33)],
    }.items():
        with about(f"tensors of shape {name}"):
            _judge_chain(fn, inputs)
    first = given(64)
    second = given(64)
    kept = call(fn, *first)
    call(fn, *second)
    if not torch.allclose(kept, _chain(*first)):
        raise NotYet(
            "A second call changed what the first one returned: each call needs a"
            " result of its own."
        )
    _judge_on_meta(fn, *first)
    return (
        f"Right, and with at most {_MOST_OPERATORS} operators and no memory but the"
        " result's."
    )


def _chain(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return (x * scale + shift).relu() * 0.5


def _judge_chain(fn: Callable[..., Any], inputs: list[Tensor]) -> None:
    wanted = _chain(*inputs)
    copies = [part.clone() for part in inputs]
    got = call(fn, *copies)
    if not isinstance(got, Tensor):
        raise NotYet(f"Expected a tensor as x, got {brief_repr(got)}.")
    for name, copy, original in zip(
        ("x", "scale", "shift"), copies, inputs, strict=True
    ):
        if not torch.equal(copy, original):
            raise NotYet(
                f"{name} was changed. The caller still needs it: write into a tensor of"
                " your own."
            )
    _compare("the result", got, wanted)
    counted = operators(lambda: fn(*inputs))
    names = ", ".join(f"{name} {n}" for name, n in counted.counts.items())
    if counted.total == 0:
        raise NotYet(
            "No operator of torch ran: stay with torch's eager operators, which run on"
            " a GPU too."
        )
    if counted.total > _MOST_OPERATORS:
        raise NotYet(
            f"Right, but with {counted.total} operators ({names}); {_MOST_OPERATORS}"
            " are enough. Which operator of torch multiplies and adds in one go?"
        )
    if counted.new_bytes > wanted.nbytes:
        raise NotYet(
            f"Right, but it takes {counted.new_bytes:,} B of new memory, and the result"
            f" has {wanted.nbytes:,} B: let the later operators overwrite what the"
            " first one made. Their names end in an underscore."
        )


def _judge_on_meta(fn: Callable[..., Any], *inputs: Any) -> None:
    """Whether the answer takes numbers out of a tensor, for which a GPU makes the host
    wait: meta has none to give.
    """
    reads: list[str] = []
    meta_inputs = [
        part.to("meta") if isinstance(part, Tensor) else part for part in inputs
    ]
    try:
        with each_read(lambda: reads.append("numbers are taken out of a tensor.")):
            fn(*meta_inputs)
        if reads:
            raise NotYet(reads[0])
    except Exception as error:
        raise NotYet(
            "The result is right, but tensors of the device meta, which have no"
            f" numbers, can't be given: {cut(str(error), 100)} On a GPU this would"
            " wait, or fail too. Let operators of torch do all the work."
        ) from error


def _compare(what: str, got: Tensor, wanted: Tensor) -> None:
    if got.dtype != wanted.dtype:
        raise NotYet(f"{what} should be {wanted.dtype}, as x is, got {got.dtype}.")
    if got.shape != wanted.shape:
        raise NotYet(
            f"{what} should have shape {tuple(wanted.shape)}, got {tuple(got.shape)}."
        )
    if got.isnan().any():
        raise NotYet(f"{what} has NaN in it. Is something divided by 0?")
    if not torch.allclose(got, wanted, rtol=1e-4, atol=1e-5):
        raise NotYet(f"{what} is off by up to {(got - wanted).abs().max().item():.3g}.")


def clipped(answer: object) -> str:
    """(centerd, norm) of x limited to a root mean square of `most`: the same on both
    branches, in one graph.
    """
    fn = function(answer)
    generator = torch.Generator().manual_seed(3103)
    cases = {
        "x above the limit": torch.randn(8, 3, generator=generator),
        "x below the limit": 0.1 * torch.randn(13, 3, generator=generator),
        "x of another size, above": 4 * torch.randn(32, 3, generator=generator) + 1,
        "x of zeros": torch.zeros(5, 3),
    }
    for name, x in cases.items():
        _judge_clipped(fn, x, _MOST, f"For {name}")
    tall, long = (
        torch.randn(*shape, generator=generator).double() for shape in ((2, 3, 4), (7,))
    )
    _judge_clipped(fn, tall, 0.2, "For x of three dimensions, float64 and most=0.2")
    _judge_clipped(fn, long, 3.0, "For x of one dimension, float64 and most=3")
    _judge_one_graph(fn, cases["x above the limit"])
    _judge_on_meta(fn, cases["x above the limit"], _MOST)
    graphs: list[int] = []

    def counting(graph: Any, _inputs: Any) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    torch.compiler.reset()
    with quiet():
        compiled = torch.compile(fn, backend=counting, fullgraph=True, dynamic=True)
        for name, x in cases.items():
            _judge_clipped(compiled, x, _MOST, f"Compiled, for {name}")
    torch.compiler.reset()
    if len(graphs) != 1:
        raise NotYet(
            f"It compiles without a break, but {len(graphs)} times for {len(cases)}"
            " calls: something in Python, such as a counter or a branch on len(x),"
            " differs from call to call. Leave it to tensors."
        )
    return "Right on both branches, in one graph, compiled once for every batch size."


def _clipped(x: Tensor, most: float) -> tuple[Tensor, Tensor]:
    norm = x.square().mean().sqrt()
    limited = x * (most / norm) if norm > most else x
    return limited - limited.mean(), norm


def _judge_clipped(fn: Callable[..., Any], x: Tensor, most: float, where: str) -> None:
    copy = x.clone()
    got = call(fn, copy, most)
    if (
        not isinstance(got, tuple | list)
        or len(got) != 2
        or not all(isinstance(part, Tensor) for part in got)
    ):
        raise NotYet(
            f"{where}: expected two tensors, (centerd, norm), got {brief_repr(got)}."
            " Return the norm as a tensor: the caller can print it."
        )
    if not torch.equal(copy, x):
        raise NotYet(f"{where}: x was changed in place. The caller still needs it.")
    for name, result, wanted in zip(
        ("centerd", "norm"), got, _clipped(x, most), strict=True
    ):
        _compare(f"{where}: {name}", result, wanted)


def _judge_one_graph(fn: Callable[..., Any], x: Tensor) -> None:
    try:
        report = breaks(fn, x, _MOST)
    except LabError as error:
        raise NotYet(
            f"It works, but the tracer fails on it: {cut(str(error), 300)}"
        ) from error
    if report.graphs != 1 or report.breaks:
        reasons = "; ".join(map(str, report.breaks)) or "the tracer gives no reason"
        raise NotYet(
            f"The results are right, but the call is cut into {report.graphs} graphs:"
            f" {reasons}."
        )


def break_even(answer: object) -> str:
    """Steps until compiling has paid off, with the cases in which it never does."""
    draw = random.Random(3106)
    # binary fractions: no rounding in them
    exact = [(8.0, 0.5, 0.25), (1.0, 0.75, 0.5), (0.25, 1.0, 0.5)]
    exact += [(1024.0, 0.5, 0.5 - 2**-20)]  # a small gain, in a long run
    never = [(8.0, 0.25, 0.25), (8.0, 0.25, 0.5), (1e-9, 0.25, 0.25)]
    free = [(0.0, 0.5, 0.25), (0.0, 0.5, 0.5)]
    drawn = [
        (draw.uniform(1, 60), draw.uniform(0.02, 0.05), draw.uniform(0.001, 0.019))
        for _ in range(5)
    ]
    over_cases(answer, exact + drawn + never + free, break_even_steps, _judge_steps)
    return "Right where it pays off at once, later and never, and in whole steps."


def _judge_steps(
    got: object,
    expected: float,
    case: str,
    compile_s: float,
    eager_s: float,
    compiled_s: float,
) -> None:
    steps = as_number(got, "steps", case)
    if steps == expected:
        return
    if math.isinf(expected):
        raise NotYet(
            f"For {case}: a step that is no faster never pays back what was spent:"
            f" math.inf, got {steps:g}."
        )
    if not math.isfinite(steps):
        raise NotYet(
            f"For {case}: expected {format_si(expected, 'steps')}, got {steps}. Is"
            " there a cost to pay back at all?"
        )
    if eager_s > compiled_s and math.isclose(
        steps, compile_s / (eager_s - compiled_s), rel_tol=1e-6
    ):
        raise NotYet(
            f"For {case}: {steps:.6g} is right but no whole number: after which whole"
            " step has it paid off?"
        )
    hint = (
        "One step earlier the cost isn't paid back yet; if the division leaves no"
        " remainder, no step more is needed."
        if abs(steps - expected) == 1
        else "Each step saves eager_s - compiled_s."
    )
    raise NotYet(
        f"For {case}: expected {format_si(expected, 'steps')}, got {steps:,.6g}. {hint}"
    )


_SCENARIOS = {
    "class": "a lesson",
    "sweep": "200 short runs",
    "night": "a long run that waits for its data",
}
# scenario -> (compile?, steps after which it has paid off), from the numbers in the
# notebook, and a hint
_DECISIONS = {
    "class": (
        (False, break_even_steps(2 * 18, 0.015, 0.012)),
        (
            "How often is it compiled, with a last batch of another size? And how many"
            " steps are 5 passes of 23?"
        ),
    ),
    "sweep": (
        (True, break_even_steps(40 + 199 * 5, 0.030, 0.020)),
        (
            "The first run compiles for 40 s, each of the other 199 for 5 s; together"
            " they make 400,000 steps."
        ),
    ),
    "night": (
        (False, math.inf),
        (
            "A batch is ready every 100 ms, whatever the GPU does: how long does a step"
            " take, before and after?"
        ),
    ),
}


def decide(answer: object) -> str:
    """Whether to compile in three scenarios, and after how many steps
    it has paid off.
    """
    for name, value in mapping(answer, _SCENARIOS).items():
        (wanted, steps), why = _DECISIONS[name]
        compiled, claim = parts(value, 2, f"a pair for {name}, (True or False, steps)")
        if compiled is ... or claim is ...:
            raise Todo(f"Still open: {name}.")
        number = as_number(claim, "steps", name)
        if number != steps and not abs(number - steps) <= 1:
            raise NotYet(
                f"{name}: {number:g} is not the number of steps after which it pays"
                f" off. {why}"
            )
        if str(compiled) not in ("True", "False"):  # np.True_ and torch's bools count
            raise NotYet(
                f"{name}: expected True, to compile, or False first, got"
                f" {brief_repr(compiled)}."
            )
        if bool(compiled) != wanted:
            raise NotYet(
                f"{name}: the steps are right; compare them with the number of steps in"
                f" the run. {why}"
            )
    return "Three right decisions, each for its own reason."


CHECKS = {
    "10.1": overhead,
    "10.2": chain,
    "10.3": clipped,
    "10.6a": break_even,
    "10.6b": decide,
}
