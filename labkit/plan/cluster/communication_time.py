"""Communication time of a step: groups of ranks on a cluster, and what each kind of parallelism sends."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields, replace

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
from labkit.plan.costs.transformers import Transformer


@functools.lru_cache(maxsize=4096)
def group_link(cluster: Cluster, ranks: int, stride: int) -> Link:
    """The effective link of a ring through `ranks` GPUs, every `stride`-th of the cluster.

    Within one node it is the node's own. A ring over several nodes passes through each once and leaves it over the
    links of all its members there, so that the rate is the lower of these together and the node's own link; the start
    of a hop is the mean of those inside and between nodes.
    """
    inside = min(ranks, max(cluster.gpus_per_node // stride, 1))
    nodes = -(-ranks // inside)
    if nodes == 1 and cluster.torus is not None and ranks > 1:
        # a ring along each axis in turn has fewer hops than one through all
        hops = sum(side - 1 for side in cluster.torus) / (math.prod(cluster.torus) - 1)
        return replace(cluster.inside, alpha_s=hops * cluster.inside.alpha_s)
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


def context_s(cluster: Cluster, model: Transformer, layout: Layout) -> float:
    """Seconds that a block's keys and values travel round the context ranks, forward; twice that backward.

    Source: Liu et al. 2023, Ring attention with blockwise transformers, section 3.
    """
    if layout.context == 1:
        return 0.0
    element_bytes = precision(layout.dtype).activation_bytes
    n_bytes = 2 * layout.micro_batch * model.seq * max(model.kv_width / layout.tensor, 1) * element_bytes
    return all_gather_s(n_bytes, layout.context, group_link(cluster, layout.context, layout.tensor))


def experts_s(cluster: Cluster, model: Transformer, layout: Layout) -> float:
    """Seconds that tokens travel to a block's experts and back, forward; as long backward.

    Each is an all-to-all of `top_k` copies of a rank's tokens, of which (n-1)/n leave it. Source: Lepikhin et al. 2021,
    GShard, section 3.2.
    """
    n = layout.expert
    if n == 1:
        return 0.0
    tokens = layout.micro_batch * model.seq / layout.context / layout.tensor
    n_bytes = tokens * model.top_k * model.hidden * precision(layout.dtype).activation_bytes
    link = group_link(cluster, n, 1)
    inside = min(n, cluster.gpus_per_node)
    if inside < n:  # what leaves the node leaves over each GPU's own link
        return 2 * max(wire_s(cluster.between, 1, n_bytes * (n - inside) / n), n_bytes * inside / n / link.bytes_per_s)
    return 2 * wire_s(link, 1, n_bytes * (n - 1) / n)


@dataclass(frozen=True)
class _Exchange:
    """Seconds of the collectives that exchange a GPU's gradients, or weights, once."""

    all_reduce_s: float
    gather_s: float
    scatter_s: float

    @classmethod
    def of(cls, cluster: Cluster, layout: Layout, params: float, ranks: int, stride: int, messages: float) -> _Exchange:
        """Of `params` parameters among `ranks`, of which every `stride`-th GPU is one, in so many collectives each."""
        kind = precision(layout.dtype)
        gathered = 1 if layout.software.float8_gather and kind.compute_dtype == "float8" else kind.param_bytes
        gradients, weights = params * kind.gradient_bytes / messages, params * gathered / messages
        group = min(layout.sharded, ranks)
        link = group_link(cluster, group, stride)
        scatter = reduce_scatter_s(gradients, group, link)
        if group < ranks:  # replicas of the group sum what each of its members holds
            across = group_link(cluster, ranks // group, stride * group)
            scatter += _all_reduce_s(cluster, gradients / group, ranks // group, across)
        whole = _all_reduce_s(cluster, gradients, ranks, group_link(cluster, ranks, stride))
        return cls(messages * whole, messages * all_gather_s(weights, group, link), messages * scatter)

    def __add__(self, other: _Exchange) -> _Exchange:
        return _Exchange(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def exchange_s(
    cluster: Cluster,
    layout: Layout,
    *,
    params: tuple[float, float],
    layers: float,
    compute: tuple[float, float],
    microbatches: int,
    contention: float,
) -> float:
    """Seconds that the data ranks' exchange adds to a step, for `params` a GPU: outside of experts, and in them.

    ZeRO-0: an all-reduce of the gradients; 1: a reduce-scatter and an all-gather of the new weights; 2: the
    reduce-scatter in each micro-batch; 3: weights gathered layer by layer, forward and again backward, and gradients
    scattered, in each micro-batch, or once where the software doesn't reshard. Context ranks take part as data ranks
    do, and experts are exchanged among the ranks that have the same ones. If the layout overlaps, all but the last
    layer's part hides behind `compute`, the seconds forward and backward of a micro-batch. Sources: Rajbhandari et al.
    2020, ZeRO, section 7; Zhao et al. 2023, PyTorch FSDP, section 3.2 (groups).
    """
    ranks, software = layout.replicas, layout.software
    if ranks == 1:
        return 0.0
    messages = layers * max(software.messages, 1) if software.messages or layout.zero >= 2 else 1
    all_of = _Exchange.of(cluster, layout, params[0], ranks, layout.tensor, messages)
    same = layout.same_experts
    if params[1] and same > 1:
        all_of += _Exchange.of(cluster, layout, params[1], same, layout.tensor * ranks // same, messages)
    forward, backward = compute

    def exposed(communication: float, behind: float) -> float:
        hidden = min(communication * (1 - 1 / layers), behind) if layout.overlap else 0.0
        return communication - hidden + contention * hidden

    if layout.zero == 0:
        return exposed(all_of.all_reduce_s, backward)
    if layout.zero == 3 and software.reshard:
        both = exposed(all_of.gather_s + all_of.scatter_s, backward)
        return microbatches * (exposed(all_of.gather_s, forward) + both)
    times = microbatches if layout.zero == 2 else 1
    return times * exposed(all_of.scatter_s, backward) + exposed(all_of.gather_s, forward)
