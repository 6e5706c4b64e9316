"""nanoGPT's small GPT with a switch for each technique of notebook 19.

Without any switch it trains as nanoGPT does (karpathy/nanoGPT, commit 3adf61e1): on a
GPU with config/train_shakespeare_char.py, without one with the command that its README
has for a computer without a GPU. The network computes what nanoGPT's model.py does.
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
    dropout,
    relu,
    rms_norm,
    scaled_dot_product_attention,
)
from torch.utils.checkpoint import checkpoint

from labkit.measure.machine import machine, pick, threads
from labkit.train.graphs import compiled, missing
from labkit.train.models import SmallGPT

PADDING = -100  # in place of a token: no loss


def _on_gpu() -> bool:
    return machine().device == "cuda"


def _compiler() -> str:
    """What nanoGPT compiles with: on a GPU, where there is a compiler."""
    return "inductor" if _on_gpu() and not missing() else ""


def _threads() -> int:
    """All cores, as torch by default; one in the profile "ci"."""
    cores = machine().cores
    return pick(ci=1, cpu=cores, gpu=cores)


@dataclass(frozen=True)
class Switches:
    """nanoGPT's settings, by default; the profile "ci" shrinks the network."""

    batch: int = field(default_factory=lambda: pick(ci=4, cpu=12, gpu=64))
    context: int = field(default_factory=lambda: pick(ci=16, cpu=64, gpu=256))
    layers: int = field(default_factory=lambda: pick(ci=1, cpu=4, gpu=6))
    heads: int = field(default_factory=lambda: pick(ci=2, cpu=4, gpu=6))
    width: int = field(default_factory=lambda: pick(ci=16, cpu=128, gpu=384))
    dropout: float = field(default_factory=lambda: pick(ci=0.0, cpu=0.0, gpu=0.2))
    rows: int = 65  # of the embedding's table, tied to the head: one a character
    rate: float = 1e-3  # AdamW's; Muon's is 0.02
    warmup: int = 100  # steps until the full rate
    # steps in which the rate falls to a tenth, along half a cosine
    decay: int = field(default_factory=lambda: pick(ci=2000, cpu=2000, gpu=5000))
    beta2: float = 0.99
    weight_decay: float = 0.1  # of matrices
    read_every: int = field(default_factory=lambda: pick(ci=1, cpu=1, gpu=10))
    bf16: bool = field(default_factory=_on_gpu)  # products in bfloat16
    fused: bool = field(default_factory=_on_gpu)  # AdamW for all weights in one call
    compiled: str = field(default_factory=_compiler)  # torch.compile's backend
    threads: int = field(default_factory=_threads)
    device: str = field(default_factory=lambda: machine().device)
    # From here on, what nanoGPT doesn't do.
    parts: int = 1  # of the tokens, for each of which head and loss are computed alone
    gathered: bool = False  # cut all windows of a batch at once, from a text in place
    recompute: bool = False  # checkpointing: blocks keep their inputs only
    separator: int = -1  # the token that ends a document, which then sees no other
    # the width that `rate` was found at; muP makes of it the rates of this width
    mup: int = 0
    zero: bool = False  # projections that add to the residual start at zero
    qk_norm: bool = False  # queries and keys divided by their root mean square
    squared: bool = False  # ReLU squared in place of GELU
    muon: bool = False  # for the blocks' matrices


