"""The batches of a training, in an order that the seed alone decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Step = Callable[[Tensor, Tensor], Tensor]
Setup = Callable[[], tuple[nn.Module, Step]]


@dataclass(frozen=True, eq=False)
class Batches:
    """Images and labels in batches of `batch`, in a new order each epoch; a smaller rest sits out."""

    images: Tensor
    labels: Tensor
    batch: int
    seed: int

    def epochs(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield the rows of each batch of one epoch after another, on the images' device, the same in each call."""
        generator = torch.Generator().manual_seed(self.seed)
        shown = len(self.images) // self.batch * self.batch
        while True:
            order = torch.randperm(len(self.images), generator=generator)[:shown]
            yield torch.split(order.to(self.images.device), self.batch)
