"""Communication of one rank: how long its messages take, of which nothing is hidden
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trainplan.cluster.constants import SEND_SHARE, SEND_START_S
from trainplan.cluster.hardware import Cluster, group_link
from trainplan.cluster.rank_share import RankShare
from trainplan.costs.collectives import Link, all_gather_s, fastest_all_reduce_s, wire_s
from trainplan.costs.mixers import ATTENTIONS, MIXERS


class Communication(NamedTuple):
    """Seconds of a rank's messages: of a block for one micro-batch, to the next stage,
    and of the data ranks' exchange.

    `tensor` and `experts` are those of a forward pass and as long backward, `context`
    takes twice as long backward. `exchange` is by collective ("all-reduce", or
    "scatter" of gradients and "gather" of weights), each done once.
    """

    tensor: float
    context: float
    experts: float
    send: float
    exchange: Mapping[str, float]


def communication(share: RankShare) -> Communication:
    """The Communication of a rank of the first stage, which has the embedding, so the
    most parameters to exchange.
    """
    collectives: tuple[str, ...]
    if share.layout.replicas == 1:
        collectives = ()
    elif share.layout.zero:
        collectives = ("scatter", "gather")
    else:
        collectives = ("all-reduce",)
    return Communication(
        tensor=_tensor_s(share),
        context=_context_s(share),
        experts=_experts_s(share),
        send=_send_s(share) if share.layout.pipeline > 1 else 0.0,
        exchange={
            collective: _exchange_s(share, collective) for collective in collectives
        },
    )


def _all_reduce_s(cluster: Cluster, n_bytes: float, ranks: int, link: Link) -> float:
    """Seconds of an all-reduce over a group's link."""
    in_node = link is cluster.inside or (
        cluster.torus is not None and ranks <= cluster.gpus_per_node
    )
    return fastest_all_reduce_s(n_bytes, ranks, link, in_node=in_node)


def _tensor_s(share: RankShare) -> float:
    """Seconds that tensor ranks communicate in a block's forward pass: an all-reduce
    after each mixer, which are attention and the MLP where no pattern says otherwise.

    With sequence parallelism each is a reduce-scatter and an all-gather, the same
    bytes. Sources: Shoeybi et al. 2019, Megatron-LM, section 3; Korthikanti et al.
    2022, section 4.2.2.
    """
    tensor = share.layout.tensor
    n_bytes = share.boundary_bytes
    mixers = share.model.per_block(*MIXERS)
    if tensor == 1:
        return 0.0
    if share.layout.sequence_parallel:
        # a reduce-scatter takes as long
        return 2 * mixers * all_gather_s(n_bytes, tensor, share.tensor_link)
    return mixers * _all_reduce_s(share.cluster, n_bytes, tensor, share.tensor_link)


def _context_s(share: RankShare) -> float:
    """Seconds that a block's keys and values travel round the context ranks, forward.

    Source: Liu et al. 2023, Ring attention with blockwise transformers, section 3.
    """
    model = share.model
    layout = share.layout
    if layout.context == 1:
        return 0.0
    sequences = layout.micro_batch * model.seq
    width = max(model.kv_width / layout.tensor, 1)
    n_bytes = 2 * sequences * width * share.kind.activation_bytes
    attentions = model.per_block(*ATTENTIONS)
    return attentions * all_gather_s(n_bytes, layout.context, share.context_link)


