"""Count the operators that a call runs in eager mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from labkit.core.display import ShownAsTable, Table
from labkit.core.parameters import checked
from labkit.core.units import format_bytes
from steptime import EachOperator

# These reserve memory and compute nothing: their bytes count, they don't.
_ALLOCATING = frozenset(
    {"aten.empty", "aten.empty_like", "aten.empty_strided", "aten.new_empty"}
)


@dataclass(frozen=True, repr=False)
class Operators(ShownAsTable):
    """How often each operator of torch ran in a call, and the bytes of new memory that
    their results took.

    A view, such as a transposition, runs nothing and is not counted.
    """

    counts: dict[str, int]
    new_bytes: int

    @property
    def total(self) -> int:
        """Operators that ran."""
        return sum(self.counts.values())

    def table(self) -> Table:
        """Return a row for each operator, the most frequent first."""
        by_count = sorted(self.counts.items(), key=lambda item: -item[1])
        rows = tuple((name, str(count)) for name, count in by_count)
        total = "1 operator" if self.total == 1 else f"{self.total} operators"
        note = f"{total}, {format_bytes(self.new_bytes)} of new memory"
        return Table(rows, ("operator", "times"), notes=(note,))


@checked
def operators(work: Callable[[], object]) -> Operators:
    """Run `work` once and count the operators that torch runs for it, in forward and
    backward passes alike.

    Raises BadArgument for what can't be called.
    """
    counts: Counter[str] = Counter()
    # kept until the end, so that no address is used twice
    new: dict[int, torch.UntypedStorage] = {}
    former: set[int] = set()  # addresses of memory that was there before

    def count(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        former.update(_storages((args, kwargs)).keys() - new.keys())
        result = func(*args, **kwargs)
        name = str(func).rsplit(".", 1)[0]
        computes = not func.is_view and name not in _ALLOCATING
        if computes and func.namespace != "profiler":
            counts[name] += 1
        for address, storage in _storages(result).items():
            if address not in former:
                new[address] = storage
        return result

    with EachOperator(count):
        work()
    return Operators(dict(counts), sum(storage.nbytes() for storage in new.values()))


def _storages(tree: Any) -> dict[int, torch.UntypedStorage]:
    """Return the memory of all tensors in a nested structure, by address."""
    storages = (
        leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)
    )
    return {storage.data_ptr(): storage for storage in storages}
