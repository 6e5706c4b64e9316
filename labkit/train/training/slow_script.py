"""A training script with six planted faults, each behind a switch, so that each can be timed alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument

Script = Callable[..., dict[str, float]]

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
    """Train for one epoch of SGD over the images in order, with some of FAULTS; they change the time, not the result.

    images (N, 3, 32, 32) and labels (N,) are on the host; model is on `device`. Pixels become
    (pixel / 255 - 0.5) / 0.5. The last batch may be smaller. Returns "loss", the mean over the images, each taken
    before the update of its batch, and "accuracy" on all images at the end, 0 to 1. Raises BadArgument for an unknown
    fault.
    """
    present = _known(faults)
    script = _Script(model, device, lr, present)
    with torch.autograd.set_detect_anomaly("anomaly mode" in present):
        pixels = None if "preparation" in present else script.prepare(images)
        targets = torch.from_numpy(labels).to(device)

        def prepared(rows: slice) -> Tensor:
            return script.prepare(images[rows]) if pixels is None else pixels[rows]

        for start in range(0, len(images), batch):
            rows = slice(start, start + batch)
            script.step(prepared(rows), targets[rows])
            if "evaluation" in present or start + batch >= len(images):
                accuracy = script.accuracy(prepared(slice(None)), targets)
    model.float()
    return {"loss": float(script.total) / len(images), "accuracy": float(accuracy)}


def mended_in_turn(order: Iterable[str] = tuple(FAULTS)) -> Iterator[tuple[str, Script]]:
    """(row of a board, script): first with all faults, then without one more of them each time, in this order.

    Raises BadArgument for an unknown fault.
    """
    left = list(FAULTS)
    yield "all six faults", functools.partial(train, faults=tuple(left))
    for fault in order:
        _known([fault])
        left.remove(fault)
        yield f"without {fault}", functools.partial(train, faults=tuple(left))


def _known(faults: Iterable[str]) -> frozenset[str]:
    present = frozenset(faults)
    if unknown := sorted(present - set(FAULTS)):
        raise BadArgument(f"Expected faults out of {', '.join(FAULTS)}; got {brief_repr(unknown)}.")
    return present


class _Script:
    """One run's model, optimiser and sum of losses."""

    def __init__(self, model: nn.Module, device: str, lr: float, faults: frozenset[str]) -> None:
        self.dtype = torch.float64 if "float64" in faults else torch.float32
        self.model, self.device, self.faults = model.to(self.dtype), device, faults
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.total: Any = 0.0

    def prepare(self, images: NDArray[np.uint8]) -> Tensor:
        """The images on the device, as the network wants them: (N, 3, 32, 32)."""
        if "preparation" in self.faults:
            one_by_one = [torch.tensor(image.tolist(), dtype=self.dtype, device=self.device) for image in images]
            return torch.stack([(x / 255 - 0.5) / 0.5 for x in one_by_one])
        return (torch.from_numpy(images).to(self.device).to(self.dtype) / 255 - 0.5) / 0.5

    def step(self, x: Tensor, targets: Tensor) -> None:
        """Update the weights once."""
        self.optimizer.zero_grad()
        size = 1 if "one by one" in self.faults else len(x)
        for start in range(0, len(x), size):
            piece, wanted = x[start : start + size], targets[start : start + size]
            losses: Any = cross_entropy(self.model(piece), wanted, reduction="none")  # torch leaves backward untyped
            (losses.sum() / len(x)).backward()
            if "reading back" in self.faults:
                for loss in losses.detach():
                    self.total += loss.item()
            else:
                self.total = self.total + losses.detach().sum()
        self.optimizer.step()

    def accuracy(self, x: Tensor, targets: Tensor) -> Tensor:
        """The share of images that are classified right; it stays on the device."""
        with torch.no_grad():
            right: Tensor = (self.model(x).argmax(1) == targets).double().mean()
        return right
