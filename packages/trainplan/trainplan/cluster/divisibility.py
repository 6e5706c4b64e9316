"""Whether a layout divides model, cluster and batch, and what else would."""

from __future__ import annotations

from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import Layout, divisors, layers_of_stages
from trainplan.cluster.libraries import why_not_in
from trainplan.costs.transformers import Transformer


def why_not(model: Transformer, cluster: Cluster, layout: Layout, batch: int) -> str:
    """Why a layout can't be, with the nearest that can, as a sentence; empty where it
    can.
    """
    reason = (
        _indivisible(model, layout)
        or _across_nodes(cluster, layout)
        or _wrong_count(cluster, layout)
        or why_not_in(model, layout, layout.software.library)
        or _wrong_stages(model, layout)
    )
    if reason:
        return reason
    data = layout.data
    per_step = data * layout.micro_batch
    if batch % per_step:
        down = batch // per_step * per_step
        near = f"{down:,} or {down + per_step:,}" if down else f"{per_step:,}"
        return (
            f"Expected a batch that {data:,} data ranks x micro-batch"
            f" {layout.micro_batch} = {per_step:,} divide, got {batch:,}. The nearest:"
            f" {near}."
        )
    microbatches = layout.microbatches(batch)
    if layout.interleave > 1 and microbatches % layout.pipeline:
        return (
            f"Expected micro-batches in multiples of the {layout.pipeline} stages for"
            f" an interleaved schedule, got {microbatches}. Use interleave = 1, or"
            " another batch."
        )
    return ""


def _nearest(number: int, choices: list[int]) -> str:
    """The choices next to a number, which is none of them; `choices` ascend."""
    below = [choice for choice in choices if choice < number]
    above = [choice for choice in choices if choice > number]
    return " or ".join(f"{choice:,}" for choice in (*below[-1:], *above[:1]))


def _wrong_count(cluster: Cluster, layout: Layout) -> str:
    if layout.gpus == cluster.gpus:
        return ""
    kinds = "tensor x pipeline"
    others = f"{layout.tensor} x {layout.pipeline}"
    if layout.context > 1:
        kinds = f"{kinds} x context"
        others = f"{others} x {layout.context}"
    ranks = layout.gpus // layout.data
    advice = f"With {others}, take data = {cluster.gpus // ranks:,}."
    if cluster.gpus % ranks:
        near = _nearest(ranks, divisors(cluster.gpus))
        advice = (
            f"{kinds.capitalize()} = {ranks:,} doesn't divide {cluster.gpus:,}; the"
            f" nearest that do: {near}."
        )
    return (
        f"Expected data x {kinds} = {cluster.gpus:,} GPUs, got {layout.data:,} x"
        f" {others} = {layout.gpus:,}. {advice}"
    )


def _across_nodes(cluster: Cluster, layout: Layout) -> str:
    """Why tensor ranks can't be: no group of them is partly in a node."""
    tensor = layout.tensor
    node = min(cluster.gpus_per_node, cluster.gpus)
    if node % tensor == 0 or tensor % node == 0:
        return ""
    choices = [*divisors(node), 2 * node]
    return (
        f"Expected tensor to divide the {node} GPUs of a node, or to be a multiple of"
        f" them, got {tensor}. The nearest: {_nearest(tensor, choices)}."
    )


def _indivisible(model: Transformer, layout: Layout) -> str:
    tensor = layout.tensor
    heads = model.heads
    kv_heads = model.key_value_heads
    replicas = layout.replicas
    ranks = replicas * tensor
    if layout.expert > 1 and not model.experts:
        return f"Expected expert = 1 of a model without experts, got {layout.expert}."
    tensor_of_kv = tensor if tensor % kv_heads else 1
    either_way = f"{kv_heads} key and value heads, or to be divided by them"
    # each rank has whole groups of state spaces, or of what is projected together
    groups = model.state_groups or model.out_groups or tensor
    # a field, its value, and what that must divide, as a number and in words
    conditions = (
        ("tensor", tensor, heads, f"{heads} heads"),
        ("tensor", tensor_of_kv, kv_heads, either_way),
        ("tensor", tensor, groups, f"{groups} groups of state spaces or of outputs"),
        ("expert", layout.expert, ranks, f"{ranks} data, context and tensor ranks"),
        ("expert", layout.expert, model.experts or 1, f"{model.experts} experts"),
        ("shard", layout.shard or 1, replicas, f"{replicas} data and context ranks"),
        ("context", layout.context, model.seq, f"{model.seq:,} tokens"),
    )
    for field, value, whole, words in conditions:
        if whole % value:
            return (
                f"Expected {field} to divide the {words}, got {value}. The nearest:"
                f" {_nearest(value, divisors(whole))}."
            )
    return ""


def _wrong_stages(model: Transformer, layout: Layout) -> str:
    pipeline = layout.pipeline
    chunks = layout.interleave
    if layers_of_stages(model, pipeline, chunks, layout.software) is None:
        return (
            f"Expected a layer or more in each of {pipeline} stages x {chunks} chunks,"
            f" and there are {model.layers} layers. Use fewer stages or chunks."
        )
    if layout.schedule in ("ZB-V", "DualPipe") and chunks != 1:
        return (
            f"Expected interleave = 1 with {layout.schedule}, whose two chunks it says"
            f" itself, got {chunks}."
        )
    if layout.schedule == "DualPipe" and pipeline % 2:
        return (
            "Expected an even number of stages with DualPipe, whose pipelines meet in"
            f" the middle, got {pipeline}."
        )
    if layout.shard is not None and not layout.zero:
        return (
            f"Expected zero = 1, 2 or 3 with shard = {layout.shard}: without ZeRO"
            " nothing is split in groups."
        )
    if chunks > 1 and pipeline == 1:
        return (
            "Expected one chunk a rank without a pipeline, got interleave above 1. Use"
            " pipeline > 1."
        )
    return ""
