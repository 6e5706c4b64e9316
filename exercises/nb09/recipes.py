"""Training with products in eight or four bits, emulated: where each recipe rounds, and
with which scales.

Every product's two factors are rounded; the product itself is taken in float32. What
that costs in accuracy is the recipe's own. Its speed is not emulated.

The names and defaults are those of torchao (torchao/float8/config.py and
torchao/prototype/moe_training, commit 36027d82) and of Transformer Engine
(transformer_engine/common/recipe/__init__.py and docs/features/low_precision_training/
nvfp4/nvfp4.rst, commit d0067d0d). NVFP4BlockScaling gives 16 x 16 weights one scale,
rounds gradients by chance, and turns both factors of the weights' gradient; each has a
switch, such as disable_rht. Which layers stay in more bits is left to the user there:
"we recommend running them in higher precision" (docs/examples/fp8_primer.ipynb, of the
last few). All four parts: NVIDIA 2025, arXiv:2509.25149.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
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
from labkit.measure.bootstrap import mean_interval
from labkit.train import data
from labkit.train.training.tuned import PAIRS, TunedComparison

_text = functools.cache(data.shakespeare)
CONTEXT = 8  # characters that the network sees
# numbers of a weight; Adam's state of smaller ones stays in float32, as in torchao
_LARGE = 4096
_EXACT = 2.0**-126  # a scale's reciprocal stays finite
# steps whose largest number a delayed scale fits: DelayedScaling's amax_history_len in
# Transformer Engine, transformer_engine/common/recipe/__init__.py (commit d0067d0d)
_HISTORY = 1024


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
    """A rounding with scales along the last dimension: `block` neighbors share one,
    -1: a row, 0: the tensor.

    `scale` is "float32", "power of two" (MXFP8), "e4m3" (NVFP4, within one float32
    scale for the tensor), or "none". `delayed` takes the largest number of the steps
    before instead of this tensor's own. With `never_zero` a number above 0 becomes the
    format's smallest at least. With `square`, block x block neighbors of a matrix
    share a scale, so that it and its transpose are rounded alike.
    """

    grid: Grid
    block: int = 0
    scale: str = "float32"
    stochastic: bool = False
    delayed: bool = False
    never_zero: bool = False
    square: bool = False
    seen: deque[float] = field(default_factory=lambda: deque(maxlen=_HISTORY))

    def __call__(self, x: Tensor) -> Tensor:
        """The numbers that a product sees, in float32."""
        if self.scale == "none":
            return self.grid(x, self.stochastic)
        if self.block == 0:
            return self._rounded(x, self._top(x.abs().max()))
        if self.square:
            return self._in_squares(x)
        width = x.shape[-1]
        block = width if self.block < 0 else self.block
        blocks = pad(x, (0, -width % block)).unflatten(-1, (-1, block))
        return self._rounded(blocks, blocks.abs().amax(-1, keepdim=True)).flatten(-2)[
            ..., :width
        ]

    def _in_squares(self, x: Tensor) -> Tensor:
        """Round a matrix (M, N) whose squares of block x block share a scale each."""
        rows, columns = x.shape
        padded = pad(x, (0, -columns % self.block, 0, -rows % self.block))
        squares = padded.unflatten(1, (-1, self.block)).unflatten(0, (-1, self.block))
        top = squares.abs().amax((1, 3), keepdim=True)  # (M / block, 1, N / block, 1)
        rounded = self._rounded(squares, top).flatten(2).flatten(0, 1)
        return rounded[:rows, :columns]

    def _top(self, largest: Tensor) -> Tensor:
        if not self.delayed:
            return largest
        top = largest.new_tensor(max(self.seen)) if self.seen else largest
        self.seen.append(largest.item())
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
    """How the factors of products are rounded: inputs in `forward`, and weights too if
    `weights` is None; gradients in `backward`.

    `hadamard` turns both factors of the weights' gradient by a random 16 x 16 Hadamard
    matrix first, which spreads outliers and leaves the product as it is. `state` rounds
    Adam's two states after each step. `last_kept` leaves the network's last layer in
    float32. `torchao` and `engine` are the recipe's names in torchao and in Transformer
    Engine.
    """

    forward: Callable[[Tensor], Tensor] = exact
    backward: Callable[[Tensor], Tensor] = exact
    weights: Callable[[Tensor], Tensor] | None = None
    hadamard: bool = False
    last_kept: bool = True
    state: Callable[[Tensor], Tensor] | None = None
    bits: float = 32.0
    torchao: str = ""
    engine: str = ""

    @property
    def of_weights(self) -> Callable[[Tensor], Tensor]:
        """The rounding of weights, in the forward and in the backward pass."""
        return self.weights or self.forward


_FOUR = Scaled(E2M1, 16, "e4m3")
_FOUR_BY_CHANCE = Scaled(E2M1, 16, "e4m3", stochastic=True)
_FOUR_SQUARE = Scaled(E2M1, 16, "e4m3", square=True)
_EIGHT = Scaled(E4M3)
_UNSCALED = Scaled(E4M3, scale="none")
_ROW = Scaled(E4M3, -1)
_LATE = Scaled(E4M3, delayed=True)
_LATE_WEIGHT = replace(_LATE, seen=deque(maxlen=_HISTORY))  # each has its own history
_LATE_GRADIENT = Scaled(E5M2, delayed=True)
_MX = Scaled(E4M3, 32, "power of two")
_STATE = Scaled(E4M3, 256)
_PLAIN = Recipe(
    _FOUR,
    _FOUR,
    last_kept=False,
    bits=4.5,
    engine="disable_2d_quantization, and both switches below",
)
_SQUARE = replace(
    _PLAIN, weights=_FOUR_SQUARE, engine="disable_stochastic_rounding, disable_rht"
)
_CHANCE = replace(_SQUARE, backward=_FOUR_BY_CHANCE, engine="disable_rht")
_TURNED = replace(
    _CHANCE, hadamard=True, torchao="NVFP4TrainingConfig", engine="NVFP4BlockScaling"
)
_KEPT = replace(
    _TURNED,
    last_kept=True,
    torchao="",
    engine="the same, another autocast for that layer",
)
# NVFP4 with one part more of its recipe at a time.
LADDER = {
    "NVFP4, plain": _PLAIN,
    "+ 2-D weight scales": _SQUARE,
    "+ gradients by chance": _CHANCE,
    "+ Hadamard": _TURNED,
    "+ last layer kept": _KEPT,
}
RECIPES = {
    "float32": Recipe(),
    "e4m3, no scale": Recipe(_UNSCALED, _UNSCALED, bits=8),
    "one scale, e4m3": Recipe(_EIGHT, _EIGHT, bits=8),
    "one scale, gradients e5m2": Recipe(
        _EIGHT,
        Scaled(E5M2),
        bits=8,
        torchao="tensorwise",
        engine="Float8CurrentScaling",
    ),
    "one delayed scale": Recipe(
        _LATE, _LATE_GRADIENT, weights=_LATE_WEIGHT, bits=8, engine="DelayedScaling"
    ),
    "a scale a row": Recipe(_ROW, _ROW, bits=8, torchao="rowwise"),
    "MXFP8": Recipe(
        _MX, _MX, bits=8.25, torchao="mxfp8_rceil", engine="MXFP8BlockScaling"
    ),
    **LADDER,
    "four bits, one scale": Recipe(Scaled(E2M1), Scaled(E2M1, stochastic=True), bits=4),
    "Adam's state in 8 bits": Recipe(state=_STATE, torchao="AdamWFp8"),
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
        return recipe.forward(x) @ recipe.of_weights(w).T

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, w = ctx.saved_tensors
        recipe = ctx.recipe
        (gradient,) = gradients
        of_x = recipe.backward(gradient) @ recipe.of_weights(w.T.contiguous()).T
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
    """Eight characters in, (B, 8) of int64; logits of the next one out. The embedding
    stays in float32, and so does the last layer if the recipe keeps it.
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
        last = (
            nn.Linear(width, characters)
            if recipe.last_kept
            else Linear(recipe, width, characters)
        )
        self.layers = nn.Sequential(*(layer for pair in hidden for layer in pair), last)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 8) to (B, characters)."""
        seen = self.embedding(x).flatten(1)
        seen = torch.cat([self.outlier * seen[:, :1], seen[:, 1:]], 1)
        logits: Tensor = self.layers(seen)
        return logits


@dataclass(frozen=True)
class Judged:
    """What a trained network makes of 8,192 characters that it hasn't seen: the share
    named rightly, and the mean cross-entropy in nats.
    """

    accuracy: float
    loss: float


def train(
    recipe: Recipe,
    rate: float,
    seed: int,
    *,
    steps: int,
    batch: int = 64,
    outlier: float = 1.0,
) -> Judged:
    """Train the network for so many steps of Adam, the rate falling to 0, and judge it.

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
        logits = model(x)
    right = (logits.argmax(1) == y).float().mean()
    return Judged(right.item(), cross_entropy(logits, y).item())


