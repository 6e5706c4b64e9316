"""Count the bytes that torch's collectives move while some code runs, called by you, DTensor or FSDP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.core.units import format_bytes

# Bytes that each rank sends by a ring, over the bytes of the full tensor; r is the share that others have, (n - 1) / n.
_RING: dict[str, Callable[[float], float]] = {
    "all_reduce": lambda r: 2 * r,
    "all_gather": lambda r: r,
    "reduce_scatter": lambda r: r,
    "send": lambda r: 1.0,
    "recv": lambda r: 0.0,
}


class CollectiveCall(NamedTuple):
    """A collective and the bytes of its full tensor: what is reduced, or what has been gathered."""

    collective: str
    n_bytes: int


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside `with Traffic() as traffic:`, counts the collectives that this rank calls, and their bytes.

    All-reduce, all-gather, reduce-scatter, send and receive are seen as operators that torch dispatches, in backward
    passes too. DDP reduces its gradients in C++, below them, and is not seen.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[CollectiveCall] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Make the call, and count it if it is a collective."""
        kwargs = kwargs or {}
        if (known := _KNOWN.get(func._schema.name)) is not None:
            collective, full_bytes = known
            self.calls.append(CollectiveCall(collective, full_bytes([*args, *kwargs.values()])))
        return func(*args, **kwargs)

    @property
    def counts(self) -> dict[str, int]:
        """How often each collective was called."""
        return dict(Counter(call.collective for call in self.calls))

    def sent_bytes(self, ranks: int | None = None) -> float:
        """Bytes that this rank sends if every collective uses a ring of `ranks` ranks (None: all of the group).

        An all-reduce of B bytes sends 2 (n - 1) / n B, an all-gather or a reduce-scatter half of it (Patarasuk and
        Yuan 2009, Bandwidth optimal all-reduce algorithms).
        """
        n = dist.get_world_size() if ranks is None else ranks
        return sum(_RING[call.collective]((n - 1) / n) * call.n_bytes for call in self.calls)

    def __repr__(self) -> str:
        total = Counter[str]()
        for call in self.calls:
            total[call.collective] += call.n_bytes
        return ", ".join(f"{n} x {name} of {format_bytes(total[name])}" for name, n in self.counts.items()) or "nothing"


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _argument(index: int, times: int | None = None) -> Callable[[list[Any]], int]:
    """A function of a call's arguments: the bytes of the tensors in argument `index`, times the number in `times`."""

    def full_bytes(arguments: list[Any]) -> int:
        once = sum(tensor.numel() * tensor.element_size() for tensor in _tensors(arguments[index]))
        return once * (1 if times is None else int(arguments[times]))

    return full_bytes


# torch's operator -> its collective, and the argument that has the full tensor.
# Source: torch/csrc/distributed/c10d, Ops.cpp and Functional.cpp.
_KNOWN = MappingProxyType(
    {
        "c10d::allreduce_": ("all_reduce", _argument(0)),
        "c10d::allgather_": ("all_gather", _argument(0)),
        "c10d::_allgather_base_": ("all_gather", _argument(0)),
        "c10d::_reduce_scatter_base_": ("reduce_scatter", _argument(1)),
        "c10d::send": ("send", _argument(0)),
        "c10d::recv_": ("recv", _argument(0)),
        "_c10d_functional::all_reduce": ("all_reduce", _argument(0)),
        "_c10d_functional::all_reduce_": ("all_reduce", _argument(0)),
        "_c10d_functional::all_gather_into_tensor": ("all_gather", _argument(0, times=1)),
        "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", _argument(0)),
    }
)
