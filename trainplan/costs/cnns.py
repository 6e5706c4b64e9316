"""A convolutional network as layers: SimpleCNN."""

from __future__ import annotations

from trainplan.costs.layers import Cost, conv2d, cross_entropy, elementwise, linear, pool
from trainplan.costs.networks import BatchShape, Network


def _simple_cnn(batch: BatchShape) -> dict[str, Cost]:
    n = batch.size
    return {
        "conv1": conv2d(n, 3, 6, 32, kernel=5),
        "relu1": elementwise(n * 6 * 28 * 28),
        "pool1": pool(n, 6, 28, kernel=2),
        "conv2": conv2d(n, 6, 16, 14, kernel=5),
        "relu2": elementwise(n * 16 * 10 * 10),
        "pool2": pool(n, 16, 10, kernel=2),
        "fc1": linear(n, 400, 120),
        "relu3": elementwise(n * 120),
        "fc2": linear(n, 120, 84),
        "relu4": elementwise(n * 84),
        "fc3": linear(n, 84, 10),
        "loss": cross_entropy(n, 10),
    }


# For (N, 3, 32, 32), the layout of LeNet-5 with ReLU and max pooling: 62,006 parameters. Source: LeCun, Bottou, Bengio
# and Haffner, Gradient-based learning applied to document recognition (1998), fig. 2.
SIMPLE_CNN = Network("SimpleCNN", _simple_cnn, "image of 3 x 32 x 32", "LeCun et al. 1998")
