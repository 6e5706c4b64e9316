"""Memory of a layout: the bytes that its fullest GPU holds, by purpose."""

from __future__ import annotations

import math

from trainplan.cluster.layout import Layout
from trainplan.cluster.rank_share import RankShare
from trainplan.costs.memory_costs import NF4_BYTES, optimizer_states
from trainplan.costs.mixers import ATTENTIONS, CHOSEN, HEAVY, MLPS, STATE_SPACES
from trainplan.costs.transformers import Transformer

_SPLIT = "More tensor or pipeline ranks split it, and ZeRO"
PURPOSES = {  # and what makes each smaller
    "parameters": f"{_SPLIT} 3.",
    "gradients": f"{_SPLIT} 2 or 3.",
    "float32 master weights": f"{_SPLIT} 1 to 3.",
    "optimizer state": f"{_SPLIT} 1 to 3.",
    "kept for the backward pass": (
        "Smaller micro-batches, recomputing and more tensor ranks make it smaller."
    ),
    "logits and loss": "Smaller micro-batches and more tensor ranks make it smaller.",
    "gathered for a moment": (
        "More tensor ranks make it smaller, and ZeRO 1 and 2 gather nothing."
    ),
    "fragments": "What makes activations smaller makes these smaller too.",
}

# what doesn't depend on the micro-batch and on recomputing
STATES = tuple(PURPOSES)[:4]


def block_kept_bytes(share: RankShare, recompute: str) -> float:
    """Bytes that one block keeps of one micro-batch on one rank.

    Of a product's input its `input_bytes` are kept, of all else `activation_bytes`. In
    16 bit for a GPT with dropout: s b h (10 + 24/t + 5 a s/(h t)), with sequence
    parallelism s b h (34 + 5 a s/h)/t, without the last term where recompute is
    "selective" or attention fused, and 2 s b h where it is "full". Gated blocks,
    grouped keys and blocks without dropout are counted the same way. Source:
    Korthikanti et al. 2022, equations 1 to 6 and table 2.
    """
    model = share.model
    tokens = share.tokens
    e = share.kind.activation_bytes
    i = share.kind.input_bytes
    t = share.layout.tensor
    r = _stream_bytes(share)
    if recompute == "full":
        return r * model.streams * tokens * model.hidden / share.sequence_split
    if recompute == "half" and not (model.experts or model.kv_rank or model.pattern):
        return _half_kept_bytes(share)
    # the inputs of two norms and of two products, and a mask of one byte an element
    # after each of the two outputs; a router's product is in 16 bit
    masks = 2 if model.dropout else 0
    attentions = model.per_block(*ATTENTIONS)
    mlps = model.per_block(*MLPS)
    norm = e if r == e else 2 * r  # its input, and in float32 what it makes of it
    of_attention = attentions * (norm + i)
    of_mlp = mlps * (norm + (e if model.experts else i))
    # of several residual streams all are kept beside the one that is made of them
    streams = e * (attentions + mlps) * model.streams if model.streams > 1 else 0
    hidden_bytes = of_attention + of_mlp + streams + masks
    whole = tokens * model.hidden * hidden_bytes / share.sequence_split
    # SwiGLU in one kernel keeps the gate, the other factor and their product, in two
    # SiLU of the gate too (which "half" recomputes); GELU its input and its output
    inner = float((e + i) * model.used_inner)
    if model.has_gated_mlp:
        eager = not share.layout.software.fused and recompute != "half"
        inner = ((3 if eager else 2) * e + i) * model.used_inner
    inner *= mlps
    routed = 0.0  # what experts were sent, and what they returned
    if model.experts:
        routed = (i + e) * model.top_k * model.hidden * (model.capacity or 1)
        routed *= model.routed_share
    # attention keeps its output in 16 bit, beside the copy that the next product keeps
    is_copied = share.kind.scaled and i < e
    copied = attentions * i * model.value_width if is_copied else 0.0
    split = tokens * (e * _kept_width(model) + copied + inner + routed) / t
    split += _kept_of_states(share)
    scores = 0.0
    if model.fused_attention:
        # a float32 log-sum-exp for each row (Dao et al. 2022)
        scores = 4 * tokens * model.heads / t
    elif recompute == "none":
        score_bytes = 2 * e + 1 if model.dropout else e
        if not share.layout.software.fused:
            score_bytes += 4  # the softmax is in float32, and cast back
        scores = tokens * model.heads * model.seq * score_bytes / t
    scores *= attentions
    kept_share = 1 / 2 if recompute == "half" else 1
    return kept_share * (whole + split) + scores


