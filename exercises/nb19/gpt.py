"""The small GPT of notebook 19 with a switch for each technique; without any it is what
tutorials have.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.nn.attention.flex_attention import (
    BlockMask,
    create_block_mask,
    flex_attention,
)
from torch.nn.functional import (
    cross_entropy,
    relu,
    rms_norm,
    scaled_dot_product_attention,
)
from torch.utils.checkpoint import checkpoint

from labkit.measure.machine import machine, pick
from labkit.train.graphs import compiled
from labkit.train.models import SmallGPT


@dataclass(frozen=True)
class Switches:
    """A tutorial's settings, by default; the profile decides on the network's size."""

    rows: int = 50_257  # of the embedding's table, tied to the head: GPT-2's tokens
    batch: int = 8  # windows a step
    parts: int = 1  # of a batch, whose gradients are added up
    gathered: bool = False  # cut all windows of a batch at once
    one_call: bool = False  # attention in one call into torch
    # FlexAttention, which torch compiles; on a CPU it has no backward pass
    flex: bool = False
    fused: bool = False  # AdamW for all weights in one call
    read: bool = True  # loss and norm of the gradient, after every step
    bf16: bool = False  # products in bfloat16
    recompute: bool = False  # checkpointing: blocks keep their inputs only
    compiled: str = ""  # torch.compile's backend
    threads: int = 1
    rate: float = 1e-3  # AdamW's; Muon's is 0.02
    # the width that `rate` was found at; muP makes of it the rates of this width
    mup: int = 0
    warmup: int = 1  # steps until the full rate
    decay: int = 0  # steps in which the rate falls to a tenth; 0: it stays
    zero: bool = False  # projections that add to the residual start at zero
    qk_norm: bool = False  # queries and keys divided by their root mean square
    squared: bool = False  # ReLU squared in place of GELU
    muon: bool = False  # for the blocks' matrices
    layers: int = field(default_factory=lambda: pick(ci=1, cpu=2, gpu=6))
    heads: int = field(default_factory=lambda: pick(ci=2, cpu=4, gpu=6))
    width: int = field(default_factory=lambda: pick(ci=16, cpu=64, gpu=384))
    context: int = field(default_factory=lambda: pick(ci=16, cpu=64, gpu=256))
    device: str = field(default_factory=lambda: machine().device)


class _Attention(nn.Module):
    """(B, T, width) in and out, with the weights of SmallGPT's attention."""

    def __init__(self, qkv: nn.Linear, out: nn.Linear, on: Switches) -> None:
        super().__init__()
        self.qkv = qkv
        self.out = out
        self.on = on

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).unflatten(2, (3, self.on.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = parts  # each (B, heads, T, width / heads)
        if self.on.qk_norm:
            q, k = (rms_norm(part, part.shape[-1:]) for part in (q, k))
        if self.on.flex:
            mixed = _flex()(q, k, v, block_mask=_causal(q.shape[2], q.device))
        else:
            mixed = (
                scaled_dot_product_attention(q, k, v, is_causal=True)
                if self.on.one_call
                else _by_hand(q, k, v)
            )
        joined: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return joined


def _by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])  # (B, heads, T, T)
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -math.inf).softmax(3) @ v


@functools.cache
def _flex() -> Any:
    return (
        torch.compile(flex_attention) if torch.cuda.is_available() else flex_attention
    )


@functools.cache
def _causal(length: int, device: torch.device) -> BlockMask:
    """Which tokens each of so many sees: itself and those before."""
    return create_block_mask(
        lambda b, h, i, j: i >= j, None, None, length, length, device=device
    )


class _Squared(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return relu(x).square()


def new_model(on: Switches) -> SmallGPT:
    """SmallGPT with the parts that the switches ask for."""
    model = SmallGPT(
        on.rows, layers=on.layers, heads=on.heads, width=on.width, context=on.context
    )
    if on.mup:
        model.norm.register_forward_hook(
            lambda module, inputs, x: x * (on.mup / on.width)
        )
    blocks: Any = model.blocks
    for block in blocks:
        block.attention = _Attention(block.attention.qkv, block.attention.out, on)
        if on.squared:
            block.mlp.gelu = _Squared()
        if on.zero:
            for part in (block.attention, block.mlp):
                nn.init.zeros_(part.out.weight)
        if on.recompute:
            block.forward = functools.partial(
                checkpoint, block.forward, use_reentrant=False
            )
    for weight in hidden(model) if on.mup else ():
        weight.data *= math.sqrt(on.mup / on.width)
    return model.to(on.device)


def hidden(model: SmallGPT) -> list[nn.Parameter]:
    """The matrices of the blocks: of what a wider network has more, all but the
    embedding's rows.
    """
    return [weight for weight in model.blocks.parameters() if weight.dim() == 2]


def network(on: Switches, model: SmallGPT) -> nn.Module:
    """The model, or what the compiler makes of it."""
    return compiled(model, backend=on.compiled) if on.compiled else model


def new_optimizers(on: Switches, model: SmallGPT) -> list[optim.Optimizer]:
    """AdamW for all weights, or for all but the blocks' matrices, which Muon then has.

    muP divides their rate by the factor in width, as new_model their variance and the
    logits: G. Yang et al., Tensor programs V: tuning large neural networks via
    zero-shot hyperparameter transfer (2022), table 8.
    """
    matrices = hidden(model)
    rest = [p for p in model.parameters() if all(p is not other for other in matrices)]
    groups: list[dict[str, Any]] = [{"params": rest}]
    if not on.muon:
        groups.append(
            {"params": matrices, "lr": on.rate * (on.mup / on.width if on.mup else 1)}
        )
    adam = optim.AdamW(groups, lr=on.rate, fused=on.fused, foreach=False)
    return (
        [adam, optim.Muon(matrices, lr=0.02, weight_decay=0.0)] if on.muon else [adam]
    )


def schedules(
    on: Switches, optimizers: list[optim.Optimizer]
) -> list[optim.lr_scheduler.LRScheduler]:
    """For each optimizer, what raises its rate in `warmup` steps, and lowers it in
    `decay` steps.
    """

    def share(step: int) -> float:
        falling = max(0.1, 1 - step / on.decay) if on.decay else 1.0
        return min(1.0, (step + 1) / on.warmup) * falling

    return [optim.lr_scheduler.LambdaLR(each, share) for each in optimizers]


def windows(on: Switches, text: Tensor, starts: Tensor) -> Tensor:
    """Windows (B, context + 1) of a text (N,), on the switches' device."""
    length = on.context + 1
    if on.gathered:
        cut = text.unfold(0, length, 1)[starts]
    else:
        cut = torch.stack([text[start : start + length] for start in starts.tolist()])
    return cut.to(on.device)


def loss_of(net: nn.Module, rows: Tensor) -> Tensor:
    """Mean loss, in nats a token, of each token of the windows after the first; -100 is
    padding.
    """
    logits = net(rows[:, :-1].clamp(min=0)).float()
    return cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
