"""What a case is: CUDA C++ as people write it, its launch, what it has to compute, and
mistakes to plant in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from test_kerneltrace.textbook.entry import Want


@dataclass(frozen=True)
class Flaw:
    """A mistake that is planted by writing `new` for `old`, and the finding that it has
    to bring.
    """

    kind: str
    at: str
    """Text of the line in which it is found, after the change."""
    old: str
    new: str
    words: str = ""
    """What the finding has to say."""


@dataclass(frozen=True)
class Case:
    """A correct kernel. `want` has what each argument by its number holds after the
    launch.
    """

    source: str
    grid: Any
    block: Any
    args: tuple[Any, ...]
    want: Mapping[int, Any]
    counts: Mapping[str, Want] = field(default_factory=dict)
    """Derived by hand, by "array kind", as in the textbook."""
    flaws: Sequence[Flaw] = ()
    rtol: float = 1e-5
    options: Mapping[str, Any] = field(default_factory=dict)


class Cases:
    """Collects cases by name."""

    def __init__(self) -> None:
        self.found: dict[str, Case] = {}

    def __call__(
        self,
        name: str,
        source: str,
        grid: Any,
        block: Any,
        *args: Any,
        want: Mapping[int, Any],
        **more: Any,
    ) -> None:
        assert name not in self.found, name
        by_name = {
            key: more.pop(key) for key in ("counts", "flaws", "rtol") if key in more
        }
        self.found[name] = Case(
            source, grid, block, args, want, options=more, **by_name
        )


def random(*shape: int, dtype: Any = np.float32) -> Any:
    """Numbers from 0 to 1, always the same."""
    return np.random.default_rng(11).random(shape).astype(dtype)


def below(n: int, *shape: int, dtype: Any = np.int32) -> Any:
    """Whole numbers from 0 to n - 1, always the same."""
    return np.random.default_rng(12).integers(0, n, shape).astype(dtype)


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    """An output."""
    return np.zeros(shape, dtype)