def _stream_bytes(share: RankShare) -> int:
    """Bytes of an element of the sum that goes from block to block: as of activations,
    or of float32 where weights are, and only products are cast (torch.autocast around
    an eager model; FSDP casts what goes into a block).
    """
    layout = share.layout
    is_eager = not layout.software.fused
    if share.kind.casts and layout.zero < 3 and is_eager and not share.model.adapters:
        return 4
    return share.kind.activation_bytes


def _kept_width(model: Transformer) -> float:
    """Elements of a token that a block's attention keeps beside its input, in the mean
    of blocks that differ.
    """
    width = (
        model.query_width
        + model.value_width
        + 2 * model.kv_width
        + model.query_rank
        + model.kv_rank
        + model.out_groups * model.out_rank
    )
    kept = model.per_block(*ATTENTIONS) * width
    if model.compressed is not None:
        for letter in (CHOSEN, HEAVY):
            for _, outputs in model.compressed.compressing(letter):
                kept += model.per_block(letter) * outputs
    return kept


def _kept_of_states(share: RankShare) -> float:
    """Bytes that a block's state spaces keep; their inputs aren't split by heads."""
    state = share.model.state_space
    if state is None:
        return 0.0
    inputs = 2 * state.hidden
    whole = inputs / share.sequence_split
    split = (state.kept - inputs) / share.layout.tensor
    token_bytes = share.kind.activation_bytes * (whole + split)
    return share.model.per_block(*STATE_SPACES) * share.tokens * token_bytes


def _half_kept_bytes(share: RankShare) -> float:
    """Bytes that a dense block keeps of one micro-batch where every second product is
    computed again: its input, queries, values, attention's output and log-sum-exp, and
    the first product of the MLP; in eager PyTorch the last product's output too.

    Source: pytorch/torchtitan v0.2.2, torchtitan/distributed/activation_checkpoint.py,
    _apply_op_sac, over the products of models/llama3/model/model.py in their order.
    """
    model = share.model
    t = share.layout.tensor
    e = share.kind.activation_bytes
    ends = 1 if share.layout.software.fused else 2
    whole = ends * model.hidden / share.sequence_split
    split = (
        model.query_width + model.kv_width + model.value_width + model.used_inner
    ) / t
    return share.tokens * (e * (whole + split) + 4 * model.heads / t)


def in_flight(layout: Layout, stage: int, microbatches: int) -> float:
    """How many micro-batches' activations of all its blocks a stage holds at most.

    1F1B: p - stage. Interleaved: p (v-1) + 2 (p - 1 - stage) + 1 chunks, Megatron-LM's
    warm-up and one more (the first stage's (1 + (p-1)/(p v)) of Korthikanti et al.
    2022, section 4.2.3). ZB-H1 and ZB-V: p on each. DualPipe: p + 1. Sources: Narayanan
    et al. 2021, section 2.2; Qi et al. 2024, table 2; DeepSeek-V3 technical report,
    table 2.
    """
    p = layout.pipeline
    v = layout.interleave
    if layout.schedule == "DualPipe":
        return min(p + 1, microbatches)
    if layout.schedule != "1F1B":
        return min(p, microbatches)
    if v == 1:
        return min(p - stage, microbatches)
    chunks = p * (v - 1) + 2 * (p - 1 - stage) + 1
    return min(chunks, microbatches * v) / v


def stage_memory(share: RankShare, stage: int) -> dict[str, float]:
    """Bytes by purpose on one GPU of a stage. Sources: block_kept_bytes; Rajbhandari et
    al. 2020, ZeRO, section 3.

    It is the fullest of three moments: at the loss, in the backward pass of the last
    block, and behind that of the first one, when activations are gone and gradients are
    there. Data ranks hold room for gradients in all of them, as earlier micro-batches
    do: in a buffer, or in memory that torch's allocator keeps for the stream of the
    exchange (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce).
    """
    states = _state_bytes(share, stage)
    alone = share.layout.replicas == 1 and share.microbatches == 1
    early = 0.0 if alone else states["gradients"]
    moments = [
        {**states, "gradients": early, **_at_loss(share, stage)},
        {**states, "gradients": early, **_in_backward(share, stage)},
        {**states, **_behind_backward(share, stage)},
    ]
    return max(moments, key=lambda purposes: sum(purposes.values()))


