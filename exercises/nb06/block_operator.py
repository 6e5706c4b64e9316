"""The fused block of notebook 06 as an operator of torch: the reader's kernel on the
CPU, CUDA C++ on a GPU, shapes without numbers, and gradients.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import grad
from torch.nn.functional import pad, pixel_shuffle

from exercises.nb06 import cnn_block as cuda_block
from exercises.nb06.measuring import agree, loss_and_gradient
from labkit.core.display import Table
from labkit.measure.machine import machine
from labkit.train.models import SimpleCNN

Operator = Callable[..., Any]


def empty_pooled(x: Tensor, weight: Tensor) -> Tensor:
    """An empty result of the block, of the shape that x and weight lead to."""
    height, width = ((side - weight.shape[-1] + 1) // 2 for side in x.shape[2:])
    return x.new_empty(len(x), len(weight), height, width)


@torch.library.custom_op(
    "workbook::block_backward", mutates_args=(), device_types="cpu"
)
def block_backward(
    grad_pooled: Tensor, choice: Tensor, x: Tensor, weight: Tensor, wants_x: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x (of no images unless `wants_x`), weight and bias: each gradient of
    the pooled result goes to its chosen cell, and torch's convolution does the rest.
    """
    cells = [grad_pooled * (choice == cell) for cell in range(4)]
    spread = pixel_shuffle(torch.stack(cells, 2).flatten(1, 2), 2)
    rows, columns = (side - weight.shape[-1] + 1 for side in x.shape[2:])
    spread = pad(spread, (0, columns - spread.shape[3], 0, rows - spread.shape[2]))
    grad_x = grad.conv2d_input(x.shape, weight, spread) if wants_x else x[:0].clone()
    return grad_x, grad.conv2d_weight(x, weight.shape, spread), spread.sum((0, 2, 3))


@block_backward.register_fake
def _(
    grad_pooled: Tensor, choice: Tensor, x: Tensor, weight: Tensor, wants_x: bool
) -> tuple[Tensor, Tensor, Tensor]:
    grad_x = x.new_empty(len(x) if wants_x else 0, *x.shape[1:])
    return grad_x, torch.empty_like(weight), weight.new_empty(len(weight))


@block_backward.register_kernel("cuda")
def _(
    grad_pooled: Tensor, choice: Tensor, x: Tensor, weight: Tensor, wants_x: bool
) -> tuple[Tensor, Tensor, Tensor]:
    arrays = (part.contiguous() for part in (grad_pooled, choice, x, weight))
    grad_x, *others = cuda_block.cnn_block_backward(*arrays, input_gradient=wants_x)
    grad_x = x[:0].clone() if grad_x is None else grad_x
    grad_weight, grad_bias = (part.clone() for part in others)
    return grad_x, grad_weight, grad_bias  # results must not share memory


def operator(kernel: Callable[..., object]) -> Operator:
    """Torch's operator (x, weight, bias) -> (pooled, choice) of the reader's kernel,
    with its gradients.
    """

    @torch.library.custom_op(
        "workbook::fused_block", mutates_args=(), device_types="cpu"
    )
    def fused_block(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        pooled = empty_pooled(x, weight)
        choice = torch.empty_like(pooled, dtype=torch.uint8)
        arrays = [part.detach().contiguous().numpy() for part in (x, weight, bias)]
        kernel(*arrays, pooled.numpy(), choice.numpy())
        return pooled, choice

    @fused_block.register_fake
    def _(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        pooled = empty_pooled(x, weight)
        return pooled, torch.empty_like(pooled, dtype=torch.uint8)

    @fused_block.register_kernel("cuda")
    def _(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return cuda_block.cnn_block_forward(x.contiguous(), weight.contiguous(), bias)

    fused_block.register_autograd(_gradients, setup_context=_remember)
    return fused_block


def _remember(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(output[1], *inputs[:2])  # choice, x and weight


def _gradients(ctx: Any, grad_pooled: Tensor, grad_choice: Tensor) -> tuple[Any, ...]:
    wants_x = ctx.needs_input_grad[0]
    grad_x, *others = block_backward(grad_pooled, *ctx.saved_tensors, wants_x)
    return grad_x if wants_x else None, *others


class FusedBlock(torch.nn.Module):
    """A convolution with ReLU and pooling as one operator; the parameters are the
    convolution's own.
    """

    def __init__(self, convolution: Any, fused: Operator) -> None:
        super().__init__()
        self.weight = convolution.weight
        self.bias = convolution.bias
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        """The pooled result of x."""
        pooled: Tensor = self.fused(x, self.weight, self.bias)[0]
        return pooled


def with_blocks(
    model: SimpleCNN, fused: Operator, *, first_only: bool = False
) -> SimpleCNN:
    """The model with both blocks replaced, or the first one only."""
    conv1, _, _, *second = model.features
    if not first_only:
        second = [FusedBlock(second[0], fused)]
    model.features = torch.nn.Sequential(FusedBlock(conv1, fused), *second)
    return model


def _before_and_after(
    fused: Operator, images: Tensor, labels: Tensor
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Loss and gradient of one network, always the same, before and after both blocks
    are replaced.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        twin = SimpleCNN().to(images.device)
    before = loss_and_gradient(twin, images, labels)
    return before, loss_and_gradient(with_blocks(twin, fused), images, labels)


def compared(fused: Operator, images: Tensor, labels: Tensor) -> Table:
    """Loss and gradient of SimpleCNN as it is, and with both blocks replaced."""
    before, after = _before_and_after(fused, images, labels)
    rows = tuple(
        (name, *(f"{number:.6g}" for number in numbers))
        for name, numbers in {"torch's blocks": before, "your blocks": after}.items()
    )
    note = "the same network" if agree(before, after) else "not the same network"
    return Table(rows, ("", "loss", "norm of the gradient"), notes=(note,))


def models(fused: Operator, images: Tensor, labels: Tensor) -> dict[str, SimpleCNN]:
    """SimpleCNN with both blocks replaced, "mine", and with the first only, "half
    mine"; none where the network isn't the same, or where a GPU lacks CuPy.
    """
    if machine().gpus and importlib.util.find_spec("cupy") is None:
        return {}
    if not agree(*_before_and_after(fused, images, labels)):
        return {}  # a wrong kernel must not race
    device = images.device
    return {
        "mine": with_blocks(SimpleCNN().to(device), fused),
        "half mine": with_blocks(SimpleCNN().to(device), fused, first_only=True),
    }
