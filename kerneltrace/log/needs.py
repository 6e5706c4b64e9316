"""Which loads wait for what other loads bring, from what each name of a function is worked out from."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple


class Waits(NamedTuple):
    """What a load waits for before its address is known."""

    level: int = 0
    """Loads, one after another."""
    chained: bool = False
    """Whether it needs what it brought itself, so that the turns of its loop can't overlap."""


class Needs:
    """The names and loads that each name and each load of a function needs, whatever their order."""

    def __init__(self) -> None:
        self._of: dict[Hashable, set[Hashable]] = {}

    def add(self, target: Hashable, sources: Iterable[Hashable]) -> None:
        """Note that `target` needs all `sources`."""
        self._of.setdefault(target, set()).update(sources)

    def chained(self, target: Hashable) -> bool:
        """Whether a target needs itself, by way of others too."""
        found: set[Hashable] = set()
        left = list(self._of.get(target, ()))
        while left:
            if (one := left.pop()) not in found:
                found.add(one)
                left += self._of.get(one, ())
        return target in found
