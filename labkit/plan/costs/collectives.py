"""How long a collective takes: alpha-beta, a latency a hop and a bandwidth, for rings, trees, nodes and switches.

`n_bytes` is the whole tensor on one rank: what all-reduce reduces, what all-gather ends with, what reduce-scatter and
all-to-all start from. nccl-tests counts alike. Sources: Thakur, Rabenseifner and Gropp 2005, Optimization of
collective communication operations in MPICH (ring); Sanders, Speck and Träff 2009, Two-tree algorithms for full
bandwidth broadcast, reduction and scan (tree); nccl-tests, doc/PERFORMANCE.md (bus bandwidth).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from labkit.core.arguments import check_number
from labkit.core.display import Shown
from labkit.core.errors import BadArgument, LabError, nearest
from labkit.core.units import format_seconds, format_si

ALGORITHMS = ("ring", "tree", "nvls", "auto")
# bytes that cross a rank's busiest wire over the tensor's bytes, in a ring of n (nccl-tests, doc/PERFORMANCE.md)
BUS_FACTORS: Mapping[str, Callable[[int], float]] = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: (n - 1) / n,
    "all-to-all": lambda n: (n - 1) / n,
    "point-to-point": lambda n: 1.0,
}


@dataclass(frozen=True, repr=False)
class Link(Shown):
    """A rank's link: `alpha_s` seconds before each hop's first byte, then `bytes_per_s` in one direction.

    `low_latency` is a second protocol with a shorter start and a lower bandwidth (NCCL's LL beside its Simple), taken
    where it is faster. `switch` is a switch that reduces (NVLink SHARP, "NVLS"): its bytes_per_s is what a rank sends.
    """

    alpha_s: float
    bytes_per_s: float
    low_latency: Link | None = None
    switch: Link | None = None
    name: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        check_number("alpha_s", self.alpha_s, least=0)
        check_number("bytes_per_s", self.bytes_per_s, above=0)

    def seconds(self, hops: float, n_bytes: float) -> float:
        """Time of `hops` starts and `n_bytes` over the wire, by the faster of the protocols."""
        plain = hops * self.alpha_s + n_bytes / self.bytes_per_s
        return plain if self.low_latency is None else min(plain, self.low_latency.seconds(hops, n_bytes))

    def __str__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        return f"{name}{format_seconds(self.alpha_s)} a hop, {format_si(self.bytes_per_s, 'B/s')}"


def _check(n_bytes: float, ranks: int) -> None:
    check_number("n_bytes", n_bytes, least=0)
    check_number("ranks", ranks, least=1, whole=True)


def all_reduce_s(n_bytes: float, ranks: int, link: Link, algorithm: str = "ring") -> float:
    """Seconds of an all-reduce of `n_bytes` over `ranks`.

    "ring": 2 (n-1) hops and 2 (n-1)/n of the bytes. "tree" (two binary trees, each with half of the bytes): 2 log2 n
    hops and 2 times the bytes. "nvls": every rank sends its n_bytes to the switch, and its n-th part once more to
    spread the sum: (n+1)/n of the bytes, in two starts. "auto": the ring or, where the link has one, the switch,
    whichever is faster, as NCCL picks inside a node, where its tree is a chain (NCCL, src/graph/tuning.cc).
    Raises LabError for another algorithm, or for "nvls" without a switch.
    """
    _check(n_bytes, ranks)
    if algorithm not in ALGORITHMS:
        near = nearest(str(algorithm), ALGORITHMS, n=1)[0]
        raise LabError(f"Expected an algorithm out of {', '.join(ALGORITHMS)}, got {algorithm!r}. Nearest: {near!r}.")
    if ranks == 1:
        return 0.0
    if algorithm == "auto":
        usable = ("ring", "nvls") if link.switch is not None else ("ring",)
        return min(all_reduce_s(n_bytes, ranks, link, each) for each in usable)
    if algorithm == "tree":
        return link.seconds(2 * math.ceil(math.log2(ranks)), 2 * n_bytes)
    if algorithm == "nvls":
        if link.switch is None:
            raise LabError("Expected a link with a switch that reduces, got one without. Pass Link(..., switch=Link).")
        return link.switch.seconds(2, (ranks + 1) / ranks * n_bytes)
    return link.seconds(2 * (ranks - 1), BUS_FACTORS["all-reduce"](ranks) * n_bytes)


def all_gather_s(n_bytes: float, ranks: int, link: Link) -> float:
    """Seconds until every rank holds all `n_bytes`, of which each had 1/n: (n-1) hops, (n-1)/n of the bytes."""
    _check(n_bytes, ranks)
    return link.seconds(ranks - 1, (ranks - 1) / ranks * n_bytes)


def reduce_scatter_s(n_bytes: float, ranks: int, link: Link) -> float:
    """Seconds until every rank holds its n-th part of the sum: as all_gather_s, run backwards."""
    return all_gather_s(n_bytes, ranks, link)


def all_to_all_s(n_bytes: float, ranks: int, link: Link) -> float:
    """Seconds until every rank has sent each other one 1/n of its `n_bytes`: (n-1) sends on one wire."""
    return all_gather_s(n_bytes, ranks, link)


def point_to_point_s(n_bytes: float, link: Link) -> float:
    """Seconds of one send: one hop, all bytes."""
    _check(n_bytes, 2)
    return link.seconds(1, n_bytes)


def hierarchical_all_reduce_s(n_bytes: float, nodes: int, per_node: int, intra: Link, inter: Link) -> float:
    """Reduce-scatter inside each node, all-reduce of the parts between the nodes, all-gather inside.

    Each of a node's `per_node` ranks has a link of its own between the nodes and carries 1/per_node of the bytes.
    Source: Mikami et al. 2018, ImageNet/ResNet-50 training in 224 seconds (2D-torus all-reduce), arXiv:1811.05233.
    """
    _check(n_bytes, nodes)
    inside = reduce_scatter_s(n_bytes, per_node, intra) + all_gather_s(n_bytes, per_node, intra)
    part = n_bytes / per_node
    between = min(all_reduce_s(part, nodes, inter), all_reduce_s(part, nodes, inter, "tree"))
    return inside + between


def bus_bandwidth(n_bytes: float, seconds: float, ranks: int, collective: str = "all-reduce") -> float:
    """Bytes a second on a ring's busiest wire: n_bytes/seconds times the collective's factor (BUS_FACTORS).

    In-switch reduction moves fewer bytes than a ring, so that its bus bandwidth can lie above the wire's.
    """
    _check(n_bytes, ranks)
    check_number("seconds", seconds, above=0)
    if collective not in BUS_FACTORS:
        near = nearest(str(collective), BUS_FACTORS, n=1)[0]
        raise LabError(f"Expected a collective out of {', '.join(BUS_FACTORS)}, got {collective!r}. Nearest: {near!r}.")
    return n_bytes / seconds * BUS_FACTORS[collective](ranks)


def fit_link(
    n_bytes: Sequence[float], seconds: Sequence[float], ranks: int, *, algorithm: str = "ring", protocols: int = 1
) -> Link:
    """The Link whose all-reduce comes nearest to measured `seconds`, by least squares of the relative errors.

    With `protocols` 2 the smaller sizes get a low-latency line of their own; the size where the lines part is tried at
    every measured one. Raises BadArgument for fewer than two sizes a line, or times that don't grow.
    """
    points = sorted(zip(n_bytes, seconds, strict=True))
    check_number("ranks", ranks, least=2, whole=True)
    for size, time in points:
        check_number("n_bytes", size, above=0)
        check_number("seconds", time, above=0)
    if len({size for size, _ in points}) < 2 * protocols:
        raise BadArgument(f"Expected at least {2 * protocols} sizes to fit a link, got {len(points)} measurements.")
    hops, factor = _hops_and_factor(ranks, algorithm)
    if protocols == 1:
        return _as_link(_line(points), hops, factor)
    best: tuple[float, Link] | None = None
    for split in range(2, len(points) - 1):
        low, bulk = _line(points[:split]), _line(points[split:])
        link = _as_link(bulk, hops, factor, _as_link(low, hops, factor))
        error = sum((link.seconds(hops, factor * size) / time - 1) ** 2 for size, time in points)
        if best is None or error < best[0]:
            best = error, link
    assert best is not None  # four sizes leave one place to part
    return best[1]


def _hops_and_factor(ranks: int, algorithm: str) -> tuple[float, float]:
    """Starts and bytes over the wire a byte of the tensor, read off all_reduce_s with links that are all of one."""
    starts, wire = Link(1.0, 1e300), Link(0.0, 1.0)
    return tuple(  # type: ignore[return-value]
        all_reduce_s(1.0, ranks, Link(0, 1, switch=one) if algorithm == "nvls" else one, algorithm)
        for one in (starts, wire)
    )


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Start a >= 0 in seconds and seconds a byte b > 0 of time = a + b size, least squares of (a + b size)/time - 1."""
    aa = sum(1 / t**2 for _, t in points)
    ab = sum(s / t**2 for s, t in points)
    bb = sum(s**2 / t**2 for s, t in points)
    a1, b1 = sum(1 / t for _, t in points), sum(s / t for s, t in points)
    determinant = aa * bb - ab**2
    start = (a1 * bb - b1 * ab) / determinant if determinant > 0 else -1.0
    if start < 0:
        return 0.0, b1 / bb
    slope = (b1 * aa - a1 * ab) / determinant
    if slope <= 0:  # flat: all start, and a wire too fast to be seen
        slope = 1e-3 * min(t / s for s, t in points)
    return start, slope


def _as_link(line: tuple[float, float], hops: float, factor: float, low_latency: Link | None = None) -> Link:
    return Link(line[0] / hops, factor / line[1], low_latency)
