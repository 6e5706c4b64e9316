"""Cost of one training step of a network: FLOP, bytes moved and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainplan._text import lookup
from trainplan._units import format_bytes, format_si
from trainplan.arguments import Count, Dtype, checked
from trainplan.costs.layers import BACKWARD_OVER_FORWARD
from trainplan.costs.memory_costs import (
    TrainingMemory,
    optimizer_traffic_bytes,
    precision,
    training_memory,
)
from trainplan.costs.networks import SIMPLE_CNN, Network
from trainplan.costs.transformer_layers import BERT_BASE, GPT2_XL, decoder
from trainplan.costs.transformers import MODELS

_LLAMAS = (decoder(MODELS["Llama-2-7B"]), decoder(MODELS["Llama-2-70B"]))
NETWORKS: Mapping[str, Network] = MappingProxyType(
    {net.name: net for net in (SIMPLE_CNN, BERT_BASE, GPT2_XL, *_LLAMAS)}
)


@dataclass(frozen=True)
class TrainingStep:
    """Forward, backward and update of one batch: FLOP, the least bytes moved, and the
    memory held.

    `compute_dtype` is the dtype whose peak limits the matrix products, as gpufacts
    names it.
    """

    network: str
    batch: int
    seq: int | None
    dtype: str
    optimizer: str
    compute_dtype: str
    flop: int
    n_bytes: int
    memory: TrainingMemory

    def __str__(self) -> str:
        samples = f"{self.batch:,} samples"
        if self.seq:
            samples += f" of {self.seq:,} tokens"
        return (
            f"{self.network}, {samples}, {self.dtype}, {self.optimizer}:"
            f" {format_si(self.flop, 'FLOP')}, {format_si(self.n_bytes, 'B')} moved,"
            f" {format_bytes(self.memory.total_bytes)} held"
        )


@checked
def network(name: str) -> Network:
    """The Network of a name in NETWORKS. Raises ValueError with the nearest name."""
    return lookup(name, NETWORKS, "network")


@checked
def training_step(
    model: Network | str,
    *,
    batch: Count,
    seq: Count | None = None,
    dtype: Dtype = "float32",
    optimizer: str = "adam",
    fused_attention: bool = True,
) -> TrainingStep:
    """Cost of one training step of `model` (a Network or its name) on `batch` samples
    of `seq` tokens.

    FLOP are those of Network.training_flop; the update's few FLOP a parameter are left
    out. Bytes are three times the forward pass's (see costs.layers) and the update's.
    They are those of layers that run one by one: kernels that fuse layers move fewer.
    Raises ValueError for unknown names, and sequences longer than the model's
    positions.
    """
    net = network(model) if isinstance(model, str) else model
    kind = precision(dtype)
    shape = net.batch(batch, seq, kind.activation_bytes, fused_attention)
    forward = net.cost(shape)
    update_bytes = optimizer_traffic_bytes(
        forward.params, dtype=dtype, optimizer=optimizer
    )
    return TrainingStep(
        network=net.name,
        batch=batch,
        seq=None if net.seq is None else shape.seq,
        dtype=dtype,
        optimizer=optimizer,
        compute_dtype=kind.compute_dtype,
        flop=net.training_flop(shape),
        n_bytes=(1 + BACKWARD_OVER_FORWARD) * forward.n_bytes + update_bytes,
        memory=training_memory(
            forward.params,
            forward.saved_elements,
            dtype=dtype,
            optimizer=optimizer,
            fixed_bytes=forward.saved_fixed_bytes,
        ),
    )
