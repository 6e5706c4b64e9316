"""Every constant of the cluster model, each fitted, counted, printed or assumed, with its source."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.core.parameters import NonNegative, Positive, Share, checked
from labkit.plan.costs.collectives import Link


@checked
@dataclass(frozen=True)
class Constants:
    """The constants that no data sheet or formula gives.

    Three are fitted by scripts/fit_cluster.py to 149 published steps at once (a test holds its result to these
    numbers), two are not.

    `sustained`: share of the best published matmul rate that training keeps: clocks under the power limit for hours,
    and shapes that aren't the best one. `attention`: share of Ampere's rate that fused attention reaches.
    `contention`: seconds of compute lost to a second of communication behind it, whose kernels hold SMs and memory
    bandwidth. `bandwidth`: share of a memory's printed bandwidth that kernels reach, the mean of copies on A100
    (77.5 %) and H100 (75.2 %) in data/published/memcpy_bandwidth.csv. `fill_s`: seconds that a tile's start and end
    take, assumed: loads and stores that nothing hides, a few accesses of half a microsecond to memory; the published
    steps can't tell 1 from 3 µs.
    """

    sustained: Positive = 0.866
    attention: Positive = 0.335
    contention: Share = 0.41
    bandwidth: Positive = 0.764
    fill_s: NonNegative = 2.0e-6


CONSTANTS = Constants()

# ---- one GPU ----

TILE = 128 * 256  # elements of the product that one SM works on at a time: cuBLAS's usual thread block for 16 bit
# FLOP a clock and SM of Ampere's tensor instructions (A100: 312 TFLOP/s = 108 x 1.41 GHz x 2,048). FlashAttention 1 and
# 2 use them on newer devices too, and so miss half of Hopper (Shah et al. 2024, FlashAttention-3, section 1: 35 %).
AMPERE_FLOP_PER_CLOCK = 2048
# Bytes a logit crosses memory with, forward and backward, in eager torch: written (2) and read (2) in 16 bit, as
# float32 written (4); log-softmax (4 + 4), its gradient (4 + 4), cast to 16 bit (4 + 2), read by two products (4).
LOGIT_BYTES = 34
SOFTMAX_FLOP = 5  # a score, as lab.costs.attention counts
# A dropout's random number on the vector units: about 25 instructions, an instruction counted as the 2 FLOP it could
# have done (Philox4x32-10, 80 instructions for 4 numbers: Salmon et al. 2011; then convert, compare, scale).
RANDOM_FLOP = 50

# ---- links ----

_FITTED = "fitted to data/published/collectives_busbw_a100_h200.csv by scripts/fit_cluster.py"
NVLINK3 = Link(5.98e-6, 220e9, low_latency=Link(2.98e-6, 23.6e9), name="NVLink 3 (A100), 300 GB/s", source=_FITTED)
NVLINK4 = Link(
    5.98e-6,
    365e9,
    low_latency=Link(2.76e-6, 356e9),
    switch=Link(45.3e-6, 306e9, low_latency=Link(23.1e-6, 210e9)),
    name="NVLink 4 (H100, H200), 450 GB/s",
    source=_FITTED,
)
# Share of NVLink's printed rate that an all-reduce reaches, for a generation whose rate alone is known: 220 of 300 GB/s
# on A100, 365 of 450 on H200.
NVLINK_SHARE = 0.77
# Share of a network's printed rate that an all-reduce reaches: 42.5 of 50 GB/s a node
# (data/published/interconnect_specs.csv, AWS EFA v1, "measured"). Prefer a link's own measurement where there is one.
NETWORK_SHARE = 0.85
# Start of a hop between nodes, with the protocols Simple and LL.
NETWORK_ALPHA_S, NETWORK_LOW_LATENCY_ALPHA_S = 9.6e-6, 2.7e-6
NETWORK_SOURCE = (
    "printed rate: data/published/interconnect_specs.csv for InfiniBand; start of a hop: NVIDIA/nccl, "
    "src/graph/tuning.cc (commit 01afd20a), ring, Simple and LL"
)
