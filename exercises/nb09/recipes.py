"""Training with products in eight or four bits, emulated: where each recipe rounds, and
with which scales.

Every product's two factors are rounded; the product itself is taken in float32. What
that costs in accuracy is the recipe's own. Its speed is not emulated.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from labkit.core.display import Table
from labkit.core.errors import NotFinite
from labkit.train import data

_text = functools.cache(data.shakespeare)
CONTEXT = 8  # characters that the network sees
# numbers of a weight; Adam's state of smaller ones stays in float32, as in torchao
_LARGE = 4096
_EXACT = 2.0**-126  # a scale's reciprocal stays finite


@dataclass(frozen=True)
class Grid:
    """A format for tensors: `last` bits of fraction, the exponent of its smallest
    normal number, its largest.
    """

    last: int
    smallest: int
    largest: float

    def __call__(self, x: Tensor, stochastic: bool = False) -> Tensor:
        """Round to the nearest, ties to even, or up by chance; what is too large
        becomes the largest.
        """
        exponent = (torch.frexp(x).exponent - 1).clamp(min=self.smallest)
        step = torch.exp2((exponent - self.last).float())
        places = x / step
        places = (
            torch.floor(places + torch.rand_like(x))
            if stochastic
            else torch.round(places)
        )
        return (places * step).clamp(-self.largest, self.largest)


E4M3 = Grid(3, -6, 448.0)
E5M2 = Grid(2, -14, 57344.0)
E2M1 = Grid(1, 0, 6.0)


@dataclass
class Scaled:
    """A rounding with scales along the last dimension: `block` neighbours share one,
    -1: a row, 0: the tensor.

    `scale` is "float32", "power of two" (MXFP8), "e4m3" (NVFP4, within one float32
    scale for the tensor), or "none". `delayed` takes the largest number of the 16 steps
    before instead of this tensor's own. With `never_zero` a number above 0 becomes the
    format's smallest at least.
    """

    grid: Grid
    block: int = 0
    scale: str = "float32"
    stochastic: bool = False
    delayed: bool = False
    never_zero: bool = False
    seen: deque[Tensor] = field(default_factory=lambda: deque(maxlen=16))

    def __call__(self, x: Tensor) -> Tensor:
        """The numbers that a product sees, in float32."""
        if self.scale == "none":
            return self.grid(x, self.stochastic)
        if self.block == 0:
            return self._rounded(x, self._top(x.abs().max()))
        width = x.shape[-1]
        block = width if self.block < 0 else self.block
        blocks = pad(x, (0, -width % block)).unflatten(-1, (-1, block))
        return self._rounded(blocks, blocks.abs().amax(-1, keepdim=True)).flatten(-2)[
            ..., :width
        ]

    def _top(self, largest: Tensor) -> Tensor:
        if not self.delayed:
            return largest
        top = max(self.seen) if self.seen else largest
        self.seen.append(largest)
        return top

    def _rounded(self, x: Tensor, top: Tensor) -> Tensor:
        scale = (top / self.grid.largest).clamp(min=_EXACT)
        if self.scale == "power of two":
            scale = torch.exp2(torch.ceil(torch.log2(scale)))
        if self.scale == "e4m3":
            whole = (top.max() / (self.grid.largest * E4M3.largest)).clamp(min=_EXACT)
            scale = E4M3(scale / whole).clamp(min=2.0**-9) * whole
        near = self.grid(x / scale, self.stochastic) * scale
        if not self.never_zero:
            return near
        return torch.where(
            (near == 0) & (x > 0),
            scale * 2.0 ** (self.grid.smallest - self.grid.last),
            near,
        )


exact: Callable[[Tensor], Tensor] = nn.Identity()  # no rounding: float32


@dataclass(frozen=True)
class Recipe:
    """How the factors of products are rounded: inputs and weights in `forward`,
    gradients in `backward`.

    `hadamard` turns both factors of the weights' gradient by a random 16 x 16 Hadamard
    matrix first, which spreads outliers and leaves the product as it is. `state` rounds
    Adam's two states after each step. `called` is the recipe's name in torchao or
    Transformer Engine.
    """

    forward: Callable[[Tensor], Tensor] = exact
    backward: Callable[[Tensor], Tensor] = exact
    hadamard: bool = False
    state: Callable[[Tensor], Tensor] | None = None
    bits: float = 32.0
    called: str = ""


_FOUR = Scaled(E2M1, 16, "e4m3")
_FOUR_BY_CHANCE = Scaled(E2M1, 16, "e4m3", stochastic=True)
_EIGHT = Scaled(E4M3)
_UNSCALED = Scaled(E4M3, scale="none")
_ROW = Scaled(E4M3, -1)
_LATE = Scaled(E4M3, delayed=True)
_LATE_GRADIENT = Scaled(E5M2, delayed=True)
_MX = Scaled(E4M3, 32, "power of two")
_STATE = Scaled(E4M3, 256)
RECIPES = {
    "float32": Recipe(),
    "e4m3, no scale": Recipe(_UNSCALED, _UNSCALED, bits=8),
    "one scale, e4m3": Recipe(_EIGHT, _EIGHT, bits=8),
    "one scale, gradients e5m2": Recipe(
        _EIGHT, Scaled(E5M2), bits=8, called="torchao: tensorwise"
    ),
    "one delayed scale": Recipe(
        _LATE, _LATE_GRADIENT, bits=8, called="Transformer Engine: DelayedScaling"
    ),
    "a scale a row": Recipe(_ROW, _ROW, bits=8, called="torchao: rowwise"),
    "MXFP8": Recipe(_MX, _MX, bits=8.25, called="torchao: mxfp8"),
    "NVFP4": Recipe(
        _FOUR,
        _FOUR_BY_CHANCE,
        hadamard=True,
        bits=4.5,
        called="Transformer Engine: NVFP4BlockScaling",
    ),
    "NVFP4, to the nearest": Recipe(_FOUR, _FOUR, hadamard=True, bits=4.5),
    "NVFP4, no Hadamard": Recipe(
        _FOUR, _FOUR_BY_CHANCE, bits=4.5, called="MaxText: te_nvfp4_no_rht"
    ),
    "four bits, one scale": Recipe(Scaled(E2M1), Scaled(E2M1, stochastic=True), bits=4),
    "Adam's state in 8 bits": Recipe(state=_STATE, called="torchao: AdamWFp8"),
    "Adam's state, never to 0": Recipe(state=replace(_STATE, never_zero=True)),
}


def _turned(x: Tensor) -> Tensor:
    turned: Tensor = pad(x, (0, -x.shape[-1] % 16)).unflatten(-1, (-1, 16)) @ _TURN
    return turned.flatten(-2)


# A 16 x 16 Hadamard matrix (Sylvester's) with rows of random sign is orthogonal.
_SIGNS = torch.randint(2, (16, 1), generator=torch.Generator().manual_seed(0)) * 2 - 1
_TURN = (
    _SIGNS
    * functools.reduce(torch.kron, [torch.tensor([[1.0, 1.0], [1.0, -1.0]])] * 4)
    / 4
)


class _Product(torch.autograd.Function):
    """x @ w.T and its two gradients, each a product of rounded factors; scales run
    along what a product sums over.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, recipe: Recipe) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.recipe = recipe
        return recipe.forward(x) @ recipe.forward(w).T

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, w = ctx.saved_tensors
        recipe = ctx.recipe
        (gradient,) = gradients
        of_x = recipe.backward(gradient) @ recipe.forward(w.T.contiguous()).T
        turn = _turned if recipe.hadamard else exact
        of_w = recipe.backward(turn(gradient.T)) @ recipe.forward(turn(x.T)).T
        return of_x, of_w, None


