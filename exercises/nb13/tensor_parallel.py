"""Checks of notebook 13's tensor parallelism on real ranks: its two operators, and a
plan for parallelize_module.
"""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional

from exercises.nb13.collective_traffic import Traffic
from exercises.several_ranks import on_ranks
from labkit.core.display import brief_repr
from labkit.lesson.answers import parts
from labkit.lesson.checks import NotYet, Todo, is_open, mapping

_SHAPE = (3, 4)
_MEAN = (
    "gives the mean over ranks. The ranks hold parts of one sum: nothing is divided."
)
# operator and pass -> whether its result is this rank's "own" or the "sum" of all, and
# words for the other of the two
_PASSES = {
    ("Copy", "forward"): (
        "own",
        (
            "adds up the inputs, which are the same on all ranks. It passes its input"
            " on, no more."
        ),
    ),
    ("Copy", "backward"): (
        "sum",
        (
            "passes this rank's gradient only. Every rank used the input for its own"
            " columns, so the gradients of all ranks must be added up."
        ),
    ),
    ("Sum", "forward"): (
        "sum",
        "passes this rank's part on. The result is the sum of all ranks' parts.",
    ),
    ("Sum", "backward"): (
        "own",
        (
            "adds up gradients. Each rank's part enters the sum with factor 1, so its"
            " gradient is the same."
        ),
    ),
}


@dataclass
class Passes:
    """What went into an operator's two passes on one rank and what came out, by pass:
    "forward" and "backward".
    """

    given: dict[str, Tensor]
    given_after: dict[str, Tensor]
    found: dict[str, Tensor]
    # what backward gives for the gradient of a sum; None where it wasn't tried
    of_ones: Tensor | None


def operators(answer: object) -> str:
    """(Copy, Sum), two autograd functions, judged by what goes into them and comes out
    on every rank.
    """
    pair = parts(answer, 2, "(Copy, Sum), the two classes")
    for name, operator in zip(("Copy", "Sum"), pair, strict=True):
        if operator is ...:
            raise Todo(
                f"{name} is still open: make_operator(its forward, its backward)."
            )
        if not isinstance(operator, type) or not issubclass(
            operator, torch.autograd.Function
        ):
            raise NotYet(
                f"Expected {name} to be a subclass of torch.autograd.Function, got"
                f" {brief_repr(operator)}."
            )
        for way in ("forward", "backward"):
            fn = getattr(operator, way)
            if fn is getattr(torch.autograd.Function, way) or is_open(fn):
                raise Todo(f"{name}.{way} has no body yet.")
    for _, passes in on_ranks(pair, _observe_operators, (0,), ranks=(2, 3)):
        for rank in range(len(passes)):
            _judge_operators(rank, passes)
    return (
        "On two and on three ranks: each passes one way what the other adds up, and"
        " neither changes its input."
    )


def _observe_operators(pair: Sequence[Any], _: int, seed: int) -> dict[str, Passes]:
    same, own = (
        torch.Generator().manual_seed(s) for s in (seed, seed + 1 + dist.get_rank())
    )
    passes = {}
    for name, operator, generator in zip(
        ("Copy", "Sum"), pair, (same, own), strict=True
    ):
        x, gradient = (
            torch.randn(_SHAPE, generator=draw, dtype=torch.float64)
            for draw in (generator, own)
        )
        inputs = {"forward": x.clone(), "backward": gradient.clone()}
        y = operator.apply(x.requires_grad_())
        outcome = {"forward": _checked(y, f"{name}'s forward")}
        y.backward(gradient)
        outcome["backward"] = _checked(x.grad, f"{name}'s backward")
        after = {"forward": x.detach(), "backward": gradient}
        of_ones = None
        # an operator that writes to its gradient would hang below
        if torch.equal(gradient, inputs["backward"]):
            # a sum hands all elements of its gradient one place in memory, which no
            # collective can write to
            x_again = x.detach().requires_grad_()
            operator.apply(x_again).sum().backward()
            of_ones = _checked(x_again.grad, f"{name}'s backward")
        passes[name] = Passes(inputs, after, outcome, of_ones)
    return passes


