"""Checks of notebook 10 on functions of tensors: fewer operators by hand, and a function compiled without breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.core.display import brief_repr, cut
from labkit.core.errors import LabError
from labkit.lesson.checks import NotYet, call, function
from labkit.train.graphs import breaks, operators
from labkit.train.graphs.compiling import quiet

if TYPE_CHECKING:
    from torch import Tensor

_MOST_OPERATORS = 3
_MOST = 0.5  # the limit that 10.3's inputs are on both sides of


def chain(answer: object) -> str:
    """relu(x * scale + shift) * 0.5 in at most three operators, which take new memory for the result alone."""
    import torch

    generator = torch.Generator().manual_seed(3102)

    def given(*shape: int) -> list[Tensor]:
        return list(torch.randn(3, *shape, generator=generator))

    fn = function(answer, *given(4))
    turned = [part.T for part in given(5, 9)]
    cases = {"(1000,)": given(1000), "(7, 13)": given(7, 13), "(1,)": given(1), "(0,)": given(0)}
    for name, inputs in (cases | {"(9, 5), turned": turned, "(33,), float64": [p.double() for p in given(33)]}).items():
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
    import torch

    wanted = _chain(*inputs)
    copies = [part.clone() for part in inputs]
    got = call(fn, *copies)
    if not isinstance(got, torch.Tensor) or got.shape != wanted.shape or got.dtype != wanted.dtype:
        raise NotYet(
            f"{where}: expected a tensor as x, {wanted.dtype} of {tuple(wanted.shape)}, got {brief_repr(got)}."
        )
    for name, copy, original in zip(("x", "scale", "shift"), copies, inputs, strict=True):
        if not torch.equal(copy, original):
            raise NotYet(f"{where}: {name} was changed. The caller still needs it: write into a tensor of your own.")
    if not torch.allclose(got, wanted, rtol=1e-5, atol=1e-6):
        off = (got - wanted).abs().max().item()
        raise NotYet(f"{where}: the result is off by up to {off:.3g} from relu(x * scale + shift) * 0.5.")
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


def clipped(answer: object) -> str:
    """(centred, norm) of x limited to a root mean square of `most`: the same on both branches, in one graph."""
    import torch

    generator = torch.Generator().manual_seed(3103)
    fn = function(answer, torch.ones(4, 3), _MOST)
    cases = {
        "x above the limit": torch.randn(8, 3, generator=generator),
        "x below the limit": 0.1 * torch.randn(13, 3, generator=generator),
        "x of another size, above": 4 * torch.randn(32, 3, generator=generator) + 1,
        "x of zeros": torch.zeros(5, 3),
    }
    for name, x in cases.items():
        _judge_clipped(fn, x, _MOST, name, "")
    tall, long = (torch.randn(*shape, generator=generator).double() for shape in ((2, 3, 4), (7,)))
    _judge_clipped(fn, tall, 0.2, "x of three dimensions, float64 and most=0.2", "")
    _judge_clipped(fn, long, 3.0, "x of one dimension, float64 and most=3", "")
    first = next(iter(cases.values()))
    _judge_one_graph(fn, first)
    graphs: list[int] = []

    def counting(graph: Any, _inputs: Any) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    torch.compiler.reset()
    with quiet():
        compiled = torch.compile(fn, backend=counting, fullgraph=True, dynamic=True)
        for name, x in cases.items():
            _judge_clipped(compiled, x, _MOST, name, "Compiled, ")
    torch.compiler.reset()
    if len(graphs) != 1:
        raise NotYet(
            f"It compiles without a break, but {len(graphs)} times for {len(cases)} calls: something in Python, such "
            "as a counter or a branch on len(x), is another one at each call. Leave it to tensors."
        )
    return "Right on both branches, in one graph, compiled once for every batch size."


def _clipped(x: Tensor, most: float) -> tuple[Tensor, Tensor]:
    norm = x.square().mean().sqrt()
    limited = x * (most / norm) if norm > most else x
    return limited - limited.mean(), norm


def _judge_clipped(fn: Callable[..., Any], x: Tensor, most: float, name: str, how: str) -> None:
    import torch

    copy = x.clone()
    got = call(fn, copy, most)
    if not isinstance(got, tuple | list) or len(got) != 2 or not all(isinstance(p, torch.Tensor) for p in got):
        raise NotYet(
            f"{how}for {name}: expected two tensors, (centred, norm), got {brief_repr(got)}. "
            "Return the norm as a tensor: "
            "whoever wants to print it can, outside."
        )
    if not torch.equal(copy, x):
        raise NotYet(f"{how}for {name}: x was changed in place. The caller still needs it.")
    for part, found, wanted in zip(("centred", "norm"), got, _clipped(x, most), strict=True):
        if found.dtype != wanted.dtype:
            raise NotYet(f"{how}for {name}: {part} should be {wanted.dtype}, as x is, got {found.dtype}.")
        if found.shape != wanted.shape:
            raise NotYet(f"{how}for {name}: {part} should have shape {tuple(wanted.shape)}, got {tuple(found.shape)}.")
        if found.isnan().any():
            raise NotYet(f"{how}for {name}: {part} has NaN in it. What is most / norm when the norm is 0?")
        if not torch.allclose(found, wanted, rtol=1e-4, atol=1e-5):
            off = (found - wanted).abs().max().item()
            raise NotYet(f"{how}for {name}: {part} is off by up to {off:.3g} from the original's.")


def _judge_one_graph(fn: Callable[..., Any], x: Tensor) -> None:
    import torch

    try:
        found = breaks(fn, x, _MOST)
    except LabError as error:
        raise NotYet(f"It works, but the tracer fails on it: {cut(str(error), 300)}") from error
    if found.graphs != 1 or found.breaks:
        told = "; ".join(map(str, found.breaks)) or "the tracer gives no reason"
        raise NotYet(f"The results are right, but the call is cut into {found.graphs} graphs: {told}.")
    torch.compiler.reset()
    try:
        with quiet():
            torch.compile(fn, backend="eager", fullgraph=True)(x, _MOST)
    except Exception as error:
        raise NotYet(f"fullgraph=True, which allows no break, says: {cut(str(error).splitlines()[0], 200)}") from error
