"""One training step of a network: FLOP, bytes moved and memory, from which a job for the catalogue is filled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from labkit.core.errors import LabError, nearest
from labkit.core.units import format_bytes, format_si
from labkit.plan.costs.cnns import resnet50, simple_cnn
from labkit.plan.costs.layers import BACKWARD
from labkit.plan.costs.memory_of_training import TrainingMemory, optimizer_traffic_bytes, precision, training_memory
from labkit.plan.costs.networks import Network
from labkit.plan.costs.transformers import bert_base, gpt2_xl, llama2_7b, llama2_70b

NETWORKS: Mapping[str, Network] = MappingProxyType(
    {network.name: network for network in (simple_cnn(), resnet50(), bert_base(), gpt2_xl(), llama2_7b(), llama2_70b())}
)


@dataclass(frozen=True)
class TrainingStep:
    """Forward, backward and update of one batch: FLOP, bytes moved at least, memory held.

    `compute_dtype` is the dtype whose peak limits the matrix products, as the catalogue names it.
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
        samples = f"{self.batch:,} samples" + (f" of {self.seq:,} tokens" if self.seq else "")
        return (
            f"{self.network}, {samples}, {self.dtype}, {self.optimizer}: {format_si(self.flop, 'FLOP')}, "
            f"{format_si(self.n_bytes, 'B')} moved, {format_bytes(self.memory.total_bytes)} held"
        )


def network(name: str) -> Network:
    """The Network of a name in NETWORKS. Raises LabError with the nearest name."""
    if name not in NETWORKS:
        near = nearest(name, NETWORKS, n=1)[0]
        raise LabError(f"Expected a network out of {', '.join(NETWORKS)}; got {name!r}. The nearest is {near!r}.")
    return NETWORKS[name]


def training_step(
    model: Network | str,
    *,
    batch: int,
    seq: int | None = None,
    dtype: str = "float32",
    optimizer: str = "adam",
    fused_attention: bool = True,
) -> TrainingStep:
    """Cost of one training step of `model` (a Network or its name) on `batch` samples of `seq` tokens.

    FLOP are those of Network.training_flop, bytes three times the forward pass's (see costs.layers); the update's
    traffic comes on top, its few FLOP a parameter don't. The bytes are those of layers that run one by one: kernels
    that fuse layers move fewer. Raises LabError for unknown names and sequences longer than the model's positions.
    """
    net = network(model) if isinstance(model, str) else model
    kind = precision(dtype)
    shape = net.batch(batch, seq, kind.activation_bytes, fused_attention)
    forward = net.cost(shape)
    return TrainingStep(
        network=net.name,
        batch=batch,
        seq=None if net.seq is None else shape.seq,
        dtype=dtype,
        optimizer=optimizer,
        compute_dtype=kind.compute_dtype,
        flop=net.training_flop(shape),
        n_bytes=(1 + BACKWARD) * forward.n_bytes
        + optimizer_traffic_bytes(forward.params, dtype=dtype, optimizer=optimizer),
        memory=training_memory(
            forward.params,
            forward.saved_elements,
            dtype=dtype,
            optimizer=optimizer,
            fixed_bytes=forward.saved_fixed_bytes,
        ),
    )
