"""Checks of notebook 13, a model that does not fit. Those that need real ranks are in
tensor_parallel.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from exercises.nb13.expert_dispatch import rows_to_ranks
from exercises.nb13.tensor_parallel import operators, plan
from labkit.core.display import brief_repr
from labkit.lesson.answers import about, parts
from labkit.lesson.checks import NotYet, call, function

# out (heads, T, size) and log-sum-exp (heads, T, 1) of attention over some keys
Part = tuple[Tensor, Tensor]


def merged(answer: object) -> str:
    """Two partial results merged, in values and gradients: drawn scores, equal and far
    apart, large, and no keys.
    """
    fn = function(answer)
    for part, other, why in _pairs_of_parts():
        right = _attention(
            torch.cat([part[0], other[0]], dim=-1),
            torch.cat([part[1], other[1]], dim=-2),
        )
        leaves = [
            x.requires_grad_() for scores in (part, other) for x in _attention(*scores)
        ]
        before = [x.detach().clone() for x in leaves]
        with about(f"two parts with {why}"):
            pair = parts(call(fn, *leaves), 2, "(out, lse)")
            _judge_part("lse", pair[1], right[1], _wrong_lse(*before))
            _judge_part("out", pair[0], right[0], _wrong_out(*before))
            if any(
                not torch.equal(x, x_before)
                for x, x_before in zip(leaves, before, strict=True)
            ):
                raise NotYet(
                    "It has changed a tensor that it was given, which autograd still"
                    " needs."
                )
            _judge_gradients(pair, leaves, before)
    return (
        "Equal to one softmax over all keys, gradients too, for scores up to 1000 and a"
        " second part without keys."
    )


def _attention(scores: Tensor, values: Tensor) -> Part:
    """Attention by scores (..., T, keys) over values (..., keys, size)."""
    lse = scores.logsumexp(-1, keepdim=True)
    return (scores - lse).exp() @ values, lse


def _pairs_of_parts() -> Iterator[tuple[Part, Part, str]]:
    """Scores and values of two parts, and what is special about them."""
    draw = torch.Generator()
    draw.seed()

    def part(keys: int, scale: float = 1.0, shift: float = 0.0) -> Part:
        shapes = (2, 5, keys), (2, keys, 3)
        scores, values = (
            torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes
        )
        return scale * scores + shift, values

    scores, values = part(7)
    # neither part is the larger one everywhere
    scores += torch.tensor([[2.0], [-2.0], [2.0], [-2.0], [2.0]])
    yield (scores, values), part(4), "scores near 0"
    yield part(1), part(6), "one key in the first"
    yield part(4, shift=3.0), part(9, shift=-2.0), "scores of different size"
    yield part(5, shift=900.0), part(5, shift=905.0), "scores near 900"
    yield part(5, shift=-950.0), part(5, shift=-948.0), "scores near -950"
    yield part(5, shift=700.0), part(5, shift=-700.0), "scores that are far apart"
    far = part(5, shift=-700.0), part(5, shift=700.0)
    yield *far, "scores that are far apart, the second part's larger"
    yield part(5), part(0), "no keys in the second"


def _wrong_lse(
    out_1: Tensor, lse_1: Tensor, out_2: Tensor, lse_2: Tensor
) -> list[tuple[Tensor, str]]:
    return [
        (
            lse_1 + lse_2,
            (
                "the sum of both logarithms is the logarithm of a product. Add up"
                " before taking the logarithm."
            ),
        ),
        (
            torch.maximum(lse_1, lse_2),
            "it is the larger of the two. The other part's exponentials count too.",
        ),
        (
            torch.logaddexp(lse_1, lse_2) - math.log(2),
            "it is the logarithm of their mean, and a sum is asked for.",
        ),
        (lse_1.exp() + lse_2.exp(), "it is the sum itself; lse is its logarithm."),
        (
            torch.logaddexp(lse_1, lse_2) / math.log(2),
            "it is a logarithm to the base of 2. The natural one is asked for.",
        ),
        (lse_1, "it is the first part's alone."),
        (lse_2, "it is the second part's alone."),
    ]


def _wrong_out(
    out_1: Tensor, lse_1: Tensor, out_2: Tensor, lse_2: Tensor
) -> list[tuple[Tensor, str]]:
    share = torch.sigmoid(lse_1 - lse_2)
    by_lse = (out_1 * lse_1 + out_2 * lse_2) / (lse_1 + lse_2)
    return [
        (
            (out_1 + out_2) / 2,
            (
                "both parts weigh the same. A part weighs as much as its sum of"
                " exponentials."
            ),
        ),
        (
            out_1 + out_2,
            (
                "the parts are added up. Each is a mean already: weigh them, with"
                " weights that add up to 1."
            ),
        ),
        (
            out_1 * (1 - share) + out_2 * share,
            "the weights are swapped: a larger lse is a larger weight.",
        ),
        (
            by_lse,
            (
                "the weights are the logarithms. A part weighs as much as its sum of"
                " exponentials, exp(lse)."
            ),
        ),
        (
            torch.where(lse_1 > lse_2, out_1, out_2),
            "the part with the larger lse is taken alone. Both have a share.",
        ),
        (
            out_1 * lse_1.exp() + out_2 * lse_2.exp(),
            "the weights don't add up to 1. Divide by the sum over both parts.",
        ),
    ]


def _judge_part(
    name: str, got: Any, right: Tensor, wrong: list[tuple[Tensor, str]]
) -> None:
    if not isinstance(got, Tensor):
        raise NotYet(f"expected {name} to be a tensor, got {brief_repr(got)}.")
    if got.shape != right.shape:
        swapped = " Are out and lse in that order?" if got.dim() == right.dim() else ""
        raise NotYet(
            f"expected {name} of shape {tuple(right.shape)}, got"
            f" {tuple(got.shape)}.{swapped}"
        )
    if not got.isfinite().all():
        raise NotYet(
            f"{name} has NaN or infinity. exp(lse) of 710 or more is infinite: take the"
            " exponential of differences only, such as lse_1 - lse, that are never"
            " above 0; and infinity - infinity is NaN."
        )
    if _near(got, right):
        return
    if _near(got, right, 1e-4):
        raise NotYet(
            f"{name} is right to a few digits only. Is something rounded to float32, or"
            " an epsilon added?"
        )
    off = f"it is off by up to {(got - right).abs().max().item():.3g}."
    why = next((words for value, words in wrong if _near(got, value)), off)
    raise NotYet(f"{name} is wrong: {why}")


def _near(got: Tensor, other: Tensor, rel: float = 1e-9) -> bool:
    return got.shape == other.shape and torch.allclose(
        got.double(), other.double(), rtol=rel, atol=rel
    )


def _judge_gradients(
    pair: tuple[Any, ...], leaves: list[Tensor], before: list[Tensor]
) -> None:
    """Backward through the answer and through a right merge, compared."""
    out_1, lse_1, out_2, lse_2 = again = [x.requires_grad_() for x in before]
    lse = torch.logaddexp(lse_1, lse_2)
    right = out_1 * (lse_1 - lse).exp() + out_2 * (lse_2 - lse).exp(), lse
    results = []
    for outputs, inputs in ((pair, leaves), (right, again)):
        total = sum(
            (x * torch.arange(1.0, 1 + x.numel()).view_as(x)).sum() for x in outputs
        )
        if not isinstance(total, Tensor) or not total.requires_grad:
            raise NotYet(
                "the values are right, but autograd can't go back through it. Use"
                " torch's functions only."
            )
        results.append(torch.autograd.grad(total, inputs, allow_unused=True))
    for x, y in zip(*results, strict=True):
        if x is None or y is None or not _near(x, y, 1e-6):
            raise NotYet(
                "the values are right, but the gradients aren't: NaN, or cut off by"
                " detach(). Ring attention's backward goes through here."
            )


def capacity(answer: object) -> str:
    """Which tokens an expert has room for, for drawn choices, uneven ones, and
    capacities that round up.
    """
    fn = function(answer)
    draw = random.Random()
    cases = [
        ([0] * 12 + [1, 2, 3], 4, 2.0),
        ([0, 0, 0, 1], 2, 1.0),
        ([1, 0, 1, 1, 0], 2, 1.0),
        ([2, 2, 2, 2, 2, 2, 2], 4, 1.25),
        ([0, 1, 2], 3, 0.5),
    ]
    cases += [([3, 1, 3], 4, 4.0), ([0], 1, 1.0), ([1, 1, 0, 0, 1, 1, 0, 0], 2, 0.75)]
    for _ in range(20):
        # where no rounding error lifts a whole capacity to the next
        experts = draw.choice((1, 2, 4, 8))
        chosen = [draw.randrange(experts) for _ in range(draw.randint(1, 40))]
        cases.append((chosen, experts, draw.choice((0.5, 1.0, 1.25, 1.5, 2.0))))
    for chosen, experts, factor in cases:
        tensor = torch.tensor(chosen, dtype=torch.int64)
        with about(
            f"tokens that chose {brief_repr(chosen)} of {experts} experts, and a factor"
            f" of {factor:g}"
        ):
            _judge_kept(call(fn, tensor, experts, factor), chosen, experts, factor)
        if tensor.tolist() != chosen:
            raise NotYet("It has changed the tensor that it was given. Work on a copy.")
    return (
        "The first tokens of each expert, up to its capacity, for uneven choices and"
        " capacities that round up."
    )


def _kept(chosen: list[int], most: int) -> list[bool]:
    return [chosen[:i].count(expert) < most for i, expert in enumerate(chosen)]


def _judge_kept(got: Any, chosen: list[int], experts: int, factor: float) -> None:
    if (
        not isinstance(got, Tensor)
        or got.dtype != torch.bool
        or got.shape != (len(chosen),)
    ):
        what = (
            f"{got.dtype} of shape {tuple(got.shape)}"
            if isinstance(got, Tensor)
            else brief_repr(got)
        )
        raise NotYet(f"expected a tensor of {len(chosen)} booleans, got {what}.")
    kept = got.tolist()
    exact = factor * len(chosen) / experts
    most = math.ceil(exact)
    if kept == _kept(chosen, most):
        return
    wrong = [
        (math.floor(exact), "Round the capacity up."),
        (math.ceil(len(chosen) / experts), "Does the factor count?"),
        (
            most + 1,
            (
                "It keeps one too many: before the last that fits, capacity - 1 tokens"
                " have been kept."
            ),
        ),
        (most - 1, "It keeps one too few."),
        (
            math.ceil(factor * len(chosen)),
            "The capacity is an expert's share of the tokens, not all of them.",
        ),
    ]
    why = next(
        (
            words
            for limit, words in wrong
            if limit != most and kept == _kept(chosen, limit)
        ),
        "",
    )
    if not why:
        numbers = [
            sum(k for k, e in zip(kept, chosen, strict=True) if e == expert)
            for expert in range(experts)
        ]
        over = max(numbers) > most
        why = f"It keeps {numbers}, expert by expert. " if over else ""
        why += (
            "Each expert has a capacity of its own."
            if over
            else "Of each expert's tokens the first ones are kept."
        )
    raise NotYet(f"an expert's capacity is {most}. {why}")


CHECKS = {
    "13.4": operators,
    "13.5": plan,
    "13.8": merged,
    "13.9": capacity,
    "13.9b": rows_to_ranks,
}
