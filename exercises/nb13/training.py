"""What notebook 13's ways to train have in common: loss, optimizer, and what a rank
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


def loss_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """The loss of predicting each next token: logits (batch, T, vocabulary) of tokens
    (batch, T + 1).
    """
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def adam(model: nn.Module) -> torch.optim.Adam:
    """The optimizer of all ways; one weight at a time, so that it needs no memory of
    its own for all of them.
    """
    return torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)


def held_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of weights, gradients and optimizer states that this rank holds; of a
    tensor that is split over ranks, its part alone.
    """
    tensors = [
        tensor
        for weight in model.parameters()
        for tensor in (weight, weight.grad)
        if tensor is not None
    ]
    for state in optimizer.state.values():
        tensors += state.values()
    return sum(_local(tensor).nbytes for tensor in tensors)


def _local(tensor: Tensor) -> Tensor:
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def apart(a: Tensor | Sequence[float], b: Tensor | Sequence[float]) -> float:
    """The largest difference, relative to the largest number of `b`."""
    difference = torch.as_tensor(a) - torch.as_tensor(b)
    return float(difference.abs().max() / torch.as_tensor(b).abs().max())


def pass_on(x: Tensor) -> Tensor:
    """The same tensor, in a view of its own, as an operator of autograd needs it."""
    return x.view_as(x)


def make_operator(
    there: Callable[[Tensor], Tensor],
    back: Callable[[Tensor], Tensor],
) -> type[torch.autograd.Function]:
    """An operator of autograd: `there` is its forward, `back` its backward."""

    class Operator(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return there(x)

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            return back(gradient)

    return Operator
