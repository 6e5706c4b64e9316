"""What one rank holds and does of a step, derived once from model, cluster, layout and
batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainplan.cluster.constants import LEARNED_OVERLOAD
from trainplan.cluster.hardware import Cluster, group_link
from trainplan.cluster.layout import Layout, layers_of_stages
from trainplan.costs.collectives import Link
from trainplan.costs.memory_costs import Precision, precision
from trainplan.costs.transformers import Transformer

_NODE = 8  # GPUs of a node that is no rack


@dataclass(frozen=True, kw_only=True)
class RankShare:
    """One rank's share of a step, made by `rank_share`: of one micro-batch, where
    nothing else is said.

    `layers` are those of each stage, of all its chunks together, and of the last those
    that predict ahead; `exchanged_layers` are those of which a rank exchanges the
    parameters one after another. `products` are inputs and outputs of the products
    around attention, of the rank's heads as `query_width` and `kv_width`;
    `sequence_split` is among how many ranks that is split along the sequence which
    isn't split by heads. `boundary_bytes` pass from block to block, `block_params` are
    a block's parameters without ZeRO, outside of experts and in them, `trained` is the
    share of all parameters that has gradients. `routed` are the copies of tokens that a
    rank's experts work on, `dispatch` how they get there, "" where no rank sends any;
    `biases` says whether kernels of their own add the experts' biases. The links are
    those of the groups of ranks that share heads, sequences and experts, and among
    which ZeRO splits.
    """

    model: Transformer
    cluster: Cluster
    layout: Layout
    kind: Precision
    microbatches: int  # of the step
    tokens: float
    layers: tuple[int, ...]
    exchanged_layers: float
    products: tuple[tuple[float, float], ...]
    query_width: float
    kv_width: float
    sequence_split: int
    boundary_bytes: float
    block_params: tuple[float, float]
    trained: float
    routed: float
    dispatch: str
    biases: bool
    tensor_link: Link
    context_link: Link
    expert_link: Link
    data_link: Link

    def stage_params(self, stage: int) -> tuple[float, float]:
        """Parameters of a rank of a stage without ZeRO: outside of experts, and in
        them.

        For a tied head the last stage has a copy of the embedding. DualPipe holds two
        stages. Dense blocks before those with experts are the first stage's.
        """
        model = self.model
        layout = self.layout
        layers = self.layers[stage]
        ends = 0
        if stage == 0:
            dense = min(model.dense, layers)
            layers -= dense
            ends += model.embedding_params + dense * model.dense_params
        if stage == layout.pipeline - 1:
            ends += model.head_params
            if layout.pipeline > 1 and model.has_tied_head:
                ends += model.vocab * model.hidden
            # of the blocks that predict ahead what they have more than others
            ends += model.ahead_params - model.ahead * model.block_params
        copies = 2 if layout.schedule == "DualPipe" else 1
        others, in_experts = self.block_params
        return (
            copies * (layers * others + ends / layout.tensor),
            copies * layers * in_experts,
        )

    def table_params(self, stage: int) -> tuple[float, float]:
        """Of `stage_params` those of the embedding, and those of the head."""
        model = self.model
        last = self.layout.pipeline - 1
        embedding = model.embedding_params if stage == 0 else 0
        has_head = stage == last and not (last == 0 and model.has_tied_head)
        head = model.vocab * model.hidden if has_head else 0
        copies = 2 if self.layout.schedule == "DualPipe" else 1
        a_rank = copies / self.layout.tensor
        return a_rank * embedding, a_rank * head


def rank_share(
    model: Transformer, cluster: Cluster, layout: Layout, batch: int
) -> RankShare:
    """The RankShare of a layout that divides model, cluster and batch (`why_not` is
    empty).
    """
    if model.name in layout.software.unfused_attention.split():
        model = replace(model, fused_attention=False)
    kind = precision(layout.dtype)
    tensor = layout.tensor
    tokens = layout.micro_batch * model.seq / layout.context
    layers = layers_of_stages(
        model, layout.pipeline, layout.interleave, layout.software
    )
    assert layers is not None  # why_not refuses the others
    layers = (*layers[:-1], layers[-1] + model.ahead)
    in_experts = model.experts * model.expert_params * model.routed_share
    queries = model.query_width / tensor
    keys = max(model.kv_width / tensor, model.query_width / model.heads)
    products: tuple[tuple[float, float], ...] = (
        (model.hidden, (2 if model.attention_gate else 1) * queries + 2 * keys),
        (queries, model.hidden),
    )
    if model.kv_rank:  # what is common to all heads isn't split
        (_, shared), *up, (values, hidden) = model.attention_products
        down = (float(model.hidden), float(shared))
        if not model.query_rank:  # queries are of heads, and split
            down = (float(model.hidden), queries + model.cached_width)
        products = (
            down,
            *((inputs, outputs / tensor) for inputs, outputs in up),
            (values / tensor, hidden),
        )
    if model.compressed is not None:
        down, (rank, width), (_, out), (groups, hidden) = model.attention_products
        products = (
            down,
            (rank, width / tensor),
            (width / tensor, out),
            (groups / tensor, hidden),
        )
    return RankShare(
        model=model,
        cluster=cluster,
        layout=layout,
        kind=kind,
        microbatches=batch // (layout.data * layout.micro_batch),
        tokens=tokens,
        layers=layers,
        exchanged_layers=max(model.layers / layout.pipeline, 1),
        products=products,
        query_width=queries,
        kv_width=keys,  # one head at least
        sequence_split=tensor if layout.sequence_parallel else 1,
        boundary_bytes=tokens * model.hidden * kind.activation_bytes,
        block_params=(
            (model.block_params - in_experts) / tensor,
            in_experts / (tensor if layout.expert == 1 else layout.expert),
        ),
        trained=model.trained_params / model.params,
        routed=_routed(model, layout, tokens),
        dispatch=dispatch(model, cluster, layout),
        biases=_adds_biases(model, cluster, layout),
        tensor_link=group_link(cluster, tensor, 1),
        context_link=group_link(cluster, layout.context, tensor),
        expert_link=group_link(cluster, layout.expert, 1),
        data_link=group_link(cluster, layout.sharded, tensor),
    )


def _routed(model: Transformer, layout: Layout, tokens: float) -> float:
    """Copies of tokens that a rank's experts work on, of one micro-batch.

    Experts that have a rank of their own are whole, so that tensor ranks send them
    different tokens; else all tensor ranks work on all of them.
    """
    if not model.experts:
        return 0.0
    split = 1 if layout.expert == 1 else layout.tensor
    routed = tokens / split * model.top_k * (model.capacity or 1)
    if layout.balance == "learned" and layout.expert > 1 and not model.capacity:
        routed *= LEARNED_OVERLOAD  # of the fullest rank, for which the others wait
    return routed


def _adds_biases(model: Transformer, cluster: Cluster, layout: Layout) -> bool:
    """Whether kernels of their own add the biases of experts.

    In 8 bit on racks of NVLink the products add them: NVIDIA Megatron Bridge's recipes
    of GPT-OSS switch fused experts on there, and nowhere else
    (src/megatron/bridge/perf_recipes/gpt_oss, commit 067f987d). On TPUs XLA fuses them.
    """
    is_fused = precision(layout.dtype).scaled and cluster.gpus_per_node > _NODE
    is_compiled = cluster.gpu.vendor == "Google"
    return model.expert_biases and not is_fused and not is_compiled


def dispatch(model: Transformer, cluster: Cluster, layout: Layout) -> str:
    """How tokens get to experts on other ranks: as the software does it; but
    all-to-all where kernels add biases, which those recipes of GPT-OSS keep to.
    """
    if layout.expert == 1:
        return ""
    if _adds_biases(model, cluster, layout):
        return "all-to-all"
    return layout.software.dispatch


def has_graphs(model: Transformer, layout: Layout) -> bool:
    """Whether CUDA graphs launch a block with experts but for the experts; Megatron-LM
    refuses those of parts of a block that is recomputed (transformer_config.py).
    """
    return model.experts > 0 and layout.software.graphs and layout.recompute == "none"
