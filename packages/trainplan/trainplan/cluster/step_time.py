"""Time of a step by part, for one layout. The slowest stage sets the pace; what the
others wait is bubble.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from trainplan.cluster.communication_time import Communication, communication
from trainplan.cluster.compute_time import ComputeTimes, compute_times
from trainplan.cluster.constants import (
    CONSTANTS,
    DUALPIPE_SMS,
    EXPERT_SMS,
    HOST_BYTES_PER_S,
    Constants,
)
from trainplan.cluster.hardware import group_link, pcie
from trainplan.cluster.layout import Layout
from trainplan.cluster.rank_memory import block_kept_bytes
from trainplan.cluster.rank_share import RankShare, has_graphs
from trainplan.cluster.rates import rates
from trainplan.costs.collectives import fastest_all_reduce_s
from trainplan.costs.memory_costs import optimizer_states, optimizer_traffic_bytes

PARTS = (
    "compute",
    "recompute",
    "tensor communication",
    "context and expert communication",
    "pipeline communication",
    "bubble",
    "data communication",
    "waiting for the slowest",
    "optimizer",
    "activation offloading",
)
WORK = PARTS[:4]  # what a micro-batch takes on each rank in turn
# Kernels of a block that recomputing launches again, over those of both passes: all of
# the forward pass's, which are a third; half of them; or attention's four of a dozen,
# where they are kernels of their own.
RELAUNCHED = {"none": 0.0, "selective": 1 / 9, "half": 1 / 6, "full": 1 / 3}


class _Work(NamedTuple):
    """Seconds that one micro-batch takes on one rank, in a block, an end of the model
    or a stage.
    """

    compute: float
    recompute: float
    tensor: float
    others: float  # communication of context and expert ranks
    # the backward part of all these, which a gradient exchange can hide behind
    backward: float
    weights: float  # of the backward part what only the weights' gradients need
    offloading: float = 0.0  # what waits for activations on their way

    @property
    def total(self) -> float:
        communication = self.tensor + self.others + self.offloading
        return self.compute + self.recompute + communication


class _Passes(NamedTuple):
    """Seconds in a forward pass and in a backward pass."""

    forward: float
    backward: float


def _added(works: Sequence[tuple[float, _Work]]) -> _Work:
    """The sum of works, each as often as is said with it."""
    products = [[count * seconds for seconds in work] for count, work in works]
    return _Work(*(sum(field) for field in zip(*products, strict=True)))


def parts(share: RankShare, constants: Constants = CONSTANTS) -> dict[str, float]:
    """Seconds of a step, by PARTS; they add up to the step. Raises LayoutError like
    `rates`.
    """
    layout = share.layout
    m = share.microbatches
    p = share.layout.pipeline
    compute = compute_times(share, constants)
    sent = communication(share)
    stages = _stages(share, compute, sent, constants)
    added = _added(stages)
    chunks = 2 if layout.schedule in ("ZB-V", "DualPipe") else layout.interleave
    # a send before and one after the backward pass of a chunk, which only interleaved
    # schedules can hide; without chunks the first and the last stage have one
    # neighbor, and so one of them
    inner_sends = 0.0 if layout.overlap and chunks > 1 else 2 * chunks * sent.send
    end_sends = inner_sends / 2 if chunks == 1 else inner_sends
    paces = []
    for i, (_, stage) in enumerate(stages):
        sends = end_sends if i in (0, len(stages) - 1) else inner_sends
        seconds = m * (sends + stage.total) + _fill(layout, stage, added.total)
        paces.append((seconds, sends, stage))
    _, exposed_sends, slowest = max(paces, key=lambda pace: pace[0])
    _, first = stages[0]
    bubble = (
        m * (slowest.total - added.total / p)
        + _fill(layout, slowest, added.total)
        + 2 * (p - 1) * sent.send
    )
    return {
        "compute": m * added.compute / p,
        "recompute": m * added.recompute / p,
        "tensor communication": m * added.tensor / p,
        "context and expert communication": m * added.others / p,
        "pipeline communication": m * exposed_sends,
        "bubble": bubble,
        "data communication": _exchange_s(
            share, sent, first, compute.byte_s, constants
        ),
        "waiting for the slowest": (
            constants.jitter * math.log(share.cluster.nodes) * m * slowest.total
        ),
        "optimizer": (
            _optimizer_s(share, compute.byte_s) + _orthogonalizing_s(share, constants)
        ),
        "activation offloading": m * added.offloading / p,
    }


def _fill(layout: Layout, slowest: _Work, in_all: float) -> float:
    """Seconds that a rank waits while the pipeline fills and empties.

    1F1B: all other stages once, over the chunks; exact where the slowest stage is the
    last, else at most that. ZB-H1: (p-1)(F + B - W) (Qi et al. 2024, table 2). ZB-V:
    nothing, where F, B and W are the same (section 6). DualPipe: (p/2 - 1)(F&B + B - 3
    W) (DeepSeek-V3 technical report, table 2).
    """
    p = layout.pipeline
    forward = slowest.total - slowest.backward
    inputs = slowest.backward - slowest.weights
    if layout.schedule == "ZB-H1":
        return (p - 1) * max(forward + inputs - slowest.weights, 0.0)
    if layout.schedule == "ZB-V":
        return (p - 1) * (abs(forward - inputs) + abs(inputs - slowest.weights)) / 2
    if layout.schedule == "DualPipe":
        return (p / 2 - 1) * max(
            slowest.total + slowest.backward - 3 * slowest.weights, 0.0
        )
    return (in_all - slowest.total) / layout.interleave


def _exchange_s(
    share: RankShare,
    sent: Communication,
    first: _Work,
    byte_s: float,
    constants: Constants,
) -> float:
    """Seconds that the data ranks' exchange adds to a step, of which the first stage
    has the most.

    ZeRO-0: an all-reduce of the gradients; 1: a reduce-scatter and an all-gather of the
    new weights; 2: the reduce-scatter in each micro-batch; 3: weights gathered layer by
    layer, forward and again backward, and gradients scattered, in each micro-batch, or
    once where the software doesn't reshard; not again backward where the layout keeps
    them after the forward pass. If the layout overlaps, all but the last layer's part
    hides behind the compute of a micro-batch, from which it takes the memory traffic
    that it causes.
    """
    layout = share.layout
    if not sent.exchange:
        return 0.0
    lost_share = constants.contention * share.data_link.bytes_per_s * byte_s
    forward = first.total - first.backward
    backward = first.backward

    def exposed(behind: float, *collectives: str) -> float:
        """What of the collectives `behind` seconds of compute don't hide, and what
        hiding costs.
        """
        seconds = sum(sent.exchange[collective] for collective in collectives)
        if not layout.overlap:
            return seconds
        can_hide = seconds
        if layout.zero == 3 and not layout.prefetch:
            can_hide = sent.exchange["scatter"] if "scatter" in collectives else 0.0
        hidden = min(can_hide * (1 - 1 / share.exchanged_layers), behind)
        return seconds - hidden + lost_share * hidden

    if layout.zero == 0:
        return exposed(backward, "all-reduce")
    if layout.zero == 3 and layout.software.reshard:
        again = ("gather",) if layout.reshard_after_forward else ()
        return share.microbatches * (
            exposed(forward, "gather") + exposed(backward, *again, "scatter")
        )
    times = share.microbatches if layout.zero == 2 else 1
    return times * exposed(backward, "scatter") + exposed(forward, "gather")


def _optimizer_s(share: RankShare, byte_s: float) -> float:
    """Seconds of the update of a GPU's share of the parameters: bound by memory, or by
    the bus and the host.
    """
    layout = share.layout
    kind = share.kind
    others, in_experts = share.stage_params(0)
    split = layout.sharded if layout.zero else 1
    updated = share.trained * (
        others / split + in_experts / min(split, layout.same_experts)
    )
    n_bytes = optimizer_traffic_bytes(
        updated, dtype=layout.dtype, optimizer=layout.optimizer
    )
    if layout.offload:
        moved = updated * (kind.gradient_bytes + kind.param_bytes)
        return moved / pcie(share.cluster.gpu).bytes_per_s + n_bytes / HOST_BYTES_PER_S
    # 16-bit gradients are copied to float32, those of float16 scaled back and checked,
    # all read for their norm, and float32 weights read for their 16-bit copy
    # (Megatron-LM, megatron/optimizer/optimizer.py, commit 00764415)
    around = 4
    if kind.compute_dtype == "float16":
        around += 8
    if kind.master_bytes:
        around += 10 if kind.gradient_bytes == 2 else 4
    # an all-reduce of one number over all ranks, by whose sum gradients are clipped to
    # a norm
    cluster = share.cluster
    gpus = cluster.gpus
    norm_s = fastest_all_reduce_s(
        4, gpus, group_link(cluster, gpus, 1), in_node=cluster.nodes == 1
    )
    states = optimizer_states(layout.optimizer)
    paged_s = 0.0  # both ways, as where nothing of the states stays on the GPU
    if states.paged:
        moved = 2 * updated * states.a_param(kind)
        paged_s = moved / pcie(cluster.gpu).bytes_per_s
    return (n_bytes + around * updated) * byte_s + norm_s + paged_s


def _orthogonalizing_s(share: RankShare, constants: Constants) -> float:
    """Seconds of Muon's five Newton-Schulz steps, each three products in 16 bit of a
    matrix of a block; with ZeRO each matrix is one rank's work.

    Source: KellerJordan/Muon, muon.py, zeropower_via_newtonschulz5 (857d1ad).
    """
    layout = share.layout
    model = share.model
    if layout.optimizer != "muon":
        return 0.0
    rate = rates(share.cluster.gpu, "bfloat16", constants)
    mlps = 3 if model.has_gated_mlp else 2
    experts = model.experts / layout.expert if model.experts else 1
    matrices = [(1.0, *widths) for widths in model.attention_products]
    matrices.append((mlps * experts, model.hidden, model.inner))
    seconds = 0.0
    for number, inputs, outputs in matrices:
        short, long = sorted((inputs, outputs))
        square = rate.matmul_s(short, short, long)  # X times itself
        again = rate.matmul_s(short, short, short)  # that times itself
        back = rate.matmul_s(short, long, short)  # and times X
        seconds += 5 * number * (square + again + back)
    ranks = layout.sharded if layout.zero else 1
    return seconds * share.layers[0] / ranks


def _shown_offloading_s(share: RankShare, forward: float, backward: float) -> float:
    """Seconds that a block waits for what it keeps to go to main memory beside its
    forward pass, and to come back beside its backward pass.
    """
    if not share.layout.offload_activations:
        return 0.0
    kept = block_kept_bytes(share, share.layout.recompute)
    one_way_s = kept / pcie(share.cluster.gpu).bytes_per_s
    return max(one_way_s - forward, 0.0) + max(one_way_s - backward, 0.0)


def _shown_tensor_s(
    share: RankShare, once: float, byte_s: float, constants: Constants
) -> _Passes:
    """Seconds of tensor communication that show in a block."""
    layout = share.layout
    software = layout.software
    if layout.tensor == 1:
        return _Passes(0.0, 0.0)
    habit = software.async_tensor
    if share.kind.compute_dtype == "float4":
        # Userbuffers sends no pieces in 4 bit (NVIDIA Megatron Bridge,
        # src/megatron/bridge/perf_recipes/llama, tp_comm_overlap of nvfp4 recipes)
        habit = "no"
    forward = once * constants.async_tensor if habit == "all" else once
    backward = once if habit == "no" else once * constants.async_tensor
    if layout.sequence_parallel and habit == "backward":
        # gradients are gathered before any product can start, and the inputs again
        # beside the products (Korthikanti et al. 2022, section 4.2.2)
        backward += once / 2
    if layout.sequence_parallel and software.copied_gathers:  # four, read and written
        copies = 4 * 2 * share.boundary_bytes * byte_s
        forward += copies
        backward += copies
    return _Passes(forward, backward)


def _shown_experts_s(
    share: RankShare, sent_s: float, counts_s: float, compute_s: float
) -> float:
    """Seconds of a block's all-to-alls that show, forward and backward, and of the
    wait for the counts of tokens.

    Where the software overlaps them, they run beside the compute of another
    micro-batch (those of a lone one too, so that a search's bound is one). DualPipe
    runs those of a forward pass beside the compute of another micro-batch's backward
    pass and the other way round. The SMs that carry them don't compute. Its pipeline
    fills and empties without: of m micro-batches of p stages m - 5 p / 4 +
    1/2 overlap in the mean of the ranks. Sources: DeepSeek-AI 2024, DeepSeek-V3,
    sections 3.2.1 and 3.2.2; deepseek-ai/DualPipe, dualpipe/dualpipe.py.
    """
    layout = share.layout
    if layout.schedule == "DualPipe" and layout.overlap:
        alone = (1.25 * layout.pipeline - 0.5) / share.microbatches
        sending_sms = DUALPIPE_SMS
        sent_s += counts_s
        counts_s = 0.0
    elif layout.software.expert_overlap:
        alone = 0.0
        sending_sms = EXPERT_SMS
    else:
        return sent_s + counts_s
    overlapped = max(1 - alone, 0.0)
    hidden = overlapped * min(sent_s, compute_s)
    sms = share.cluster.gpu.sms
    lost_share = sending_sms / sms if sms else 0.0
    return sent_s - hidden + hidden * lost_share + counts_s


def _adding_s(share: RankShare, byte_s: float) -> float:
    """Seconds in which a kernel of its own adds a block's gradients to those so far."""
    layout = share.layout
    if layout.software.fused_gradients or layout.zero >= 2:
        return 0.0
    # reads the sum and the new gradient, writes the sum, for all micro-batches but the
    # first
    n_bytes = 3 * share.kind.gradient_bytes * share.trained * sum(share.block_params)
    return (1 - 1 / share.microbatches) * n_bytes * byte_s


def _host_s(share: RankShare, constants: Constants) -> float:
    """Seconds that the host launches a block's kernels, forward and backward; none on
    TPUs, where XLA compiles the step into one program.
    """
    if share.cluster.gpu.vendor == "Google":
        return 0.0
    if not share.model.experts:
        return constants.block_s
    if has_graphs(share.model, share.layout) or share.model.capacity:
        return constants.expert_s / 2
    return constants.expert_s


def _block(
    share: RankShare,
    compute: ComputeTimes,
    sent: Communication,
    tensor: _Passes,
    constants: Constants,
) -> _Work:
    """The work of one block, the mean of the micro-batches."""
    model = share.model
    layout = share.layout
    times = compute.block
    again = {
        "none": 0.0,
        "selective": 0.0 if model.fused_attention else times.scores_s,
        "half": times.forward_s - times.scores_s - times.products_s / 2,
        "full": times.forward_s - (times.last_s if layout.software.early_stop else 0.0),
    }[layout.recompute]
    # the host launches a pass's kernels while the last ones run; where it takes longer,
    # the GPU waits for it
    host_s = _host_s(share, constants)
    forward = max(times.forward_s, host_s / 3)
    backward = max(times.backward_s, host_s * 2 / 3)
    if again > 0:
        again = max(again, RELAUNCHED[layout.recompute] * host_s)
    lost_share = constants.contention * share.context_link.bytes_per_s * compute.byte_s

    def shown(communication: float, behind: float) -> float:
        """Seconds of the ring of keys that attention, and the GPU's wait for its host,
        don't hide.
        """
        hidden = min(communication, behind)
        return communication - hidden + lost_share * hidden

    adding = _adding_s(share, compute.byte_s)
    # of tensor and expert communication
    passes = 3 if layout.recompute == "full" else 2
    others = shown(sent.context, times.scores_s + forward - times.forward_s)
    others += shown(2 * sent.context, 2 * times.scores_s + backward - times.backward_s)
    # which the GPU does while it waits for the host anyway
    wait_s = forward - times.forward_s + backward - times.backward_s
    is_counted = model.experts > 0 and not model.capacity and host_s > 0
    experts_s = _shown_experts_s(
        share,
        passes * sent.experts,
        constants.counts_s if is_counted else 0.0,
        forward + backward,
    )
    others += max(experts_s - wait_s, 0.0)
    repeated = again + (passes - 2) * tensor.forward
    return _Work(
        compute=forward + backward + adding,
        recompute=again,
        tensor=tensor.backward + (passes - 1) * tensor.forward,
        others=others,
        backward=backward + adding + repeated + tensor.backward + others * 2 / 3,
        weights=max(times.products_s, host_s / 3),
        offloading=_shown_offloading_s(share, forward, backward + again),
    )


def _stages(
    share: RankShare, compute: ComputeTimes, sent: Communication, constants: Constants
) -> list[tuple[int, _Work]]:
    """Each kind of stage (the first, inner ones by their layers, the last), with how
    many there are of it.
    """
    tensor = _shown_tensor_s(share, sent.tensor, compute.byte_s, constants)
    block = _block(share, compute, sent, tensor, constants)
    # the embedding has an all-reduce forward, the head one backward: half of a block's
    # each
    passes = compute.embedding
    embedding_s = passes.forward_s + passes.backward_s
    embedding = _Work(embedding_s, 0, tensor.forward / 2, 0, passes.backward_s, 0)
    passes = compute.head
    head_s = passes.forward_s + passes.backward_s
    head_tensor = tensor.backward / 2
    head = _Work(head_s, 0, head_tensor, 0, passes.backward_s + head_tensor, 0)
    heads = 1 + share.model.ahead
    if len(share.layers) == 1:
        return [(1, _added([(share.layers[0], block), (1, embedding), (heads, head)]))]
    first, *inner_layers, last = share.layers
    inner = [
        (count, _added([(layers, block)]))
        for layers, count in Counter(inner_layers).items()
    ]
    if share.layout.schedule == "DualPipe":
        # both ranks at the ends have both ends' stages, for half of the work each
        end = _added([((first + last) / 2, block), (0.5, embedding), (heads / 2, head)])
        return [(2, end), *inner]
    return [
        (1, _added([(first, block), (1, embedding)])),
        *inner,
        (1, _added([(last, block), (heads, head)])),
    ]
