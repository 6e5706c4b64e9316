"""Shapes of networks: how far apart two GPUs are, how much passes between the halves, how many links it takes.

Closed forms for a ring, a torus, a fat tree of two levels, and rails. Bandwidths are of one link in one direction.
Sources: Dally and Towles 2004, Principles and practices of interconnection networks, chapters 3 and 5 (torus, cut);
Leiserson 1985, Fat-trees; Wang et al. 2023, Rail-only, arXiv:2307.12169 (rails).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from labkit.core.arguments import check_number
from labkit.core.display import Shown, Table
from labkit.core.errors import LayoutError
from labkit.core.units import format_si


@dataclass(frozen=True, repr=False)
class Topology(Shown):
    """A network of `gpus`: `diameter` links on the longest shortest way, `bisection_bytes_per_s` between two halves.

    Bisection counts one direction of the fewest links whose removal leaves two halves. `links` are all of the network,
    each cable once, those of GPUs included; `links_per_gpu` are the ports of one GPU.
    """

    name: str
    gpus: int
    diameter: int
    bisection_bytes_per_s: float
    links: int
    links_per_gpu: int
    switches: int = 0

    @property
    def bisection_per_gpu(self) -> float:
        """Bytes/s that each GPU of one half can send to the other half, all at once."""
        return self.bisection_bytes_per_s / (self.gpus / 2)

    def __str__(self) -> str:
        switches = f", {self.switches:,} switches" if self.switches else ""
        return (
            f"{self.name} of {self.gpus:,} GPUs: {self.diameter} links far, bisection "
            f"{format_si(self.bisection_bytes_per_s, 'B/s')} ({format_si(self.bisection_per_gpu, 'B/s')} a GPU), "
            f"{self.links:,} links{switches}"
        )


def ring(gpus: int, bytes_per_s: float) -> Topology:
    """A ring: half-way round is n/2 links, a cut crosses two."""
    _check(gpus, bytes_per_s)
    return Topology("ring", gpus, gpus // 2, 2 * bytes_per_s, gpus, 2)


def torus(sides: Sequence[int], bytes_per_s: float) -> Topology:
    """A torus of such `sides`, three for a 3-D torus: half of each side far; the cut across the longest side.

    That cut crosses n / (longest side) rows, twice each. Sides of 2 have one link, not two. LayoutError below 2.
    """
    for side in sides:
        check_number("sides", side, least=2, whole=True, error=LayoutError)
    gpus = math.prod(sides)
    _check(gpus, bytes_per_s)
    longest = max(sides)
    cut = gpus // longest * (2 if longest > 2 else 1)
    ports = sum(2 if side > 2 else 1 for side in sides)
    name = f"{len(sides)}-D torus {' x '.join(map(str, sides))}"
    return Topology(name, gpus, sum(side // 2 for side in sides), cut * bytes_per_s, gpus * ports // 2, ports)


def fat_tree(gpus: int, bytes_per_s: float, *, radix: int = 64, oversubscription: float = 1.0) -> Topology:
    """Two levels of switches with `radix` ports (leaf and spine), one port a GPU; at most radix²/2 GPUs at 1:1.

    Each leaf has `oversubscription` times as many GPUs as links upwards; so many times less passes between the halves.
    Raises LayoutError for more GPUs than two levels take.
    """
    _check(gpus, bytes_per_s)
    check_number("oversubscription", oversubscription, least=1, error=LayoutError)
    down = math.floor(radix * oversubscription / (1 + oversubscription))
    up = radix - down
    if gpus > down * radix:
        raise LayoutError(
            f"Expected at most {down * radix:,} GPUs on two levels of {radix}-port switches, got {gpus:,}. Take "
            f"switches with more ports, or a third level."
        )
    leaves = math.ceil(gpus / down)
    uplinks = 0 if leaves == 1 else leaves * up
    spines = 0 if leaves == 1 else math.ceil(uplinks / radix)
    passes = gpus / 2 if leaves == 1 else min(gpus, gpus / down * up) / 2
    far = 2 if leaves == 1 else 4
    return Topology("fat tree", gpus, far, passes * bytes_per_s, gpus + uplinks, 1, leaves + spines)


def rails(nodes: int, per_node: int, bytes_per_s: float, nvlink_bytes_per_s: float, *, radix: int = 64) -> Topology:
    """Rails: the i-th GPUs of all nodes share a fat tree of their own; between rails data crosses a node's NVLink.

    (NVIDIA's SuperPOD joins the rails by shared spine switches besides, a rail-optimised fat tree.)
    Bisection between halves of the nodes; the farthest GPU is one NVLink hop (two links through its switch) more.
    """
    one = fat_tree(nodes, bytes_per_s, radix=radix)
    check_number("per_node", per_node, least=1, whole=True, error=LayoutError)
    check_number("nvlink_bytes_per_s", nvlink_bytes_per_s, above=0, error=LayoutError)
    gpus = nodes * per_node
    inside = 2 if per_node > 1 else 0
    return Topology(
        f"{per_node} rails",
        gpus,
        one.diameter + inside,
        per_node * one.bisection_bytes_per_s,
        per_node * one.links + (gpus if per_node > 1 else 0),
        1 + (per_node > 1),
        per_node * one.switches,
    )


def compare(shapes: Sequence[Topology]) -> Table:
    """The shapes in rows."""
    rows = tuple(
        (
            each.name,
            f"{each.gpus:,}",
            str(each.diameter),
            format_si(each.bisection_bytes_per_s, "B/s"),
            format_si(each.bisection_per_gpu, "B/s"),
            str(each.links_per_gpu),
            f"{each.links:,}",
            f"{each.switches:,}",
        )
        for each in shapes
    )
    headings = ("network", "GPUs", "longest way", "bisection", "a GPU", "ports a GPU", "links", "switches")
    return Table(rows, headings)


def _check(gpus: int, bytes_per_s: float) -> None:
    check_number("gpus", gpus, least=2, whole=True, error=LayoutError)
    check_number("bytes_per_s", bytes_per_s, above=0, error=LayoutError)
