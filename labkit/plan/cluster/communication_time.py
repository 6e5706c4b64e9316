"""Communication time of a step: groups of ranks on a cluster, and what each kind of parallelism sends."""

from __future__ import annotations

import functools

from labkit.plan.cluster.hardware import Cluster
from labkit.plan.cluster.layout import Layout
from labkit.plan.costs.collectives import (
    Link,
    all_gather_s,
    all_reduce_between_nodes_s,
    all_reduce_in_node_s,
    reduce_scatter_s,
    wire_s,
)
from labkit.plan.costs.memory_costs import precision


@functools.lru_cache(maxsize=4096)
def group_link(cluster: Cluster, ranks: int, stride: int) -> Link:
    """The effective link of a ring through `ranks` GPUs, every `stride`-th of the cluster.

    Within one node it is the node's own. A ring over several nodes passes through each once and leaves it over the
    links of all its members there, so that the rate is the lower of these together and the node's own link; the start
    of a hop is the mean of those inside and between nodes.
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


def _all_reduce_s(cluster: Cluster, n_bytes: float, ranks: int, link: Link) -> float:
    """Seconds of an all-reduce over a group's link: ring or switch inside a node, ring or tree between nodes."""
    if link is cluster.inside:
        return all_reduce_in_node_s(n_bytes, ranks, link)
    return all_reduce_between_nodes_s(n_bytes, ranks, link)


def send_s(cluster: Cluster, n_bytes: float, distance: int) -> float:
    """Seconds of a send to the GPU `distance` places on, which is in the same node where it is near enough."""
    return wire_s(cluster.inside if distance < cluster.gpus_per_node else cluster.between, 1, n_bytes)


@functools.lru_cache(maxsize=4096)
def tensor_s(cluster: Cluster, n_bytes: float, tensor: int, sequence_parallel: bool) -> float:
    """Seconds that tensor ranks communicate in a block's forward pass: an all-reduce after attention and after the MLP.

    With sequence parallelism each is a reduce-scatter and an all-gather, the same bytes. The backward pass takes as
    long. Sources: Shoeybi et al. 2019, Megatron-LM, section 3; Korthikanti et al. 2022, section 4.2.2.
    """
    link = group_link(cluster, tensor, 1)
    if sequence_parallel:
        return 2 * (all_gather_s(n_bytes, tensor, link) + reduce_scatter_s(n_bytes, tensor, link))
    return 2 * _all_reduce_s(cluster, n_bytes, tensor, link)


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
    """Seconds that the data ranks' exchange adds to a step, for `params` parameters a GPU in `layers` layers.

    ZeRO-0: an all-reduce of the gradients; 1: a reduce-scatter and an all-gather of the new weights; 2: the
    reduce-scatter in each micro-batch; 3: weights gathered layer by layer, forward and again backward, and gradients
    scattered, in each micro-batch. If the layout overlaps, all but the last layer's part hides behind `compute`, the
    seconds forward and backward of a micro-batch. Source: Rajbhandari et al. 2020, ZeRO, section 7.
    """
    data = layout.data
    if data == 1:
        return 0.0
    link = group_link(cluster, data, layout.tensor)
    kind, (forward, backward) = precision(layout.dtype), compute
    gradients, weights = params * kind.gradient_bytes, params * kind.param_bytes

    def exposed(communication: float, behind: float) -> float:
        hidden = min(communication * (1 - 1 / layers), behind) if layout.overlap else 0.0
        return communication - hidden + contention * hidden

    if layout.zero == 0:
        return exposed(_all_reduce_s(cluster, gradients, data, link), backward)
    if layout.zero == 3:
        gather = layers * all_gather_s(weights / layers, data, link)
        scatter = layers * reduce_scatter_s(gradients / layers, data, link)
        return microbatches * (exposed(gather, forward) + exposed(gather + scatter, backward))
    scatter = exposed(reduce_scatter_s(gradients, data, link), backward)
    times = microbatches if layout.zero == 2 else 1
    return times * scatter + exposed(all_gather_s(weights, data, link), forward)