def _state_bytes(share: RankShare, stage: int) -> dict[str, float]:
    """Bytes of STATES, of all gradients."""
    layout = share.layout
    kind = share.kind
    params, in_experts = share.stage_params(stage)
    parts = layout.sharded
    expert_parts = min(layout.sharded, layout.same_experts)

    def held(level: int) -> float:
        """Parameters of which this GPU holds what ZeRO splits from a level on."""
        if layout.zero >= level:
            return params / parts + in_experts / expert_parts
        return params + in_experts

    on_gpu = 0.0 if layout.offload else share.trained
    copies = layout.software.gradient_copies if layout.replicas > 1 else 0
    # Transformer Engine keeps weights quantized twice, along rows and along columns,
    # beside those in 16 bit, in place of which they are where ZeRO gathers them so
    # (pytorch/module/base.py, quantize_weight; Megatron-LM, --fp8-param-gather)
    in_engine = kind.scaled and kind.input_bytes < kind.activation_bytes
    quantized = 2 * kind.input_bytes if in_engine and layout.zero == 0 else 0.0
    # of float32 weights that are cast for a block, nothing is stored in 16 bit
    passing = kind.casts and layout.zero == 3 and layout.replicas > 1
    bucket = layout.software.bucket if layout.zero and layout.replicas > 1 else 0
    gradients = share.trained * held(2) * (kind.gradient_bytes + copies)
    weights = 0.0 if passing else held(3) * (kind.param_bytes + quantized)
    masters = on_gpu * held(1) * kind.master_bytes
    if share.model.quantized:
        weights = _quantized_bytes(share, stage)
    elif share.model.adapters:  # weights that aren't trained stay as they are loaded
        weights = held(3) * (kind.param_bytes + quantized)
    return {
        "parameters": weights,
        "gradients": gradients + bucket * kind.gradient_bytes,
        "float32 master weights": masters,
        "optimizer state": on_gpu * _optimizer_bytes(share, stage, held(1)),
    }


def _optimizer_bytes(share: RankShare, stage: int, updated: float) -> float:
    """Bytes of state of the parameters that a GPU updates."""
    layout = share.layout
    states = optimizer_states(layout.optimizer)
    if states.paged:
        return 0.0
    a_param = states.a_param(share.kind)
    if share.model.adapters:  # beside products of blocks alone
        return updated * a_param
    wide = layout.software.wide_table_states
    embedding, head = share.table_params(stage)
    more = (
        embedding * (states.a_table_param(share.kind, wide=wide) - a_param)
        + head * (states.a_table_param(share.kind) - a_param)
    ) / (layout.sharded if layout.zero else 1)
    return updated * a_param + more


def _quantized_bytes(share: RankShare, stage: int) -> float:
    """Bytes of a stage's weights where those of its blocks are in 4 bit, and embedding
    and head aren't; with the product's weights that are made for a moment.
    """
    model = share.model
    layout = share.layout
    parts = layout.sharded if layout.zero == 3 else 1
    tables = sum(share.table_params(stage))
    blocks = sum(share.stage_params(stage)) - tables
    made = model.hidden * max(model.inner, model.query_width) / layout.tensor
    return (
        blocks * NF4_BYTES / parts
        + tables * share.kind.param_bytes / parts
        + made * share.kind.param_bytes
    )


def _at_loss(share: RankShare, stage: int) -> dict[str, float]:
    """Bytes of activations and logits where the last stage has calculated its loss."""
    last = stage == share.layout.pipeline - 1
    logits = _loss_bytes(share) if last else 0.0
    kept = _all_kept_bytes(share, stage)
    return _activations(share, kept, logits, _gathered_bytes(share, stage, head=True))


