"""Memory of a training step: parameters, gradients, optimizer state and what is kept for the backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from labkit.core.arguments import check_number
from labkit.core.errors import LabError, nearest
from labkit.core.units import format_bytes


@dataclass(frozen=True)
class Precision:
    """Bytes a number takes, by role. `compute_dtype` is the dtype of the matrix products, as the catalogue names it."""

    compute_dtype: str
    param_bytes: int
    gradient_bytes: int
    master_bytes: int  # float32 weights beside 16-bit ones; 0 where there is one copy only
    state_bytes: int
    activation_bytes: int
    source: str


def _two_copies(compute_dtype: str, gradient_bytes: int, source: str) -> Precision:
    return Precision(compute_dtype, 2, gradient_bytes, 4, 4, 2, source)


_AUTOCAST = (
    "torch.autocast: weights, gradients and optimizer state stay float32; each matrix product works on a 16-bit copy "
    "of its weight, which lives until the backward pass (PyTorch documentation, torch.amp)"
)
_ZERO = (
    "16-bit weights and gradients, float32 master weights and states: 16 bytes a parameter with Adam "
    "(Rajbhandari et al. 2020, ZeRO, section 3.1; Micikevicius et al. 2018)"
)
PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {
        "float32": Precision("float32", 4, 4, 0, 4, 4, "everything in float32"),
        "tf32": Precision("tf32", 4, 4, 0, 4, 4, "stored as float32; tensor cores round the inputs to TF32"),
        "bfloat16": Precision("bfloat16", 2, 2, 0, 2, 2, "everything in bfloat16, model.to(torch.bfloat16)"),
        "autocast float16": _two_copies("float16", 4, _AUTOCAST),
        "autocast bfloat16": _two_copies("bfloat16", 4, _AUTOCAST),
        "mixed float16": _two_copies("float16", 2, _ZERO),
        "mixed bfloat16": _two_copies("bfloat16", 2, _ZERO),
    }
)
# numbers of state a parameter: none; velocity (Polyak 1964); two moments (Kingma and Ba 2015; Loshchilov, Hutter 2019)
OPTIMIZER_STATES: Mapping[str, int] = MappingProxyType({"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2})


def precision(dtype: str) -> Precision:
    """The Precision of a name in PRECISIONS. Raises LabError with the nearest name."""
    if dtype not in PRECISIONS:
        near = nearest(dtype, PRECISIONS, n=1)[0]
        raise LabError(f"Expected dtype to be one of {', '.join(PRECISIONS)}; got {dtype!r}. The nearest is {near!r}.")
    return PRECISIONS[dtype]


def optimizer_states(optimizer: str) -> int:
    """Numbers of state a parameter for a name in OPTIMIZER_STATES. Raises LabError with the nearest name."""
    if optimizer not in OPTIMIZER_STATES:
        known = ", ".join(OPTIMIZER_STATES)
        near = nearest(optimizer, OPTIMIZER_STATES, n=1)[0]
        raise LabError(f"Expected optimizer to be one of {known}; got {optimizer!r}. The nearest is {near!r}.")
    return OPTIMIZER_STATES[optimizer]


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes that one training step holds, by purpose."""

    param_bytes: int
    gradient_bytes: int
    master_bytes: int
    optimizer_bytes: int
    activation_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it at once."""
        return sum(n_bytes for _, n_bytes in self.rows())

    def rows(self) -> list[tuple[str, int]]:
        """Purpose and bytes, in the order of a table or a stacked bar."""
        return [
            ("parameters", self.param_bytes),
            ("gradients", self.gradient_bytes),
            ("float32 master weights", self.master_bytes),
            ("optimizer state", self.optimizer_bytes),
            ("kept for the backward pass", self.activation_bytes),
        ]

    def __str__(self) -> str:
        lines = [*self.rows(), ("total", self.total_bytes)]
        return "\n".join(f"{purpose:<27} {format_bytes(n_bytes):>10}" for purpose, n_bytes in lines)

    def _repr_html_(self) -> str:
        lines = [*self.rows(), ("<b>total</b>", self.total_bytes)]
        body = "".join(f"<tr><td>{purpose}</td><td>{format_bytes(n_bytes)}</td></tr>" for purpose, n_bytes in lines)
        return f"<table>{body}</table>"


def training_memory(
    params: int, activation_elements: int, *, dtype: str = "float32", optimizer: str = "adam", fixed_bytes: int = 0
) -> TrainingMemory:
    """Memory of a step with `params` parameters that keeps `activation_elements` of its whole batch.

    `fixed_bytes` are kept masks, indices and losses, the same in every dtype. All parts count as held at once; left
    out are the context of the driver, workspaces, temporary tensors and fragmentation, so a process holds more.
    Raises LabError for unknown names and negative sizes. Source: Rajbhandari et al. 2020, ZeRO, section 3.
    """
    for name, size in (("params", params), ("activation_elements", activation_elements), ("fixed_bytes", fixed_bytes)):
        check_number(name, size, least=0, error=LabError)
    kind = precision(dtype)
    return TrainingMemory(
        param_bytes=params * kind.param_bytes,
        gradient_bytes=params * kind.gradient_bytes,
        master_bytes=params * kind.master_bytes,
        optimizer_bytes=params * kind.state_bytes * optimizer_states(optimizer),
        activation_bytes=activation_elements * kind.activation_bytes + fixed_bytes,
    )


def optimizer_traffic_bytes(params: int, *, dtype: str, optimizer: str) -> int:
    """Bytes that the update of all parameters moves: gradients read, weights and states read and written.

    With master weights the 16-bit copy is written too. Raises LabError like training_memory.
    """
    check_number("params", params, least=0, error=LabError)
    kind = precision(dtype)
    weights = 2 * kind.master_bytes + kind.param_bytes if kind.master_bytes else 2 * kind.param_bytes
    return params * (kind.gradient_bytes + weights + 2 * optimizer_states(optimizer) * kind.state_bytes)


def block_activation_bytes(*, batch: int, seq: int, width: int, heads: int, fused_attention: bool = False) -> int:
    """Bytes that one GPT block keeps in 16 bit: 34 sbh + 5 as²b; without the second term if attention is fused.

    Source: Korthikanti et al. 2022, Reducing activation recomputation in large transformer models, equation 1.
    Raises LabError for sizes below 1.
    """
    for name, size in (("batch", batch), ("seq", seq), ("width", width), ("heads", heads)):
        check_number(name, size, least=1, error=LabError)
    return 34 * seq * batch * width + (0 if fused_attention else 5 * heads * seq**2 * batch)
