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
    HOST_BYTES_PER_S,
    Constants,
)
from trainplan.cluster.hardware import group_link, pcie
from trainplan.cluster.layout import Layout
from trainplan.cluster.rank_share import RankShare
from trainplan.costs.collectives import fastest_all_reduce_s
from trainplan.costs.memory_costs import optimizer_traffic_bytes

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

    @property
    def total(self) -> float:
        return self.compute + self.recompute + self.tensor + self.others


def _added(works: Sequence[tuple[float, _Work]]) -> _Work:
    """The sum of works, each as often as is said with it."""
    return _Work(
        *(
            sum(count * work[i] for count, work in works)
            for i in range(len(_Work._fields))
        )
    )


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
    # neighbour, and so one of them
    inner_sends = 0.0 if layout.overlap and chunks > 1 else 2 * chunks * sent.send
    end_sends = inner_sends / 2 if chunks == 1 else inner_sends
    ends = (0, len(stages) - 1)
    pace = (
        (end_sends if i in ends else inner_sends, stage)
        for i, (_, stage) in enumerate(stages)
    )
    exposed_sends, slowest = max(
        pace,
        key=lambda both: (
            m * (both[0] + both[1].total) + _fill(layout, both[1], added.total)
        ),
    )
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
            share, sent, stages[0][1], compute.byte_s, constants
        ),
        "waiting for the slowest": (
            constants.jitter * math.log(share.cluster.nodes) * m * slowest.total
        ),
        "optimizer": _optimizer_s(share, compute.byte_s),
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
        seconds = sum(sent.exchange[what] for what in collectives)
        ahead = (
            seconds
            if layout.prefetch or layout.zero < 3
            else sent.exchange["scatter"] * ("scatter" in collectives)
        )
        hidden = (
            min(ahead * (1 - 1 / share.exchanged_layers), behind)
            if layout.overlap
            else 0.0
        )
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
    params = share.stage_params(0)
    split = layout.sharded if layout.zero else 1
    updated = share.trained * (
        params[0] / split + params[1] / min(split, layout.same_experts)
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
    around = (
        4
        + 8 * (kind.compute_dtype == "float16")
        + (4 + 6 * (kind.gradient_bytes == 2)) * (kind.master_bytes > 0)
    )
    # an all-reduce of one number over all ranks, by whose sum gradients are clipped to
    # a norm
    cluster = share.cluster
    gpus = share.cluster.gpus
    norm_s = fastest_all_reduce_s(
        4, gpus, group_link(cluster, gpus, 1), in_node=cluster.nodes == 1
    )
    return (n_bytes + around * updated) * byte_s + norm_s


def _shown_tensor_s(
    share: RankShare, once: float, byte_s: float, constants: Constants
) -> tuple[float, float]:
    """Seconds of tensor communication that show in a block's forward pass and in its
    backward pass.
    """
    layout = share.layout
    software = share.layout.software
    if layout.tensor == 1:
        return 0.0, 0.0
    forward = once * constants.async_tensor if software.async_tensor == "all" else once
    backward = once if software.async_tensor == "no" else once * constants.async_tensor
    if layout.sequence_parallel and software.async_tensor == "backward":
        # gradients are gathered before any product can start, and the inputs again
        # beside the products (Korthikanti et al. 2022, section 4.2.2)
        backward += once / 2
    if layout.sequence_parallel and software.copied_gathers:  # four, read and written
        copies = 4 * 2 * share.boundary_bytes * byte_s
        return forward + copies, backward + copies
    return forward, backward


def _shown_experts_s(share: RankShare, sent_s: float, compute_s: float) -> float:
    """Seconds of a block's all-to-alls that show, forward and backward.

    DualPipe runs those of a forward pass beside the compute of another micro-batch's
    backward pass and the other way round, and the SMs that carry them don't compute.
    The pipeline fills and empties without: of m micro-batches of p stages m - 5 p / 4 +
    1/2 overlap in the mean of the ranks. Sources: DeepSeek-AI 2024, DeepSeek-V3,
    sections 3.2.1 and 3.2.2; deepseek-ai/DualPipe, dualpipe/dualpipe.py.
    """
    layout = share.layout
    sms = share.cluster.gpu.sms
    if layout.schedule != "DualPipe" or not layout.overlap:
        return sent_s
    overlapped = max(1 - (1.25 * layout.pipeline - 0.5) / share.microbatches, 0.0)
    hidden = overlapped * min(sent_s, compute_s)
    return sent_s - hidden + hidden * (DUALPIPE_SMS / sms if sms else 0.0)


def _block(
    share: RankShare,
    compute: ComputeTimes,
    sent: Communication,
    tensor: tuple[float, float],
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
    host_s = constants.expert_s if model.experts else constants.block_s
    forward = max(times.forward_s, host_s / 3)
    backward = max(times.backward_s, host_s * 2 / 3)
    again = max(again, (again > 0) * RELAUNCHED[layout.recompute] * host_s)
    lost_share = constants.contention * share.context_link.bytes_per_s * compute.byte_s

    def shown(communication: float, behind: float) -> float:
        """Seconds of the ring of keys that attention, and the GPU's wait for its host,
        don't hide.
        """
        hidden = min(communication, behind)
        return communication - hidden + lost_share * hidden

    adding = 0.0
    if not layout.software.fused_gradients and layout.zero < 2:
        # reads the sum and the new gradient, writes the sum, for all micro-batches but
        # the first
        n_bytes = (
            3 * share.kind.gradient_bytes * share.trained * sum(share.block_params)
        )
        adding = (1 - 1 / share.microbatches) * n_bytes * compute.byte_s
    # of tensor and expert communication
    passes = 3 if layout.recompute == "full" else 2
    others = shown(sent.context, times.scores_s + forward - times.forward_s)
    others += shown(2 * sent.context, 2 * times.scores_s + backward - times.backward_s)
    others += _shown_experts_s(share, passes * sent.experts, forward + backward)
    repeated = again + (passes - 2) * tensor[0]
    return _Work(
        compute=forward + backward + adding,
        recompute=again,
        tensor=tensor[1] + (passes - 1) * tensor[0],
        others=others,
        backward=backward + adding + repeated + tensor[1] + others * 2 / 3,
        weights=max(times.products_s, host_s / 3),
    )


def _stages(
    share: RankShare, compute: ComputeTimes, sent: Communication, constants: Constants
) -> list[tuple[int, _Work]]:
    """Each kind of stage (the first, inner ones by their layers, the last), with how
    many there are of it.
    """
    tensor = _shown_tensor_s(share, sent.tensor, compute.byte_s, constants)
    block = _block(share, compute, sent, tensor, constants)
    first = compute.embedding
    last = compute.head
    # the embedding has an all-reduce forward, the head one backward: half of a block's
    # each
    embedding = (
        1,
        _Work(
            first.forward_s + first.backward_s, 0, tensor[0] / 2, 0, first.backward_s, 0
        ),
    )
    head_s = last.forward_s + last.backward_s
    head = (
        1 + share.model.ahead,
        _Work(head_s, 0, tensor[1] / 2, 0, last.backward_s + tensor[1] / 2, 0),
    )
    layers = share.layers
    if len(layers) == 1:
        return [(1, _added([(layers[0], block), embedding, head]))]
    inner = [
        (count, _added([(number, block)]))
        for number, count in Counter(layers[1:-1]).items()
    ]
    # both ranks at the ends have both ends' stages, for half of the work each
    if share.layout.schedule == "DualPipe":
        both = (
            ((layers[0] + layers[-1]) / 2, block),
            (0.5, embedding[1]),
            (head[0] / 2, head[1]),
        )
        return [(2, _added(both)), *inner]
    return [
        (1, _added([(layers[0], block), embedding])),
        *inner,
        (1, _added([(layers[-1], block), head])),
    ]
