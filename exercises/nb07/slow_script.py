"""A training script with six planted faults, each behind a switch, so that each can be
timed alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument

# fault -> what it is
FAULTS = {
    "preparation": "pixels go through Python lists, image by image",
    "evaluation": "all images are classified after each step",
    "one by one": "each image goes through the network alone",
    "anomaly mode": "autograd looks for NaN after each operator",
    "float64": "numbers of 8 bytes",
    "reading back": "each image's loss is read by the host",
}


def train(
    model: nn.Module,
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    device: str,
    batch: int = 64,
    lr: float = 0.05,
    *,
    faults: Iterable[str] = (),
) -> dict[str, float]:
    """Train for one epoch of SGD over the images in order, with some of FAULTS; they
    change the time, not the result.

    images (N, 3, 32, 32) and labels (N,) are on the host; model is on `device`. Pixels
    become (pixel / 255 - 0.5) / 0.5. The last batch may be smaller. Returns "loss", the
    mean over the images, each taken before the update of its batch, and "accuracy" on
    all images at the end, 0 to 1. Raises BadArgument for an unknown fault.
    """
    present = _known(faults)
    dtype = torch.float64 if "float64" in present else torch.float32
    prepare = functools.partial(
        _prepared, device=device, dtype=dtype, one_by_one="preparation" in present
    )
    optimizer = torch.optim.SGD(model.to(dtype).parameters(), lr=lr, momentum=0.9)
    total: Any = 0.0
    with torch.autograd.set_detect_anomaly("anomaly mode" in present):
        pixels = None if "preparation" in present else prepare(images)
        targets = torch.from_numpy(labels).to(device)
        for start in range(0, len(images), batch):
            rows = slice(start, start + batch)
            x = prepare(images[rows]) if pixels is None else pixels[rows]
            optimizer.zero_grad()
            for loss in _backward(
                model, x, targets[rows], 1 if "one by one" in present else len(x)
            ):
                total += (
                    sum(image_loss.item() for image_loss in loss)
                    if "reading back" in present
                    else loss.sum()
                )
            optimizer.step()
            if "evaluation" in present or start + batch >= len(images):
                with torch.no_grad():
                    logits = model(prepare(images) if pixels is None else pixels)
                    predictions = logits.argmax(1)
                # stays on the device until the end
                accuracy = (predictions == targets).double().mean()
    model.float()
    return {"loss": float(total) / len(images), "accuracy": float(accuracy)}


def _prepared(
    images: NDArray[np.uint8], device: str, dtype: torch.dtype, *, one_by_one: bool
) -> Tensor:
    """The images on the device, as the network wants them: (N, 3, 32, 32)."""
    if one_by_one:
        pixels = [
            torch.tensor(image.tolist(), dtype=dtype, device=device) for image in images
        ]
        return torch.stack([(x / 255 - 0.5) / 0.5 for x in pixels])
    return (torch.from_numpy(images).to(device).to(dtype) / 255 - 0.5) / 0.5


def _backward(
    model: nn.Module, x: Tensor, targets: Tensor, size: int
) -> Iterator[Tensor]:
    """Add the gradient of the batch's mean loss, `size` images at a time; yield the
    losses of their images.
    """
    for piece, wanted in zip(x.split(size), targets.split(size), strict=True):
        # torch leaves backward untyped
        losses: Any = cross_entropy(model(piece), wanted, reduction="none")
        (losses.sum() / len(x)).backward()
        yield losses.detach()


def _known(faults: Iterable[str]) -> frozenset[str]:
    present = frozenset(faults)
    if unknown := sorted(present - set(FAULTS)):
        raise BadArgument(
            f"Expected faults out of {', '.join(FAULTS)}; got {brief_repr(unknown)}."
        )
    return present
