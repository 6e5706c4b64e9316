"""Notebook 17's network and its images: digits, and the network that each rank starts with."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from exercises.nb17.settings import LAYERS, Fault
from labkit.train import data

_WIDTH, HELD_OUT = 48, 300


class Network(nn.Module):
    """Four layers; what layer `gain[0]` gives is multiplied by gain[1], which the next one undoes."""

    def __init__(self, gain: tuple[int, float] = (-1, 1.0)) -> None:
        super().__init__()
        sizes = [64, *[_WIDTH] * (LAYERS - 1), 10]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        for weight in [*self.parameters()][:-2:2]:
            nn.init.kaiming_normal_(weight)
        self.gain, self.largest = gain, [0.0] * LAYERS
        self.saved_bytes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, 10) of images (n, 64); notes each layer's largest activation and its bytes."""
        self.saved_bytes = []
        for i, layer in enumerate(self.layers):
            x = layer(x)
            factor = self.gain[1] if i == self.gain[0] else 1.0
            x = x * factor
            self.largest[i] = float(x.detach().max()) if x.numel() else 0.0
            self.saved_bytes.append(x.numel() * x.element_size())
            x = x / factor
            x = torch.relu(x) if i + 1 < LAYERS else x
        return x.float()


def digits() -> tuple[Tensor, Tensor]:
    """Images (n, 64) sorted by label, then HELD_OUT others; and the labels."""
    images, labels = data.digits()
    order = torch.argsort(labels[:-HELD_OUT], stable=True)
    images = 2 * images.flatten(1) - 0.6
    return torch.cat([images[order], images[-HELD_OUT:]]), torch.cat([labels[order], labels[-HELD_OUT:]])


def first_network(fault: Fault, rank: int) -> Network:
    """The network that a rank starts with: after five steps, or new where no checkpoint was found."""
    torch.manual_seed(17)
    model = Network(fault.gain)
    if rank == fault.stale_rank:
        return model
    images, labels = digits()
    for first in range(5):
        model.zero_grad()
        cross_entropy(model(images[first::30]), labels[first::30]).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad if parameter.grad is not None else 0)
    return model
