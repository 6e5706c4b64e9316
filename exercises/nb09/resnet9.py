"""A residual network that fills a GPU with work. Comments at the ends of lines give
shapes.
"""

from __future__ import annotations

from torch import Tensor, nn

from labkit.core.parameters import checked
from labkit.train.models import Width


class ResNet9(nn.Module):
    """Classify float images (N, in_channels, H, W): logits (N, classes). Made for 32 x
    32; needs at least 8 x 8.

    Eight 3x3 convolutions, two pairs of them with a shortcut, and a linear layer:
    6,573,120 parameters for 3 channels and 10 classes. The last pooling covers the
    whole feature map, which at 32 x 32 is the original's 4 x 4. Source: D. Page, How to
    train your ResNet (2018), the DAWNBench entry github.com/davidcpage/cifar10-fast,
    dawn.py.
    """

    @checked
    def __init__(self, in_channels: Width = 3, classes: Width = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            _conv_bn_relu(in_channels, 64),  # (N, 64, H, W)
            _conv_bn_relu(64, 128),
            nn.MaxPool2d(2),  # (N, 128, H/2, W/2)
            _Residual(128),
            _conv_bn_relu(128, 256),
            nn.MaxPool2d(2),  # (N, 256, H/4, W/4)
            _conv_bn_relu(256, 512),
            nn.MaxPool2d(2),  # (N, 512, H/8, W/8)
            _Residual(512),
            nn.AdaptiveMaxPool2d(1),  # (N, 512, 1, 1)
            nn.Flatten(),  # (N, 512)
        )
        self.classifier = nn.Linear(512, classes, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, classes) of images (N, in_channels, H, W)."""
        features = self.features(images)  # (N, 512)
        logits: Tensor = 0.125 * self.classifier(
            features
        )  # the source scales the logits so that training starts gently
        return logits


def _conv_bn_relu(c_in: int, c_out: int) -> nn.Sequential:
    # no bias: the batch norm that follows subtracts the mean and has a bias of its own
    convolution = nn.Conv2d(c_in, c_out, kernel_size=3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(c_out), nn.ReLU())


class _Residual(nn.Module):
    """x + conv(conv(x)), (N, C, H, W) in and out."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            _conv_bn_relu(channels, channels), _conv_bn_relu(channels, channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = x + self.inner(x)
        return total
