"""Checks of notebook 10's functions of tensors: fewer operators by hand, and a function compiled without breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from labkit.core.display import brief_repr, cut
from labkit.core.errors import LabError
from labkit.lesson.checks import NotYet, call, function
from labkit.train.graphs import breaks, operators
from labkit.train.graphs.compiling import quiet

_MOST_OPERATORS = 3
_MOST = 0.5  # the limit that 10.3's inputs are on both sides of


def chain(answer: object) -> str:
    """relu(x * scale + shift) * 0.5 in at most three operators, which take new memory for the result alone."""
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
        _judge_chain(fn, inputs, f"For tensors of shape {name}")
    first, second = given(64), given(64)
    kept = call(fn, *first)
    call(fn, *second)
    if not torch.allclose(kept, _chain(*first)):
        raise NotYet("A second call changed what the first one returned: each call needs a result of its own.")
    return f"Right, and with at most {_MOST_OPERATORS} operators and no memory but the result's."


def _chain(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return (x * scale + shift).relu() * 0.5


def _judge_chain(fn: Callable[..., Any], inputs: list[Tensor], where: str) -> None:
    wanted = _chain(*inputs)
    copies = [part.clone() for part in inputs]
    got = call(fn, *copies)
    if not isinstance(got, Tensor):
        raise NotYet(f"{where}: expected a tensor as x, got {brief_repr(got)}.")
    for name, copy, original in zip(("x", "scale", "shift"), copies, inputs, strict=True):
        if not torch.equal(copy, original):
            raise NotYet(f"{where}: {name} was changed. The caller still needs it: write into a tensor of your own.")
    _compare(f"{where}: the result", got, wanted)
    counted = operators(lambda: fn(*inputs))
    names = ", ".join(f"{name} {n}" for name, n in counted.counts.items())
    if counted.total == 0:
        raise NotYet("No operator of torch ran: stay with torch, which runs on a GPU too.")
    if counted.total > _MOST_OPERATORS:
        raise NotYet(
            f"Right, but with {counted.total} operators ({names}); {_MOST_OPERATORS} are enough. Which operator of "
            "torch multiplies and adds in one go?"
        )
    if counted.new_bytes > wanted.nbytes:
        raise NotYet(
            f"Right, but it takes {counted.new_bytes:,} B of new memory, and the result has {wanted.nbytes:,} B: "
            "let the later operators overwrite what the first one made. Their names end in an underscore."
        )


def _compare(what: str, found: Tensor, wanted: Tensor) -> None:
    if found.dtype != wanted.dtype:
        raise NotYet(f"{what} should be {wanted.dtype}, as x is, got {found.dtype}.")
    if found.shape != wanted.shape:
        raise NotYet(f"{what} should have shape {tuple(wanted.shape)}, got {tuple(found.shape)}.")
    if found.isnan().any():
        raise NotYet(f"{what} has NaN in it. Is something divided by 0?")
    if not torch.allclose(found, wanted, rtol=1e-4, atol=1e-5):
        raise NotYet(f"{what} is off by up to {(found - wanted).abs().max().item():.3g}.")


def clipped(answer: object) -> str:
    """(centred, norm) of x limited to a root mean square of `most`: the same on both branches, in one graph."""
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
    tall, long = (torch.randn(*shape, generator=generator).double() for shape in ((2, 3, 4), (7,)))
    _judge_clipped(fn, tall, 0.2, "For x of three dimensions, float64 and most=0.2")
    _judge_clipped(fn, long, 3.0, "For x of one dimension, float64 and most=3")
    _judge_one_graph(fn, cases["x above the limit"])
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
            f"It compiles without a break, but {len(graphs)} times for {len(cases)} calls: something in Python, such "
            "as a counter or a branch on len(x), differs from call to call. Leave it to tensors."
        )
    return "Right on both branches, in one graph, compiled once for every batch size."


def _clipped(x: Tensor, most: float) -> tuple[Tensor, Tensor]:
    norm = x.square().mean().sqrt()
    limited = x * (most / norm) if norm > most else x
    return limited - limited.mean(), norm


def _judge_clipped(fn: Callable[..., Any], x: Tensor, most: float, where: str) -> None:
    copy = x.clone()
    got = call(fn, copy, most)
    if not isinstance(got, tuple | list) or len(got) != 2 or not all(isinstance(part, Tensor) for part in got):
        raise NotYet(
            f"{where}: expected two tensors, (centred, norm), got {brief_repr(got)}. Return the norm as a tensor: the "
            "caller can print it."
        )
    if not torch.equal(copy, x):
        raise NotYet(f"{where}: x was changed in place. The caller still needs it.")
    for name, found, wanted in zip(("centred", "norm"), got, _clipped(x, most), strict=True):
        _compare(f"{where}: {name}", found, wanted)


def _judge_one_graph(fn: Callable[..., Any], x: Tensor) -> None:
    try:
        found = breaks(fn, x, _MOST)
    except LabError as error:
        raise NotYet(f"It works, but the tracer fails on it: {cut(str(error), 300)}") from error
    if found.graphs != 1 or found.breaks:
        reasons = "; ".join(map(str, found.breaks)) or "the tracer gives no reason"
        raise NotYet(f"The results are right, but the call is cut into {found.graphs} graphs: {reasons}.")
    torch.compiler.reset()
    try:
        with quiet():
            torch.compile(fn, backend="eager", fullgraph=True)(x, _MOST)
    except Exception as error:
        raise NotYet(f"fullgraph=True, which allows no break, says: {cut(str(error).splitlines()[0], 200)}") from error