def _windows(text: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
    return text[begins[:, None] + torch.arange(CONTEXT)], text[begins + CONTEXT]


def _round_state(
    optimizer: torch.optim.Optimizer, rounding: Callable[[Tensor], Tensor]
) -> None:
    for weight, entry in optimizer.state.items():
        for name in ("exp_avg", "exp_avg_sq") if weight.numel() >= _LARGE else ():
            entry[name].copy_(rounding(entry[name].flatten()).view_as(entry[name]))


class Trainings:
    """Trainings by recipe, one a learning rate and seed, whose losses are kept."""

    def __init__(
        self, recipes: Mapping[str, Recipe], *, steps: int, outlier: float
    ) -> None:
        self.recipes = dict(recipes)
        self.steps = steps
        self.outlier = outlier
        # recipe -> (rate, seed) -> held-out loss in nats
        self._losses: dict[str, dict[tuple[float, int], float]] = {
            name: {} for name in recipes
        }

    @property
    def arms(self) -> dict[str, Callable[[float, int], float]]:
        """Recipe -> a function of learning rate and seed that trains and returns the
        accuracy, for lab.training.compare_tuned.
        """
        return {name: functools.partial(self._accuracy, name) for name in self.recipes}

    def _accuracy(self, name: str, rate: float, seed: int) -> float:
        recipe = self.recipes[name]
        self._losses[name][rate, seed] = math.inf  # unless it ends in a number
        judged = train(recipe, rate, seed, steps=self.steps, outlier=self.outlier)
        self._losses[name][rate, seed] = judged.loss
        return judged.accuracy

    def ladder(self, tuned: TunedComparison) -> Table:
        """How each of `LADDER` changes the held-out loss of the one before it, the
        first that of the first recipe: the mean over paired seeds, each recipe at its
        best rate, and a 95 % interval.
        """
        first = next(iter(self.recipes))
        names = [first, *(name for name in LADDER if name in self.recipes)]
        rows = []
        for before, name in itertools.pairwise(names):
            own = self._by_seed(name, tuned)
            other = self._by_seed(before, tuned)
            changes = [a - b for a, b in zip(own, other, strict=True)]
            rows.append((name, *_change_in_words(changes)))
        headings = ("part", "change in loss, nats", "95 % interval", "it is")
        note = "Nats: the loss is a cross-entropy with the natural logarithm."
        return Table(tuple(rows), headings, notes=(note,))

    def _by_seed(self, name: str, tuned: TunedComparison) -> list[float]:
        seeds = range(len(tuned.accuracies[name]))
        return [self._losses[name][tuned.rates[name], seed] for seed in seeds]


def _change_in_words(changes: Sequence[float]) -> tuple[str, str, str]:
    """The mean change of a loss, its interval, and what that shows."""
    if not all(map(math.isfinite, changes)):
        return "", "", "not judged: a loss is no number"
    low, high = mean_interval(changes)
    if len(changes) < PAIRS:
        shown = f"not judged: that needs {PAIRS} seeds"
    elif low > 0:
        shown = "worse"
    elif high < 0:
        shown = "better"
    else:
        shown = "not shown"
    return f"{statistics.fmean(changes):+.3f}", f"{low:+.3f} to {high:+.3f}", shown


def losing(tuned: TunedComparison) -> int | None:
    """How many ways name fewer characters rightly than the first one, beyond chance;
    None with too few seeds, which judge nothing.
    """
    _, *others = tuned.accuracies
    gains = [tuned.gain(name) for name in others]
    if any(gain.seeds < PAIRS for gain in gains):
        return None
    return sum(gain.verdict == "worse" for gain in gains)


_ENGINE = (
    "https://github.com/NVIDIA/TransformerEngine/blob/"
    "d0067d0da6cb01811b8072a7d304f0e00344ce2b/"
    "transformer_engine/common/recipe/__init__.py"
)
_TORCHAO = (
    "https://github.com/pytorch/ao/blob/"
    "36027d82d1ad9949597ea16002ff4940374b1b94/"
    "torchao/prototype/moe_training/nvfp4_training/nvfp4_training.py"
)
_DEFAULTS = (
    "Transformer Engine's defaults: Float8CurrentScaling takes e5m2 for gradients,"
    " MXFP8BlockScaling e4m3; NVFP4BlockScaling has all parts but the last, and which"
    f" layers keep more bits is left to you: {_ENGINE}",
    "torchao's: tensorwise takes e5m2 for gradients; mxfp8_rceil rounds scales up;"
    f" NVFP4TrainingConfig has the same parts, and no switch for them: {_TORCHAO}",
)


def table(recipes: Mapping[str, Recipe]) -> Table:
    """A row a recipe: its bits a number of a product, scales included, and its name
    elsewhere.
    """
    rows = tuple(
        (name, f"{recipe.bits:g}", recipe.torchao, recipe.engine)
        for name, recipe in recipes.items()
    )
    headings = ("recipe", "bits a number", "torchao", "Transformer Engine")
    return Table(rows, headings, notes=_DEFAULTS)


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
