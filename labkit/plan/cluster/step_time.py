"""Time of a step by part, for one layout. The slowest stage sets the pace; what the others wait is bubble."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from labkit.plan.cluster.communication_time import context_s, exchange_s, experts_s, send_s, tensor_s
from labkit.plan.cluster.compute_time import PassTimes, Piece, block_times, edge_times
from labkit.plan.cluster.constants import CONSTANTS, HOST_BYTES_PER_S, Constants
from labkit.plan.cluster.hardware import Cluster, pcie
from labkit.plan.cluster.layout import Layout, layers_of_stage
from labkit.plan.cluster.rank_memory import stage_params
from labkit.plan.cluster.rates import rates
from labkit.plan.costs.memory_costs import optimizer_traffic_bytes, precision
from labkit.plan.costs.transformers import Transformer

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


@dataclass(frozen=True)
class _Stage:
    """Seconds that one micro-batch takes on one stage."""

    compute: float
    recompute: float
    tensor: float
    others: float  # communication of context and expert ranks
    backward: float  # the backward part of all, which a gradient exchange can hide behind
    weights: float  # of the backward part what only the weights' gradients need

    @property
    def total(self) -> float:
        return self.compute + self.recompute + self.tensor + self.others


def parts(
    model: Transformer, cluster: Cluster, layout: Layout, batch: int, constants: Constants = CONSTANTS
) -> dict[str, float]:
    """Seconds of a step, by PARTS; they add up to the step. Raises LayoutError like `rates`."""
    m, p = layout.microbatches(batch), layout.pipeline
    stages = _stages(model, cluster, layout, constants)
    slowest = max((stage for _, stage in stages), key=lambda stage: stage.total)
    in_all = sum(count * stage.total for count, stage in stages)
    mean = {f.name: sum(count * getattr(stage, f.name) for count, stage in stages) / p for f in fields(_Stage)}
    chunks = 2 if layout.schedule in ("ZB-V", "DualPipe") else layout.interleave
    # each tensor rank sends its part to the next stage (Narayanan et al. 2021, section 4.1)
    sent_bytes = _boundary_bytes(model, layout) / layout.tensor
    send = send_s(cluster, sent_bytes, layout.tensor * layout.replicas) if p > 1 else 0.0
    exposed_sends = 0.0 if layout.overlap and chunks > 1 else 2 * send * chunks
    fill = _fill(layout, slowest, in_all) + 2 * (p - 1) * send
    first = stages[0][1]  # has the embedding, so the most parameters to exchange
    params = stage_params(model, layout, 0)
    data = exchange_s(
        cluster,
        layout,
        params=params,
        layers=max(model.layers / p, 1),
        compute=(first.total - first.backward, first.backward),
        microbatches=m,
        contention=constants.contention,
    )
    waits = constants.jitter * math.log(cluster.nodes) * m * slowest.total
    return {
        "compute": m * mean["compute"],
        "recompute": m * mean["recompute"],
        "tensor communication": m * mean["tensor"],
        "context and expert communication": m * mean["others"],
        "pipeline communication": m * exposed_sends,
        "bubble": m * (slowest.total - in_all / p) + fill,
        "data communication": data,
        "waiting for the slowest": waits,
        "optimizer": _optimizer_s(cluster, layout, params, constants),
    }


def _fill(layout: Layout, slowest: _Stage, in_all: float) -> float:
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
    if layout.offload:
        kind = precision(layout.dtype)
        return (
            updated * (kind.gradient_bytes + kind.param_bytes) / pcie(cluster.gpu).bytes_per_s
            + n_bytes / HOST_BYTES_PER_S
        )
    dtype = precision(layout.dtype).compute_dtype
    return n_bytes / rates(cluster.gpu, dtype, constants).bytes_per_s


class _Layer(NamedTuple):
    """Seconds of one block in one micro-batch on one rank."""

    forward: float
    backward: float
    weights: float  # of the backward pass
    recompute: float
    others: float  # communication of context and expert ranks; two thirds of it in the backward pass


def _layer(
    model: Transformer, cluster: Cluster, layout: Layout, block: PassTimes, passes: int, constants: Constants
) -> _Layer:
    """The times of a block whose compute times are `block`, and whose experts are visited in so many passes."""
    again = {
        "none": 0.0,
        "selective": 0.0 if model.fused_attention else block.scores_s,
        "half": block.forward_s - block.scores_s - block.products_s / 2,
        "full": block.forward_s - (block.last_s if layout.software.early_stop else 0.0),
    }[layout.recompute]
    # the host launches a block's kernels while the last ones run; where it takes longer, the GPU waits for it
    launch_s = (constants.expert_s if model.experts else constants.block_s) * (1 + again / (3 * block.forward_s))
    slowed = max(launch_s / (block.forward_s + block.backward_s + again), 1.0)
    ring = context_s(cluster, model, layout)

    def shown(communication: float, behind: float) -> float:
        """Seconds of the ring of keys that attention doesn't hide."""
        hidden = min(communication, behind)
        return communication - hidden + constants.contention * hidden

    return _Layer(
        slowed * block.forward_s,
        slowed * block.backward_s,
        slowed * block.products_s,
        slowed * again,
        shown(ring, block.scores_s) + shown(2 * ring, 2 * block.scores_s) + passes * experts_s(cluster, model, layout),
    )


def _stages(model: Transformer, cluster: Cluster, layout: Layout, constants: Constants) -> list[tuple[int, _Stage]]:
    """Each kind of stage (the first, inner ones by their layers, the last), with how many there are of it."""
    piece, passes = Piece.of(layout), 3 if layout.recompute == "full" else 2  # of tensor and expert communication
    layer = _layer(model, cluster, layout, block_times(model, cluster.gpu, piece, constants), passes, constants)
    edges = edge_times(model, cluster.gpu, piece, constants)
    once = 0.0
    if layout.tensor > 1:
        once = tensor_s(cluster, _boundary_bytes(model, layout), layout.tensor, layout.sequence_parallel)
    hidden = layout.software.async_tensor
    once_back = once if hidden == "no" else once * constants.async_tensor
    once_other = once * constants.async_tensor if hidden == "all" else once

    def stage(layers: int, ends: Sequence[PassTimes]) -> _Stage:
        forward = layers * layer.forward + sum(end.forward_s for end in ends)
        backward = layers * layer.backward + sum(end.backward_s for end in ends)
        # embedding and head each have one all-reduce forward and one backward
        tensor_back = (layers + len(ends) / 2) * once_back
        again = layers * (layer.recompute + (passes - 2) * once_other)
        return _Stage(
            compute=forward + backward,
            recompute=layers * layer.recompute,
            tensor=tensor_back + (layers * (passes - 1) + len(ends) / 2) * once_other,
            others=layers * layer.others,
            backward=backward + again + tensor_back + layers * layer.others * 2 / 3,
            weights=layers * layer.weights,
        )

    layers = [layers_of_stage(model, layout, rank) for rank in range(layout.pipeline)]
    if len(layers) == 1:
        return [(1, stage(layers[0], edges))]
    inner = [(count, stage(number, [])) for number, count in Counter(layers[1:-1]).items()]
    return [(1, stage(layers[0], edges[:1])), *inner, (1, stage(layers[-1], edges[1:]))]


def _boundary_bytes(model: Transformer, layout: Layout) -> float:
    """Bytes of the activations between two blocks, of one micro-batch."""
    tokens = layout.micro_batch * model.seq / layout.context
    return tokens * model.hidden * precision(layout.dtype).activation_bytes