def _in_backward(share: RankShare, stage: int) -> dict[str, float]:
    """Bytes of activations in the backward pass of a stage's last block, which is held
    in full where it is computed again.
    """
    kept = _all_kept_bytes(share, stage)
    if share.layout.recompute != "none":
        kept += block_kept_bytes(share, "none")
    return _activations(share, kept, 0.0, _gathered_bytes(share, stage))


def _behind_backward(share: RankShare, stage: int) -> dict[str, float]:
    """Bytes of activations in the backward pass of the first block."""
    kept = block_kept_bytes(share, "none")
    return _activations(share, kept, 0.0, _gathered_bytes(share, stage))


def _all_kept_bytes(share: RankShare, stage: int) -> float:
    """Bytes that a stage's blocks keep of all micro-batches in flight."""
    layout = share.layout
    blocks = in_flight(layout, stage, share.microbatches) * share.layers[stage]
    kept = block_kept_bytes(share, layout.recompute)
    if layout.offload_activations:
        # five tensors are on their way to main memory (pytorch/torchtune,
        # torchtune/training/_activation_offloading.py, max_fwd_stash_size)
        under_way = max(kept, 5 * block_kept_bytes(share, "full"))
        return min(under_way, blocks * kept)
    return blocks * kept


def _activations(
    share: RankShare, kept: float, logits: float, gathered: float
) -> dict[str, float]:
    return {
        "kept for the backward pass": kept,
        "logits and loss": logits,
        "gathered for a moment": gathered,
        "fragments": share.layout.software.fragments * (kept + gathered),
    }


def _loss_bytes(share: RankShare) -> float:
    """Bytes of the last stage's logits and loss."""
    model = share.model
    e = share.kind.activation_bytes
    software = share.layout.software
    # a fused loss has logits in 16 bit, and their gradient
    logit_bytes = 2 * e if software.fused_loss else software.logit_bytes
    # and DTensor's, of logits that tensor ranks share, has one more block of float32
    # (torch/distributed/tensor/parallel/loss.py, _log_softmax)
    if share.layout.tensor > 1 and software.copied_gathers and not software.fused_loss:
        logit_bytes += 4
    token_bytes = model.vocab * logit_bytes + 2 * e * model.hidden
    piece = share.tokens / software.logit_pieces
    tokens = min(piece, software.logit_tokens or math.inf)
    return tokens * token_bytes / share.layout.tensor


def _gathered_bytes(share: RankShare, stage: int, *, head: bool = False) -> float:
    """Bytes that ZeRO-3 gathers: weights of the block that is computed and of those
    gathered ahead, or of all where they stay, and one block's gradient; at the loss
    those of the head, and its gradient before it is summed.

    Where weights stay, gradients are summed whole and scattered after the last
    micro-batch (FSDP2's set_requires_gradient_sync).
    """
    layout = share.layout
    kind = share.kind
    if layout.zero < 3 or layout.replicas == 1:
        return 0.0
    layers = share.layers[stage]
    block = sum(share.block_params)
    weight_bytes = NF4_BYTES if share.model.quantized else kind.param_bytes
    reshard = layout.software.reshard
    given_up = reshard and layout.reshard_after_forward
    blocks = min(1 + layout.prefetch, layers) if given_up else layers
    summed = 1 if reshard or share.microbatches == 1 else layers
    gradient_bytes = share.trained * kind.gradient_bytes
    if not head:
        return block * (blocks * weight_bytes + summed * gradient_bytes)
    last = stage == layout.pipeline - 1
    head_params = share.model.vocab * share.model.hidden / layout.tensor * last
    stays = 0 if given_up else block * layers * weight_bytes
    waiting = block * gradient_bytes * (summed if summed > 1 else 0)
    return head_params * (kind.param_bytes + share.trained * kind.activation_bytes) + (
        stays + waiting
    )


def memory(share: RankShare) -> dict[str, float]:
    """Bytes by purpose on a GPU of the fullest stage; the driver's context and
    fragmentation come on top.
    """
    # of the inner stages the first, which has as many layers as any, is the fullest:
    # later ones hold fewer micro-batches
    last = share.layout.pipeline - 1
    stages = sorted({0, min(1, last), last})
    return max(
        (stage_memory(share, stage) for stage in stages),
        key=lambda purposes: sum(purposes.values()),
    )
