"""Seconds of the communication of a step: groups of ranks on a cluster, and what each kind of parallelism sends."""

from __future__ import annotations

import functools

from labkit.plan.cluster.hardware import Cluster
from labkit.plan.cluster.layout import Layout
from labkit.plan.costs.collectives import Link, all_gather_s, all_reduce_s, point_to_point_s, reduce_scatter_s
from labkit.plan.costs.memory_of_training import precision


@functools.lru_cache(maxsize=4096)
def group_link(cluster: Cluster, ranks: int, stride: int) -> Link:
    """The link that a ring of `ranks`, every `stride`-th GPU of the cluster, sees.

    Inside a node it is the node's. Beyond, the ring passes through each node once and leaves it over the links of all
    its members there, so that the slower of these together and of the node's own link sets the rate; a hop's start is
    the mean of those inside and between.
    """
    inside = min(ranks, max(cluster.gpus_per_node // stride, 1))
    nodes = -(-ranks // inside)
    if nodes == 1:
        return cluster.inside
    return _mixed(cluster.inside, cluster.between, inside, nodes / ranks)


def _mixed(intra: Link, inter: Link, inside: int, share_between: float) -> Link:
    low = None
    if intra.low_latency is not None and inter.low_latency is not None:
        low = _mixed(intra.low_latency, inter.low_latency, inside, share_between)
    return Link(
        share_between * inter.alpha_s + (1 - share_between) * intra.alpha_s,
        min(intra.bytes_per_s, inside * inter.bytes_per_s) if inside > 1 else inter.bytes_per_s,
        low,
    )


def reduce_all_s(cluster: Cluster, n_bytes: float, ranks: int, stride: int) -> float:
    """Seconds of an all-reduce over such a group: ring or switch inside a node, ring or tree beyond."""
    if ranks == 1:
        return 0.0
    link = group_link(cluster, ranks, stride)
    if link is cluster.inside:
        return all_reduce_s(n_bytes, ranks, link, "auto")
    return min(all_reduce_s(n_bytes, ranks, link), all_reduce_s(n_bytes, ranks, link, "tree"))


def gather_s(cluster: Cluster, n_bytes: float, ranks: int, stride: int) -> float:
    """Seconds of an all-gather over such a group."""
    return all_gather_s(n_bytes, ranks, group_link(cluster, ranks, stride)) if ranks > 1 else 0.0


def scatter_s(cluster: Cluster, n_bytes: float, ranks: int, stride: int) -> float:
    """Seconds of a reduce-scatter over such a group."""
    return reduce_scatter_s(n_bytes, ranks, group_link(cluster, ranks, stride)) if ranks > 1 else 0.0


def send_s(cluster: Cluster, n_bytes: float, distance: int) -> float:
    """Seconds of a send to the GPU `distance` further on: inside the node where it is near enough."""
    return point_to_point_s(n_bytes, cluster.inside if distance < cluster.gpus_per_node else cluster.between)


@functools.lru_cache(maxsize=4096)
def tensor_s(cluster: Cluster, n_bytes: float, tensor: int, sequence_parallel: bool) -> float:
    """Seconds of a block's forward tensor communication: an all-reduce after attention and one after the MLP.

    With sequence parallelism each is a reduce-scatter and an all-gather, the same bytes. The backward pass has as
    many. Sources: Shoeybi et al. 2019, Megatron-LM, section 3; Korthikanti et al. 2022, section 4.2.2.
    """
    if sequence_parallel:
        return 2 * (gather_s(cluster, n_bytes, tensor, 1) + scatter_s(cluster, n_bytes, tensor, 1))
    return 2 * reduce_all_s(cluster, n_bytes, tensor, 1)


def exchange_s(
    cluster: Cluster,
    layout: Layout,
    *,
    params: float,
    layers: float,
    compute: tuple[float, float],
    microbatches: int,
    contention: float,
) -> float:
    """Seconds of a step that the data ranks' exchange adds, of `params` parameters a GPU in `layers` layers.

    ZeRO-0: an all-reduce of the gradients; 1: a reduce-scatter and an all-gather of the new weights; 2: the
    reduce-scatter in each micro-batch; 3: weights gathered layer by layer, forward and again backward, and gradients
    scattered, in each micro-batch. All but the last layer's part hides behind `compute`, the seconds forward and
    backward of a micro-batch, if the layout overlaps. Source: Rajbhandari et al. 2020, ZeRO, section 7.
    """
    data, stride = layout.data, layout.tensor
    if data == 1:
        return 0.0
    kind, (forward, backward) = precision(layout.dtype), compute
    gradients, weights = params * kind.gradient_bytes, params * kind.param_bytes

    def left(communication: float, behind: float) -> float:
        hidden = min(communication * (1 - 1 / layers), behind) if layout.overlap else 0.0
        return communication - hidden + contention * hidden

    if layout.zero == 0:
        return left(reduce_all_s(cluster, gradients, data, stride), backward)
    if layout.zero == 3:
        gather = layers * gather_s(cluster, weights / layers, data, stride)
        scatter = layers * scatter_s(cluster, gradients / layers, data, stride)
        return microbatches * (left(gather, forward) + left(gather + scatter, backward))
    scatter = left(scatter_s(cluster, gradients, data, stride), backward)
    times = microbatches if layout.zero == 2 else 1
    return times * scatter + left(gather_s(cluster, weights, data, stride), forward)