def _checked(value: Any, what: str) -> Tensor:
    """A copy of the tensor; an error, which on_ranks turns into NotYet, for anything
    else.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{what} returns {value!r}, not a tensor")
    if tuple(value.shape) != _SHAPE:
        raise ValueError(
            f"{what} gives a tensor of {tuple(value.shape)} for one of {_SHAPE}"
        )
    return value.detach().clone()


def _judge_operators(rank: int, by_rank: Sequence[dict[str, Passes]]) -> None:
    ranks = len(by_rank)
    where = f"On rank {rank} of {len(by_rank)}:"
    for (name, way), (kind, words) in _PASSES.items():
        own = by_rank[rank][name].given[way]
        total = torch.stack([passes[name].given[way] for passes in by_rank]).sum(0)
        right, other = (own, total) if kind == "own" else (total, own)
        wrong = [(other, words), (total / ranks, _MEAN)]
        _compare(
            f"{where} {name}'s {way}", by_rank[rank][name].found[way], right, wrong
        )
    for name, factor in (("Copy", ranks), ("Sum", 1)):
        passes = by_rank[rank][name]
        for way, what in (
            ("forward", "input"),
            ("backward", "gradient that it was given"),
        ):
            if not torch.equal(passes.given[way], passes.given_after[way]):
                raise NotYet(
                    f"{where} {name} has changed the {what}: dist.all_reduce writes"
                    " into its tensor, which others still use, a residual connection"
                    " for example. Give it a clone."
                )
        if passes.of_ones is not None:
            right_ones = torch.full_like(passes.of_ones, factor)
            _compare(
                f"{where} {name}'s backward, where all gradients are 1,",
                passes.of_ones,
                right_ones,
                [],
            )


def _compare(
    what: str, got: Tensor, right: Tensor, wrong: Sequence[tuple[Tensor, str]]
) -> None:
    if _near(got, right):
        return
    off = f"is off by up to {(got - right).abs().max().item():.3g}."
    why = next((words for value, words in wrong if _near(got, value)), off)
    raise NotYet(f"{what} {why}")


def _near(got: Tensor, other: Tensor) -> bool:
    return torch.allclose(got, other, rtol=1e-9, atol=1e-9)


_WIDTH = 24
_HEADS = 4
# of the parameters on a rank of two: half of the matrices, norms and some biases whole
_MOST = 0.55
_WHOLE_HEADS = (
    "Split by its inputs it would give parts of sums, and attention needs whole"
    " numbers."
)
_MATRICES = {
    "query": (ColwiseParallel, _WHOLE_HEADS),
    "key": (ColwiseParallel, _WHOLE_HEADS),
    "value": (
        ColwiseParallel,
        (
            "Split by its inputs it would give parts of sums: one all-reduce more than"
            " needed."
        ),
    ),
    "out": (
        RowwiseParallel,
        "Its input is split by heads already, so it is split by its inputs.",
    ),
    "up": (
        ColwiseParallel,
        (
            "Split by its inputs it would give parts of sums, and GELU of a part isn't"
            " a part of GELU."
        ),
    ),
    "down": (
        RowwiseParallel,
        "Its input is split already, so it is split by its inputs.",
    ),
}


class TransformerBlock(nn.Module):
    """A transformer block as the notebook's: attention and MLP behind a LayerNorm each,
    (B, T, width) in and out.

    The width of its query says how many heads it has, so that a rank with some of them
    needs no other code.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.per_head = width // heads
        self.norm_1 = nn.LayerNorm(width)
        self.norm_2 = nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width) for _ in range(4)
        )
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Of (B, T, width), the same shape."""
        layers = (self.query, self.key, self.value)
        normed = self.norm_1(x)
        q, k, v = (
            layer(normed).unflatten(-1, (-1, self.per_head)).transpose(1, 2)
            for layer in layers
        )
        # (B, heads, T, per_head)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        total: Tensor = x + self.down(functional.gelu(self.up(self.norm_2(x))))
        return total


@dataclass
class SplitRun:
    """A block's forward and backward on one rank: as one process? How many parameters
    are here, and what was sent.
    """

    same: bool
    share: float
    sent: dict[str, int]


def plan(answer: object) -> str:
    """Each matrix's style, told apart by kind first; then the block itself, split that
    way on two ranks.
    """
    styles = mapping(
        answer,
        dict.fromkeys(_MATRICES, "a style of torch.distributed.tensor.parallel"),
        more=True,
    )
    _judge_styles(styles)
    try:
        ((_, runs),) = on_ranks(styles, _observe_split, (0,), ranks=(2,))
    except NotYet as error:
        raise NotYet(f"A block split this way does not run. {error}") from error
    for rank, run in enumerate(runs):
        if not run.same:
            raise NotYet(
                f"Rank {rank} computes something other than one process does. Leave the"
                " styles' options as they are: inputs whole for the first of a pair,"
                " split in between, whole behind the second."
            )
    if set(runs[0].sent) - {"all_reduce"} or runs[0].sent.get("all_reduce", 0) > 6:
        sent = ", ".join(
            f"{calls} {name.replace('_', '-')}" for name, calls in runs[0].sent.items()
        )
        raise NotYet(
            f"Right, but a rank sends more than it needs to ({sent}). Six all-reduces"
            " are enough: which option adds the others?"
        )
    share = max(run.share for run in runs)
    if share > _MOST:
        raise NotYet(
            f"Equal to one process, but a rank holds {share:.0%} of the block's"
            " parameters. Is each one split?"
        )
    return (
        f"Equal to one process on two ranks; each holds {share:.0%} of the block's"
        " parameters."
    )


def _judge_styles(styles: dict[str, Any]) -> None:
    """Raise NotYet for a layer that the block lacks, and for a matrix without the style
    that it needs.
    """
    layers = [name for name, _ in TransformerBlock(_WIDTH, _HEADS).named_children()]
    unknown = [name for name in styles if not fnmatch.filter(layers, str(name))]
    if unknown:
        raise NotYet(
            f"The block has no layer {brief_repr(unknown[0])}; torch would ignore it."
            f" It has {', '.join(layers)}."
        )
    for name, (kind, why) in _MATRICES.items():
        style = styles[name]
        if isinstance(style, type) and issubclass(style, ParallelStyle):
            raise NotYet(
                f"{name}: {style.__name__} is the class. Call it: {style.__name__}()."
            )
        if not isinstance(style, ParallelStyle):
            raise NotYet(
                f"{name}: expected ColwiseParallel() or RowwiseParallel(), got"
                f" {brief_repr(style)}."
            )
        if not isinstance(style, kind):
            raise NotYet(f"{name} is {type(style).__name__}. {why}")


def _observe_split(styles: dict[str, Any], _: int, seed: int) -> SplitRun:
    # silent about a plan that can't run
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    results = []
    for split in (False, True):
        torch.manual_seed(seed)
        block = TransformerBlock(_WIDTH, _HEADS).double()
        if split:
            parallelize_module(
                block, init_device_mesh("cpu", (dist.get_world_size(),)), dict(styles)
            )
        x = torch.randn(2, 5, _WIDTH, dtype=torch.float64, requires_grad=True)
        with Traffic() as traffic:
            y = block(x)
            y.square().sum().backward()
        results.append((y.detach(), x.grad))
    here = sum(
        getattr(weight, "_local_tensor", weight).numel()
        for weight in block.parameters()
    )
    same = all(_near(value, other) for value, other in zip(*results, strict=True))
    whole = sum(weight.numel() for weight in block.parameters())
    return SplitRun(
        same, here / whole, {name: n for name, n in traffic.counts.items() if n}
    )
