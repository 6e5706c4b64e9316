"""Memory of a layout: the bytes that its fullest GPU holds, by purpose."""

from __future__ import annotations

from trainplan.cluster.layout import Layout, layers_of_stage
from trainplan.costs.memory_costs import optimizer_states, precision
from trainplan.costs.transformers import Transformer

_SPLIT = "More tensor or pipeline ranks split it, and ZeRO"
PURPOSES = {  # and what makes each smaller
    "parameters": f"{_SPLIT} 3.",
    "gradients": f"{_SPLIT} 2 or 3.",
    "float32 master weights": f"{_SPLIT} 1 to 3.",
    "optimizer state": f"{_SPLIT} 1 to 3.",
    "kept for the backward pass": "Smaller micro-batches, recomputing and more tensor ranks make it smaller.",
    "logits and loss": "Smaller micro-batches and more tensor ranks make it smaller.",
    "gathered for a moment": "More tensor ranks make it smaller, and ZeRO 1 and 2 gather nothing.",
}


def block_kept_bytes(model: Transformer, layout: Layout, recompute: str | None = None) -> float:
    """Bytes that one block keeps of one micro-batch on one tensor rank.

    In 16 bit for a GPT with dropout: s b h (10 + 24/t + 5 a s/(h t)), with sequence parallelism s b h (34 + 5 a s/h)/t,
    without the last term where recompute is "selective" or attention fused, and 2 s b h where it is "full". Gated
    blocks, grouped keys and blocks without dropout are counted the same way. Source: Korthikanti et al. 2022,
    equations 1 to 6 and table 2.
    """
    e = precision(layout.dtype).activation_bytes
    tokens, t = layout.micro_batch * model.seq / layout.context, layout.tensor
    shared = t if layout.sequence_parallel else 1
    recompute = recompute or layout.recompute
    if recompute == "full":
        return e * tokens * model.hidden / shared
    # the inputs of two norms and of two products, and a mask of one byte an element after each of the two outputs
    whole = tokens * model.hidden * (4 * e + 2 * model.dropout) / shared
    # SwiGLU in one kernel keeps the gate, the other factor and their product; GELU its input and its output
    inner = (3 if model.gated else 2) * model.used_inner
    routed = 2 * model.top_k * model.hidden if model.experts else 0  # what experts were sent, and what they returned
    split = tokens * e * (2 * model.query_width + 2 * model.kv_width + inner + routed) / t
    scores = 0.0
    if model.fused_attention:
        scores = 4 * tokens * model.heads / t  # a float32 log-sum-exp for each row (Dao et al. 2022)
    elif recompute == "none":
        scores = tokens * model.heads * model.seq * (2 * e + 1 if model.dropout else e) / t
    return (whole + split) / (2 if recompute == "half" else 1) + scores


def in_flight(layout: Layout, stage: int, microbatches: int) -> float:
    """How many micro-batches' activations of all its blocks a stage holds at most.

    1F1B: p - stage. Interleaved: p (v-1) + 2 (p - 1 - stage) + 1 chunks, Megatron-LM's warm-up and one more (the first
    stage's (1 + (p-1)/(p v)) of Korthikanti et al. 2022, section 4.2.3). ZB-H1 and ZB-V: p on each. DualPipe: p + 1.
    Sources: Narayanan et al. 2021, section 2.2; Qi et al. 2024, table 2; DeepSeek-V3 technical report, table 2.
    """
    p, v = layout.pipeline, layout.interleave
    if layout.schedule == "DualPipe":
        return min(p + 1, microbatches)
    if layout.schedule != "1F1B":
        return min(p, microbatches)
    if v == 1:
        return min(p - stage, microbatches)
    return min(p * (v - 1) + 2 * (p - 1 - stage) + 1, microbatches * v) / v


def block_rank_params(model: Transformer, layout: Layout) -> tuple[float, float]:
    """Parameters of a block on a GPU without ZeRO: outside of experts, and in them."""
    in_experts = model.experts * model.expert_params
    split = layout.tensor if layout.expert == 1 else layout.expert
    return (model.block_params - in_experts) / layout.tensor, in_experts / split


def stage_params(model: Transformer, layout: Layout, stage: int) -> tuple[float, float]:
    """Parameters on a GPU of a stage without ZeRO: outside of experts, and in them.

    For a tied head the last stage has a copy of the embedding. DualPipe holds two stages.
    """
    p, ends = layout.pipeline, 0
    if stage == 0:
        ends += model.embedding_params
    if stage == p - 1:
        ends += model.head_params + (model.vocab * model.hidden if p > 1 and not model.gated else 0)
    copies = 2 if layout.schedule == "DualPipe" else 1
    others, in_experts = block_rank_params(model, layout)
    layers = copies * layers_of_stage(model, layout, stage)
    return layers * others + copies * ends / layout.tensor, layers * in_experts


def stage_memory(model: Transformer, layout: Layout, stage: int, microbatches: int) -> dict[str, float]:
    """Bytes by purpose on one GPU of a stage. Sources: block_kept_bytes; Rajbhandari et al. 2020, ZeRO, section 3."""
    kind, p = precision(layout.dtype), layout.pipeline
    layers = layers_of_stage(model, layout, stage)
    params, in_experts = stage_params(model, layout, stage)
    parts, expert_parts = layout.sharded, min(layout.sharded, layout.same_experts)

    def held(level: int) -> float:
        """Parameters of which this GPU holds what ZeRO splits from a level on."""
        return params / parts + in_experts / expert_parts if layout.zero >= level else params + in_experts

    kept = in_flight(layout, stage, microbatches) * layers * block_kept_bytes(model, layout)
    if layout.recompute != "none":  # the block that is being recomputed is held in full
        kept += block_kept_bytes(model, layout, "none")
    tokens, loss = layout.micro_batch * model.seq / layout.context, 0.0
    if stage == p - 1:
        # logits in float32; in eager PyTorch those in 16 bit and a gradient stay beside them
        logit_bytes = 4 if layout.software.fused_loss else 8 + 2 * kind.activation_bytes
        loss = tokens * (model.vocab * logit_bytes + 2 * kind.activation_bytes * model.hidden) / layout.tensor
    gathered = 0.0
    if layout.zero == 3 and layout.replicas > 1:
        # weights of this block and of the next one, or of all where they stay, and one block's gradient
        block = (params + in_experts) / max(layers, 1)
        blocks = 2 if layout.software.reshard else layers
        gathered = blocks * block * kind.param_bytes + block * kind.gradient_bytes
    on_gpu = 0 if layout.offload else 1
    return {
        "parameters": held(3) * kind.param_bytes,
        "gradients": held(2) * kind.gradient_bytes,
        "float32 master weights": on_gpu * held(1) * kind.master_bytes,
        "optimizer state": on_gpu * held(1) * kind.state_bytes * optimizer_states(layout.optimizer),
        "kept for the backward pass": kept,
        "logits and loss": loss,
        "gathered for a moment": gathered,
    }


def memory(model: Transformer, layout: Layout, batch: int) -> dict[str, float]:
    """Bytes by purpose on a GPU of the fullest stage; the driver's context and fragmentation come on top."""
    microbatches = layout.microbatches(batch)
    # of the inner stages the first, which has as many layers as any, is the fullest: later ones hold fewer
    # micro-batches
    stages = {0, min(1, layout.pipeline - 1), layout.pipeline - 1}
    held = [stage_memory(model, layout, stage, microbatches) for stage in sorted(stages)]
    return max(held, key=lambda purposes: sum(purposes.values()))
