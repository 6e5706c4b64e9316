"""Communication time of a step: groups of ranks on a cluster, and what each kind of parallelism sends."""

from __future__ import annotations

import functools
from dataclasses import replace

from trainplan.cluster.constants import SEND_SHARE, SEND_START_S
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import Layout
from trainplan.costs.collectives import (
    Link,
    all_gather_s,
    all_reduce_between_nodes_s,
    all_reduce_in_node_s,
    wire_s,
)
from trainplan.costs.memory_costs import precision
from trainplan.costs.transformers import Transformer


@functools.lru_cache(maxsize=4096)
def group_link(cluster: Cluster, ranks: int, stride: int) -> Link:
    """The effective link of a ring through `ranks` GPUs, every `stride`-th of the cluster.

    Within one node it is the node's own. A ring over several nodes passes through each once and leaves it over the
    links of all its members there, so that the rate is the lower of these together and the node's own link; the start
    of a hop is the mean of those inside and between nodes.
    """
    inside = min(ranks, max(cluster.gpus_per_node // stride, 1))
    nodes = -(-ranks // inside)
    intra = cluster.inside if cluster.torus is None else _torus_link(cluster.inside, cluster.torus, inside, stride)
    return intra if nodes == 1 else _mixed(intra, cluster.between, inside, nodes / ranks)


def _torus_link(link: Link, sides: tuple[int, ...], ranks: int, stride: int) -> Link:
    """The link of `ranks` devices, every `stride`-th of a torus, of whose sides the last is counted first.

    `link` is a device's along all axes together. Each axis carries its share of the bytes, in both directions where
    the group closes the ring along it, else in one, and shares its wires with the groups in between. Hops add up over
    the axes. Source: Austin et al. 2025, How to scale your model, part 3.
    """
    hops, left, axes = 0.0, ranks, 0.0
    for side in reversed(sides):
        step = min(stride, side)
        extent = max(min(left, side // step), 1)
        if extent > 1:
            axes += (1.0 if extent * step == side else 0.5) / step
            hops += (extent - 1) * step
        stride, left = -(-stride // step) if step == side else 1, -(-left // extent)
    if ranks == 1 or not axes:
        return link
    return replace(link, alpha_s=hops / (ranks - 1) * link.alpha_s, bytes_per_s=axes / len(sides) * link.bytes_per_s)


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
    if link is cluster.inside or (cluster.torus is not None and ranks <= cluster.gpus_per_node):
        return all_reduce_in_node_s(n_bytes, ranks, link)
    return all_reduce_between_nodes_s(n_bytes, ranks, link)


def send_s(cluster: Cluster, n_bytes: float, distance: int) -> float:
    """Seconds of a send to the GPU `distance` places on, which is in the same node where it is near enough."""
    if distance >= cluster.gpus_per_node:
        return SEND_START_S + n_bytes / cluster.between.bytes_per_s
    return SEND_START_S + n_bytes / (SEND_SHARE * cluster.inside.bytes_per_s)


@functools.lru_cache(maxsize=4096)
def tensor_s(cluster: Cluster, n_bytes: float, tensor: int, sequence_parallel: bool) -> float:
    """Seconds that tensor ranks communicate in a block's forward pass: an all-reduce after attention and after the MLP.

    With sequence parallelism each is a reduce-scatter and an all-gather, the same bytes. The backward pass takes as
    long. Sources: Shoeybi et al. 2019, Megatron-LM, section 3; Korthikanti et al. 2022, section 4.2.2.
    """
    link = group_link(cluster, tensor, 1)
    if sequence_parallel:
        return 4 * all_gather_s(n_bytes, tensor, link)  # a reduce-scatter takes as long
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


def _exchange_once_s(
    cluster: Cluster, layout: Layout, what: str, params: tuple[float, float], messages: float
) -> float:
    """Seconds of the collectives that exchange a GPU's gradients ("all-reduce", "scatter") or weights ("gather") once.

    Of `params` the first are exchanged among all data ranks, the second, experts', among those that have the same; each
    in so many messages.
    """
    kind = precision(layout.dtype)
    gathered = 1 if layout.software.float8_gather and kind.compute_dtype == "float8" else kind.param_bytes
    seconds = 0.0
    for count, ranks in zip(params, (layout.replicas, layout.same_experts), strict=True):
        if not count or ranks == 1:
            continue
        n_bytes = count * (gathered if what == "gather" else kind.gradient_bytes) / messages
        stride = layout.tensor * layout.replicas // ranks
        if what == "all-reduce":
            seconds += _all_reduce_s(cluster, n_bytes, ranks, group_link(cluster, ranks, stride))
            continue
        group = min(layout.sharded, ranks)
        seconds += all_gather_s(n_bytes, group, group_link(cluster, group, stride))  # a scatter takes as long
        if what == "scatter" and group < ranks:  # replicas of the group sum what each of its members holds
            across = group_link(cluster, ranks // group, stride * group)
            seconds += _all_reduce_s(cluster, n_bytes / group, ranks // group, across)
    return messages * seconds


def exchange_s(
    cluster: Cluster,
    layout: Layout,
    *,
    params: tuple[float, float],
    layers: float,
    compute: tuple[float, float],
    microbatches: int,
    lost_share: float,
) -> float:
    """Seconds that the data ranks' exchange adds to a step, for `params` a GPU: outside of experts, and in them.

    ZeRO-0: an all-reduce of the gradients; 1: a reduce-scatter and an all-gather of the new weights; 2: the
    reduce-scatter in each micro-batch; 3: weights gathered layer by layer, forward and again backward, and gradients
    scattered, in each micro-batch, or once where the software doesn't reshard. Context ranks take part as data ranks
    do, and experts are exchanged among the ranks that have the same ones. If the layout overlaps, all but the last
    layer's part hides behind `compute`, the seconds forward and backward of a micro-batch, and costs `lost_share` of
    itself there. Sources: Rajbhandari et al.
    2020, ZeRO, section 7; Zhao et al. 2023, PyTorch FSDP, section 3.2 (groups).
    """
    ranks, software = layout.replicas, layout.software
    if ranks == 1:
        return 0.0
    messages = layers * max(software.messages, 1) if software.messages or layout.zero >= 2 else 1
    forward, backward = compute

    def exposed(behind: float, *collectives: str) -> float:
        """What of the collectives `behind` seconds of compute don't hide, and what hiding costs."""
        seconds = sum(_exchange_once_s(cluster, layout, what, params, messages) for what in collectives)
        hidden = min(seconds * (1 - 1 / layers), behind) if layout.overlap else 0.0
        return seconds - hidden + lost_share * hidden

    if layout.zero == 0:
        return exposed(backward, "all-reduce")
    if layout.zero == 3 and software.reshard:
        return microbatches * (exposed(forward, "gather") + exposed(backward, "gather", "scatter"))
    times = microbatches if layout.zero == 2 else 1
    return times * exposed(backward, "scatter") + exposed(forward, "gather")
