"""Count the bytes that torch's collectives move while some code runs, called by you,
DTensor or FSDP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves

from steptime import EachOperator

# Bytes that each rank sends by a ring, over the bytes of the full tensor; r is the
# share that others have, (n - 1) / n.
_RING: dict[str, Callable[[float], float]] = {
    "all_reduce": lambda r: 2 * r,
    "all_gather": lambda r: r,
    "reduce_scatter": lambda r: r,
    "send": lambda r: 1.0,
    "recv": lambda r: 0.0,
}


class CollectiveCall(NamedTuple):
    """A collective and the bytes of its full tensor: what is reduced, or what has been
    gathered.
    """

    collective: str
    n_bytes: int


class Traffic(EachOperator):
    """Inside `with Traffic() as traffic:`, counts the collectives that this rank calls,
    and their bytes.

    All-reduce, all-gather, reduce-scatter, send and receive are seen as operators that
    torch dispatches, in backward passes too. DDP reduces its gradients in C++, below
    them, and is not seen.
    """

    def __init__(self) -> None:
        super().__init__(self._count)
        self.calls: list[CollectiveCall] = []

    def _count(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the call, and count it if it is a collective."""
        if (entry := _KNOWN.get(func._schema.name)) is not None:
            collective, full, times = entry
            arguments = [*args, *kwargs.values()]
            n_bytes = sum(
                x.nbytes
                for x in tree_leaves(arguments[full])
                if isinstance(x, torch.Tensor)
            )
            self.calls.append(
                CollectiveCall(
                    collective,
                    n_bytes * (1 if times is None else int(arguments[times])),
                )
            )
        return func(*args, **kwargs)

    @property
    def counts(self) -> dict[str, int]:
        """How often each collective was called."""
        return dict(Counter(call.collective for call in self.calls))

    def sent_bytes(self) -> float:
        """Bytes that this rank sends if every collective goes around a ring of all
        ranks.

        An all-reduce of B bytes among n ranks sends 2 (n - 1) / n B, an all-gather or a
        reduce-scatter half of it (Patarasuk and Yuan 2009, Bandwidth optimal all-reduce
        algorithms).
        """
        n = dist.get_world_size()
        return sum(
            _RING[call.collective]((n - 1) / n) * call.n_bytes for call in self.calls
        )


# torch's operator -> its collective, the argument that has the full tensor, and the one
# to multiply its bytes by. Source: torch/csrc/distributed/c10d, Ops.cpp and
# Functional.cpp.
_KNOWN: dict[str, tuple[str, int, int | None]] = {
    "c10d::allreduce_": ("all_reduce", 0, None),
    "c10d::allgather_": ("all_gather", 0, None),
    "c10d::_allgather_base_": ("all_gather", 0, None),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", 1, None),
    "c10d::send": ("send", 0, None),
    "c10d::recv_": ("recv", 0, None),
    "_c10d_functional::all_reduce": ("all_reduce", 0, None),
    "_c10d_functional::all_reduce_": ("all_reduce", 0, None),
    # a rank's part, and the number of ranks
    "_c10d_functional::all_gather_into_tensor": ("all_gather", 0, 1),
    "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", 0, None),
}
