"""Time of a step by part, for one layout. The slowest stage sets the pace; what the others wait is bubble."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.plan.cluster.communication_time import exchange_s, send_s, tensor_s
from labkit.plan.cluster.compute_time import PassTimes, block_times, edge_times
from labkit.plan.cluster.constants import CONSTANTS, Constants
from labkit.plan.cluster.hardware import Cluster
from labkit.plan.cluster.layout import Layout, layers_of_stage
from labkit.plan.cluster.rank_memory import stage_params
from labkit.plan.cluster.rates import rates
from labkit.plan.costs.memory_costs import optimizer_traffic_bytes, precision
from labkit.plan.costs.transformers import Transformer

PARTS = (
    "compute",
    "recompute",
    "tensor communication",
    "pipeline communication",
    "bubble",
    "data communication",
    "optimizer",
)


@dataclass(frozen=True)
class _Stage:
    """Seconds that one micro-batch takes on one stage."""

    compute: float
    recompute: float
    tensor: float
    backward: float  # the backward part of all three, which a gradient exchange can hide behind

    @property
    def total(self) -> float:
        return self.compute + self.recompute + self.tensor


def parts(
    model: Transformer, cluster: Cluster, layout: Layout, batch: int, constants: Constants = CONSTANTS
) -> dict[str, float]:
    """Seconds of a step, by PARTS; they add up to the step. Raises LayoutError like `rates`."""
    m, p, v = layout.microbatches(batch), layout.pipeline, layout.interleave
    stages = _stages(model, cluster, layout, batch, constants)
    slowest = max(stages, key=lambda stage: stage[1].total)[1].total
    in_all = sum(count * stage.total for count, stage in stages)
    mean = [
        sum(count * getattr(stage, part) for count, stage in stages) / p for part in ("compute", "recompute", "tensor")
    ]
    # each tensor rank sends its part to the next stage (Narayanan et al. 2021, section 4.1)
    sent_bytes = _boundary_bytes(model, layout) / layout.tensor
    send = send_s(cluster, sent_bytes, layout.tensor * layout.data) if p > 1 else 0.0
    exposed_sends = 0.0 if layout.overlap and v > 1 else 2 * send * v
    fill = (in_all - slowest) / v + 2 * (p - 1) * send
    first = stages[0][1]  # has the embedding, so the most parameters to exchange
    data = exchange_s(
        cluster,
        layout,
        params=stage_params(model, layout, 0),
        layers=max(model.layers / p, 1),
        compute=(first.total - first.backward, first.backward),
        microbatches=m,
        contention=constants.contention,
    )
    # the update of a GPU's share of the parameters is bound by memory
    updated = stage_params(model, layout, 0) / (layout.data if layout.zero else 1)
    update_bytes = optimizer_traffic_bytes(updated, dtype=layout.dtype, optimizer=layout.optimizer)
    memory_bytes_per_s = rates(cluster.gpu, precision(layout.dtype).compute_dtype, constants).bytes_per_s
    return {
        "compute": m * mean[0],
        "recompute": m * mean[1],
        "tensor communication": m * mean[2],
        "pipeline communication": m * exposed_sends,
        "bubble": m * (slowest - in_all / p) + fill,
        "data communication": data,
        "optimizer": update_bytes / memory_bytes_per_s,
    }


def _stages(
    model: Transformer, cluster: Cluster, layout: Layout, batch: int, constants: Constants
) -> list[tuple[int, _Stage]]:
    """Each kind of stage (first, inner, last), with how many there are of it."""
    p = layout.pipeline
    block = block_times(
        model, cluster.gpu, layout.dtype, layout.micro_batch, layout.tensor, layout.sequence_parallel, constants
    )
    edges = edge_times(model, cluster.gpu, layout.dtype, layout.micro_batch, layout.tensor, constants)
    n_bytes = _boundary_bytes(model, layout)
    once = tensor_s(cluster, n_bytes, layout.tensor, layout.sequence_parallel) if layout.tensor > 1 else 0.0
    again = block.forward_s if layout.recompute == "full" else 0.0
    if layout.recompute == "selective" and not model.fused_attention:
        again = block.scores_s
    times = 3 if layout.recompute == "full" else 2

    def stage(layers: float, ends: list[PassTimes]) -> _Stage:
        forward = layers * block.forward_s + sum(end.forward_s for end in ends)
        backward = layers * block.backward_s + sum(end.backward_s for end in ends)
        # embedding and head each have one all-reduce forward and one backward
        tensor = (layers * times + len(ends)) * once
        return _Stage(
            forward + backward, layers * again, tensor, backward + layers * again + (times - 1) / times * tensor
        )

    if p == 1:
        return [(1, stage(model.layers, list(edges)))]
    edge, inner = (layers_of_stage(model, layout, rank) for rank in (0, 1))
    return [(1, stage(edge, [edges[0]])), (p - 2, stage(inner, [])), (1, stage(edge, [edges[1]]))]


def _boundary_bytes(model: Transformer, layout: Layout) -> int:
    """Bytes of the activations between two blocks, of one micro-batch."""
    return layout.micro_batch * model.seq * model.hidden * precision(layout.dtype).activation_bytes
