"""Memory of a training step: bytes a number by precision, and what parameters,
optimizer and activations hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from trainplan._tables import ShownAsTable, Table
from trainplan._text import lookup
from trainplan._units import format_bytes
from trainplan.arguments import Dtype, Size, checked
from trainplan.csv_tables import rows, settings

Params = TypeVar("Params", int, float)


@dataclass(frozen=True)
class Precision:
    """Bytes a number takes, by its role in training. `compute_dtype` is a dtype of the
    catalog, of the products.
    """

    compute_dtype: str
    param_bytes: int
    gradient_bytes: int
    # float32 weights beside 16-bit ones; 0 where there is only one copy
    master_bytes: int
    state_bytes: int
    activation_bytes: int
    # what a product keeps of its input for the weight's gradient, with scales
    input_bytes: float
    # 16-bit weights are passing copies of float32 ones: ZeRO-3 stores none of them
    casts: bool = False

    @property
    def scaled(self) -> bool:
        """Whether products take numbers in 8 or 4 bit, cast and scaled before them."""
        return self.compute_dtype in ("float8", "float4")


# By data/precisions.csv, which says what each name stands for.
PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {row["name"]: Precision(**settings(row)) for row in rows("precisions")}
)


@dataclass(frozen=True)
class OptimizerStates:
    """Numbers of state a parameter: `numbers` of a block's, `table_numbers` of the
    embedding's and the head's. A number takes `number_bytes`; 0 stands for what the
    precision says. `paged` ones are in main memory, where a GPU has no room for them.
    """

    numbers: int
    table_numbers: int
    number_bytes: float = 0
    paged: bool = False

    def a_param(self, kind: Precision) -> float:
        """Bytes a parameter of a block."""
        return self.numbers * (self.number_bytes or kind.state_bytes)

    def a_table_param(self, kind: Precision, *, wide: bool = False) -> float:
        """Bytes a parameter of the embedding or the head, `wide` ones in float32 where
        others are in 8 bit.
        """
        n_bytes = self.number_bytes or kind.state_bytes
        if wide and self.number_bytes:
            n_bytes = 4
        return self.table_numbers * n_bytes


# By data/optimizers.csv, which says where each was read.
OPTIMIZER_STATES: Mapping[str, OptimizerStates] = MappingProxyType(
    {row["name"]: OptimizerStates(**settings(row)) for row in rows("optimizers")}
)


# a weight in NF4, with a scale in 8 bit for each 64 and one in 32 bit for each 256 of
# those (Dettmers et al. 2023, QLoRA, section 3)
NF4_BYTES = (4 + 8 / 64 + 32 / (64 * 256)) / 8


def precision(dtype: str) -> Precision:
    """The Precision of a name in PRECISIONS. Raises ValueError with
    the nearest name.
    """
    return lookup(dtype, PRECISIONS, "dtype")


def optimizer_states(optimizer: str) -> OptimizerStates:
    """The OptimizerStates of a name in OPTIMIZER_STATES. Raises ValueError with the
    nearest name.
    """
    return lookup(optimizer, OPTIMIZER_STATES, "optimizer")


@dataclass(frozen=True, repr=False)
class TrainingMemory(ShownAsTable):
    """Bytes that one training step holds, by purpose."""

    param_bytes: int
    gradient_bytes: int
    master_bytes: int
    optimizer_bytes: int
    activation_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes of all parts, held at once."""
        return sum(vars(self).values())

    def table(self) -> Table:
        """Bytes by purpose, and in all."""
        purposes = {
            "parameters": self.param_bytes,
            "gradients": self.gradient_bytes,
            "float32 master weights": self.master_bytes,
            "optimizer state": self.optimizer_bytes,
            "kept for the backward pass": self.activation_bytes,
            "total": self.total_bytes,
        }
        return Table(
            tuple(
                (purpose, format_bytes(n_bytes))
                for purpose, n_bytes in purposes.items()
            )
        )


@checked
def training_memory(
    params: Size,
    activation_elements: Size,
    *,
    dtype: Dtype = "float32",
    optimizer: str = "adam",
    fixed_bytes: Size = 0,
) -> TrainingMemory:
    """Memory of a step with `params` parameters that keeps `activation_elements` of its
    whole batch.

    `fixed_bytes` are kept masks, indices and losses, the same in every dtype. All parts
    count as held at once. The driver's context, workspaces, temporary tensors and
    fragmentation are left out, so a process holds more. Raises ValueError for unknown
    names and negative sizes. Source: Rajbhandari et al. 2020, ZeRO, section 3.
    """
    kind = precision(dtype)
    return TrainingMemory(
        param_bytes=params * kind.param_bytes,
        gradient_bytes=params * kind.gradient_bytes,
        master_bytes=params * kind.master_bytes,
        optimizer_bytes=int(params * optimizer_states(optimizer).a_param(kind)),
        activation_bytes=activation_elements * kind.activation_bytes + fixed_bytes,
    )


def optimizer_traffic_bytes(params: Params, *, dtype: str, optimizer: str) -> Params:
    """Bytes that the update of all parameters moves: gradients read, weights and states
    read and written.

    With master weights the 16-bit copy is written too. Raises ValueError for unknown
    names.
    """
    kind = precision(dtype)
    states = 2 * optimizer_states(optimizer).a_param(kind)
    weights = 2 * kind.param_bytes
    if kind.master_bytes:
        weights = 2 * kind.master_bytes + kind.param_bytes
    return type(params)(params * (kind.gradient_bytes + weights + states))
