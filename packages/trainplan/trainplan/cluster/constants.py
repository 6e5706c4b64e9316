"""Every constant of the cluster model, each fitted, counted, printed or assumed, with
its source.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainplan.arguments import NonNegative, Positive, Share, checked
from trainplan.costs.collectives import Link
from trainplan.csv_tables import rows


@checked
@dataclass(frozen=True)
class Constants:
    """The constants that no data sheet or formula gives.

    All but the last three are fitted by trainplan_published/fit_cluster.py to the
    published steps of every table in trainplan.cluster.COMPARISONS at once (a test
    holds its result to these numbers), `flash2` to those in which attention takes long;
    `power`, `contention`, `async_tensor` and `jitter` are those of an earlier fit to
    fewer tables. So are those that the last fit moved by less than it can tell (1 % of
    the errors' mean size), so that predictions didn't move for nothing.

    `sustained`: share of the best published matmul rate that training keeps, for shapes
    that aren't the best one. `power`: the exponent with which a device loses rate that
    has fewer watts for its peak than an A100, and so lowers its clock for hours.
    `flash1` and `flash2`: shares of the rate of Ampere's instructions that the forward
    pass of fused attention of the first two generations reaches; `flash3`: share of the
    device's own peak. `cast`: share of the traffic of casts to 8 bit (read 16 bit,
    write two copies) that isn't part of another kernel. `contention`: bytes of memory
    traffic that delay compute as much as a byte sent behind it, whose kernels hold SMs
    too. `async_tensor`: share of asynchronous tensor traffic that shows. `bandwidth`:
    share of a memory's printed bandwidth that kernels reach. `jitter`: how much slower
    a step gets each time the nodes that wait for each other are e times as many.
    `expert_s`: seconds that the host needs to launch the kernels of a block with
    experts, forward and backward; half of them (assumed) where CUDA graphs launch
    attention, or experts take a set number of tokens.
    `all_to_all`: bytes that an element of a token moves, forward, on its way to experts
    and back by plain all-to-alls: sorted by expert at both ends, sent by NCCL, with
    waits for the host that can't be told apart. `counts_s`: seconds that the GPU
    waits a block, forward, for a host that waits for the tokens of each expert to be
    counted, where none is dropped. `gb300`: how much faster a GB300, for which no
    product's rate is published, multiplies than the median share of all devices says.
    `block_s`: as `expert_s` for a block without experts, assumed: about 100 kernels at
    5 µs. `fill_s`: seconds that a tile's start and end take.
    `wave`: share of a wave of tiles that the last one leaves idle, half for shapes at
    random, less where the library picks its tiles to fit. Both so that the weights'
    gradients of four models take times in the published proportions
    (trainplan_published/zero_bubble_times.csv, t_backward_weight).
    """

    sustained: Positive = 0.892
    power: NonNegative = 0.136
    flash1: Positive = 0.373
    flash2: Positive = 0.444
    flash3: Positive = 0.730
    cast: NonNegative = 0.857
    contention: NonNegative = 4.41
    async_tensor: Share = 0.355
    bandwidth: Positive = 0.650
    jitter: NonNegative = 0.0011
    expert_s: NonNegative = 9.05e-3
    all_to_all: NonNegative = 25.0
    counts_s: NonNegative = 2.70e-3
    gb300: Positive = 1.11
    block_s: NonNegative = 0.5e-3
    fill_s: NonNegative = 3.2e-6
    wave: NonNegative = 0.25


CONSTANTS = Constants()

# The size of the logarithm of published over predicted that holds four of five further
# steps, by class of published steps; what is added a unit of distance from them
# (trainplan.cluster.evidence), so that it holds for each source with constants fitted
# to the others; and the median error there.
# trainplan_published/fit_cluster.py prints them.
SPREAD = {
    row["class"]: float(row["spread"])
    for row in rows("planner_classes")
    if row["spread"]
}
WIDENED = 0.04
MEDIAN_LEFT_OUT = 0.033
# Bytes of memory that the driver reports over those that are printed: 81,559 MiB of an
# H100's 80 GB (nvidia-smi).
# Size of the logarithm of published over predicted memory that holds four of five
# further steps, whoever measured them: trainplan_published/fit_cluster.py,
# memory_spread, over trainplan_published/memory.csv and the tables of memory in
# COMPARISONS, each with what was fitted to the others.
MEMORY_SPREAD = 0.143
REPORTED = 81_559 * 2**20 / 80e9

# ---- one GPU ----

# elements of the product that one SM works on at a time: cuBLAS's usual thread block
# for 16 bit
TILE = 128 * 256
# FLOP a clock and SM of Ampere's tensor instructions (A100: 312 TFLOP/s = 108 x 1.41
# GHz x 2,048). FlashAttention 1 and 2 use them on newer devices too, and so miss half
# of Hopper (Shah et al. 2024, FlashAttention-3, section 1: 35 %).
AMPERE_FLOP_PER_CLOCK = 2048
# Bytes a logit crosses memory with, forward and backward, in eager torch: written (2)
# and read (2) in 16 bit, as float32 written (4); log-softmax (4 + 4), its gradient (4 +
# 4), cast to 16 bit (4 + 2), read by two products (4).
LOGIT_BYTES = 34
# An A100 SXM has 400 W for 312 TFLOP/s in 16 bit (gpufacts).
A100_WATTS_PER_FLOP_PER_S = 400 / 312e12
# Rate of fused attention backward over forward: 63 and 73 % of an A100's peak at best
# (Dao 2023, FlashAttention-2).
FLASH_BACKWARD = 63 / 73
SOFTMAX_FLOP = 5  # a score, as trainplan.costs.layers.attention counts
# A dropout's random number on the vector units: about 25 instructions, an instruction
# counted as the 2 FLOP it could have done (Philox4x32-10, 80 instructions for 4
# numbers: Salmon et al. 2011; then convert, compare, scale).
RANDOM_FLOP = 50

# Bytes/s of main memory that a GPU's share of the host updates offloaded parameters
# with, assumed: 8 channels of DDR4-3200 a socket, two sockets for 8 GPUs, at three
# quarters of their rate.
HOST_BYTES_PER_S = 0.75 * 2 * 8 * 25.6e9 / 8

# SMs that DualPipe leaves to its all-to-alls, of an H800's 132 (DeepSeek-AI 2024,
# DeepSeek-V3, section 3.2.2).
DUALPIPE_SMS = 20

# SMs that HybridEP's all-to-alls take where they run beside compute (NVIDIA Megatron
# Bridge, src/megatron/bridge/perf_recipes/_common.py, moe_hybridep_num_sms).
EXPERT_SMS = 32
# Tokens of the fullest expert rank over the mean when a router begins to learn, and
# how many times as long the median step of 100 takes: 18.3943 s where forced routing
# takes 8.6859 s, on 64 GB200.
LEARNED_OVERLOAD = 1.338
LEARNED_SLOWDOWN = 18.3943 / 8.6859
LEARNED_SOURCE = "marin-community/marin, issue 7668"
# Bytes that Megatron-LM moves an element, forward and backward, to add the second bias
# of an expert, times the token's weight in float32. Forward: the product written (4),
# added (2 + 4 read, 4 written), concatenated (4 + 4), cast (4 + 2). Backward: cast (2 +
# 4), to 16 bit for the output (4 + 2), the gradients of bias and weight (4 + 4 + 4
# each), concatenated (2 + 2). Source: NVIDIA/Megatron-LM,
# megatron/core/transformer/moe/experts.py, TEGroupedMLP._apply_bias (commit d98e8a64).
BIAS_BYTES = 28, 40

# ---- links ----

# Start of a send from a pipeline's stage to the next, for which Megatron-LM lets the
# GPU wait, and the share of the link's rate in a ring that one send reaches: fitted to
# t_comm in trainplan_published/zero_bubble_times.csv by
# trainplan_published/fit_cluster.py.
SEND_START_S = 0.247e-3
SEND_SHARE = 0.348

# Seconds before a collective's first hop, whatever the ranks: what the A100 curve's 14
# hops leave over of NCCL's own figures for a hop over NVLink (NVIDIA/nccl,
# src/graph/tuning.cc, commit 01afd20a, ring: Simple 3.4 and LL 0.47 µs).
COLLECTIVE_START_S = 36e-6
_FITTED = (
    "fitted to trainplan_published/collectives_busbw_a100_h200.csv by"
    " trainplan_published/fit_cluster.py; hops: NCCL's tuning.cc"
)
HOP_S = 3.4e-6
LL_HOP_S = 0.47e-6
NVLINK3 = Link(
    HOP_S,
    220e9,
    low_latency=Link(LL_HOP_S, 23.6e9, start_s=35.1e-6),
    name="NVLink 3 (A100), 300 GB/s",
    source=_FITTED,
    start_s=36.1e-6,
)
NVLINK4 = Link(
    HOP_S,
    365e9,
    low_latency=Link(LL_HOP_S, 356e9, start_s=32.1e-6),
    switch=Link(45.3e-6, 306e9, low_latency=Link(23.1e-6, 210e9)),
    name="NVLink 4 (H100, H200), 450 GB/s",
    source=_FITTED,
    start_s=36.1e-6,
)
# Share of NVLink's printed rate that an all-reduce reaches, for a generation whose rate
# alone is known: 220 of 300 GB/s on A100, 365 of 450 on H200.
NVLINK_SHARE = 0.77
# A TPU's link to its neighbor: seconds of a hop, and the share of the printed rate
# that one carries: 90 of 100 GB/s in a direction on TPU v5p (Austin et al. 2025, How to
# scale your model, parts 2 and 3).
ICI_HOP_S = 1e-6
ICI_SHARE = 0.9
# Share of a network's printed rate that an all-reduce reaches: 42.5 of 50 GB/s a node
# (trainplan_published/interconnect_specs.csv, AWS EFA v1, "measured"). Prefer a link's
# own measurement where there is one.
NETWORK_SHARE = 0.85
# Start of a hop between nodes, with the protocols Simple and LL.
NETWORK_ALPHA_S = 9.6e-6
NETWORK_LOW_LATENCY_ALPHA_S = 2.7e-6
# What aws-ofi-nccl tells NCCL that a hop over EFA takes, p4d, p4de, p5
# (aws/aws-ofi-nccl, platform-aws.c, .latency).
EFA_HOP_S = 75e-6
NETWORK_SOURCE = (
    "printed rate: trainplan_published/interconnect_specs.csv for InfiniBand; start of"
    " a hop: NVIDIA/nccl, src/graph/tuning.cc (commit 01afd20a), ring, Simple and LL"
)
