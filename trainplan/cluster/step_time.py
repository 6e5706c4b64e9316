"""Time of a step by part, for one layout. The slowest stage sets the pace; what the others wait is bubble."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from trainplan.cluster.communication_time import (
    context_s,
    exchange_s,
    experts_s,
    group_link,
    send_s,
    tensor_s,
)
from trainplan.cluster.compute_time import block_times, edge_times
from trainplan.cluster.constants import CONSTANTS, HOST_BYTES_PER_S, Constants
from trainplan.cluster.hardware import Cluster, pcie
from trainplan.cluster.layout import Layout, layers_of_stage
from trainplan.cluster.rank_memory import block_rank_params, stage_params
from trainplan.cluster.rates import rates
from trainplan.costs.memory_costs import optimizer_traffic_bytes, precision
from trainplan.costs.transformers import Transformer

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


class _Work(NamedTuple):
    """Seconds that one micro-batch takes on one rank, in a block, an end of the model or a stage."""

    compute: float
    recompute: float
    tensor: float
    others: float  # communication of context and expert ranks
    backward: float  # the backward part of all these, which a gradient exchange can hide behind
    weights: float  # of the backward part what only the weights' gradients need

    @property
    def total(self) -> float:
        return self.compute + self.recompute + self.tensor + self.others


def _added(works: Sequence[tuple[int, _Work]]) -> _Work:
    """The sum of works, each as often as is said with it."""
    return _Work(*(sum(count * work[i] for count, work in works) for i in range(len(_Work._fields))))


def parts(
    model: Transformer, cluster: Cluster, layout: Layout, batch: int, constants: Constants = CONSTANTS
) -> dict[str, float]:
    """Seconds of a step, by PARTS; they add up to the step. Raises LayoutError like `rates`."""
    m, p = layout.microbatches(batch), layout.pipeline
    stages = _stages(model, cluster, layout, m, constants)
    added = _added(stages)
    chunks = 2 if layout.schedule in ("ZB-V", "DualPipe") else layout.interleave
    # each tensor rank sends its part to the next stage (Narayanan et al. 2021, section 4.1)
    sent_bytes = _boundary_bytes(model, layout) / layout.tensor
    send = send_s(cluster, sent_bytes, layout.tensor * layout.replicas) if p > 1 else 0.0
    # a send before and one after the backward pass of a chunk, which only interleaved schedules can hide; without
    # chunks the first and the last stage have one neighbour, and so one of them
    inner_sends = 0.0 if layout.overlap and chunks > 1 else 2 * chunks * send
    end_sends = inner_sends / 2 if chunks == 1 else inner_sends
    ends = (0, len(stages) - 1)
    pace = ((end_sends if i in ends else inner_sends, stage) for i, (_, stage) in enumerate(stages))
    exposed_sends, slowest = max(pace, key=lambda both: both[0] + both[1].total)
    first = stages[0][1]  # has the embedding, so the most parameters to exchange
    params = stage_params(model, layout, 0)
    data = exchange_s(
        cluster,
        layout,
        params=params,
        layers=max(model.layers / p, 1),
        compute=(first.total - first.backward, first.backward),
        microbatches=m,
        lost_share=_lost_share(cluster, layout, layout.sharded, layout.tensor, constants),
    )
    return {
        "compute": m * added.compute / p,
        "recompute": m * added.recompute / p,
        "tensor communication": m * added.tensor / p,
        "context and expert communication": m * added.others / p,
        "pipeline communication": m * exposed_sends,
        "bubble": m * (slowest.total - added.total / p) + _fill(layout, slowest, added.total) + 2 * (p - 1) * send,
        "data communication": data,
        "waiting for the slowest": constants.jitter * math.log(cluster.nodes) * m * slowest.total,
        "optimizer": _optimizer_s(cluster, layout, params, constants),
    }


def _lost_share(cluster: Cluster, layout: Layout, ranks: int, stride: int, constants: Constants) -> float:
    """Seconds of compute lost to a second of a ring's communication behind it, by the memory traffic that it causes."""
    return constants.contention * group_link(cluster, ranks, stride).bytes_per_s * _byte_s(cluster, layout, constants)


def _byte_s(cluster: Cluster, layout: Layout, constants: Constants) -> float:
    """Seconds that a byte takes to or from memory."""
    return 1 / rates(cluster.gpu, precision(layout.dtype).compute_dtype, constants).bytes_per_s


def _fill(layout: Layout, slowest: _Work, in_all: float) -> float:
    """Seconds that a rank waits while the pipeline fills and empties.

    1F1B: all other stages once, over the chunks; exact where the slowest stage is the last, else at most that. ZB-H1:
    (p-1)(F + B - W) (Qi et al. 2024, table 2). ZB-V: nothing, where F, B and W are the same (section 6). DualPipe:
    (p/2 - 1)(F&B + B - 3 W) (DeepSeek-V3 technical report, table 2).
    """
    p, forward = layout.pipeline, slowest.total - slowest.backward
    inputs = slowest.backward - slowest.weights
    if layout.schedule == "ZB-H1":
        return (p - 1) * max(forward + inputs - slowest.weights, 0.0)
    if layout.schedule == "ZB-V":
        return (p - 1) * (abs(forward - inputs) + abs(inputs - slowest.weights)) / 2
    if layout.schedule == "DualPipe":
        return (p / 2 - 1) * max(slowest.total + slowest.backward - 3 * slowest.weights, 0.0)
    return (in_all - slowest.total) / layout.interleave


