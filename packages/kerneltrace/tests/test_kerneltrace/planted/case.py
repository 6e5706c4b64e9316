"""What a planted kernel is: a launch, and the kind of mistake in it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

FULL = 0xFFFFFFFF


@dataclass(frozen=True)
class Case:
    """A kernel, its launch, and the kinds of findings of which it must have one; none
    for a correct kernel.
    """

    kernel: Callable[..., None]
    grid: Any
    block: Any
    args: tuple[Any, ...]
    kinds: frozenset[str]
    options: dict[str, Any]


class Cases:
    """Collects cases: `@cases("race", 1, 64, floats(64))` above a kernel, whose name is
    the case's.
    """

    def __init__(self) -> None:
        self.found: dict[str, Case] = {}

    def __call__(
        self, kinds: str, grid: Any, block: Any, *args: Any, **options: Any
    ) -> Callable[[Any], Any]:
        def add(kernel: Callable[..., None]) -> Callable[..., None]:
            name = kernel.__name__.replace("_", " ")
            assert name not in self.found, name
            self.found[name] = Case(
                kernel, grid, block, args, frozenset(kinds.split()), options
            )
            return kernel

        return add


def floats(*shape: int) -> Any:
    """0, 1, 2, ... as float32."""
    return np.arange(np.prod(shape)).astype(np.float32).reshape(shape)


def zeros(*shape: int) -> Any:
    """An output of float32."""
    return np.zeros(shape, np.float32)


def whole(*shape: int) -> Any:
    """Zeros of int32: flags, counters, locks."""
    return np.zeros(shape, np.int32)
