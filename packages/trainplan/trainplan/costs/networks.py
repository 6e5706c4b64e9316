"""A network as layers, each with its cost: parameters, FLOP, bytes moved and kept; and
one of them, SimpleCNN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from trainplan._units import format_si
from trainplan.arguments import Count, checked
from trainplan.costs.layers import (
    BACKWARD_OVER_FORWARD,
    Cost,
    conv2d,
    cross_entropy,
    elementwise,
    linear,
    pool,
)


@dataclass(frozen=True)
class BatchShape:
    """The input of one pass: `size` samples of `seq` tokens (1 for images), and how the
    network computes on it.

    `fused_attention` keeps the attention scores out of memory (FlashAttention, torch's
    scaled_dot_product_attention).
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
class Network:
    """A network as layers. `seq` is the usual number of tokens a sample (None for
    images), `max_seq` the most.

    `forward` counts the forward pass of a batch by layer, each with all its
    repetitions.
    """

    name: str
    forward: Callable[[BatchShape], Mapping[str, Cost]]
    sample: str
    source: str
    seq: int | None = None
    max_seq: int | None = None

    @checked
    def batch(
        self,
        size: Count = 1,
        seq: Count | None = None,
        element_bytes: Count = 4,
        fused_attention: bool = True,
    ) -> BatchShape:
        """The shape of a batch for this network; images ignore `seq`, and None is the
        usual number of tokens.

        Raises ValueError for counts below 1, and for more tokens than the network has
        positions.
        """
        if self.seq is None:
            tokens = 1
        elif seq is not None:
            tokens = seq
        else:
            tokens = self.seq
        if self.max_seq is not None and tokens > self.max_seq:
            raise ValueError(
                f"Expected at most {self.max_seq:,} tokens, the positions that"
                f" {self.name} has, got {tokens:,}. Choose a shorter sequence or"
                " another network."
            )
        return BatchShape(size, tokens, element_bytes, fused_attention)

    @checked
    def layer_costs(self, batch: BatchShape) -> dict[str, Cost]:
        """Forward cost by layer, in the batch's dtype: one point each on a roofline."""
        return {
            name: replace(cost, element_bytes=batch.element_bytes)
            for name, cost in self.forward(batch).items()
        }

    @checked
    def cost(self, batch: BatchShape) -> Cost:
        """Forward cost of the whole network, loss included."""
        nothing = Cost(element_bytes=batch.element_bytes)
        return sum(self.layer_costs(batch).values(), nothing)

    @property
    def params(self) -> int:
        """Trainable parameters; a matrix that two layers share is counted once."""
        return self.cost(BatchShape()).params

    def forward_flop(self) -> int:
        """FLOP of the forward pass of one sample of the usual length, matrix products
        and the rest.
        """
        return self.cost(self.batch()).flop

    @checked
    def training_flop(self, batch: BatchShape) -> int:
        """FLOP of forward and backward, of which the first layer on images skips the
        gradient of its input.
        """
        flop = (1 + BACKWARD_OVER_FORWARD) * self.cost(batch).flop
        if self.seq is None:
            first, *_ = self.layer_costs(batch).values()
            flop -= first.matmul_flop
        return flop

    def __str__(self) -> str:
        flop = format_si(self.forward_flop(), "FLOP")
        return (
            f"{self.name}: {self.params:,} parameters, {flop} forward for one"
            f" {self.sample}"
        )


def _simple_cnn(batch: BatchShape) -> dict[str, Cost]:
    n = batch.size
    return {
        "conv1": conv2d(n, 3, 6, 32, kernel=5),
        "relu1": elementwise(n * 6 * 28 * 28),
        "pool1": pool(n, 6, 28, kernel=2),
        "conv2": conv2d(n, 6, 16, 14, kernel=5),
        "relu2": elementwise(n * 16 * 10 * 10),
        "pool2": pool(n, 16, 10, kernel=2),
        "fc1": linear(n, 400, 120),
        "relu3": elementwise(n * 120),
        "fc2": linear(n, 120, 84),
        "relu4": elementwise(n * 84),
        "fc3": linear(n, 84, 10),
        "loss": cross_entropy(n, 10),
    }


# For (N, 3, 32, 32), the layout of LeNet-5 with ReLU and max pooling: 62,006
# parameters. Source: LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied
# to document recognition (1998), fig. 2.
SIMPLE_CNN = Network(
    "SimpleCNN", _simple_cnn, "image of 3 x 32 x 32", "LeCun et al. 1998"
)