def _experts_s(share: RankShare) -> float:
    """Seconds that tokens travel to a block's experts and back, forward.

    Each is an all-to-all of `top_k` copies of a rank's tokens, of which (n-1)/n leave
    it. HybridEP sends one to each node that has some of a token's experts, where it is
    passed on to each rank that has some. Sources: Lepikhin et al. 2021, GShard, section
    3.2; DeepSeek-AI 2024, DeepSeek-V3, section 3.2.2.
    """
    n = share.layout.expert
    model = share.model
    cluster = share.cluster
    e = share.kind.activation_bytes
    if n == 1:
        return 0.0
    dispatched = 1 if share.layout.software.float8_dispatch and share.kind.scaled else e
    # there and back
    routed = model.routed_share * share.routed
    n_bytes = routed * model.hidden * (dispatched + e)
    token_bytes = n_bytes / model.top_k
    inside = min(n, cluster.gpus_per_node)
    link = share.expert_link
    sent_once = share.dispatch == "HybridEP"
    if inside == n:
        leaving = n_bytes * (n - 1) / n
        if sent_once:
            leaving = token_bytes * _reached(n, model.top_k) * (n - 1) / n
        return 2 * wire_s(link, 1, leaving / 2)
    leaving = n_bytes * (n - inside) / n
    passed = n_bytes * inside / n
    if sent_once:
        nodes = min(model.max_nodes or n, n // inside)
        leaving = token_bytes * _reached(nodes, model.top_k) * (n - inside) / n
        ranks = nodes * inside
        passed = token_bytes * _reached(ranks, model.top_k) * (inside - 1) / inside
    # what leaves the node leaves over each GPU's own link
    return max(2 * wire_s(cluster.between, 1, leaving / 2), passed / link.bytes_per_s)


def _reached(places: int, experts: int) -> float:
    """How many of so many places some of a token's experts are on, drawn at random."""
    return places * (1 - (1 - 1 / places) ** experts)


def _send_s(share: RankShare) -> float:
    """Seconds of a send to the next stage, whose GPU is in the same node where it is
    near enough.

    Each tensor rank sends its part (Narayanan et al. 2021, section 4.1).
    """
    cluster = share.cluster
    layout = share.layout
    n_bytes = share.model.streams * share.boundary_bytes / layout.tensor
    if layout.tensor * layout.replicas >= cluster.gpus_per_node:
        return SEND_START_S + n_bytes / cluster.between.bytes_per_s
    return SEND_START_S + n_bytes / (SEND_SHARE * cluster.inside.bytes_per_s)


def _exchange_s(share: RankShare, collective: str) -> float:
    """Seconds of the collectives that exchange a GPU's gradients ("all-reduce",
    "scatter") or weights ("gather") once.

    Context ranks take part as data ranks do; experts are exchanged among the ranks that
    have the same ones, and groups that ZeRO splits among are replicas of each other.
    Sources: Rajbhandari et al. 2020, ZeRO, section 7; Zhao et al. 2023, PyTorch FSDP,
    section 3.2 (groups).
    """
    cluster = share.cluster
    layout = share.layout
    kind = share.kind
    software = layout.software
    if collective != "gather":
        param_bytes = kind.gradient_bytes
    elif software.float8_gather and kind.scaled:
        param_bytes = 1
    else:
        param_bytes = kind.param_bytes
    messages = 1.0
    if software.messages or layout.zero >= 2:
        messages = share.exchanged_layers * max(software.messages, 1)
    others, in_experts = share.stage_params(0)
    seconds = 0.0
    for params, ranks in (
        (others, layout.replicas),
        (in_experts, layout.same_experts),
    ):
        if not params or ranks == 1:
            continue
        n_bytes = params * param_bytes / messages
        if collective != "gather" or layout.zero < 3:  # frozen weights don't change
            n_bytes *= share.trained
        stride = layout.tensor * layout.replicas // ranks
        if collective == "all-reduce":
            seconds += _all_reduce_s(
                cluster, n_bytes, ranks, group_link(cluster, ranks, stride)
            )
            continue
        group = min(layout.sharded, ranks)
        # a scatter takes as long
        seconds += all_gather_s(n_bytes, group, group_link(cluster, group, stride))
        # replicas of the group sum what each of its members holds
        if collective == "scatter" and group < ranks:
            across = group_link(cluster, ranks // group, stride * group)
            seconds += _all_reduce_s(cluster, n_bytes / group, ranks // group, across)
    return messages * seconds
