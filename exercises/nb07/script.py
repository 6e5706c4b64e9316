"""The script of exercise 07.6 with a switch for each of its six faults, so that each can be priced alone."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from labkit.core.display import brief_repr
from labkit.core.errors import LabError
from labkit.lesson.checks import Outcome

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    Pixels = NDArray[np.uint8]
    Labels = NDArray[np.int64]
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
    images: Pixels,
    labels: Labels,
    device: str,
    batch: int = 64,
    lr: float = 0.05,
    *,
    faults: Iterable[str] = (),
) -> dict[str, float]:
    """One epoch of SGD over the images in their order, with some of the six faults; each leaves the result as it is.

    images is uint8 (N, 3, 32, 32) and labels int64 (N,), both NumPy's and on the host; model is on `device`. Pixels
    become (pixel / 255 - 0.5) / 0.5. The last batch may be smaller. Returns the mean loss over the images, each taken
    before the update of its batch, and the accuracy on all images at the end (0 to 1). Raises LabError for a fault
    that is none of FAULTS.
    """
    import torch

    present = _known(faults)
    script = _Script(model, device, lr, present)
    with torch.autograd.set_detect_anomaly("anomaly mode" in present):
        pixels = None if "preparation" in present else script.prepare(images)
        targets = torch.from_numpy(labels).to(device)
        for start in range(0, len(images), batch):
            part = slice(start, start + batch)
            x = script.prepare(images[part]) if pixels is None else pixels[part]
            script.step(x, targets[part])
            if "evaluation" in present:
                accuracy = script.accuracy(script.prepare(images) if pixels is None else pixels, targets)
        if "evaluation" not in present:
            accuracy = script.accuracy(script.prepare(images) if pixels is None else pixels, targets)
    model.float()
    return {"loss": float(script.total) / len(images), "accuracy": float(accuracy)}


def _known(faults: Iterable[str]) -> frozenset[str]:
    present = frozenset(faults)
    if unknown := sorted(present - set(FAULTS)):
        raise LabError(f"Expected faults out of {', '.join(FAULTS)}; got {brief_repr(unknown)}.")
    return present


class _Script:
    """One run's model, optimiser and sum of losses."""

    def __init__(self, model: nn.Module, device: str, lr: float, faults: frozenset[str]) -> None:
        import torch

        self.dtype = torch.float64 if "float64" in faults else torch.float32
        self.model, self.device, self.faults = model.to(self.dtype), device, faults
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.total: Any = 0.0

    def prepare(self, images: Pixels) -> Tensor:
        """Images on the device, as the network wants them: (N, 3, 32, 32)."""
        import torch

        if "preparation" in self.faults:
            one_by_one = [torch.tensor(image.tolist(), dtype=self.dtype, device=self.device) for image in images]
            return torch.stack([(x / 255 - 0.5) / 0.5 for x in one_by_one])
        return (torch.from_numpy(images).to(self.device).to(self.dtype) / 255 - 0.5) / 0.5

    def step(self, x: Tensor, targets: Tensor) -> None:
        """One update of the weights."""
        self.optimizer.zero_grad()
        for piece, wanted in self._pieces(x, targets):
            losses: Any = self._losses(piece, wanted)  # whose backward torch leaves untyped
            (losses.sum() / len(x)).backward()
            if "reading back" in self.faults:
                for loss in losses.detach():
                    self.total += loss.item()
            else:
                self.total = self.total + losses.detach().sum()
        self.optimizer.step()

    def accuracy(self, x: Tensor, targets: Tensor) -> Tensor:
        """The share of images that are classified right, on the device still."""
        import torch

        with torch.no_grad():
            right: Tensor = (self.model(x).argmax(1) == targets).double().mean()
        return right

    def _losses(self, x: Tensor, targets: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(self.model(x), targets, reduction="none")

    def _pieces(self, x: Any, targets: Any) -> Iterator[tuple[Tensor, Tensor]]:
        size = 1 if "one by one" in self.faults else len(x)
        return zip(x.split(size), targets.split(size), strict=True)


def mended_in_turn(order: Iterable[str] = tuple(FAULTS)) -> Iterator[tuple[str, Script]]:
    """(row of a board, script) with all faults, then one fewer each time, in this order; the last has none.

    Raises LabError for a fault that is none of FAULTS.
    """
    order = tuple(order)
    left = list(FAULTS)
    yield "all six faults", functools.partial(train, faults=_known(left))
    for fault in order:
        _known([fault])
        left.remove(fault)
        yield f"without {fault}", functools.partial(train, faults=tuple(left))


def faults_left(outcome: Outcome) -> int | None:
    """How many faults a check of 07.6 has left: 0 when it passed, None while the script doesn't learn the same."""
    if outcome.state == "passed":
        return 0
    found = re.search(r"(\d) faults? remains? of 6", outcome.message)
    return int(found[1]) if found else None