def _optimizer_s(cluster: Cluster, layout: Layout, params: tuple[float, float], constants: Constants) -> float:
    """Seconds of the update of a GPU's share of the parameters: bound by memory, or by the bus and the host."""
    parts = layout.sharded if layout.zero else 1
    updated = params[0] / parts + params[1] / min(parts, layout.same_experts)
    n_bytes = optimizer_traffic_bytes(updated, dtype=layout.dtype, optimizer=layout.optimizer)
    kind = precision(layout.dtype)
    if layout.offload:
        sent = updated * (kind.gradient_bytes + kind.param_bytes)
        return sent / pcie(cluster.gpu).bytes_per_s + n_bytes / HOST_BYTES_PER_S
    # 16-bit gradients are copied to float32, those of float16 scaled back and checked, all read for their norm, and
    # float32 weights read for their 16-bit copy (Megatron-LM, megatron/optimizer/optimizer.py, commit 00764415)
    around = 4 + 8 * (kind.compute_dtype == "float16") + (4 + 6 * (kind.gradient_bytes == 2)) * (kind.master_bytes > 0)
    return (n_bytes + around * updated) * _byte_s(cluster, layout, constants)


def _tensor_s(model: Transformer, cluster: Cluster, layout: Layout, constants: Constants) -> tuple[float, float]:
    """Seconds of tensor communication that show in a block's forward pass and in its backward pass."""
    if layout.tensor == 1:
        return 0.0, 0.0
    n_bytes, software = _boundary_bytes(model, layout), layout.software
    once = tensor_s(cluster, n_bytes, layout.tensor, layout.sequence_parallel)
    forward = once * constants.async_tensor if software.async_tensor == "all" else once
    backward = once if software.async_tensor == "no" else once * constants.async_tensor
    if layout.sequence_parallel and software.async_tensor == "backward":
        # gradients are gathered before any product can start, and the inputs again beside the products (Korthikanti et
        # al. 2022, section 4.2.2)
        backward += once / 2
    if layout.sequence_parallel and software.copied_gathers:  # four, read and written
        copies = 4 * 2 * n_bytes * _byte_s(cluster, layout, constants)
        return forward + copies, backward + copies
    return forward, backward


def _block(
    model: Transformer,
    cluster: Cluster,
    layout: Layout,
    tensor: tuple[float, float],
    microbatches: int,
    constants: Constants,
) -> _Work:
    """The work of one block, the mean of the micro-batches."""
    times = block_times(model, cluster.gpu, layout, constants)
    again = {
        "none": 0.0,
        "selective": 0.0 if model.fused_attention else times.scores_s,
        "half": times.forward_s - times.scores_s - times.products_s / 2,
        "full": times.forward_s - (times.last_s if layout.software.early_stop else 0.0),
    }[layout.recompute]
    # the host launches a block's kernels while the last ones run; where it takes longer, the GPU waits for it
    launch_s = (constants.expert_s if model.experts else constants.block_s) * (1 + again / (3 * times.forward_s))
    slowed = max(launch_s / (times.forward_s + times.backward_s + again), 1.0)
    ring = context_s(cluster, model, layout)
    lost_share = _lost_share(cluster, layout, layout.context, layout.tensor, constants)

    def shown(communication: float, behind: float) -> float:
        """Seconds of the ring of keys that attention doesn't hide."""
        hidden = min(communication, behind)
        return communication - hidden + lost_share * hidden

    adding = 0.0
    if not layout.software.fused_gradients and layout.zero < 2:
        # reads the sum and the new gradient, writes the sum, for all micro-batches but the first
        n_bytes = 3 * precision(layout.dtype).gradient_bytes * sum(block_rank_params(model, layout))
        adding = (1 - 1 / microbatches) * n_bytes * _byte_s(cluster, layout, constants)
    passes = 3 if layout.recompute == "full" else 2  # of tensor and expert communication
    others = shown(ring, times.scores_s) + shown(2 * ring, 2 * times.scores_s)
    others += passes * experts_s(cluster, model, layout)
    repeated = slowed * again + (passes - 2) * tensor[0]
    return _Work(
        compute=slowed * (times.forward_s + times.backward_s) + adding,
        recompute=slowed * again,
        tensor=tensor[1] + (passes - 1) * tensor[0],
        others=others,
        backward=slowed * times.backward_s + adding + repeated + tensor[1] + others * 2 / 3,
        weights=slowed * times.products_s,
    )


def _stages(
    model: Transformer, cluster: Cluster, layout: Layout, microbatches: int, constants: Constants
) -> list[tuple[int, _Work]]:
    """Each kind of stage (the first, inner ones by their layers, the last), with how many there are of it."""
    tensor = _tensor_s(model, cluster, layout, constants)
    block = _block(model, cluster, layout, tensor, microbatches, constants)
    edges = edge_times(model, cluster.gpu, layout, constants)
    # the embedding has an all-reduce forward, the head one backward: half of a block's each
    embedding = (1, _Work(edges[0].forward_s + edges[0].backward_s, 0, tensor[0] / 2, 0, edges[0].backward_s, 0))
    backward = edges[1].backward_s + tensor[1] / 2
    head = (1, _Work(edges[1].forward_s + edges[1].backward_s, 0, tensor[1] / 2, 0, backward, 0))
    layers = [layers_of_stage(model, layout, rank) for rank in range(layout.pipeline)]
    if len(layers) == 1:
        return [(1, _added([(layers[0], block), embedding, head]))]
    inner = [(count, _added([(number, block)])) for number, count in Counter(layers[1:-1]).items()]
    return [(1, _added([(layers[0], block), embedding])), *inner, (1, _added([(layers[-1], block), head]))]


def _boundary_bytes(model: Transformer, layout: Layout) -> float:
    """Bytes of the activations between two blocks, of one micro-batch."""
    tokens = layout.micro_batch * model.seq / layout.context
    return tokens * model.hidden * precision(layout.dtype).activation_bytes
