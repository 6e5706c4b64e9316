"""What notebook 06 times: the layers of SimpleCNN, the reader's kernel against torch,
and a training step with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, cross_entropy, max_pool2d, relu

from labkit.lesson.boards import SpeedBoard
from labkit.measure.bench import Comparison, Ratio, speedup
from labkit.measure.ceilings import measure_ceilings
from labkit.measure.machine import machine
from labkit.train import data
from labkit.train.models import SimpleCNN

_LAYERS = ("conv1", "relu1", "pool1", "conv2", "relu2", "pool2", "classifier")
Call = Callable[[], object]
Kernel = Callable[..., object]
Parts = tuple[Tensor, ...]  # x, weight, bias, pooled, choice


def same_threads() -> int:
    """Give numba as many threads as torch has; their number."""
    import numba

    threads = torch.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    torch.set_num_threads(threads)  # both may share one pool
    return threads


def digits(batch: int) -> tuple[Tensor, Tensor]:
    """Images (batch, 3, 32, 32) and labels (batch,) on this machine's device."""
    images, labels = data.digits(size=32, channels=3)
    device = machine().device
    return images[:batch].to(device), labels[:batch].to(device)


def layers(model: SimpleCNN, images: Tensor) -> dict[str, Call]:
    """A call for each layer that runs it forward and backward on the input that it gets
    in the network. The images need no gradient; every later layer's input does.
    """
    rows: dict[str, Call] = {}
    x = images
    modules = (*model.features, model.classifier)
    for name, layer in zip(_LAYERS, modules, strict=True):
        y = layer(x).detach()
        rows[name] = functools.partial(_both_ways, layer, x, torch.ones_like(y))
        x = y.requires_grad_()
    return rows


def _both_ways(layer: torch.nn.Module, x: Tensor, gradient: Tensor) -> None:
    wanted = [part for part in (x, *layer.parameters()) if part.requires_grad]
    torch.autograd.grad(layer(x), wanted, gradient)


def ratio(comparison: Comparison, slow: str, fast: str) -> Ratio:
    """How many times as fast the row `fast` is as the row `slow`."""
    timings = {timing.label: timing for timing in comparison.timings}
    return speedup(timings[slow], timings[fast])


def blocks(batch: int) -> dict[str, Parts]:
    """Random tensors of SimpleCNN's two blocks on the CPU: three channels become six in
    the first, six become sixteen in the second.
    """
    return {
        "block 1": _tensors(batch, channels=3, outputs=6, size=32),
        "block 2": _tensors(batch, channels=6, outputs=16, size=14),
    }


def _tensors(batch: int, *, channels: int, outputs: int, size: int) -> Parts:
    x = torch.randn(batch, channels, size, size)
    weight = 0.1 * torch.randn(outputs, channels, 5, 5)
    bias = 0.1 * torch.randn(outputs)
    side = (size - 4) // 2
    pooled = torch.zeros(batch, outputs, side, side)
    return x, weight, bias, pooled, pooled.to(torch.uint8)


def forward_race(
    kernel: Kernel | None, parts_by_block: Mapping[str, Parts], budget_s: float
) -> dict[str, Ratio]:
    """Time the forward pass of each block with torch, and with `kernel` unless it is
    None; how many times as fast the kernel is, by block.

    The limit is the rate of a matmul, with as many threads, over the FLOP of the
    convolution.
    """
    rows: dict[str, Call] = {}
    flop = {}
    for name, parts in parts_by_block.items():
        rows[f"{name}, torch"] = functools.partial(_with_torch, *parts[:3])
        flop[f"{name}, torch"] = flop[f"{name}, mine"] = _flop_an_image(*parts[:2])
        if kernel is not None:
            arrays = [part.numpy() for part in parts]
            rows[f"{name}, mine"] = functools.partial(kernel, *arrays)
    batch = len(parts_by_block["block 1"][0])
    board = SpeedBoard(
        "06.5",
        "Forward on the CPU",
        unit="images/s",
        size=f"batch {batch}",
        dtype="float32",
    )
    comparison = board.compare(
        rows, items=batch, sync=machine().sync, budget_s=budget_s
    )
    ceilings = measure_ceilings(threads=torch.get_num_threads())
    for row in rows:
        board.limit(row, ceilings.matmul_flop_per_s["float32"] / flop[row])
    if kernel is None:
        return {}
    return {
        name: ratio(comparison, f"{name}, torch", f"{name}, mine")
        for name in parts_by_block
    }


def _with_torch(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return max_pool2d(relu(conv2d(x, weight, bias)), 2)


def _flop_an_image(x: Tensor, weight: Tensor) -> int:
    """FLOP of the convolution of one image."""
    side = x.shape[-1] - weight.shape[-1] + 1
    return int(2 * weight.numel() * side**2)


def loss_and_gradient(
    model: torch.nn.Module, images: Tensor, labels: Tensor
) -> tuple[float, float]:
    """The loss, and the norm (the length) of all gradients together."""
    model.zero_grad()
    loss = cross_entropy(model(images), labels)
    loss.backward()
    gradients = [
        part.grad.ravel() for part in model.parameters() if part.grad is not None
    ]
    return loss.item(), torch.cat(gradients).norm().item()


def agree(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether two networks have the same loss and gradients, to three digits: on a GPU
    torch uses TF32.
    """
    return bool(np.allclose(one, other, rtol=1e-3))
