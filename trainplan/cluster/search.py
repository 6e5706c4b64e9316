"""Search of layouts: all that a library runs and that divide a model and a cluster, the
fastest that fit first.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any

from trainplan.arguments import Count, Dtype, Number, checked, unjudged
from trainplan.cluster.constants import MEDIAN_LEFT_OUT
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import RECOMPUTES, Layout, divisors, layers_of_stages
from trainplan.cluster.libraries import rules, versions
from trainplan.cluster.rank_memory import PURPOSES, STATES, memory
from trainplan.cluster.rank_share import rank_share
from trainplan.cluster.software import TORCHTITAN, Software
from trainplan.cluster.step_prediction import Step, sequences, step, steps_table
from trainplan.cluster.step_time import WORK, parts
from trainplan.costs.memory_costs import precision
from trainplan.costs.transformers import Transformer
from trainplan.errors import LayoutError
from trainplan.tables import ShownAsTable, Table
from trainplan.units import format_bytes

_MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_LONG = 16_384  # tokens a sequence, from which context ranks are tried
_SHORT = 2048  # tokens of a context rank at least
# the first seven fields of a Layout
_Settings = tuple[int, int, int, int, int, int, str]
NOT_SEARCHED = (
    "tensor ranks in several nodes, sequence parallelism off, micro-batches that"
    " aren't powers of two or are above 64, chunks of different sizes, schedules other"
    " than 1F1B, groups that shard among themselves, offloading, and context ranks"
    f" below {_LONG:,} tokens a sequence or {_SHORT:,} a rank"
)


@dataclass(frozen=True, repr=False)
class BestLayout(ShownAsTable):
    """The fastest layout that fits, the next ones, and how many were rejected for each
    reason.

    `alike` is how many others are slower by less than the model's median error on
    tables that it wasn't fitted to: it can't tell them from the fastest.
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
        """Why the others were rejected, which ones are as good, and what wasn't
        searched.
        """
        out = "; ".join(
            f"{count:,} {reason}" for reason, count in self.rejected.items()
        )
        library = self.layout.software.library
        which = (
            f"what {library} {versions()[library]} runs"
            if library
            else "what a program of one's own could do"
        )
        return (
            f"Searched: {which}.",
            f"Rejected of {self.tried:,} layouts: {out or 'none'}.",
            (
                f"Layouts slower by less than {MEDIAN_LEFT_OUT:.0%}, the model's median"
                f" error, which it can't tell from the fastest: {self.alike:,}."
            ),
            f"Not searched: {NOT_SEARCHED}.",
            (
                "tp, pp, cp and ep are tensor, pipeline, context and expert ranks, all"
                " others data ranks; vp is chunks a rank, mb the micro-batch."
            ),
        )

    def table(self) -> Table:
        """The fastest layouts, and the notes below."""
        return steps_table((self.step, *self.runners_up), notes=self.notes)


