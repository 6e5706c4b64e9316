"""A convolutional network as layers: SimpleCNN."""

from __future__ import annotations

from trainplan.costs.layers import conv2d, cross_entropy, elementwise, linear, pool
from trainplan.costs.networks import LayerCost, Network


def simple_cnn() -> Network:
    """SimpleCNN for (N, 3, 32, 32), the layout of LeNet-5 with ReLU and max pooling: 62,006 parameters.

    Source: LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition (1998), fig. 2.
    """
    layers = (
        LayerCost("conv1", lambda b: conv2d(b.size, 3, 6, 32, kernel=5)),
        _relu("relu1", 6 * 28 * 28),
        LayerCost("pool1", lambda b: pool(b.size, 6, 28, kernel=2)),
        LayerCost("conv2", lambda b: conv2d(b.size, 6, 16, 14, kernel=5)),
        _relu("relu2", 16 * 10 * 10),
        LayerCost("pool2", lambda b: pool(b.size, 16, 10, kernel=2)),
        LayerCost("fc1", lambda b: linear(b.size, 400, 120)),
        _relu("relu3", 120),
        LayerCost("fc2", lambda b: linear(b.size, 120, 84)),
        _relu("relu4", 84),
        LayerCost("fc3", lambda b: linear(b.size, 84, 10)),
        LayerCost("loss", lambda b: cross_entropy(b.size, 10)),
    )
    return Network("SimpleCNN", layers, "image of 3 x 32 x 32", "LeCun et al. 1998")


def _relu(name: str, elements: int) -> LayerCost:
    return LayerCost(name, lambda b: elementwise(b.size * elements))
