"""Two small networks to train: SimpleCNN and SmallGPT. Comments at the ends of lines
give shapes.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional

from labkit.core.errors import LabError
from labkit.core.parameters import Number, checked

# More would not fit into any memory.
Width = Annotated[int, Number(least=1, most=1_000_000)]
Depth = Annotated[int, Number(least=1, most=10_000)]


class SimpleCNN(nn.Module):
    """Classify float images (N, in_channels, 32, 32): logits (N, classes).

    The layout is LeNet-5's, with ReLU and max pooling in place of tanh and averaging;
    62,006 parameters for 3 channels and 10 classes. Raises LabError for images of
    another shape. Source: LeCun, Bottou, Bengio and Haffner, Gradient-based learning
    applied to document recognition (1998), fig. 2.
    """

    @checked
    def __init__(self, in_channels: Width = 3, classes: Width = 10) -> None:
        super().__init__()
        self.image_shape = (in_channels, 32, 32)
        self.features = nn.Sequential(
            # (N, C, 32, 32) -> (N, 6, 28, 28)
            nn.Conv2d(in_channels, 6, kernel_size=5),
            nn.ReLU(),
            nn.MaxPool2d(2),  # (N, 6, 14, 14)
            nn.Conv2d(6, 16, kernel_size=5),  # (N, 16, 10, 10)
            nn.ReLU(),
            nn.MaxPool2d(2),  # (N, 16, 5, 5)
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),  # (N, 400)
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),  # (N, classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, classes) of images (N, in_channels, 32, 32)."""
        if tuple(images.shape[1:]) != self.image_shape:
            channels = self.image_shape[0]
            raise LabError(
                f"SimpleCNN takes images of shape (N, {channels}, 32, 32), got"
                f" {tuple(images.shape)}; lab.data.digits(size=32, channels={channels})"
                " gives such images."
            )
        logits: Tensor = self.classifier(self.features(images))
        return logits


class SmallGPT(nn.Module):
    """Predict the next token: tokens (B, T) of int64 in, logits (B, T, vocab) out; T is
    at most `context`.

    A decoder like GPT-2's: learned positions, LayerNorm before each part (pre-norm),
    GELU, and a head that shares the embedding's weights. SmallGPT(50257, layers=12,
    heads=12, width=768, context=1024) is GPT-2: 124,439,808 parameters. Raises LabError
    for a width that `heads` doesn't divide, and for more tokens than `context`. Source:
    Radford et al., Language models are unsupervised multitask learners (2019), section
    2.3.
    """

    @checked
    def __init__(
        self, vocab: Width, layers: Depth, heads: Depth, width: Width, context: Width
    ) -> None:
        super().__init__()
        if width % heads:
            raise LabError(
                f"width must be a multiple of heads, got width {width} and {heads}"
                f" heads; try width {width + heads - width % heads}."
            )
        self.context = context
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        # tied: one matrix reads tokens in and scores them out
        self.head.weight = self.tokens.weight
        self._initialize(layers)

    def _initialize(self, layers: int) -> None:
        """Draw weights with a standard deviation of 0.02, less for the two layers a
        block that add to the residual.

        Theirs is divided by the root of the number of such layers, so that the sum
        doesn't grow with depth.
        """
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                scale = (2 * layers) ** -0.5 if name.endswith("out.weight") else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, vocab); those at position t depend on tokens 0 to t
        only.
        """
        length = tokens.shape[1]
        if length > self.context:
            raise LabError(
                f"This SmallGPT reads at most {self.context} tokens, got {length};"
                f" build it with context={length}."
            )
        positions = torch.arange(length, device=tokens.device)  # (T,)
        x = self.tokens(tokens) + self.positions(positions)  # (B, T, width)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))  # (B, T, vocab)
        return logits


class _Block(nn.Module):
    """One pre-norm transformer layer, (B, T, width) in and out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.mlp_norm = nn.LayerNorm(width)
        self.attention = _CausalAttention(width, heads)
        self.mlp = _mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        attended: Tensor = x + self.attention(self.attention_norm(x))
        return torch.add(attended, self.mlp(self.mlp_norm(attended)))


class _CausalAttention(nn.Module):
    """Attention of each token to itself and to earlier ones, (B, T,
    width) in and out.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        # then each of q, k, v is (B, heads, T, width/heads)
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (
            part.view(split).transpose(1, 2) for part in self.qkv(x).split(width, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        # (B, T, width)
        joined: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return joined


def _mlp(width: int) -> nn.Sequential:
    """Make two linear layers with GELU between, four times as wide inside, (B, T,
    width) in and out.
    """
    inner = nn.Linear(width, 4 * width)
    out = nn.Linear(4 * width, width)
    return nn.Sequential(
        OrderedDict(inner=inner, gelu=nn.GELU(approximate="tanh"), out=out)
    )
