"""Simulate training in 16 bits on hardware without it: every tensor is rounded, every sum is taken in float32."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def autocast_forward(model: nn.Module, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Simulate `model(x)` with layers that calculate in `dtype`: float32 arithmetic between roundings.

    Input, weights, the output of each layer, and the gradients of all of them are rounded to `dtype`; what overflows
    becomes inf. Sums inside a layer stay in float32, as on tensor cores, and so does all that follows the model, such
    as the loss. The speed and memory of a real format are not simulated.
    """
    layers = [layer for layer in model.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(lambda _layer, _args, out: _round(out, dtype)) for layer in layers]
    try:
        weights = {name: _round(weight, dtype) for name, weight in model.named_parameters()}
        result: Tensor = torch.func.functional_call(model, weights, (_round(x, dtype),))
    finally:
        for hook in hooks:
            hook.remove()
    return result


def _round(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype).to(x.dtype)  # autograd casts the gradient to and fro as well, so it is rounded too


@torch.no_grad()
def round_weights(optimizer: torch.optim.Optimizer, dtype: torch.dtype) -> None:
    """Round an optimizer's weights and its state to `dtype`, in place, as a step entirely in `dtype` would leave them.

    The optimizer's count of steps is not rounded: torch keeps it in float32 for weights of any dtype.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    state = [value for entry in optimizer.state.values() for key, value in entry.items() if key != "step"]
    for value in [*weights, *state]:
        if isinstance(value, Tensor) and value.is_floating_point():
            value.copy_(value.to(dtype))
