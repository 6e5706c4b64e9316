"""What checks of layers on ranks share: the ways to cut a list of layers into one stage
after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def sums(sizes: Sequence[float], edges: Sequence[int]) -> list[float]:
    """Each stage's sum of `sizes`; stage i has the layers from edges[i] up to, but not
    including, edges[i + 1].
    """
    return [sum(sizes[start:end]) for start, end in itertools.pairwise(edges)]


def best_edges(sizes: Sequence[float], ranks: int) -> list[int]:
    """The ranks + 1 edges whose largest stage sum is smallest, of all ways to give each
    rank a layer at least.
    """
    inner = itertools.combinations(range(1, len(sizes)), ranks - 1)
    return min(
        ([0, *cuts, len(sizes)] for cuts in inner),
        key=lambda edges: max(sums(sizes, edges)),
    )
