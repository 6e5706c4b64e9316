"""What a load waits for."""

from collections import defaultdict
from collections.abc import Hashable

Needs = defaultdict[Hashable, set[Hashable]]
"""The names and loads that each name and each load of a function needs, whatever their
order.
"""
Waits = tuple[int, bool]
"""Loads, one after another, before a load, and whether it needs what it brought in the
turn before.
"""


def chained(target: Hashable, needs: Needs) -> bool:
    """Whether a target needs itself, by way of others too."""
    found: set[Hashable] = set()
    left = [target]
    while left:
        new = needs[left.pop()] - found
        found |= new
        left += new
    return target in found
