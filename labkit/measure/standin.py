"""A device that takes the time of a computation without doing it, so that 8 ranks can
be 8 devices on two cores.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import torch
from torch import nn

from labkit.core.errors import BadArgument
from labkit.core.parameters import NonNegative, Positive, checked
from ranks import SpanKind, span


@functools.cache
def oversleep_s() -> float:
    """How much longer than asked a sleep takes, in seconds: the least of nine, and no
    more than the timer is late.

    Linux lets a sleep end 50 µs late so that it can wake several sleepers at once:
    prctl(2), PR_SET_TIMERSLACK. More than twice that is a busy machine.
    """
    late_s = []
    for _ in range(9):
        start_s = time.monotonic()
        time.sleep(0.001)
        late_s.append(time.monotonic() - start_s - 0.001)
    return min(max(0.0, min(late_s)), 1e-4)


class StandIn:
    """A device of `flop_per_s` that sleeps for as long as a computation would take. Its
    results are "simulated".

    A sleeping process needs no core: 8 ranks compute at the same time on two. What they
    say to each other is real.
    """

    @checked
    def __init__(self, flop_per_s: Positive = 1e12) -> None:
        self.flop_per_s = float(flop_per_s)

    @checked
    def compute(
        self, flop: NonNegative, label: str = "", kind: SpanKind = "compute"
    ) -> None:
        """Take the time of `flop` operations: a span of `kind`, unless inside a
        `lab.dist.span`, whose part it is.
        """
        # a mistake in a unit, and it would sleep on after its reader has gone
        if flop > 3600 * self.flop_per_s:
            raise BadArgument(
                f"Expected flop to take at most an hour, got {flop:g} at"
                f" {self.flop_per_s:g} FLOP/s."
            )
        early_s = oversleep_s()
        with span(kind, label, simulated=True):
            end_s = time.monotonic() + flop / self.flop_per_s
            while (left_s := end_s - time.monotonic() - early_s) > 0:
                time.sleep(left_s)

    @checked
    def layer(
        self,
        forward_flop: NonNegative,
        backward_flop: NonNegative | None = None,
        label: str = "",
    ) -> nn.Module:
        """A module that passes its input on and takes the time of `forward_flop`
        forward, `backward_flop` backward.

        Backward takes twice as many as forward unless given.
        """
        backward = 2 * forward_flop if backward_flop is None else backward_flop
        return _StandInLayer(self, forward_flop, backward, label)


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: _StandInLayer) -> torch.Tensor:
        ctx.layer = layer
        layer.device.compute(layer.forward_flop, layer.label, "F")
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.layer.device.compute(ctx.layer.backward_flop, ctx.layer.label, "B")
        return gradients[0], None


class _StandInLayer(nn.Module):
    """Identity that takes the time of a layer, forward and, where gradients are
    recorded, backward.
    """

    def __init__(
        self, device: StandIn, forward_flop: float, backward_flop: float, label: str
    ) -> None:
        super().__init__()
        self.device = device
        self.label = label
        self.forward_flop = forward_flop
        self.backward_flop = backward_flop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() and not x.requires_grad and x.is_floating_point():
            # so that the first layer's backward takes its time too
            x = x.detach().requires_grad_()
        out: torch.Tensor = _Pass.apply(x, self)  # type: ignore[no-untyped-call]  # torch gives it no types
        return out
