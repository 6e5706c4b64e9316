"""A cluster: which GPU, how many, how many a node, and the links inside a node and
between nodes.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from gpufacts import Device, find
from trainplan._tables import Shown
from trainplan._units import GIGA, format_si
from trainplan.arguments import (
    ANYTHING,
    Bounds,
    Count,
    NonNegative,
    Positive,
    Share,
    checked,
)
from trainplan.cluster.constants import (
    COLLECTIVE_START_S,
    ICI_HOP_S,
    ICI_SHARE,
    NETWORK_ALPHA_S,
    NETWORK_LOW_LATENCY_ALPHA_S,
    NETWORK_SHARE,
    NETWORK_SOURCE,
    NVLINK3,
    NVLINK4,
    NVLINK_SHARE,
)
from trainplan.costs.collectives import Link


@checked
def network(
    bytes_per_s: Positive,
    name: str = "",
    hop_s: NonNegative = 0.0,
    *,
    sharp: bool = False,
) -> Link:
    """A GPU's link between nodes, from its printed rate in bytes/s in one direction, at
    the share all-reduces reach.

    `hop_s` is what a hop takes longer than over InfiniBand: constants.EFA_HOP_S for
    AWS's network. With `sharp` its switches add what passes through them (InfiniBand's
    SHARP: Graham et al. 2016), so that an all-reduce sends each byte once instead of
    twice; at the same share of the rate, which is assumed.
    """
    reached = NETWORK_SHARE * bytes_per_s
    start = COLLECTIVE_START_S
    low_latency = Link(NETWORK_LOW_LATENCY_ALPHA_S + hop_s, reached / 2, start_s=start)
    alpha = NETWORK_ALPHA_S + hop_s
    switch = Link(alpha, reached, start_s=start) if sharp else None
    return Link(
        alpha,
        reached,
        low_latency,
        switch,
        name,
        NETWORK_SOURCE,
        start_s=start,
    )


HDR = network(25 * GIGA, "InfiniBand HDR, 25 GB/s a GPU")
NDR = network(50 * GIGA, "InfiniBand NDR, 50 GB/s a GPU")
XDR = network(100 * GIGA, "InfiniBand XDR, 100 GB/s a GPU")
EFA3 = network(25 * GIGA, "EFA, 25 GB/s a chip")  # 16 x 200 Gb/s a trn2.48xlarge
NVL72 = 72  # GPUs that share an NVLink switch in a rack of GB200 or GB300

# Devices a node where they aren't eight. Source, as of the ports and of EFA3's rate:
# stas00/ml-engineering, network/README.md and compute/accelerator/README.md (744d01e1).
_NODES = {"Trainium 2": 16, "GB10": 1}
_USUAL_NODE = 8
# Of a Gaudi's Ethernet ports three leave the node; of Trainium 2's NeuronLink a fifth.
_GAUDI_PORTS = 24
_GAUDI_OUTSIDE = 3
_NEURONLINK_INSIDE = 4 / 5

_Gpus = Annotated[int, Bounds(least=1, most=10_000_000)]  # searches try every divisor


@checked
@dataclass(frozen=True, repr=False)
class Cluster(Shown):
    """`gpus` of a `device` in whole nodes of `gpus_per_node` (0: as many as such a node
    has: eight; 16 of Trainium 2, one of GB10, and 72 where the name says NVL72).

    `device` is a gpufacts.Device or a name that gpufacts.find knows.
    `intra` and `inter` are a GPU's own links inside the node and between nodes. None
    stands for what such a node usually has: the GPU's NVLink (else PCIe), and HDR
    InfiniBand for an A100 or older, XDR for Blackwell Ultra, NDR for others; for a
    Gaudi its own Ethernet ports, for Trainium 2 NeuronLink and AWS's EFA, for TPUs the
    links of one slice. With
    gpus_per_node=NVL72 a rack of GB200 is a node. A slice of TPUs is one node with a
    `torus` of these sides, all of whose axes a collective uses that spans them.
    `reserve` is the share of the printed memory that layouts must leave free. It is
    none: workspaces and buffers of collectives have the 7 % that the driver reports
    above it (constants.REPORTED), and llm-foundry's runs that take up to what is
    printed were as fast as others. Raises ValueError for counts below 1, nodes that
    aren't full and a torus of another size, gpufacts.UnknownDevice for a name that its
    table hasn't.
    """

    MAKER: ClassVar = "trainplan.Cluster('A100 SXM4 80GB', 8) is one."
    device: Annotated[Device | str, ANYTHING]  # which find judges
    gpus: _Gpus
    gpus_per_node: Annotated[int, Bounds(least=0, most=10_000_000)] = 0
    intra: Link | None = None
    inter: Link | None = None
    torus: tuple[Count, ...] | None = None
    reserve: Share = 0.0

    def __post_init__(self) -> None:
        # an unknown name fails here, not in the first calculation
        node = _usual_node(self.device, self.gpu)
        if not self.gpus_per_node:
            object.__setattr__(self, "gpus_per_node", node)
        if self.gpus > self.gpus_per_node and self.gpus % self.gpus_per_node:
            full = self.gpus // self.gpus_per_node * self.gpus_per_node
            raise ValueError(
                f"Expected whole nodes of {self.gpus_per_node} GPUs, got {self.gpus:,}"
                f" GPUs. The nearest are {full:,} and {full + self.gpus_per_node:,}."
            )
        of_node = min(self.gpus_per_node, self.gpus)
        if self.torus is not None and math.prod(self.torus) != of_node:
            raise ValueError(
                f"Expected a torus of the {of_node:,} devices of a node, got sides"
                f" {self.torus}, which make {math.prod(self.torus):,}."
            )
        if self.reserve == 1:
            raise ValueError(
                "Expected reserve below 1, which leaves no memory. It is a share: 0.08"
                " is 8 %."
            )

    @functools.cached_property
    def gpu(self) -> Device:
        """The device, by its name in gpufacts' table."""
        return find(self.device)

    @functools.cached_property
    def inside(self) -> Link:
        """A GPU's link inside its node."""
        return self.intra or _usual_intra(self.gpu)

    @functools.cached_property
    def between(self) -> Link:
        """A GPU's link between nodes."""
        if self.inter is not None:
            return self.inter
        if self.gpu.vendor == "Intel":
            return _gaudi_ports(self.gpu, _GAUDI_OUTSIDE)
        if self.gpu.vendor == "AWS":
            return EFA3
        if self.gpu.vendor == "Google":
            return self.inside  # a slice has no network but its own
        if self.gpu.name == "GB10":
            return HDR
        if self.gpu.architecture == "Blackwell Ultra":
            return XDR
        return NDR if (self.gpu.year or 0) >= 2022 else HDR

    @property
    def nodes(self) -> int:
        """How many nodes there are, all of them full unless there is only one."""
        return -(-self.gpus // self.gpus_per_node)

    @checked
    def with_gpus(self, gpus: _Gpus) -> Cluster:
        """The same cluster with another number of GPUs."""
        return replace(self, gpus=gpus)

    def __str__(self) -> str:
        links = self.inside.name or str(self.inside)
        if self.nodes > 1:
            links += f"; between nodes {self.between.name or self.between}"
        memory = format_si(self.gpu.memory_bytes or 0, "B")
        return f"{self.gpus:,} x {self.gpu.name} ({memory}), {links}"


def _usual_node(name: Device | str, device: Device) -> int:
    """Devices a node, by what was asked for and its row."""
    if isinstance(name, str) and "nvl72" in name.casefold():
        return NVL72
    return _NODES.get(device.name, _USUAL_NODE)


def pcie(device: Device) -> Link:
    """16 lanes of a device's PCIe generation: between cards without NVLink, and to main
    memory.
    """
    digit = re.search(r"\d", device.pcie or "")
    generation = int(digit[0]) if digit else 3
    return network(15.75 * GIGA * 2 ** (generation - 3), f"PCIe {generation}.0 x16")


def _gaudi_ports(device: Device, ports: int) -> Link:
    """The link of so many of a Gaudi's Ethernet ports."""
    assert device.interconnect_bytes_per_s is not None  # its rows have it
    direction = device.interconnect_bytes_per_s / 2
    rate = ports / _GAUDI_PORTS * direction
    return network(rate, f"{ports} Ethernet ports, {format_si(rate, 'B/s')}")


@functools.cache
def _usual_intra(device: Device) -> Link:
    if device.vendor == "Intel":
        return _gaudi_ports(device, _GAUDI_PORTS - _GAUDI_OUTSIDE)
    printed = device.interconnect_bytes_per_s
    if device.vendor == "AWS" and printed is not None:
        printed *= _NEURONLINK_INSIDE
    # a card's NVLink bridge joins two cards, not a node, so that cards talk over PCIe
    boards = ("SXM", "GH200", "GB200", "GB300")
    bridged = device.vendor == "NVIDIA" and not any(
        board in device.name for board in boards
    )
    if printed is None or bridged:
        return pcie(device)
    direction = f"{format_si(printed / 2, 'B/s')} a direction"
    if device.vendor == "Google":
        return Link(
            ICI_HOP_S,
            ICI_SHARE * printed / 2,
            name=f"ICI, {direction}",
        )
    # printed are both directions together
    nvlink3_bytes_per_s = 600 * GIGA
    nvlink4_bytes_per_s = 900 * GIGA
    if printed == nvlink3_bytes_per_s:
        return NVLINK3
    if printed == nvlink4_bytes_per_s:
        return NVLINK4
    switch = None
    faster = printed / nvlink4_bytes_per_s
    if faster > 1 and NVLINK4.switch is not None:
        # assumed to have grown with the rate
        switch = replace(
            NVLINK4.switch,
            bytes_per_s=faster * NVLINK4.switch.bytes_per_s,
            low_latency=None,
        )
    return replace(
        NVLINK3,
        bytes_per_s=NVLINK_SHARE * printed / 2,
        low_latency=None,
        switch=switch,
        name=direction,
        source="",
    )


@functools.lru_cache(maxsize=4096)
def group_link(cluster: Cluster, ranks: int, stride: int) -> Link:
    """The effective link of a ring through `ranks` GPUs, every `stride`-th of the
    cluster.

    Within one node it is the node's own. A ring over several nodes passes through each
    once and leaves it over the links of all its members there, so that the rate is the
    lower of these together and the node's own link; the start of a hop is the mean of
    those inside and between nodes.
    """
    per_node = cluster.gpus_per_node
    inside = min(ranks, max(per_node // stride, 1))
    nodes = math.ceil(ranks / inside)
    intra = cluster.inside
    if cluster.torus is not None:
        intra = _torus_link(intra, cluster.torus, inside, stride)
    is_mesh = cluster.gpu.vendor in ("AMD", "Intel") and cluster.intra is None
    if is_mesh and 1 < inside < per_node:
        # each GPU has a link of its own to every other
        # (trainplan_published/interconnect_specs.csv, "all-to-all")
        share = (inside - 1) / (per_node - 1)
        intra = replace(intra, bytes_per_s=share * intra.bytes_per_s)
    return intra if nodes == 1 else _mixed(intra, cluster.between, inside, nodes)


def _torus_link(link: Link, sides: tuple[int, ...], ranks: int, stride: int) -> Link:
    """The link of `ranks` devices, every `stride`-th of a torus, of whose sides the
    last is counted first.

    `link` is a device's along all axes together. Each axis carries its share of the
    bytes, in both directions where the group closes the ring along it, else in one, and
    shares its wires with the groups in between. Hops add up over the axes. Source:
    Austin et al. 2025, How to scale your model, part 3.
    """
    hops = 0.0
    axes = 0.0
    left = ranks  # along the sides that are to come
    for side in reversed(sides):
        step = min(stride, side)
        extent = max(min(left, side // step), 1)
        if extent > 1:
            closed = extent * step == side
            axes += (1.0 if closed else 0.5) / step
            hops += (extent - 1) * step
        stride = math.ceil(stride / step) if step == side else 1
        left = math.ceil(left / extent)
    if ranks == 1 or not axes:
        return link
    return replace(
        link,
        alpha_s=hops / (ranks - 1) * link.alpha_s,
        bytes_per_s=axes / len(sides) * link.bytes_per_s,
    )


def _mixed(intra: Link, inter: Link, inside: int, nodes: int) -> Link:
    """The link of a ring through `inside` GPUs of each node, and of a tree of the nodes
    with a chain in each.

    Source of the tree's hops: NVIDIA/nccl, src/graph/tuning.cc (commit 01afd20a).
    """
    low_latency = None
    if intra.low_latency is not None and inter.low_latency is not None:
        low_latency = _mixed(intra.low_latency, inter.low_latency, inside, nodes)
    rate = inside * inter.bytes_per_s
    if inside > 1:
        rate = min(rate, intra.bytes_per_s)
    start = max(intra.start_s, inter.start_s)
    ring = inter.alpha_s / inside + (1 - 1 / inside) * intra.alpha_s
    depth = (inside - 1) * intra.alpha_s + math.ceil(math.log2(nodes)) * inter.alpha_s
    tree = Link(
        depth / math.ceil(math.log2(inside * nodes)),
        rate,
        None if low_latency is None else low_latency.tree,
        start_s=start,
    )
    switch = None
    if inter.switch is not None:
        switch = Link(inter.switch.alpha_s, rate, start_s=start)
    return Link(ring, rate, low_latency, switch, start_s=start, tree=tree)
