"""Small convolutional networks for digits of 8 x 8 pixels, and what they need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from labkit.measure import profiling

Network = Callable[[], nn.Module]


def convolution(inputs: int, outputs: int, size: int = 3, **options: Any) -> nn.Conv2d:
    """A convolution that keeps the image's size, but for a stride among `options`."""
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, **options)


def chain(*layers: nn.Module) -> nn.Sequential:
    """The layers with a ReLU after each, and a linear layer to ten classes, which takes
    its inputs' number from the first image.
    """
    blocks = [part for layer in layers for part in (layer, nn.ReLU())]
    return nn.Sequential(*blocks, nn.Flatten(), nn.LazyLinear(10))


def ready(network: Network, images: Tensor) -> Network:
    """A function that makes the network on the images' device, after it has seen the
    first image (C, H, W): an optimizer can't take the weights of a lazy layer before.
    """

    def made() -> nn.Module:
        model = network().to(images.device)
        model(images[:1])
        return model

    return made


def forward_flop(network: Network, images: Tensor) -> float:
    """The FLOP of one image's forward pass."""
    model = ready(network, images)()
    return profiling.counted_flop(lambda: model(images[:1]))
