"""Split images into those to train on and those to validate on, and
measure accuracy.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.core.parameters import Count, Share, checked
from labkit.measure.machine import machine
from labkit.train.data import Labeled, digits


@checked
def held_out(
    images: Tensor, labels: Tensor, *, share: Share = 0.2, seed: int = 0
) -> tuple[Labeled, Labeled]:
    """Split into (training, validation), each (images, labels), with a random `share`
    of every class held out.

    A class of n images gives round(share n) of them to validation. The split depends on
    `seed` alone, and torch's own generator is left alone. Both parts are copies, in the
    order given, on the device of the images. Raises BadArgument for a share that is not
    between 0 and 1 or leaves a part empty, and for unequal lengths.
    """
    check_labeled("images", (images, labels))
    generator = torch.Generator().manual_seed(seed)
    on_cpu = labels.cpu()
    chosen = torch.zeros(len(on_cpu), dtype=torch.bool)
    for label in torch.unique(on_cpu):
        (rows,) = torch.nonzero(on_cpu == label, as_tuple=True)
        order = torch.randperm(len(rows), generator=generator)
        chosen[rows[order[: round(share * len(rows))]]] = True
    chosen = chosen.to(images.device)  # (images,)
    kept = ~chosen
    if not 0 < int(chosen.sum()) < len(chosen):
        raise BadArgument(
            "Expected a share that leaves images on both sides, got"
            f" {brief_repr(share)} of {len(chosen)} images in"
            f" {len(torch.unique(on_cpu))} classes. Try 0.2."
        )
    return (images[kept], labels[kept]), (images[chosen], labels[chosen])


@functools.cache
def digits_held_out() -> tuple[Labeled, Labeled]:
    """Return digits for SimpleCNN on this machine's device, with a fifth of each class
    of the training split held out.

    Drawn once, so that all runs train and are validated on the same images. The test
    split is in neither part.
    """
    device = machine().device
    images, labels = digits(size=32, channels=3)
    return held_out(images.to(device), labels.to(device))


def check_labeled(name: str, pair: Labeled) -> Labeled:
    """Return the pair; raise BadArgument unless it is (images, labels) of equal lengths
    on one device.
    """
    images, labels = pair
    if not (images.ndim and labels.ndim and len(images) == len(labels) > 0):
        raise BadArgument(
            f"Expected a label for each of one or more {name}, got shapes"
            f" {tuple(images.shape)} and {tuple(labels.shape)}."
        )
    if images.device != labels.device:
        raise BadArgument(
            f"Expected {name} and labels on one device, got {images.device} and"
            f" {labels.device}. Move both with .to()."
        )
    return images, labels


@checked
@torch.inference_mode()
def accuracy(
    model: nn.Module, images: Tensor, labels: Tensor, *, batch: Count = 1024
) -> float:
    """Return the share of images, 0 to 1, whose largest logit is at their label, in
    evaluation mode.

    Images are classified `batch` at a time; every module's mode is restored afterwards.
    An image with a NaN among its logits counts as wrong. Raises BadArgument unless
    there is a label for each image.
    """
    check_labeled("images", (images, labels))
    right = torch.zeros((), dtype=torch.int64, device=images.device)
    with evaluating(model):
        for x, y in zip(
            torch.split(images, batch), torch.split(labels, batch), strict=True
        ):
            logits = model(x)
            # else == would compare every image with every label
            if y.ndim != 1 or logits.shape[:-1] != y.shape:
                raise BadArgument(
                    "Expected logits (images, classes) and labels (images,), got"
                    f" {tuple(logits.shape)} and {tuple(y.shape)}. A column of labels"
                    " becomes a row with labels.flatten()."
                )
            right += ((logits.argmax(1) == y) & ~logits.isnan().any(1)).sum()
    return right.item() / len(labels)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set evaluation mode within the block; afterwards each module is in its own mode
    again.
    """
    with ExitStack() as undo:
        for module in model.modules():
            undo.callback(setattr, module, "training", module.training)
        model.eval()
        yield