def _shapes(
    model: Transformer, cluster: Cluster, software: Software
) -> Iterator[tuple[int, int, int, int]]:
    """Data, tensor, pipeline and context ranks that the library runs: tensor inside a
    node, a divisor of the heads.
    """
    ruled = [
        rule
        for rule in rules(software.library)
        if rule.field in ("tensor", "pipeline", "context", "seq")
    ]
    for tensor in divisors(cluster.gpus_per_node):
        kv = model.key_value_heads
        if (
            model.heads % tensor
            or (kv % tensor and tensor % kv)
            or cluster.gpus % tensor
        ):
            continue
        for pipeline in divisors(cluster.gpus // tensor):
            if pipeline <= model.layers + 2:
                rest = cluster.gpus // tensor // pipeline
                for context in (
                    divisors(math.gcd(rest, model.seq)) if model.seq >= _LONG else (1,)
                ):
                    if context > 1 and model.seq < _SHORT * context:
                        break
                    shape = unjudged(
                        Layout, rest // context, tensor, pipeline, context=context
                    )
                    if not any(rule.breaks(model, shape) for rule in ruled):
                        yield shape.data, tensor, pipeline, context


def _chunks(model: Transformer, pipeline: int, software: Software) -> list[int]:
    """Chunks a rank of which all have as many layers, or the outer two one fewer; one
    chunk where none do.
    """
    some = range(1, (model.layers + 2) // pipeline + 1) if pipeline > 1 else range(1, 2)
    even = [
        v
        for v in some
        if any((model.layers + ends) % (pipeline * v) == 0 for ends in (0, 2))
    ]
    return [v for v in even or [1] if layers_of_stages(model, pipeline, v, software)]


def even_batch(
    model: Transformer, cluster: Cluster, batch: int, software: Software = TORCHTITAN
) -> tuple[int, int]:
    """How many data ranks at most divide a batch (0: none), and a batch near it that
    more divide.

    Of that every data rank has two sequences or more, where some layout has so few data
    ranks; it is the same batch where half as many divide that already.
    """
    shapes = _shapes(model, cluster, software)
    ranks = sorted(
        {data for data, _, pipeline, _ in shapes if _chunks(model, pipeline, software)}
    )
    more = max((data for data in ranks if 2 * data <= batch), default=ranks[0])
    most = max((data for data in ranks if batch % data == 0), default=0)
    return most, batch if 2 * most >= more else max(round(batch / more), 1) * more


def _layouts(
    model: Transformer,
    cluster: Cluster,
    batch: int,
    fixed: Mapping[str, Any],
    rejected: Counter[str],
) -> Iterator[tuple[_Settings, Mapping[str, Any]]]:
    """Layouts that divide model, cluster and batch, and that the library of
    `fixed["software"]` runs.

    Not yet made, as most never are: what a Layout is made of by position, and by name.
    """
    software = fixed["software"]
    recomputes = [
        one for one in RECOMPUTES if not (one == "selective" and model.fused_attention)
    ]
    for data, tensor, pipeline, context in _shapes(model, cluster, software):
        if batch % data:
            rejected["whose data ranks don't divide the batch"] += 1
            continue
        sizes = [size for size in _MICRO_BATCHES if batch // data % size == 0]
        chunks = _chunks(model, pipeline, software)
        if not chunks:
            rejected["with more stages than layers"] += 1
        named = {**fixed, "software": habits(software, pipeline), "context": context}
        whole = unjudged(Layout, data, tensor, pipeline, **named)
        choices: dict[str, list[Any]] = {
            "interleave": chunks,
            "zero": [0, 1, 2, 3] if whole.replicas > 1 else [0],
            "recompute": recomputes,
            "expert": (
                divisors(math.gcd(model.experts, whole.replicas * tensor))
                if model.experts
                else [1]
            ),
        }
        runs = {
            field: _runnable(model, whole, field, some)
            for field, some in choices.items()
        }
        combined, left = (
            math.prod(len(some) for some in each.values()) for each in (choices, runs)
        )
        if left < combined:
            rejected[f"that {software.library} doesn't run"] += (combined - left) * len(
                sizes
            )
        for expert in runs["expert"]:
            more = {**named, "expert": expert}
            tried = itertools.product(
                runs["interleave"], runs["zero"], runs["recompute"], sizes
            )
            for v, zero, recompute, size in tried:
                if v > 1 and batch // data // size % pipeline:
                    rejected[
                        "whose micro-batches don't come in rounds of the interleaved"
                        " stages"
                    ] += 1
                else:
                    yield (data, tensor, pipeline, v, zero, size, recompute), more


def _runnable(
    model: Transformer, layout: Layout, field: str, choices: list[Any]
) -> list[Any]:
    """The choices of a field with which the library of a layout runs it."""
    if not (
        ruled := [
            rule for rule in rules(layout.software.library) if rule.field == field
        ]
    ):
        return choices
    made = [unjudged(Layout, **{**vars(layout), field: choice}) for choice in choices]
    return [
        getattr(one, field)
        for one in made
        if not any(rule.breaks(model, one) for rule in ruled)
    ]


def habits(software: Software, pipeline: int) -> Software:
    """The software as it works with so many stages: torchtitan gathers weights once a
    step in a pipeline.

    Source: pytorch/torchtitan, torchtitan/models/llama3/infra/parallelize.py,
    reshard_after_forward_policy "default".
    """
    return (
        replace(software, reshard=False)
        if software.library == "torchtitan" and pipeline > 1
        else software
    )


def _by_bound(
    model: Transformer,
    cluster: Cluster,
    batch: int,
    dtype: str,
    layouts: Iterable[tuple[_Settings, Mapping[str, Any]]],
) -> list[tuple[float, _Settings, Mapping[str, Any]]]:
    """Layouts behind seconds that they take at least, the fewest first.

    A micro-batch is the same work in all stages together, whatever their number, the
    data ranks and the chunks. Of its share in that a rank does no less than the mean,
    for each micro-batch, and waits for a chunk of the others' share.
    """
    # of which nothing can be timed
    if cluster.gpu.peaks.get(precision(dtype).compute_dtype) is None:
        return [(0.0, *one) for one in layouts]
    whole: dict[tuple[object, ...], float] = {}
    bounds = []
    for settings, named in layouts:
        data, tensor, p, chunks, _, size, recompute = settings
        m = batch // (data * size)
        key = (tensor, named["context"], named["expert"], size, recompute)
        # without the sums of gradients, which depend on how many micro-batches there
        # are
        if key not in whole:
            summed = unjudged(Layout, *settings[:4], 3, *settings[5:], **named)
            made = parts(rank_share(model, cluster, summed, batch))
            whole[key] = sum(made[part] for part in WORK) * p / m
        bounds.append(
            (whole[key] * (m / p + (1 - 1 / p) / chunks) * (1 - 1e-9), settings, named)
        )
    return sorted(bounds, key=lambda entry: entry[0])


@checked(error=LayoutError)
def best_layout(
    model: Transformer,
    cluster: Cluster,
    batch: Count,
    *,
    dtype: Dtype = "mixed bfloat16",
    optimizer: str = "adam",
    runners_up: Annotated[int, Number(least=0, most=1000)] = 5,
    software: Software = TORCHTITAN,
) -> BestLayout:
    """The fastest layout of `batch` sequences that fits, of all data x tensor x
    pipeline x ZeRO that divide.

    So are context ranks for long sequences and expert ranks for mixtures of experts;
    NOT_SEARCHED says what isn't tried. Only what the library of `software` runs is
    tried: torchtitan's, if nothing else is named, and everything with
    SOFTWARE["torch"], a program of one's own. Raises LayoutError where nothing divides,
    and where nothing fits: then with the leanest layout, what needs most, and how much
    is too much.
    """
    if (room := cluster.gpu.memory_bytes) is None:
        raise LayoutError(
            f"Expected a device with a known memory, got {cluster.gpu.name}."
        )
    rejected: Counter[str] = Counter()
    timed: list[tuple[float, float, int, Layout]] = []
    too_large: list[Layout] = []
    states: dict[tuple[object, ...], float] = {}  # bytes at least, without activations
    capacity = room * (1 - cluster.reserve)
    fixed = {"dtype": dtype, "optimizer": optimizer, "software": software}
    ordered = _by_bound(
        model, cluster, batch, dtype, _layouts(model, cluster, batch, fixed, rejected)
    )
    for i, (bound, settings, named) in enumerate(ordered):
        if len(timed) > runners_up and bound > max(
            timed[runners_up][0], (1 + MEDIAN_LEFT_OUT) * timed[0][0]
        ):
            rejected["that are slower, whether they fit or not"] = len(ordered) - i
            break
        layout = unjudged(Layout, *settings, **named)
        key = (*settings[:5], named["context"], named["expert"])
        if states.get(key, 0.0) > capacity:
            too_large.append(layout)
            continue
        share = rank_share(model, cluster, layout, batch)
        bytes_of = memory(share)
        states[key] = sum(bytes_of[purpose] for purpose in STATES)
        if (held := sum(bytes_of.values())) > capacity:
            too_large.append(layout)
        else:
            bisect.insort(timed, (sum(parts(share).values()), held, i, layout))
    if not timed:
        raise LayoutError(
            _no_layout(model, cluster, batch, capacity, too_large, software)
        )
    if too_large:
        rejected["that don't fit in memory"] = len(too_large)
    if len(timed) > 1:
        rejected["that fit and are slower"] = len(timed) - 1
    steps = [
        step(model, cluster, layout, batch) for *_, layout in timed[: runners_up + 1]
    ]
    alike = sum(
        seconds < (1 + MEDIAN_LEFT_OUT) * timed[0][0] for seconds, *_ in timed[1:]
    )
    return BestLayout(
        steps[0], tuple(steps[1:]), MappingProxyType(dict(rejected)), alike
    )


def _no_layout(
    model: Transformer,
    cluster: Cluster,
    batch: int,
    capacity: float,
    too_large: list[Layout],
    software: Software,
) -> str:
    if not too_large:
        near = even_batch(model, cluster, batch, software)[1]
        return (
            f"Expected a batch that a layout's data ranks divide, of {model.layers}"
            f" layers and {model.heads} heads on {cluster.gpus:,} GPUs, got"
            f" {sequences(batch, model)}. Choose {sequences(near, model)}."
        )
    needs = [memory(rank_share(model, cluster, layout, batch)) for layout in too_large]
    held, i = min((sum(needed.values()), i) for i, needed in enumerate(needs))
    layout = too_large[i]
    most = max(needs[i].items(), key=lambda item: item[1])
    nodes = math.ceil(cluster.gpus * held / capacity / cluster.gpus_per_node)
    return (
        f"No layout fits: the leanest ({layout}) needs {format_bytes(held)} of"
        f" {format_bytes(capacity)} a GPU, {format_bytes(held - capacity)} over,"
        f" {format_bytes(most[1])} of it for {most[0]}. Take about"
        f" {nodes * cluster.gpus_per_node:,} GPUs, larger ones, or shorter sequences."
    )


@checked(error=LayoutError)
def require_fit(found: Step) -> Step:
    """`found` if its GPUs hold it; else LayoutError with the excess, the largest
    purpose and what makes it smaller.
    """
    if found.fits:
        return found
    over = found.memory_bytes - found.usable_bytes
    purpose, most = max(found.memory.items(), key=lambda item: item[1])
    reserved = (
        f" ({format_bytes(found.capacity_bytes)} less {found.cluster.reserve:.0%} in"
        " reserve)"
    )
    reserved *= found.cluster.reserve > 0
    raise LayoutError(
        f"Expected at most {format_bytes(found.usable_bytes)} a GPU{reserved}, got"
        f" {format_bytes(found.memory_bytes)}: {format_bytes(over)} over; the largest"
        f" part is {purpose}, {format_bytes(most)}. {PURPOSES[purpose]}"
    )
