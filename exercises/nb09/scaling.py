"""A search for the scale of a loss: training steps in simulated float16 that begin with
a scale that is far too high.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from exercises.nb09 import formats
from labkit.measure.machine import threads
from labkit.train.models import SimpleCNN

# (loss, optimizer, scale, good steps in a row) -> scale and good steps for the next one
Step = Callable[[Tensor, torch.optim.Optimizer, float, int], tuple[float, int]]
_BATCH = 8


def search(
    take_step: Step, images: Tensor, labels: Tensor, *, steps: int, start: float
) -> list[float]:
    """The power of two of the scale after each step of training SimpleCNN with Adam.

    images: (N, 3, 32, 32), labels: (N,), of which batches of 8 are taken in turn.
    """
    torch.manual_seed(0)
    model = SimpleCNN().to(images.device)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    scale = start
    good = 0
    powers = []
    with threads(1):  # a network this small gains nothing from more
        for rows in torch.arange(_BATCH * steps).remainder(len(images)).split(_BATCH):
            logits = formats.autocast_forward(model, images[rows], torch.float16)
            loss = cross_entropy(logits, labels[rows])
            scale, good = take_step(loss, optimizer, scale, good)
            powers.append(math.log2(scale))
    return powers


def sent_gradients(model: SimpleCNN, images: Tensor, labels: Tensor) -> list[Tensor]:
    """The gradients that one backward pass sends from layer to layer, flat, the last
    layer's first; the loss is a mean over the images.
    """
    sent: list[Tensor] = []

    def keep(_layer: nn.Module, _inputs: object, output: Tensor) -> None:
        output.register_hook(lambda gradient: sent.append(gradient.flatten()))

    layers = [*model.features, *model.classifier]
    hooks = [layer.register_forward_hook(keep) for layer in layers]
    cross_entropy(model(images), labels).backward()
    for hook in hooks:
        hook.remove()
    return sent
