"""Search of layouts: all that divide a model and a cluster, timed where they fit in memory, the fastest first."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

from trainplan.arguments import Count, Dtype, Number, checked, unjudged
from trainplan.cluster.constants import MEDIAN_LEFT_OUT
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import Layout, divisors, stage_layers
from trainplan.cluster.rank_memory import PURPOSES, memory
from trainplan.cluster.rank_share import rank_share
from trainplan.cluster.software import TORCH, Software
from trainplan.cluster.step_prediction import Step, sequences, step, steps_table
from trainplan.cluster.step_time import parts
from trainplan.costs.transformers import Transformer
from trainplan.errors import LayoutError
from trainplan.tables import ShownAsTable, Table
from trainplan.units import format_bytes

_MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_LONG = 16_384  # tokens a sequence, from which context ranks are tried
NOT_SEARCHED = (
    "tensor ranks in several nodes, sequence parallelism off, micro-batches that aren't powers of two or are above 64, "
    "chunks of different sizes, schedules other than 1F1B, recomputing half, groups that shard among themselves, "
    f"offloading, and context ranks below {_LONG:,} tokens"
)


@dataclass(frozen=True, repr=False)
class BestLayout(ShownAsTable):
    """The fastest layout that fits, the next ones, and how many were rejected for each reason.

    `alike` is how many others are slower by less than the model's median error on tables that it wasn't fitted to: it
    can't tell them from the fastest.
    """

    step: Step
    runners_up: tuple[Step, ...]
    rejected: Mapping[str, int]
    alike: int = 0

    @property
    def layout(self) -> Layout:
        """The fastest layout."""
        return self.step.layout

    @property
    def tried(self) -> int:
        """How many layouts there were: the rejected ones and the fastest."""
        return sum(self.rejected.values()) + 1

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the others were rejected, which ones are as good, and what wasn't searched."""
        out = "; ".join(f"{count:,} {reason}" for reason, count in self.rejected.items())
        return (
            f"Rejected of {self.tried:,} layouts: {out or 'none'}.",
            f"Layouts slower by less than {MEDIAN_LEFT_OUT:.0%}, the model's median error, which it can't tell from "
            f"the fastest: {self.alike:,}.",
            f"Not searched: {NOT_SEARCHED}.",
            "tp, pp, cp and ep are tensor, pipeline, context and expert ranks, all others data ranks; vp is chunks a "
            "rank, mb the micro-batch.",
        )

    def table(self) -> Table:
        """The fastest layouts, and the notes below."""
        return steps_table((self.step, *self.runners_up), notes=self.notes)


