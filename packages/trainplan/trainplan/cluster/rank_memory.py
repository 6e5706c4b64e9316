"""Memory of a layout: the bytes that its fullest GPU holds, by purpose."""

from __future__ import annotations

from trainplan.cluster.layout import Layout
from trainplan.cluster.rank_share import RankShare
from trainplan.costs.memory_costs import optimizer_states

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

    In 16 bit for a GPT with dropout: s b h (10 + 24/t + 5 a s/(h t)), with sequence
    parallelism s b h (34 + 5 a s/h)/t, without the last term where recompute is
    "selective" or attention fused, and 2 s b h where it is "full". Gated blocks,
    grouped keys and blocks without dropout are counted the same way. Source:
    Korthikanti et al. 2022, equations 1 to 6 and table 2.
    """
    model = share.model
    tokens = share.tokens
    e = share.kind.activation_bytes
    t = share.layout.tensor
    if recompute == "full":
        return e * tokens * model.hidden / share.sequence_split
    # the inputs of two norms and of two products, and a mask of one byte an element
    # after each of the two outputs
    masks = 2 if model.dropout else 0
    whole = tokens * model.hidden * (4 * e + masks) / share.sequence_split
    # SwiGLU in one kernel keeps the gate, the other factor and their product, in two
    # SiLU of the gate too (which "half" recomputes); GELU its input and its output
    inner = 2 * model.used_inner
    if model.gated:
        eager = not share.layout.software.fused and recompute != "half"
        inner = (4 if eager else 3) * model.used_inner
    routed = 0.0  # what experts were sent, and what they returned
    if model.experts:
        routed = 2 * model.top_k * model.hidden * (model.capacity or 1)
    around = (
        model.query_width
        + model.value_width
        + 2 * model.kv_width
        + model.query_rank
        + model.kv_rank
    )
    split = tokens * e * (around + inner + routed) / t
    scores = 0.0
    if model.fused_attention:
        # a float32 log-sum-exp for each row (Dao et al. 2022)
        scores = 4 * tokens * model.heads / t
    elif recompute == "none":
        score_bytes = 2 * e + 1 if model.dropout else e
        scores = tokens * model.heads * model.seq * score_bytes / t
    kept_share = 1 / 2 if recompute == "half" else 1
    return kept_share * (whole + split) + scores


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
    """
    layout = share.layout
    kind = share.kind
    software = layout.software
    params, in_experts = share.stage_params(stage)
    parts = layout.sharded
    expert_parts = min(layout.sharded, layout.same_experts)

    def held(level: int) -> float:
        """Parameters of which this GPU holds what ZeRO splits from a level on."""
        if layout.zero >= level:
            return params / parts + in_experts / expert_parts
        return params + in_experts

    kept = (
        in_flight(layout, stage, share.microbatches)
        * share.layers[stage]
        * block_kept_bytes(share, layout.recompute)
    )
    if layout.recompute != "none":  # the block that is being recomputed is held in full
        kept += block_kept_bytes(share, "none")
    gathered = _gathered_bytes(share, stage)
    on_gpu = 0.0 if layout.offload else share.trained
    copies = software.gradient_copies if layout.replicas > 1 else 0
    state_bytes = kind.state_bytes * optimizer_states(layout.optimizer)
    return {
        "parameters": held(3) * kind.param_bytes,
        "gradients": share.trained * held(2) * (kind.gradient_bytes + copies),
        "float32 master weights": on_gpu * held(1) * kind.master_bytes,
        "optimizer state": on_gpu * held(1) * state_bytes,
        "kept for the backward pass": kept,
        "logits and loss": _loss_bytes(share) if stage == layout.pipeline - 1 else 0.0,
        "gathered for a moment": gathered,
        "fragments": software.fragments * (kept + gathered),
    }


def _loss_bytes(share: RankShare) -> float:
    """Bytes of the last stage's logits and loss."""
    model = share.model
    e = share.kind.activation_bytes
    # logits in float32; in eager PyTorch those in 16 bit and a gradient stay beside
    # them
    logit_bytes = 4 if share.layout.software.fused_loss else 8 + 2 * e
    token_bytes = model.vocab * logit_bytes + 2 * e * model.hidden
    return share.tokens * token_bytes / share.layout.tensor


def _gathered_bytes(share: RankShare, stage: int) -> float:
    """Bytes that ZeRO-3 gathers: weights of the block that is computed and of those
    gathered ahead, or of all where they stay, and one block's gradient.

    Where weights stay, gradients are summed whole and scattered after the last
    micro-batch (FSDP2's set_requires_gradient_sync).
    """
    layout = share.layout
    kind = share.kind
    if layout.zero < 3 or layout.replicas == 1:
        return 0.0
    layers = share.layers[stage]
    block = sum(share.stage_params(stage)) / max(layers, 1)
    reshard = layout.software.reshard
    given_up = reshard and layout.reshard_after_forward
    blocks = min(1 + layout.prefetch, layers) if given_up else layers
    summed = 1 if reshard or share.microbatches == 1 else layers
    gradient_bytes = share.trained * summed * kind.gradient_bytes
    return block * (blocks * kind.param_bytes + gradient_bytes)


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
