"""A cluster: which GPU, how many, how many a node, and the links inside a node and between nodes."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from labkit.core.arguments import check_number
from labkit.core.display import Shown
from labkit.core.errors import LayoutError
from labkit.core.units import GIGA, format_si
from labkit.measure.catalog import Device, find
from labkit.plan.costs.collectives import Link

_FITTED = "fitted to data/published/collectives_busbw_a100_h200.csv by scripts/fit_cluster.py"
_NCCL = (
    "printed rate: data/published/interconnect_specs.csv for InfiniBand; start of a hop: NVIDIA/nccl, "
    "src/graph/tuning.cc (commit 01afd20a), ring, Simple and LL"
)
NVLINK3 = Link(5.98e-6, 220e9, low_latency=Link(2.98e-6, 23.6e9), name="NVLink 3 (A100), 300 GB/s", source=_FITTED)
NVLINK4 = Link(
    5.98e-6,
    365e9,
    low_latency=Link(2.76e-6, 356e9),
    switch=Link(45.3e-6, 306e9, low_latency=Link(23.1e-6, 210e9)),
    name="NVLink 4 (H100, H200), 450 GB/s",
    source=_FITTED,
)
# what an all-reduce reaches of a network's printed rate: 42.5 of 50 GB/s a node (data/published/interconnect_specs.csv,
# AWS EFA v1, "measured"); a link's own measurement is better where there is one
NETWORK_SHARE = 0.85
# what it reaches of NVLink's printed rate, where only that is known: 220 of 300 GB/s on A100, 365 of 450 on H200
NVLINK_SHARE = 0.77


def network(bytes_per_s: float, name: str = "") -> Link:
    """A GPU's link between nodes, of a printed rate in bytes/s and direction, at what all-reduces reach of it."""
    reached = NETWORK_SHARE * bytes_per_s
    return Link(9.6e-6, reached, low_latency=Link(2.7e-6, reached / 2), name=name, source=_NCCL)


HDR = network(25 * GIGA, "InfiniBand HDR, 25 GB/s a GPU")
NDR = network(50 * GIGA, "InfiniBand NDR, 50 GB/s a GPU")


@dataclass(frozen=True, repr=False)
class Cluster(Shown):
    """`gpus` of a `device` (a Device of the catalogue or its name), `gpus_per_node` a node, whole nodes only.

    `intra` and `inter` are a GPU's own links inside the node and between nodes; None stands for what such a node
    usually has: the GPU's NVLink (else PCIe), and HDR InfiniBand for an A100 or older, NDR for newer. Raises
    LayoutError for counts that can't be, UnknownDevice for a name that the catalogue hasn't.
    """

    device: Device | str
    gpus: int
    gpus_per_node: int = 8
    intra: Link | None = None
    inter: Link | None = None

    def __post_init__(self) -> None:
        check_number("gpus", self.gpus, least=1, whole=True, error=LayoutError)
        check_number("gpus_per_node", self.gpus_per_node, least=1, whole=True, error=LayoutError)
        if self.gpus > self.gpus_per_node and self.gpus % self.gpus_per_node:
            full = self.gpus // self.gpus_per_node * self.gpus_per_node
            raise LayoutError(
                f"Expected whole nodes of {self.gpus_per_node} GPUs, got {self.gpus:,} GPUs. The nearest are "
                f"{full:,} and {full + self.gpus_per_node:,}."
            )
        device = find(self.device) if isinstance(self.device, str) else self.device
        object.__setattr__(self, "device", device)
        object.__setattr__(self, "intra", self.intra or _inside(device))
        object.__setattr__(self, "inter", self.inter or _between(device))

    @property
    def gpu(self) -> Device:
        """The device, found."""
        assert isinstance(self.device, Device)  # __post_init__ found it
        return self.device

    @property
    def inside(self) -> Link:
        """The link inside a node."""
        assert self.intra is not None  # __post_init__ set it
        return self.intra

    @property
    def between(self) -> Link:
        """The link between nodes."""
        assert self.inter is not None  # __post_init__ set it
        return self.inter

    @property
    def nodes(self) -> int:
        """Nodes, the last one full unless it is the only one."""
        return -(-self.gpus // self.gpus_per_node)

    def with_gpus(self, gpus: int) -> Cluster:
        """The same cluster with another number of GPUs."""
        return replace(self, gpus=gpus)

    def __str__(self) -> str:
        inside = self.inside.name or str(self.inside)
        between = self.between.name or str(self.between)
        links = inside if self.nodes == 1 else f"{inside}; between nodes {between}"
        return f"{self.gpus:,} x {self.gpu.name} ({format_si(self.gpu.memory_bytes or 0, 'B')}), {links}"


@functools.cache
def _pcie(generation: str) -> Link:
    gen = int("".join(c for c in generation if c.isdigit())[:1] or 3)
    return network(15.75 * GIGA * 2 ** (gen - 3), f"PCIe {gen}.0 x16")


def _inside(device: Device) -> Link:
    printed = device.interconnect_bytes_per_s
    bridged = device.vendor == "NVIDIA" and not any(board in device.name for board in ("SXM", "GH200", "GB200"))
    if printed is None or bridged:  # a card's NVLink bridge joins two, not a node
        return _pcie(device.pcie or "3.0")
    for link, both_directions in ((NVLINK3, 600 * GIGA), (NVLINK4, 900 * GIGA)):
        if printed == both_directions:
            return link
    return Link(5.98e-6, NVLINK_SHARE * printed / 2, name=f"{format_si(printed / 2, 'B/s')} a direction")


def _between(device: Device) -> Link:
    return NDR if (device.year or 0) >= 2022 else HDR
