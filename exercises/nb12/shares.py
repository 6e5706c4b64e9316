"""The check of exercise 12.1: gradients of a batch that several ranks share, on two and three real ranks."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exercises.several_ranks import body, on_ranks, rows_read
from labkit.core.arguments import as_float
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, Todo

if TYPE_CHECKING:
    from torch import Tensor, nn

_BATCHES = (12, 37, 7, 2)  # the last leaves one of three ranks without an image
_LEFT = 3.0  # in each gradient before the call


@dataclass
class Seen:
    """One call on one rank: which images its model was given, and what it left behind."""

    rows: list[int]
    loss: Any
    gradient: Tensor | None
    moved: bool
    expected_loss: float
    expected: Tensor


def gradients(answer: object) -> str:
    """The whole batch's gradients and loss on every rank, each image read by one rank."""
    fn = body(answer)
    for ranks in (2, 3):
        seen = on_ranks(_observe, ranks, fn, time.time_ns())
        for i, images in enumerate(_BATCHES):
            _judge([seen[rank][i] for rank in range(ranks)], images, f"{images} images on {ranks} ranks")
    return (
        "Loss and gradients are those of the whole batch on every rank, each image is read once, and the batch need "
        "not divide."
    )


def _observe(fn: Any, seed: int) -> list[Seen]:
    """Runs on each rank."""
    import torch
    import torch.distributed as dist
    from torch import nn

    dist.init_process_group("gloo")
    all_seen = []
    for images in _BATCHES:
        torch.manual_seed((seed + images) % 2**63)
        model = nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 4)).double()
        x, y = torch.randn(images, 12, dtype=torch.float64), torch.randint(4, (images,))
        all_seen.append(_one(fn, model, x, y))
        dist.barrier()
    return all_seen


def _one(fn: Any, model: nn.Module, x: Tensor, y: Tensor) -> Seen:
    import torch
    from torch.nn.functional import cross_entropy

    weights = list(model.parameters())
    whole = cross_entropy(model(x), y)
    expected = torch.cat([g.ravel() for g in torch.autograd.grad(whole, weights)])
    before = [weight.detach().clone() for weight in weights]
    for weight in weights:
        weight.grad = torch.full_like(weight, _LEFT)
    with rows_read(model, x) as batches:
        loss = fn(model, x, y)
    rows = [row for batch in batches for row in batch]
    left = [weight.grad for weight in weights]
    gradient = None if any(one is None for one in left) else torch.cat([one.ravel() for one in left if one is not None])
    moved = any(not torch.equal(a, b) for a, b in zip(before, weights, strict=True))
    number = as_float(loss)
    shown_loss = number if number is not None else None if loss is None else brief_repr(loss)
    return Seen(rows, shown_loss, gradient, moved, whole.item(), expected)


def _judge(seen: list[Seen], images: int, given: str) -> None:
    if all(one.loss is None for one in seen):
        raise Todo("gradients returns nothing yet: return the whole batch's mean loss.")
    _judge_rows([one.rows for one in seen], images, given)
    for rank, one in enumerate(seen):
        where = f"For {given}, on rank {rank}"
        if one.moved:
            raise NotYet(f"{where}: the weights changed. Only gradients are asked for; the optimiser comes after.")
        if one.gradient is None:
            raise NotYet(
                f"{where}: a weight has no gradient afterwards. A rank without images has to add zeros to the sum, so "
                "that the others' gradients get there too."
            )
        if not _near(one.gradient, one.expected):
            raise NotYet(f"{where}: {_gradient_hint(seen, rank, images)}")
        if not isinstance(one.loss, float) or not math.isclose(one.loss, one.expected_loss, rel_tol=1e-9):
            own = len({other.loss for other in seen}) > 1
            raise NotYet(
                f"{where}: the loss returned is {one.loss}; the whole batch's mean is {one.expected_loss:.6g}."
                + (" Every rank returns another one: its own share's." if own else "")
            )


def _judge_rows(rows: list[list[int]], images: int, given: str) -> None:
    everything, ranks = sorted(row for own in rows for row in own), len(rows)
    if all(len(own) == images for own in rows):
        raise NotYet(f"For {given}: every rank's model was given all {images} images, so nothing is shared out.")
    if len(everything) != len(set(everything)):
        raise NotYet(f"For {given}: an image is read by two ranks, or twice. Shares must not overlap.")
    if len(everything) < images:
        raise NotYet(
            f"For {given}: {images - len(everything)} images are read by no rank. Where the batch doesn't divide, some "
            "shares are larger by one."
        )
    if max(map(len, rows)) > math.ceil(images / ranks):
        raise NotYet(
            f"For {given}: shares of {', '.join(str(len(own)) for own in rows)} images. The step lasts as long as its "
            "largest share; let sizes differ by one at most."
        )


def _near(found: Tensor, right: Tensor) -> bool:
    import torch

    return torch.allclose(found, right, rtol=1e-9, atol=1e-12)


def _gradient_hint(seen: list[Seen], rank: int, images: int) -> str:
    found, right, ranks = seen[rank].gradient, seen[rank].expected, len(seen)
    assert found is not None  # judged above
    if bool(found.isnan().any()):
        return "a gradient is not a number. The mean over no images is 0 / 0: sum over the share instead."
    if any(_near(found - times * _LEFT, right) for times in (1, ranks)):
        return "the gradients of an earlier step are still in it: set them to zero first."
    factor = float(found @ right / (right @ right))
    if _near(found, factor * right):
        why = {float(ranks): "a sum of means, not a mean", 1.0 / ranks: "divided by the ranks once too often"}
        known = next(
            (text for value, text in why.items() if math.isclose(factor, value, rel_tol=1e-6)), "wrongly scaled"
        )
        return f"the gradients are {factor:.4g} times the whole batch's: {known}."
    if any(one.gradient is None or not _near(one.gradient, found) for one in seen):
        return "the gradients differ from rank to rank. Which call makes one sum of all ranks' gradients?"
    if images % ranks:
        return (
            "every rank has the same gradients, but not the whole batch's. Where shares differ in size, a mean of "
            "their means counts the images of a small share more."
        )
    return "every rank has the same gradients, but not the whole batch's. What is a share's part of the mean loss?"