class Linear(nn.Linear):
    """A linear layer without bias whose three products follow a recipe."""

    def __init__(self, recipe: Recipe, given: int, gives: int) -> None:
        super().__init__(given, gives, bias=False)
        self.recipe = deepcopy(recipe)  # delayed scaling remembers this layer's tensors

    def forward(self, x: Tensor) -> Tensor:
        """(B, given) to (B, gives)."""
        product: Tensor = _Product.apply(x, self.weight, self.recipe)  # type: ignore[no-untyped-call]
        return product


class NextCharacter(nn.Module):
    """Eight characters in, (B, 8) of int64; logits of the next one out. The first and
    last layer stay in float32.
    """

    def __init__(
        self, recipe: Recipe, characters: int, outlier: float, width: int = 64
    ) -> None:
        super().__init__()
        self.outlier = outlier
        self.embedding = nn.Embedding(characters, 16)
        hidden = [
            (Linear(recipe, CONTEXT * 16 if i == 0 else width, width), nn.ReLU())
            for i in range(3)
        ]
        self.layers = nn.Sequential(
            *(layer for pair in hidden for layer in pair), nn.Linear(width, characters)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, 8) to (B, characters)."""
        seen = self.embedding(x).flatten(1)
        seen = torch.cat([self.outlier * seen[:, :1], seen[:, 1:]], 1)
        logits: Tensor = self.layers(seen)
        return logits


def accuracy(
    recipe: Recipe,
    rate: float,
    seed: int,
    *,
    steps: int,
    batch: int = 64,
    outlier: float = 1.0,
) -> float:
    """Train the network for so many steps of Adam, the rate falling to 0; the share of
    8,192 characters named rightly.

    The characters are Shakespeare's, those judged from the part that isn't trained on.
    Raises NotFinite where a weight or a loss is no number.
    """
    first, held_out, characters = _text()
    torch.manual_seed(seed)
    model = NextCharacter(recipe, len(characters), outlier)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1 / steps, steps)
    for step in range(steps):
        x, y = _windows(first, torch.randint(len(first) - CONTEXT, (batch,)))
        loss = cross_entropy(model(x), y)
        if not math.isfinite(loss.item()):
            raise NotFinite(f"The loss is {loss.item()} at step {step:,}.")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if recipe.state is not None:
            _round_state(optimizer, recipe.state)
    same = torch.Generator().manual_seed(1)
    x, y = _windows(
        held_out, torch.randint(len(held_out) - CONTEXT, (8192,), generator=same)
    )
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def _windows(text: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
    return text[begins[:, None] + torch.arange(CONTEXT)], text[begins + CONTEXT]


def _round_state(
    optimizer: torch.optim.Optimizer, rounding: Callable[[Tensor], Tensor]
) -> None:
    for weight, entry in optimizer.state.items():
        for name in ("exp_avg", "exp_avg_sq") if weight.numel() >= _LARGE else ():
            entry[name].copy_(rounding(entry[name].flatten()).view_as(entry[name]))


def table(recipes: Mapping[str, Recipe]) -> Table:
    """A row a recipe: its bits a number of a product, scales included, and its name
    elsewhere.
    """
    rows = tuple(
        (name, f"{recipe.bits:g}", recipe.called) for name, recipe in recipes.items()
    )
    return Table(rows, ("recipe", "bits a number of a product", "also called"))


def flushed(gradient: Tensor, blocks: Sequence[int | None]) -> Table:
    """Shares of a gradient's nonzero numbers that e4m3 and e5m2 make 0, by how many
    share a scale (None: all).
    """
    nonzero = gradient != 0
    rows = []
    for block in blocks:
        roundings = (Scaled(grid, block or 0, "power of two") for grid in (E4M3, E5M2))
        lost = [
            (rounding(gradient)[nonzero] == 0).float().mean().item()
            for rounding in roundings
        ]
        rows.append(
            (f"{block or len(gradient):,}", *(f"{share:.1%}" for share in lost))
        )
    return Table(
        tuple(rows), ("numbers with one scale", "e4m3 flushes", "e5m2 flushes")
    )