class _Attention(nn.Module):
    """(B, T, width) in and out, with the weights of SmallGPT's attention.

    `masks` holds what SmallGPT's tokens allow, under "mask", where documents are apart.
    """

    def __init__(
        self, qkv: nn.Linear, out: nn.Linear, on: Switches, masks: dict[str, Any]
    ) -> None:
        super().__init__()
        self.qkv = qkv
        self.out = out
        self.on = on
        self.masks = masks

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).unflatten(2, (3, self.on.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = parts  # each (B, heads, T, width / heads)
        if self.on.qk_norm:
            q, k = (rms_norm(part, part.shape[-1:]) for part in (q, k))
        mixed = self._mixed(q, k, v)  # (B, heads, T, width / heads)
        joined: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return joined

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = self.masks.get("mask")
        if isinstance(mask, BlockMask):
            mixed: Tensor = _flex()(q, k, v, block_mask=mask)
            return mixed
        share = self.on.dropout if self.training else 0.0
        return scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, dropout_p=share
        )


@functools.cache
def _flex() -> Any:
    return torch.compile(flex_attention)


def document_mask(tokens: Tensor, separator: int) -> BlockMask | Tensor:
    """Which tokens each of (B, T) sees: those of its own document up to itself.

    A document ends with `separator`. On a GPU it is FlexAttention's mask, which skips
    blocks that are empty; on a CPU, where FlexAttention has no backward pass in torch
    2.13, a bool (B, 1, T, T) for scaled_dot_product_attention.
    """
    ends = (tokens == separator).long()  # (B, T)
    document = ends.cumsum(1) - ends  # (B, T): the number of a token's document
    n_rows, length = tokens.shape
    if tokens.is_cuda:
        return create_block_mask(
            lambda b, h, i, j: (i >= j) & (document[b, i] == document[b, j]),
            n_rows,
            None,
            length,
            length,
            device=tokens.device,
        )
    same = document[:, :, None] == document[:, None, :]  # (B, T, T)
    return same.tril()[:, None]


class _Squared(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return relu(x).square()


def new_model(on: Switches) -> SmallGPT:
    """SmallGPT with nanoGPT's layers, and the parts that the switches ask for."""
    model = SmallGPT(
        on.rows, layers=on.layers, heads=on.heads, width=on.width, context=on.context
    )
    _drop_biases(model)
    if on.mup:
        model.norm.register_forward_hook(
            lambda module, inputs, x: x * (on.mup / on.width)
        )
    masks: dict[str, Any] = {}
    if on.separator >= 0:
        model.register_forward_pre_hook(
            lambda module, inputs: masks.update(
                mask=document_mask(inputs[0], on.separator)
            )
        )
    blocks: Any = model.blocks
    if on.dropout:
        blocks[0].register_forward_pre_hook(
            lambda module, inputs: dropout(inputs[0], on.dropout, module.training)
        )
    for block in blocks:
        attention = _Attention(block.attention.qkv, block.attention.out, on, masks)
        block.attention = attention
        _change(block, on)
    for weight in hidden(model) if on.mup else ():
        weight.data *= math.sqrt(on.mup / on.width)
    return model.to(on.device)


def _drop_biases(model: SmallGPT) -> None:
    """Take the biases out of all layers, as nanoGPT's train.py does."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.LayerNorm):
            layer.register_parameter("bias", None)


def _change(block: Any, on: Switches) -> None:
    if on.squared:
        block.mlp.gelu = _Squared()
    if on.dropout:
        for part in (block.attention, block.mlp):
            part.register_forward_hook(
                lambda module, inputs, x: dropout(x, on.dropout, module.training)
            )
    if on.zero:
        for name, weight in block.named_parameters():
            if name.endswith("out.weight"):
                nn.init.zeros_(weight)
    if on.recompute:
        block.forward = functools.partial(
            checkpoint, block.forward, use_reentrant=False
        )


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

    Only matrices decay. muP divides the rate of the blocks' matrices by the factor in
    width, as new_model their variance and the logits: G. Yang et al., Tensor programs
    V: tuning large neural networks via zero-shot hyperparameter transfer (2022), table
    8.
    """
    matrices = hidden(model)
    rest = [p for p in model.parameters() if all(p is not other for other in matrices)]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in rest if p.dim() == 2]},
        {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.0},
    ]
    if not on.muon:
        rate = on.rate * (on.mup / on.width if on.mup else 1)
        groups.append({"params": matrices, "lr": rate})
    adam = optim.AdamW(
        groups,
        lr=on.rate,
        betas=(0.9, on.beta2),
        weight_decay=on.weight_decay,
        fused=on.fused,
    )
    if not on.muon:
        return [adam]
    return [adam, optim.Muon(matrices, lr=0.02, weight_decay=0.0)]


def schedules(
    on: Switches, optimizers: list[optim.Optimizer]
) -> list[optim.lr_scheduler.LRScheduler]:
    """For each optimizer, what raises its rate in `warmup` steps, and lowers it until
    step `decay` to a tenth, as nanoGPT's get_lr.
    """

    def share(step: int) -> float:
        if step < on.warmup:
            return (step + 1) / (on.warmup + 1)
        fallen = min(1.0, (step - on.warmup) / (on.decay - on.warmup))
        return 0.1 + 0.9 * (1 + math.cos(math.pi * fallen)) / 2

    return [optim.lr_scheduler.LambdaLR(each, share) for each in optimizers]


