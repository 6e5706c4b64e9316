"""A layer that takes time and passes its input on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from labkit.dist.standin import StandIn


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: StandInLayer) -> torch.Tensor:
        ctx.layer = layer
        layer.card.compute(layer.forward_flop, layer.label, "F")
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.layer.card.compute(ctx.layer.backward_flop, ctx.layer.label, "B")
        return gradients[0], None


class StandInLayer(nn.Module):
    """Identity that takes the time of a layer, forward and, where gradients are recorded, backward."""

    def __init__(self, card: StandIn, forward_flop: float, backward_flop: float, label: str) -> None:
        super().__init__()
        self.card = card
        self.forward_flop = forward_flop
        self.backward_flop = backward_flop
        self.label = label

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x`, later."""
        if torch.is_grad_enabled() and not x.requires_grad and x.is_floating_point():
            x = x.detach().requires_grad_()  # the first layer's backward takes its time too
        out: torch.Tensor = _Pass.apply(x, self)  # type: ignore[no-untyped-call]
        return out
