"""The check of exercise 12.1: gradients of a batch that several ranks share, on two and three real ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from exercises.several_ranks import on_ranks, rows_read
from exercises.whole_batch import Left, WholeBatch, near
from labkit.lesson.checks import NotYet, function

_BATCHES = (12, 37, 7, 2)  # the last leaves one of three ranks without an image


@dataclass
class SharedStep:
    """One call on one rank: which images its model was given, and what the call left."""

    rows: list[int]
    left: Left


def gradients(answer: object) -> str:
    """The whole batch's gradients and loss on every rank, each image read by one rank."""
    for images, steps in on_ranks(function(answer), _observe, _BATCHES, ranks=(2, 3)):
        _judge(steps, images, f"{images} images on {len(steps)} ranks")
    return (
        "Loss and gradients are those of the whole batch on every rank, each image is read once, and the batch size "
        "need not be divisible."
    )


def _observe(answer: Callable[..., object], images: int, seed: int) -> SharedStep:
    batch = WholeBatch(images, seed)
    with rows_read(batch.model, batch.x) as batches:
        loss = answer(batch.model, batch.x, batch.y)
    return SharedStep([row for rows in batches for row in rows], batch.left_by(loss))


def _judge(steps: Sequence[SharedStep], images: int, given: str) -> None:
    _judge_shares([step.rows for step in steps], images, given)
    ranks, found = len(steps), [step.left.gradient for step in steps]
    if any(one is None or found[0] is None or not near(one, found[0]) for one in found):
        otherwise = "the gradients differ from rank to rank. Which call sums the gradients of all ranks?"
    elif images % ranks:
        otherwise = (
            "every rank has the same gradients, but not the whole batch's. If shares differ in size, the mean of "
            "their means counts the images of a small share more."
        )
    else:
        otherwise = "every rank has the same gradients, but not the whole batch's. How much does a share count?"
    losses = {step.left.loss for step in steps}
    for rank, step in enumerate(steps):
        step.left.judge(
            f"For {given}, on rank {rank}",
            no_gradient="A rank without images must add zeros to the sum, so that it gets the others' gradients.",
            scaled={ranks: "a sum of means, not a mean", 1 / ranks: "divided by the number of ranks once too often"},
            otherwise=otherwise,
            loss="Each rank returns another one: that of its own share." if len(losses) > 1 else "",
        )


def _judge_shares(rows: Sequence[Sequence[int]], images: int, given: str) -> None:
    everything = [row for own in rows for row in own]
    if all(len(own) == images for own in rows):
        raise NotYet(f"For {given}: every rank's model was given all {images} images, so no work is shared.")
    if len(everything) != len(set(everything)):
        raise NotYet(f"For {given}: an image is read by two ranks, or twice. Shares must not overlap.")
    if len(everything) < images:
        raise NotYet(
            f"For {given}: {images - len(everything)} images are read by no rank. If the batch can't be divided "
            "evenly, some shares are larger by one."
        )
    if max(map(len, rows)) > math.ceil(images / len(rows)):
        raise NotYet(
            f"For {given}: shares of {', '.join(str(len(own)) for own in rows)} images. The step lasts as long as its "
            "largest share; let sizes differ by at most one."
        )
