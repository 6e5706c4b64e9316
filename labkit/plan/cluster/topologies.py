"""Network topologies: how far apart two GPUs are, how much passes between two halves, how many links it takes.

Closed forms for a ring, a torus, a fat tree of two levels, and rails. Bandwidths are of one link in one direction.
Sources: Dally and Towles 2004, Principles and practices of interconnection networks, chapters 3 and 5 (torus, cut);
Leiserson 1985, Fat-trees; Wang et al. 2023, Rail-only, arXiv:2307.12169 (rails).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from labkit.core.display import Shown, Table
from labkit.core.errors import LayoutError
from labkit.core.kinds import Items, Number
from labkit.core.parameters import Count, Positive, checked
from labkit.core.units import format_si

_RADIX = 64  # ports of a switch, assumed
_Several = Annotated[int, Number(least=2)]


@dataclass(frozen=True, repr=False)
class Topology(Shown):
    """A network of `gpus`: `diameter` links on the longest shortest path, `bisection_bytes_per_s` between two halves.

    The bisection is one direction of the fewest links whose removal leaves two halves. `links` counts every cable of
    the network once, those of GPUs included; `links_per_gpu` are the ports of one GPU.
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
        """Bytes/s that each GPU of one half can send to the other half while all do."""
        return self.bisection_bytes_per_s / (self.gpus / 2)

    def __str__(self) -> str:
        switches = f", {self.switches:,} switches" if self.switches else ""
        return (
            f"{self.name} of {self.gpus:,} GPUs: diameter {self.diameter} links, bisection "
            f"{format_si(self.bisection_bytes_per_s, 'B/s')} ({format_si(self.bisection_per_gpu, 'B/s')} a GPU), "
            f"{self.links:,} links{switches}"
        )


@checked(error=LayoutError)
def ring(gpus: _Several, bytes_per_s: Positive) -> Topology:
    """A ring: half-way round is n/2 links, a cut crosses two. Raises LayoutError below 2 GPUs."""
    return Topology("ring", gpus, gpus // 2, 2 * bytes_per_s, gpus, 2)


@checked(error=LayoutError)
def torus(sides: Annotated[Sequence[_Several], Items(1)], bytes_per_s: Positive) -> Topology:
    """A torus with these `sides` (three for a 3-D torus), whose smallest cut is across its longest side.

    That cut crosses n / (longest side) rows, each twice. A side of 2 has one link, not two. Raises LayoutError for
    sides below 2.
    """
    gpus = math.prod(sides)
    longest = max(sides)
    cut = gpus // longest * (2 if longest > 2 else 1)
    ports = sum(2 if side > 2 else 1 for side in sides)
    name = f"{len(sides)}-D torus {' x '.join(map(str, sides))}"
    return Topology(name, gpus, sum(side // 2 for side in sides), cut * bytes_per_s, gpus * ports // 2, ports)


@checked(error=LayoutError)
def fat_tree(gpus: _Several, bytes_per_s: Positive) -> Topology:
    """Two levels of 64-port switches (leaf and spine), one port a GPU: half of a leaf's ports go up, so all pass.

    Raises LayoutError for more than the 64²/2 GPUs that two levels connect.
    """
    down = _RADIX // 2
    if gpus > down * _RADIX:
        raise LayoutError(
            f"Expected at most {down * _RADIX:,} GPUs on two levels of {_RADIX}-port switches, got {gpus:,}. More "
            "need a third level, which is not modelled."
        )
    leaves = math.ceil(gpus / down)
    if leaves == 1:
        return Topology("fat tree", gpus, 2, gpus / 2 * bytes_per_s, gpus, 1, leaves)
    uplinks = leaves * down
    switches = leaves + math.ceil(uplinks / _RADIX)
    return Topology("fat tree", gpus, 4, gpus / 2 * bytes_per_s, gpus + uplinks, 1, switches)


@checked(error=LayoutError)
def rails(nodes: _Several, per_node: Count, bytes_per_s: Positive, nvlink_bytes_per_s: Positive) -> Topology:
    """Rails: the i-th GPUs of all nodes share a fat tree of their own; between rails data crosses a node's NVLink.

    The bisection is between halves of the nodes; the farthest GPU is one NVLink hop more (two links, through its
    switch). NVIDIA's SuperPOD also joins the rails by shared spine switches, a rail-optimised fat tree.
    """
    one = fat_tree(nodes, bytes_per_s)
    gpus, several = nodes * per_node, per_node > 1
    return Topology(
        f"{per_node} rails",
        gpus,
        one.diameter + 2 * several,
        per_node * one.bisection_bytes_per_s,
        per_node * one.links + gpus * several,
        1 + several,
        per_node * one.switches,
    )


@checked(error=LayoutError)
def compare(topologies: Sequence[Topology]) -> Table:
    """A table with a row for each topology."""
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
        for each in topologies
    )
    headings = ("network", "GPUs", "longest path", "bisection", "a GPU", "ports a GPU", "links", "switches")
    return Table(rows, headings)
