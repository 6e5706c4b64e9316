"""Networks as lists of layers: parameters, forward FLOP and what is kept for the backward pass, layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labkit.core.arguments import check_number
from labkit.core.errors import LabError
from labkit.core.units import format_si
from labkit.plan.costs.layers import BACKWARD, Cost


@dataclass(frozen=True)
class Batch:
    """What goes through a network at once: `size` samples of `seq` tokens (images have none), and how it is computed.

    `fused_attention` keeps the attention scores out of memory (FlashAttention, torch's scaled_dot_product_attention).
    """

    size: int = 1
    seq: int = 1
    element_bytes: int = 4
    fused_attention: bool = True

    @property
    def tokens(self) -> int:
        """Tokens of all samples."""
        return self.size * self.seq


@dataclass(frozen=True)
class Layer:
    """A named layer, its cost for a batch, and how often it stands in a row."""

    name: str
    cost_of_one: Callable[[Batch], Cost]
    times: int = 1

    def cost(self, batch: Batch) -> Cost:
        """Forward cost of all repetitions."""
        return self.cost_of_one(batch) * self.times


@dataclass(frozen=True)
class Network:
    """A network as layers. `seq` is the usual number of tokens a sample (None for images), `max_seq` the most."""

    name: str
    layers: tuple[Layer, ...]
    sample: str
    source: str
    seq: int | None = None
    max_seq: int | None = None

    def batch(
        self, size: int = 1, seq: int | None = None, element_bytes: int = 4, fused_attention: bool = True
    ) -> Batch:
        """A Batch for this network; `seq` None is its usual one, and images ignore it. Raises LabError out of range."""
        tokens = 1 if self.seq is None else seq if seq is not None else self.seq
        check_number("batch", size, least=1, whole=True, advice="It counts samples.", error=LabError)
        check_number("seq", tokens, least=1, whole=True, advice="It counts tokens.", error=LabError)
        if self.max_seq is not None and tokens > self.max_seq:
            raise LabError(
                f"Expected at most {self.max_seq:,} tokens, the positions that {self.name} has, got {tokens:,}. "
                "Choose a shorter sequence or another network."
            )
        return Batch(size, tokens, element_bytes, fused_attention)

    def layer_costs(self, batch: Batch) -> list[tuple[str, Cost]]:
        """Each layer's name and forward cost: one point each on a roofline."""
        return [(layer.name, layer.cost(batch)) for layer in self.layers]

    def cost(self, batch: Batch) -> Cost:
        """Forward cost of the whole network, loss included."""
        return sum((layer.cost(batch) for layer in self.layers), Cost())

    @property
    def params(self) -> int:
        """Trainable parameters; a matrix that two layers share counts once."""
        return self.cost(Batch()).params

    def forward_flop(self, seq: int | None = None) -> int:
        """FLOP of one sample's forward pass, matrix products and the rest."""
        return self.cost(self.batch(seq=seq)).flop

    def training_flop(self, batch: Batch) -> int:
        """FLOP of forward and backward. The first layer of an image network needs no gradient of its input."""
        spared = self.layers[0].cost(batch).matmul_flop if self.seq is None else 0
        return (1 + BACKWARD) * self.cost(batch).flop - spared

    def activation_elements(self, seq: int | None = None, *, fused_attention: bool = True) -> int:
        """Elements of one sample kept for the backward pass, in the dtype of the activations."""
        return self.cost(self.batch(seq=seq, fused_attention=fused_attention)).saved_elements

    def __str__(self) -> str:
        flop = format_si(self.forward_flop(), "FLOP")
        return f"{self.name}: {self.params:,} parameters, {flop} forward for one {self.sample}"
