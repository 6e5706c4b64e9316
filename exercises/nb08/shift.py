"""The check of notebook 08's `shift_batch`, on pixels that are all different."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, Todo, call
from labkit.measure.machine import machine


def shift_batch(answer: object) -> str:
    """Shifts a whole batch, each image by an amount of its own, judged on pixels that are all different."""
    if not callable(answer):
        raise NotYet(f"Expected a function, got {brief_repr(answer)}. Pass its name without brackets.")
    for shape, most, dtype in (
        ((3, 3, 5, 7), 2, torch.uint8),
        ((1, 1, 6, 4), 1, torch.float32),
        ((5, 2, 3, 3), 0, torch.uint8),
        ((0, 3, 4, 4), 1, torch.float32),
    ):
        _moves(answer, shape, most, dtype)
    _spread_of(_moves(answer, (2000, 2, 6, 5), 2, torch.uint8), 2)
    first, second = (_moves(answer, (40, 1, 6, 5), 2, torch.uint8) for _ in range(2))
    if first == second:
        raise NotYet("Called twice, it moves the images by the same amounts again. Draw them anew in every call.")
    return "Every image moved by an amount of its own, zeros behind it, colours together, all amounts equally often."


def _moves(fn: Callable[..., Any], shape: tuple[int, ...], most: int, dtype: torch.dtype) -> list[tuple[int, int]]:
    """How far (down, right) each image of a random batch was moved; NotYet where that is not what was asked for."""
    images = torch.randint(1, 256, shape).to(dtype)
    kept, where = images.clone(), f"For a batch {tuple(shape)} of {str(dtype).removeprefix('torch.')}, most={most}"
    moved = call(fn, images.to(machine().device) if len(images) > 100 else images, most)
    if moved is None or moved is ...:
        raise Todo("shift_batch returns nothing yet: write its body.")
    if not isinstance(moved, Tensor) or moved.shape != images.shape or moved.dtype != dtype:
        got = f"{tuple(moved.shape)} of {moved.dtype}" if isinstance(moved, Tensor) else brief_repr(moved)
        raise NotYet(f"{where}: expected a tensor of the same shape and dtype, got {got}.")
    moved = moved.cpu()
    if not torch.equal(images, kept):
        raise NotYet(f"{where}: it has changed the images that it was given, and the cache with them. Make new ones.")
    padded = functional.pad(images, (most,) * 4)
    windows = padded.unfold(2, shape[2], 1).unfold(3, shape[3], 1)  # (N, C, places, places, height, width)
    same = (windows == moved[:, :, None, None]).all(5).all(4).all(1)  # (N, places, places)
    if not (found := same.flatten(1).any(1)).all():
        wrong = int((~found).nonzero()[0, 0])
        raise NotYet(f"{where}: {_why_not(images[wrong], moved[wrong], most)}")
    at = same.flatten(1).float().argmax(1)  # a window is most - amount away from the corner
    return [(most - i // (2 * most + 1), most - i % (2 * most + 1)) for i in at.tolist()]


def _why_not(image: Tensor, to: Tensor, most: int) -> str:
    """What became of an image that is not moved as it should be."""
    if not to.any():
        return "an image came out empty."
    far = max(image.shape[1:])
    amounts = list(itertools.product(range(-far, far + 1), repeat=2))
    for amount in amounts:
        if torch.equal(_shifted(image, *amount), to):
            return f"an image was moved by {max(map(abs, amount))} pixels, more than most."
        if torch.equal(torch.roll(image, amount, (1, 2)), to):
            return "what leaves an image at one side comes in at the other. Zeros should come in."
    pairs = zip(image[:, None], to[:, None], strict=True)
    if len(image) > 1 and all(any(torch.equal(_shifted(a, *amount), b) for amount in amounts) for a, b in pairs):
        return "the colours of an image are moved apart. One amount an image."
    return "an image is not the one that was given, moved with zeros behind it."


def _shifted(image: Tensor, down: int, right: int) -> Tensor:
    height, width = image.shape[1:]
    padded = functional.pad(image, (max(right, 0), max(-right, 0), max(down, 0), max(-down, 0)))
    return padded[:, max(-down, 0) :][:, :height, max(-right, 0) :][:, :, :width]


def _spread_of(moves: list[tuple[int, int]], most: int) -> None:
    """NotYet unless both directions take all their values equally often, and independently."""
    if len(set(moves)) == 1:
        raise NotYet("All images of a batch are moved by the same amount. Each should get its own.")
    counts = np.zeros((2 * most + 1, 2 * most + 1))
    for down, right in moves:
        counts[down + most, right + most] += 1
    shares = counts / counts.sum()
    if ((counts == 0).sum() > 0) and (shares.sum(0).min() > 0) and (shares.sum(1).min() > 0):
        raise NotYet("Down and right go together: draw the two apart, so that every pair of amounts occurs.")
    for axis, name in ((1, "down"), (0, "right")):
        along = shares.sum(axis)
        if abs(along - 1 / len(along)).max() > 0.05:
            told = ", ".join(f"{i - most:+d}: {share:.0%}" for i, share in enumerate(along))
            raise NotYet(
                f"Amounts {name} are not equally frequent ({told}). Whole numbers from -most to most, both ends too."
            )
    alike = sum(map(operator.eq, moves, moves[1:])) / (len(moves) - 1)
    if not 0.3 < alike * counts.size < 2.5:  # 2,000 images: six standard deviations from 1, and more
        raise NotYet(
            f"{alike:.0%} of the images are moved exactly as the one before, {1 / counts.size:.0%} would be by chance. "
            "Each gets its own random amount."
        )
