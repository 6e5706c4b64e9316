"""What a load waits for."""

from collections import defaultdict
from collections.abc import Hashable
from typing import Any

Needs = defaultdict[Hashable, set[Hashable]]
"""The names and loads that each name and each load of a function needs, whatever their
order.
"""
Waits = tuple[int, bool]
"""Loads, one after another, before a load, and whether it needs what it brought in the
turn before.
"""


def needed_by(target: Hashable, needs: Needs) -> set[Any]:
    """All that a target needs, by way of others too."""
    needed: set[Hashable] = set()
    open_targets = [target]
    while open_targets:
        new = needs[open_targets.pop()] - needed
        needed |= new
        open_targets += new
    return needed


def chained(target: Hashable, needs: Needs) -> bool:
    """Whether a target needs itself, by way of others too."""
    return target in needed_by(target, needs)
