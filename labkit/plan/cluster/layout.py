"""How a training step is split over the ranks of a cluster, and whether the split divides model and batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from labkit.core.display import Shown
from labkit.core.errors import LayoutError
from labkit.core.parameters import Count, Dtype, checked
from labkit.plan.cluster.hardware import Cluster
from labkit.plan.costs.memory_costs import optimizer_states, precision
from labkit.plan.costs.transformers import Transformer


@checked(error=LayoutError)
@dataclass(frozen=True, repr=False)
class Layout(Shown):
    """`data` x `tensor` x `pipeline` ranks, tensor ranks side by side in a node.

    `interleave` is the chunks of a pipeline rank; `zero` what the data ranks split among them: 0 nothing, 1 optimizer
    state, 2 gradients too, 3 parameters too (FSDP); `micro_batch` the sequences a rank works on at once; `recompute`
    what the backward pass computes again: "none", "selective" (attention's scores) or "full" (blocks, from their
    inputs). `overlap` hides data and pipeline communication behind compute where it can. `dtype` is a name of
    lab.costs.PRECISIONS, `optimizer` one of OPTIMIZER_STATES. Raises LayoutError for counts below 1 and unknown levels.
    """

    data: Count = 1
    tensor: Count = 1
    pipeline: Count = 1
    interleave: Count = 1
    zero: Literal[0, 1, 2, 3] = 0
    micro_batch: Count = 1
    recompute: Literal["none", "selective", "full"] = "none"
    sequence_parallel: bool = True
    dtype: Dtype = "mixed bfloat16"
    optimizer: str = "adam"
    overlap: bool = True

    def __post_init__(self) -> None:
        precision(self.dtype)
        optimizer_states(self.optimizer)

    @property
    def gpus(self) -> int:
        """Ranks in all, one a GPU."""
        return self.data * self.tensor * self.pipeline

    @checked(error=LayoutError)
    def microbatches(self, batch: Count) -> int:
        """Micro-batches that each pipeline works through in a step of `batch` sequences."""
        return batch // (self.data * self.micro_batch)

    def __str__(self) -> str:
        parts = [f"{self.data} data x {self.tensor} tensor x {self.pipeline} pipeline"]
        if self.interleave > 1:
            parts.append(f"{self.interleave} chunks a rank")
        if self.zero:
            parts.append("ZeRO-3 (FSDP)" if self.zero == 3 else f"ZeRO-{self.zero}")
        parts += [f"micro-batch {self.micro_batch}", f"recompute {self.recompute}"]
        return ", ".join(parts)


def divisors(number: int) -> list[int]:
    """All divisors of a number, ascending."""
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})


def _nearest(number: int, choices: list[int]) -> str:
    below, above = [one for one in choices if one < number], [one for one in choices if one > number]
    return " or ".join(f"{one:,}" for one in (*below[-1:], *above[:1]))


def stage_layers(layers: int, pipeline: int, interleave: int) -> tuple[float, float] | None:
    """Layers of an inner stage, and of the first and the last one; None where they don't divide.

    Where `layers` + 2 divide, the first and the last stage have one layer fewer, in place of which they have the
    embedding and the head.
    Source: Llama team 2024, section 3.3.2; Qi et al. 2024, Zero bubble pipeline parallelism, section 5.
    """
    slots = pipeline * interleave
    if layers % slots == 0:
        return layers / pipeline, layers / pipeline
    if pipeline > 1 and (layers + 2) % slots == 0 and layers + 2 >= 2 * slots // interleave:
        inner = (layers + 2) / pipeline
        return inner, inner - 1
    return None


def layers_of_stage(model: Transformer, layout: Layout, stage: int) -> float:
    """Layers of a stage of a layout that divides them."""
    divided = stage_layers(model.layers, layout.pipeline, layout.interleave)
    assert divided is not None  # check_layout refuses the others
    inner, edge = divided
    return edge if stage in (0, layout.pipeline - 1) else inner


def check_layout(model: Transformer, cluster: Cluster, layout: Layout, batch: int) -> None:
    """Raise LayoutError, with the nearest that would do, unless `layout` divides model, cluster and batch."""
    reason = why_not(model, cluster, layout, batch)
    if reason:
        raise LayoutError(reason)


def why_not(model: Transformer, cluster: Cluster, layout: Layout, batch: int) -> str:
    """Why a layout can't be, with the nearest that can, as a sentence; empty where it can."""
    tensor, pipeline, data = layout.tensor, layout.pipeline, layout.data
    if model.heads % tensor:
        return (
            f"Expected tensor ranks that divide the {model.heads} heads, got {tensor}. The nearest: "
            f"{_nearest(tensor, divisors(model.heads))}."
        )
    if model.key_value_heads % tensor and tensor % model.key_value_heads:
        return (
            f"Expected tensor ranks that divide the {model.key_value_heads} key and value heads (or that they divide), "
            f"got {tensor}. The nearest: {_nearest(tensor, divisors(model.key_value_heads))}."
        )
    if layout.gpus != cluster.gpus:
        model_ranks = tensor * pipeline
        fits = cluster.gpus % model_ranks == 0
        advice = (
            f"With {tensor} x {pipeline}, take data = {cluster.gpus // model_ranks:,}."
            if fits
            else f"Tensor x pipeline = {model_ranks:,} doesn't divide {cluster.gpus:,}; the nearest that do: "
            f"{_nearest(model_ranks, divisors(cluster.gpus))}."
        )
        return (
            f"Expected data x tensor x pipeline = {cluster.gpus:,} GPUs, got {data:,} x {tensor} x {pipeline} = "
            f"{layout.gpus:,}. {advice}"
        )
    if stage_layers(model.layers, pipeline, layout.interleave) is None:
        fitting = [n for n in range(1, model.layers + 1) if stage_layers(model.layers, n, layout.interleave)]
        fitting = [n for n in fitting if cluster.gpus % (tensor * n) == 0] or fitting
        near = _nearest(pipeline, fitting) if fitting else "interleave = 1"
        return (
            f"Expected {model.layers} layers to divide over {pipeline} stages x {layout.interleave} chunks, and they "
            f"don't. The nearest: {near}."
        )
    if layout.interleave > 1 and pipeline == 1:
        return "Expected one chunk a rank without a pipeline, got interleave above 1. Use pipeline > 1."
    per_step = data * layout.micro_batch
    if batch % per_step:
        down = batch // per_step * per_step
        near = f"{down:,} or {down + per_step:,}" if down else f"{per_step:,}"
        return (
            f"Expected a batch that {data:,} data ranks x micro-batch {layout.micro_batch} = {per_step:,} divide, got "
            f"{batch:,}. The nearest: {near}."
        )
    if layout.interleave > 1 and layout.microbatches(batch) % pipeline:
        return (
            f"Expected micro-batches in multiples of the {pipeline} stages for an interleaved schedule, got "
            f"{layout.microbatches(batch)}. Use interleave = 1, or another batch."
        )
    return ""
