"""What a textbook kernel is: a launch, and the counts that follow from the rules of a
GPU's memory by hand.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Want:
    """Counts of all requests of one kind (load, store, atomic) to one array; wavefronts
    and ways for shared arrays.

    Collisions are those of atomics.
    """

    requests: int
    sectors: int = 0
    wavefronts: int = 0
    ways: int = 0
    collisions: int = 0


@dataclass(frozen=True)
class Entry:
    """A kernel written against numba's `cuda`, its launch, and what it asks of memory.

    `args(put)` makes the arguments: every array goes through `put` before views are
    taken of it, so that `cuda.to_device` gives the same alignments on a GPU. `want` has
    a key "array kind" for every array and kind of request that the kernel has.
    `branches` are (all, divergent).
    """

    name: str
    kernel: Callable[..., None]
    grid: Any
    block: Any
    args: Callable[[Callable[[Any], Any]], tuple[Any, ...]]
    want: dict[str, Want] = field(default_factory=dict)
    branches: tuple[int, int] = (0, 0)
    flop: int = 0
    reads_per_thread: float = 1.0
    writes_per_thread: float = 1.0
