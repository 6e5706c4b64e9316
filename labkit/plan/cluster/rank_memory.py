"""Memory of a layout: the bytes that its fullest GPU holds, by purpose."""

from __future__ import annotations

from labkit.plan.cluster.layout import Layout, layers_of_stage
from labkit.plan.costs.memory_costs import optimizer_states, precision
from labkit.plan.costs.transformers import Transformer

PURPOSES = (
    "parameters",
    "gradients",
    "float32 master weights",
    "optimizer state",
    "kept for the backward pass",
    "logits and loss",
    "gathered for a moment",
)


def block_kept_bytes(model: Transformer, layout: Layout, recompute: str | None = None) -> float:
    """Bytes that one block keeps of one micro-batch on one tensor rank.

    In 16 bit for a GPT with dropout: s b h (10 + 24/t + 5 a s/(h t)), with sequence parallelism s b h (34 + 5 a s/h)/t,
    without the last term where recompute is "selective" or attention fused, and 2 s b h where it is "full". Gated
    blocks, grouped keys and blocks without dropout are counted the same way. Source: Korthikanti et al. 2022,
    equations 1 to 6 and table 2.
    """
    e = precision(layout.dtype).activation_bytes
    tokens, t = layout.micro_batch * model.seq, layout.tensor
    shared = t if layout.sequence_parallel else 1
    recompute = recompute or layout.recompute
    if recompute == "full":
        return e * tokens * model.hidden / shared
    # the inputs of two norms and of two products, and a mask of one byte an element after each of the two outputs
    whole = tokens * model.hidden * (4 * e + 2 * model.dropout) / shared
    # SwiGLU in one kernel keeps the gate, the other factor and their product; GELU its input and its output
    inner = (3 if model.gated else 2) * model.inner
    split = tokens * e * (2 * model.hidden + 2 * model.kv_width + inner) / t
    scores = 0.0
    if model.fused_attention:
        scores = 4 * tokens * model.heads / t  # a float32 log-sum-exp for each row (Dao et al. 2022)
    elif recompute == "none":
        scores = tokens * model.heads * model.seq * (2 * e + 1 if model.dropout else e) / t
    return whole + split + scores


def in_flight(layout: Layout, stage: int, microbatches: int) -> float:
    """How many micro-batches' activations of all its blocks a stage holds at most, under 1F1B, interleaved or not.

    Source: Narayanan et al. 2021, section 2.2; interleaved: p (v-1) + 2 (p - 1 - stage) + 1 chunks, Megatron-LM's
    warm-up and one more (the first stage's (1 + (p-1)/(p v)) of Korthikanti et al. 2022, section 4.2.3).
    """
    p, v = layout.pipeline, layout.interleave
    if v == 1:
        return min(p - stage, microbatches)
    return min(p * (v - 1) + 2 * (p - 1 - stage) + 1, microbatches * v) / v


def stage_params(model: Transformer, layout: Layout, stage: int) -> float:
    """Parameters on a GPU of a stage without ZeRO; for a tied head the last stage has a copy of the embedding."""
    p = layout.pipeline
    params = layers_of_stage(model, layout, stage) * model.block_params
    if stage == 0:
        params += model.embedding_params
    if stage == p - 1:
        params += model.head_params + (model.vocab * model.hidden if p > 1 and not model.gated else 0)
    return params / layout.tensor


def stage_memory(model: Transformer, layout: Layout, stage: int, microbatches: int) -> dict[str, float]:
    """Bytes by purpose on one GPU of a stage. Sources: block_kept_bytes; Rajbhandari et al. 2020, ZeRO, section 3."""
    kind, p = precision(layout.dtype), layout.pipeline
    layers = layers_of_stage(model, layout, stage)
    params = stage_params(model, layout, stage)
    split = [params / layout.data if layout.zero >= level else params for level in (3, 2, 1)]
    block = model.block_params / layout.tensor
    kept = in_flight(layout, stage, microbatches) * layers * block_kept_bytes(model, layout)
    if layout.recompute != "none":  # the block that is being recomputed is held in full
        kept += block_kept_bytes(model, layout, "none")
    tokens, loss = layout.micro_batch * model.seq, 0.0
    if stage == p - 1:
        loss = tokens * (model.vocab * 4 / layout.tensor + 2 * kind.activation_bytes * model.hidden / layout.tensor)
    gathered = 0.0
    if layout.zero == 3 and layout.data > 1:  # weights of this block and of the next one, and one block's gradient
        gathered = 2 * block * kind.param_bytes + block * kind.gradient_bytes
    return {
        "parameters": split[0] * kind.param_bytes,
        "gradients": split[1] * kind.gradient_bytes,
        "float32 master weights": split[2] * kind.master_bytes,
        "optimizer state": split[2] * kind.state_bytes * optimizer_states(layout.optimizer),
        "kept for the backward pass": kept,
        "logits and loss": loss,
        "gathered for a moment": gathered,
    }


def memory(model: Transformer, layout: Layout, batch: int) -> dict[str, float]:
    """Bytes by purpose on a GPU of the fullest stage; the driver's context and fragmentation come on top."""
    microbatches = layout.microbatches(batch)
    # of the inner stages the first is the fullest: under 1F1B each later one holds fewer micro-batches
    stages = {0, min(1, layout.pipeline - 1), layout.pipeline - 1}
    held = [stage_memory(model, layout, stage, microbatches) for stage in sorted(stages)]
    return max(held, key=lambda purposes: sum(purposes.values()))
