"""How long a collective takes by the alpha-beta model: a latency for each hop, and
bytes over a bandwidth.

`n_bytes` is the whole tensor on one rank: what all-reduce reduces, what all-gather ends
with and what reduce-scatter starts from, as in nccl-tests. Sources: Thakur,
Rabenseifner and Gropp 2005, Optimization of collective communication operations in
MPICH (ring); Sanders, Speck and Träff 2009, Two-tree algorithms for full bandwidth
broadcast, reduction and scan (tree); nccl-tests, doc/PERFORMANCE.md (bytes over the
busiest wire).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, NamedTuple

from trainplan._tables import Shown
from trainplan._text import lookup
from trainplan._units import format_seconds, format_si
from trainplan.arguments import Bounds, Count, NonNegative, Positive, checked


class _Wire(NamedTuple):
    """What an all-reduce sends: `hops` in turn, and `factor` bytes over a rank's
    busiest wire for each byte of the tensor.
    """

    hops: int
    factor: float


def _ring(n: int) -> _Wire:
    return _Wire(2 * (n - 1), 2 * (n - 1) / n)


def _tree(n: int) -> _Wire:
    """Two binary trees, each with half of the bytes."""
    return _Wire(2 * math.ceil(math.log2(n)), 2.0)


def _nvls(n: int) -> _Wire:
    """All bytes to the switch, and a rank's n-th part again to spread the sum."""
    return _Wire(2, (n + 1) / n)


# by the number of ranks
ALGORITHMS: Mapping[str, Callable[[int], _Wire]] = {
    "ring": _ring,
    "tree": _tree,
    "nvls": _nvls,
}


@checked
@dataclass(frozen=True, repr=False)
class Link(Shown):
    """A rank's link: `alpha_s` seconds before each hop's first byte, then `bytes_per_s`
    in one direction.

    `low_latency` is a second protocol with a shorter start and a lower bandwidth
    (NCCL's LL beside its Simple), used where it is faster. `switch` is switches that
    reduce (NVLink SHARP, "NVLS", and InfiniBand's SHARP); its bytes_per_s is what a
    rank sends. `start_s` passes once, before a collective's first hop: its launch, and
    the ranks' wait for each other. `tree` is what a tree's hops are, where they aren't
    those of the ring: most of a ring's stay in nodes, not of a tree's. Raises
    ValueError for a negative start, and a bandwidth that is not above zero.
    """

    MAKER: ClassVar = "trainplan.costs.Link(alpha_s, bytes_per_s) is one."
    alpha_s: NonNegative
    bytes_per_s: Positive
    low_latency: Link | None = None
    switch: Link | None = None
    name: str = ""
    source: str = ""
    start_s: NonNegative = 0.0
    tree: Link | None = None

    def __str__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        return (
            f"{name}{format_seconds(self.alpha_s)} a hop,"
            f" {format_si(self.bytes_per_s, 'B/s')}"
        )


def wire_s(link: Link, hops: float, n_bytes: float) -> float:
    """Seconds of a start, `hops` and `n_bytes` over the wire, by the faster of the
    link's protocols.
    """
    seconds = link.start_s + hops * link.alpha_s + n_bytes / link.bytes_per_s
    if link.low_latency is None:
        return seconds
    return min(seconds, wire_s(link.low_latency, hops, n_bytes))


@checked
def all_reduce_s(
    n_bytes: NonNegative, ranks: Count, link: Link, algorithm: str = "ring"
) -> float:
    """Seconds of an all-reduce of `n_bytes` over `ranks` by an algorithm of ALGORITHMS.

    "nvls" reduces in the link's switch. Raises ValueError for an unknown algorithm,
    and for "nvls" without a switch.
    """
    return _all_reduce_s(n_bytes, ranks, link, algorithm)


def _all_reduce_s(n_bytes: float, ranks: int, link: Link, algorithm: str) -> float:
    wire_of = lookup(algorithm, ALGORITHMS, "algorithm")
    if ranks == 1:
        return 0.0
    used: Link | None = link
    if algorithm == "nvls":
        used = link.switch
    elif algorithm == "tree" and link.tree is not None:
        used = link.tree
    if used is None:
        raise ValueError(
            "Expected a link with a switch that reduces, got one without. Pass"
            " Link(..., switch=Link)."
        )
    hops, factor = wire_of(ranks)
    return wire_s(used, hops, factor * n_bytes)