@functools.lru_cache(maxsize=2)
def _placed(text: Tensor, device: str) -> Tensor:
    return text.to(device)


def windows(on: Switches, text: Tensor, starts: Tensor) -> Tensor:
    """Windows (B, context + 1) of a text (N,), on the switches' device."""
    length = on.context + 1
    if on.gathered:
        placed = _placed(text, on.device)
        return placed.unfold(0, length, 1)[starts.to(on.device)]
    cut = torch.stack([text[start : start + length] for start in starts.tolist()])
    return cut.to(on.device)


def targets(rows: Tensor, separator: int = -1) -> Tensor:
    """What is to be predicted (B, T) in rows (B, T + 1): each token after the first,
    but PADDING for what follows a `separator`, since no document tells of the next.
    """
    after = rows[:, 1:]
    return after.masked_fill(rows[:, :-1] == separator, PADDING)


def loss_of(net: nn.Module, rows: Tensor, separator: int = -1) -> Tensor:
    """Mean loss, in nats a token, of what is to be predicted in rows (B, T + 1)."""
    logits = net(rows[:, :-1].clamp(min=0)).float()  # (B, T, vocab)
    return cross_entropy(logits.flatten(0, 1), targets(rows, separator).flatten())


def chunked_loss(
    model: SmallGPT, rows: Tensor, separator: int = -1, parts: int = 16
) -> Tensor:
    """`loss_of`, with the logits of one part of the tokens at a time: backward computes
    those of each part again.
    """

    def part_loss(part: Tensor, right: Tensor) -> Tensor:
        logits = model.head(part).float()  # (tokens of the part, vocab)
        return cross_entropy(logits, right, reduction="sum")

    right = targets(rows, separator).flatten()  # (tokens,)
    read = features(model, rows).flatten(0, 1)  # (tokens, width)
    losses = [
        checkpoint(part_loss, part, of_part, use_reentrant=False)
        for part, of_part in zip(read.chunk(parts), right.chunk(parts), strict=True)
    ]
    total: Tensor = torch.stack(losses).sum()
    return total / (right != PADDING).sum()


def features(model: SmallGPT, rows: Tensor) -> Tensor:
    """What the head reads to predict all but the first token of rows (B, T + 1): (B, T,
    width).
    """
    tokens = rows[:, :-1].clamp(min=0)
    x = model.tokens(tokens) + model.positions.weight[: tokens.shape[1]]
    for block in model.blocks:
        x = block(x)
    normed: Tensor = model.norm(x)
    return normed


class Training:
    """nanoGPT's loop with some switches, a step at a time, on a text (N,): a network,
    its optimizers, and the tokens that were read.
    """

    def __init__(self, on: Switches, text: Tensor, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.on = on
        self.text = text
        self.model = new_model(on)
        self.optimizers = new_optimizers(on, self.model)
        self.tokens = 0
        self._net = network(on, self.model)
        self._schedules = schedules(on, self.optimizers)
        self._n_steps = 0

    def step(self, rows: Tensor | None = None) -> float | None:
        """Train on rows (B, T + 1), or on windows that begin anywhere in the text; the
        loss at steps that read it, else None.
        """
        on = self.on
        if rows is None:
            starts = torch.randint(len(self.text) - on.context, (on.batch,))
            rows = windows(on, self.text, starts)
        reads = self._n_steps % on.read_every == 0
        self._n_steps += 1
        self.tokens += rows.shape[0] * (rows.shape[1] - 1)
        self.model.zero_grad()
        with threads(on.threads):
            with torch.autocast(on.device, torch.bfloat16, enabled=on.bf16):
                loss = self._loss(rows)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            for optimizer in self.optimizers:
                optimizer.step()
            for schedule in self._schedules:
                schedule.step()
            return loss.item() if reads else None

    def _loss(self, rows: Tensor) -> Tensor:
        if self.on.parts > 1:
            return chunked_loss(self.model, rows, self.on.separator, self.on.parts)
        return loss_of(self._net, rows, self.on.separator)

    @torch.no_grad()
    def loss_on(self, held_out: Tensor) -> float:
        """Mean loss, in nats a token, on 32 windows at equal distances of a text."""
        starts = torch.arange(32) * (len(held_out) // 33)
        self.model.eval()
        with threads(self.on.threads):
            loss = loss_of(self.model, windows(self.on, held_out, starts)).item()
        self.model.train()
        return loss
