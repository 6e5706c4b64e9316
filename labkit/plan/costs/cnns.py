"""Convolutional networks as layers: SimpleCNN and ResNet-50."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from labkit.plan.costs.layers import batch_norm, conv2d, cross_entropy, elementwise, linear, pool, window
from labkit.plan.costs.networks import LayerCost, Network


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


def _conv_norm(name: str, channels: int, outputs: int, size: int, kernel: int, stride: int = 1) -> Iterator[LayerCost]:
    shape = {"kernel": kernel, "stride": stride, "padding": kernel // 2}
    yield LayerCost(f"{name}.conv", lambda b: conv2d(b.size, channels, outputs, size, bias=False, **shape))
    yield LayerCost(f"{name}.norm", lambda b: batch_norm(b.size, outputs, window(size, **shape)))


def _bottleneck(name: str, channels: int, width: int, size: int, stride: int) -> Iterator[LayerCost]:
    small, outputs = size // stride, 4 * width
    yield from _conv_norm(f"{name}.1", channels, width, size, 1)
    yield _relu(f"{name}.1.relu", width * size**2)
    yield from _conv_norm(f"{name}.2", width, width, size, 3, stride)
    yield _relu(f"{name}.2.relu", width * small**2)
    yield from _conv_norm(f"{name}.3", width, outputs, small, 1)
    if channels != outputs:
        conv, norm = _conv_norm(f"{name}.shortcut", channels, outputs, size, 1, stride)
        # its input is the block's input, which the block's first convolution keeps already
        yield LayerCost(conv.name, lambda b: replace(conv.cost(b), saved_elements=0))
        yield norm
    yield LayerCost(f"{name}.add", lambda b: elementwise(b.size * outputs * small**2, inputs=2))
    yield _relu(f"{name}.relu", outputs * small**2)


def resnet50() -> Network:
    """ResNet-50 for (N, 3, 224, 224): 25,557,032 parameters, 4.09e9 multiply-adds forward.

    A block's stride is in its 3x3 convolution, as in today's libraries ("v1.5"), which call these multiply-adds
    "4.1 GFLOPs". Table 1 of the paper prints 3.8e9: there the stride is in the block's first, 1x1 convolution.
    Source: He, Zhang, Ren and Sun, Deep residual learning for image recognition (2016).
    """
    layers = [
        *_conv_norm("stem", 3, 64, 224, 7, 2),
        _relu("stem.relu", 64 * 112**2),
        LayerCost("stem.pool", lambda b: pool(b.size, 64, 112, kernel=3, stride=2, padding=1)),
    ]
    channels, size = 64, 56
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)], start=1):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 1 else 1
            layers += _bottleneck(f"stage{stage}.{block}", channels, width, size, stride)
            channels, size = 4 * width, size // stride
    features = channels * size**2
    layers += [
        LayerCost("average", lambda b: elementwise(b.size * features, saved=1)),
        LayerCost("fc", lambda b: linear(b.size, 2048, 1000)),
        LayerCost("loss", lambda b: cross_entropy(b.size, 1000)),
    ]
    return Network("ResNet-50", tuple(layers), "image of 3 x 224 x 224", "He et al. 2016")