def fastest_all_reduce_s(
    n_bytes: float, ranks: int, link: Link, *, in_node: bool
) -> float:
    """Seconds of an all-reduce by the ring or what is faster: switches that add, or a
    tree between nodes.

    A tree wins with few bytes on many ranks. In a node NCCL's tree is a chain (NCCL,
    src/graph/tuning.cc).
    """
    algorithms = ["ring"]
    if link.switch is not None:
        algorithms.append("nvls")
    if not in_node:
        algorithms.append("tree")
    return min(
        _all_reduce_s(n_bytes, ranks, link, algorithm) for algorithm in algorithms
    )


def all_gather_s(n_bytes: float, ranks: int, link: Link) -> float:
    """Seconds until every rank holds all `n_bytes`, of which each had 1/n: (n-1) hops,
    (n-1)/n of the bytes.

    A reduce-scatter, an all-gather run backwards, takes as long.
    """
    return wire_s(link, ranks - 1, (ranks - 1) / ranks * n_bytes)


@checked
def point_to_point_s(n_bytes: NonNegative, link: Link) -> float:
    """Seconds of one send: one hop, all bytes."""
    return wire_s(link, 1, n_bytes)


@checked
def hierarchical_all_reduce_s(
    n_bytes: NonNegative, nodes: Count, per_node: Count, intra: Link, inter: Link
) -> float:
    """Seconds of a reduce-scatter inside each node, all-reduces of the parts between
    nodes, and an all-gather inside.

    Each of a node's `per_node` ranks has a link of its own between the nodes and
    carries 1/per_node of the bytes. Source: Mikami et al. 2018, ImageNet/ResNet-50
    training in 224 seconds (2D-torus all-reduce), arXiv:1811.05233.
    """
    inside = 2 * all_gather_s(n_bytes, per_node, intra)
    return inside + fastest_all_reduce_s(
        n_bytes / per_node, nodes, inter, in_node=False
    )


@checked
def fit_link(
    n_bytes: Sequence[Positive],
    seconds: Sequence[Positive],
    ranks: Annotated[int, Bounds(least=2)],
    *,
    algorithm: str = "ring",
) -> Link:
    """The Link whose all-reduces come nearest to measured `seconds`, by least squares
    of the relative errors.

    Raises ValueError for fewer than two sizes, for numbers not above zero, and if the
    time falls with every size, to less than half.
    """
    if len(n_bytes) != len(seconds):
        raise ValueError(
            f"Expected as many seconds as n_bytes, got {len(seconds)} and"
            f" {len(n_bytes)}."
        )
    points = sorted(zip(n_bytes, seconds, strict=True))
    if len({size for size, _ in points}) < 2:
        raise ValueError(
            f"Expected at least 2 sizes to fit a link, got {len(points)} measurements."
        )
    least, short_s = points[0]
    most, long_s = points[-1]
    falls = all(later < earlier for (_, earlier), (_, later) in pairwise(points))
    if falls and long_s < 0.5 * short_s:  # anything less is noise
        raise ValueError(
            f"Expected seconds that grow with n_bytes, got {short_s:g} s for {least:g}"
            f" bytes and {long_s:g} s for {most:g}. Are the lists in the same order?"
        )
    hops, factor = lookup(algorithm, ALGORITHMS, "algorithm")(ranks)
    # of the line start + slope * size that minimizes the squares of line / time - 1,
    # neither below zero; the sums are of products of a = 1 / time, b = size / time, 1
    aa = sum(1 / t**2 for _, t in points)
    ab = sum(size / t**2 for size, t in points)
    bb = sum(size**2 / t**2 for size, t in points)
    a1 = sum(1 / t for _, t in points)
    b1 = sum(size / t for size, t in points)
    determinant = aa * bb - ab**2
    start = (a1 * bb - b1 * ab) / determinant if determinant > 0 else -1.0
    if start < 0:
        return Link(0.0, factor / (b1 / bb))
    slope = (b1 * aa - a1 * ab) / determinant
    # a flat line is all start: the wire is too fast to show, and a Link needs a finite
    # rate
    if slope <= 0:
        slope = 1e-3 * min(t / size for size, t in points)
    return Link(start / hops, factor / slope)