def _shapes(model: Transformer, cluster: Cluster) -> Iterator[tuple[int, int, int, int]]:
    """Data, tensor, pipeline and context ranks: tensor inside a node and a divisor of the heads."""
    for tensor in divisors(cluster.gpus_per_node):
        kv = model.key_value_heads
        if model.heads % tensor or (kv % tensor and tensor % kv) or cluster.gpus % tensor:
            continue
        for pipeline in divisors(cluster.gpus // tensor):
            if pipeline <= model.layers + 2:
                rest = cluster.gpus // tensor // pipeline
                for context in divisors(math.gcd(rest, model.seq)) if model.seq >= _LONG else (1,):
                    yield rest // context, tensor, pipeline, context


def _chunks(layers: int, pipeline: int) -> list[int]:
    """Chunks a rank of which all have as many layers, or the outer two one fewer; one chunk where none do."""
    some = range(1, (layers + 2) // pipeline + 1) if pipeline > 1 else range(1, 2)
    even = [v for v in some if layers % (pipeline * v) == 0 or (layers + 2) % (pipeline * v) == 0]
    return [v for v in even or [1] if stage_layers(layers, pipeline, v)]


def even_batch(model: Transformer, cluster: Cluster, batch: int) -> tuple[int, int]:
    """How many data ranks at most divide a batch (0: none), and a batch near it that more divide.

    Of that every data rank has two sequences or more, where some layout has so few data ranks; it is the same batch
    where half as many divide that already.
    """
    ranks = sorted({data for data, _, pipeline, _ in _shapes(model, cluster) if _chunks(model.layers, pipeline)})
    more = max((data for data in ranks if 2 * data <= batch), default=ranks[0])
    most = max((data for data in ranks if batch % data == 0), default=0)
    return most, batch if 2 * most >= more else max(round(batch / more), 1) * more


def _layouts(
    model: Transformer, cluster: Cluster, batch: int, fixed: Mapping[str, Any], rejected: Counter[str]
) -> Iterator[Layout]:
    recomputes = ("none", "full") if model.fused_attention else ("none", "selective", "full")
    for data, tensor, pipeline, context in _shapes(model, cluster):
        if batch % data:
            rejected["whose data ranks don't divide the batch"] += 1
            continue
        share = batch // data
        chunks = _chunks(model.layers, pipeline)
        if not chunks:
            rejected["with more stages than layers"] += 1
        experts = divisors(math.gcd(model.experts, data * context * tensor)) if model.experts else (1,)
        for micro_batch in _MICRO_BATCHES:
            if share % micro_batch:
                continue
            for v in chunks:
                if v > 1 and share // micro_batch % pipeline:
                    rejected["whose micro-batches don't come in rounds of the interleaved stages"] += 1
                    continue
                zeros = (0, 1, 2, 3) if data * context > 1 else (0,)
                for zero, recompute, expert in itertools.product(zeros, recomputes, experts):
                    made: tuple[Any, ...] = (data, tensor, pipeline, v, zero, micro_batch, recompute)
                    yield unjudged(Layout, *made, context=context, expert=expert, **fixed)


@checked(error=LayoutError)
def best_layout(
    model: Transformer,
    cluster: Cluster,
    batch: Count,
    *,
    dtype: Dtype = "mixed bfloat16",
    optimizer: str = "adam",
    runners_up: Annotated[int, Number(least=0, most=1000)] = 5,
    software: Software = TORCH,
) -> BestLayout:
    """The fastest layout of `batch` sequences that fits, of all data x tensor x pipeline x ZeRO that divide.

    So are context ranks for long sequences and expert ranks for mixtures of experts; NOT_SEARCHED says what isn't
    tried. Raises LayoutError where nothing divides, and where nothing fits: then with the leanest layout, what needs
    most, and how much is too much.
    """
    capacity = cluster.gpu.memory_bytes
    if capacity is None:
        raise LayoutError(f"Expected a device with a known memory, got {cluster.gpu.name}.")
    rejected: Counter[str] = Counter()
    timed: list[tuple[float, float, Layout]] = []
    too_large: list[tuple[float, Layout]] = []
    capacity *= 1 - cluster.reserve
    fixed = {"dtype": dtype, "optimizer": optimizer, "software": software}
    for layout in _layouts(model, cluster, batch, fixed, rejected):
        share = rank_share(model, cluster, layout, batch)
        held = sum(memory(share).values())
        if held > capacity:
            too_large.append((held, layout))
        else:
            timed.append((sum(parts(share).values()), held, layout))
    if not timed:
        raise LayoutError(_no_layout(model, cluster, batch, capacity, too_large))
    if too_large:
        rejected["that don't fit in memory"] = len(too_large)
    timed.sort(key=lambda entry: entry[:2])
    if len(timed) > 1:
        rejected["that fit and are slower"] = len(timed) - 1
    steps = [step(model, cluster, layout, batch) for _, _, layout in timed[: runners_up + 1]]
    alike = sum(seconds < (1 + MEDIAN_LEFT_OUT) * timed[0][0] for seconds, _, _ in timed[1:])
    return BestLayout(steps[0], tuple(steps[1:]), MappingProxyType(dict(rejected)), alike)


def _no_layout(
    model: Transformer, cluster: Cluster, batch: int, capacity: float, too_large: list[tuple[float, Layout]]
) -> str:
    if not too_large:
        near = even_batch(model, cluster, batch)[1]
        return (
            f"Expected a batch that a layout's data ranks divide, of {model.layers} layers and {model.heads} heads on "
            f"{cluster.gpus:,} GPUs, got {sequences(batch, model)}. Choose {sequences(near, model)}."
        )
    held, layout = min(too_large, key=lambda entry: entry[0])
    most = max(memory(rank_share(model, cluster, layout, batch)).items(), key=lambda item: item[1])
    nodes = math.ceil(cluster.gpus * held / capacity / cluster.gpus_per_node)
    return (
        f"No layout fits: the leanest ({layout}) needs {format_bytes(held)} of {format_bytes(capacity)} a GPU, "
        f"{format_bytes(held - capacity)} over, {format_bytes(most[1])} of it for {most[0]}. Take about "
        f"{nodes * cluster.gpus_per_node:,} GPUs, larger ones, or shorter sequences."
    )


@checked(error=LayoutError)
def require_fit(found: Step) -> Step:
    """`found` if its GPUs hold it; else LayoutError with the excess, the largest purpose and what makes it smaller."""
    if found.fits:
        return found
    over = found.memory_bytes - found.usable_bytes
    purpose, most = max(found.memory.items(), key=lambda item: item[1])
    reserved = f" ({format_bytes(found.capacity_bytes)} less {found.cluster.reserve:.0%} in reserve)"
    reserved *= found.cluster.reserve > 0
    raise LayoutError(
        f"Expected at most {format_bytes(found.usable_bytes)} a GPU{reserved}, got {format_bytes(found.memory_bytes)}: "
        f"{format_bytes(over)} over; the largest part is {purpose}, {format_bytes(most)}. {PURPOSES[purpose]}"
    )
