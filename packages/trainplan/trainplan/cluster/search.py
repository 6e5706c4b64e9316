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
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from trainplan._tables import ShownAsTable, Table
from trainplan._units import format_bytes
from trainplan.arguments import Bounds, Count, Dtype, checked
from trainplan.cluster.constants import MEDIAN_LEFT_OUT
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import RECOMPUTES, Layout, divisors, layers_of_stages
from trainplan.cluster.libraries import rules
from trainplan.cluster.rank_memory import PURPOSES, STATES, memory
from trainplan.cluster.rank_share import rank_share
from trainplan.cluster.software import TORCHTITAN, Software, versions
from trainplan.cluster.step_prediction import Step, sequences, step, steps_table
from trainplan.cluster.step_time import WORK, parts
from trainplan.costs.memory_costs import precision
from trainplan.costs.transformers import Transformer
from trainplan.errors import LayoutError

_MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_LONG = 16_384  # tokens a sequence, from which context ranks are tried
_SHORT = 2048  # tokens of a context rank at least
NOT_SEARCHED = (
    "tensor ranks in several nodes, sequence parallelism off, micro-batches that"
    " aren't powers of two or are above 64, chunks of different sizes, schedules other"
    " than 1F1B, groups that shard among themselves, offloading, and context ranks"
    f" below {_LONG:,} tokens a sequence or {_SHORT:,} a rank"
)


class _Choice(NamedTuple):
    """The fields of a Layout that a search chooses or is told. Most are never made into
    one, which takes longer.
    """

    data: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    interleave: int
    zero: int
    recompute: str
    micro_batch: int
    dtype: str
    optimizer: str
    software: Software

    def layout(self) -> Layout:
        return Layout(**self._asdict())


# what the work of a micro-batch depends on, in all stages together
_work_key = attrgetter("tensor", "context", "expert", "micro_batch", "recompute")
# what the bytes of STATES depend on
_states_key = attrgetter(
    "data", "tensor", "pipeline", "interleave", "zero", "context", "expert"
)


class _TimedLayout(NamedTuple):
    """A layout that fits, in the order of preference: by its time, then its memory."""

    seconds: float
    n_bytes: float
    number: int  # which no two share, so that layouts are never compared
    layout: Layout


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
        rejected = "; ".join(
            f"{count:,} {reason}" for reason, count in self.rejected.items()
        )
        library = self.layout.software.library
        if library:
            searched = f"what {library} {versions()[library]} runs"
        else:
            searched = "what a program of one's own could do"
        return (
            f"Searched: {searched}.",
            f"Rejected of {self.tried:,} layouts: {rejected or 'none'}.",
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
) -> Iterator[Layout]:
    """Data, tensor, pipeline and context ranks that the library runs: tensor inside a
    node, a divisor of the heads.
    """
    shape_rules = [
        rule
        for rule in rules(software.library)
        if rule.field in ("tensor", "pipeline", "context", "seq")
    ]
    for tensor in divisors(cluster.gpus_per_node):
        kv_heads = model.key_value_heads
        if model.heads % tensor or cluster.gpus % tensor:
            continue
        if kv_heads % tensor and tensor % kv_heads:
            continue
        for pipeline in divisors(cluster.gpus // tensor):
            if pipeline > model.layers + 2:
                break
            replicas = cluster.gpus // tensor // pipeline
            for context in _contexts(model, replicas):
                shape = Layout(replicas // context, tensor, pipeline, context=context)
                if not any(rule.breaks(model, shape) for rule in shape_rules):
                    yield shape


def _contexts(model: Transformer, replicas: int) -> list[int]:
    """How many context ranks may share a sequence: one, or more where it is long."""
    if model.seq < _LONG:
        return [1]
    return [
        context
        for context in divisors(math.gcd(replicas, model.seq))
        if context == 1 or model.seq >= _SHORT * context
    ]


def _chunks(model: Transformer, pipeline: int, software: Software) -> list[int]:
    """Chunks a rank of which all have as many layers, or the outer two one fewer; one
    chunk where none do.
    """
    most = (model.layers + 2) // pipeline if pipeline > 1 else 1
    even = [
        chunks
        for chunks in range(1, most + 1)
        if model.layers % (pipeline * chunks) == 0
        or (model.layers + 2) % (pipeline * chunks) == 0
    ]
    return [
        chunks
        for chunks in even or [1]
        if layers_of_stages(model, pipeline, chunks, software)
    ]


def even_batch(
    model: Transformer, cluster: Cluster, batch: int, software: Software = TORCHTITAN
) -> tuple[int, int]:
    """How many data ranks at most divide a batch (0: none), and a batch near it that
    more divide.

    Of that every data rank has two sequences or more, where some layout has so few data
    ranks; it is the same batch where half as many divide that already.
    """
    ranks = sorted(
        {
            shape.data
            for shape in _shapes(model, cluster, software)
            if _chunks(model, shape.pipeline, software)
        }
    )
    more = max((data for data in ranks if 2 * data <= batch), default=ranks[0])
    most = max((data for data in ranks if batch % data == 0), default=0)
    if 2 * most >= more:
        return most, batch
    return most, max(round(batch / more), 1) * more


def _choices(
    model: Transformer,
    cluster: Cluster,
    batch: int,
    common: Mapping[str, Any],
    rejected: Counter[str],
) -> Iterator[_Choice]:
    """Layouts that divide model, cluster and batch, and that the library of
    `common["software"]` runs; `common` is what all share.
    """
    software = common["software"]
    for shape in _shapes(model, cluster, software):
        if batch % shape.data:
            rejected["whose data ranks don't divide the batch"] += 1
            continue
        settings = {**common, "software": habits(software, shape.pipeline)}
        layout = replace(shape, **settings)
        yield from _choices_of_shape(model, layout, batch, settings, rejected)


def _choices_of_shape(
    model: Transformer,
    shape: Layout,
    batch: int,
    settings: Mapping[str, Any],
    rejected: Counter[str],
) -> Iterator[_Choice]:
    """The layouts with the data, tensor, pipeline and context ranks of a shape."""
    rank_batch = batch // shape.data
    sizes = [size for size in _MICRO_BATCHES if rank_batch % size == 0]
    options = _options(model, shape)
    if not options["interleave"]:
        rejected["with more stages than layers"] += 1
    runnable = {
        field: _runnable(model, shape, field, values)
        for field, values in options.items()
    }
    n_options = math.prod(len(values) for values in options.values())
    n_runnable = math.prod(len(values) for values in runnable.values())
    if n_runnable < n_options:
        reason = f"that {shape.software.library} doesn't run"
        rejected[reason] += (n_options - n_runnable) * len(sizes)
    combinations = itertools.product(*runnable.values(), sizes)
    for expert, interleave, zero, recompute, micro_batch in combinations:
        if interleave > 1 and rank_batch // micro_batch % shape.pipeline:
            reason = (
                "whose micro-batches don't come in rounds of the interleaved stages"
            )
            rejected[reason] += 1
            continue
        yield _Choice(
            shape.data,
            shape.tensor,
            shape.pipeline,
            shape.context,
            expert,
            interleave,
            zero,
            recompute,
            micro_batch,
            **settings,
        )


def _options(model: Transformer, shape: Layout) -> dict[str, list[Any]]:
    """Values of the fields that a search chooses for a shape, those that vary least
    first.
    """
    experts = [1]
    if model.experts:
        experts = divisors(math.gcd(model.experts, shape.replicas * shape.tensor))
    recomputes = list(RECOMPUTES)
    if model.fused_attention:  # which keeps no scores to compute again
        recomputes.remove("selective")
    return {
        "expert": experts,
        "interleave": _chunks(model, shape.pipeline, shape.software),
        "zero": [0, 1, 2, 3] if shape.replicas > 1 else [0],
        "recompute": recomputes,
    }


def _runnable(
    model: Transformer, layout: Layout, field: str, values: list[Any]
) -> list[Any]:
    """The values of a field with which the library of a layout runs it."""
    field_rules = [
        rule for rule in rules(layout.software.library) if rule.field == field
    ]
    if not field_rules:
        return values
    runnable = []
    for value in values:
        candidate = replace(layout, **{field: value})
        if not any(rule.breaks(model, candidate) for rule in field_rules):
            runnable.append(value)
    return runnable


def habits(software: Software, pipeline: int) -> Software:
    """The software as it works with so many stages: torchtitan gathers weights once a
    step in a pipeline.

    Source: pytorch/torchtitan, torchtitan/models/llama3/infra/parallelize.py,
    reshard_after_forward_policy "default".
    """
    if software.library == "torchtitan" and pipeline > 1:
        return replace(software, reshard=False)
    return software


def _by_bound(
    model: Transformer, cluster: Cluster, batch: int, choices: Iterable[_Choice]
) -> list[tuple[float, _Choice]]:
    """Layouts behind seconds that they take at least, the fewest first.

    A micro-batch is the same work in all stages together, whatever their number, the
    data ranks and the chunks. Of its share in that a rank does no less than the mean,
    for each micro-batch, and waits for a chunk of the others' share.
    """
    work_s: dict[tuple[object, ...], float] = {}  # of a micro-batch, by _work_key
    bounds = []
    for choice in choices:
        p = choice.pipeline
        m = batch // (choice.data * choice.micro_batch)
        key = _work_key(choice)
        if key not in work_s:
            # without the sums of gradients, which depend on how many micro-batches
            # there are
            layout = choice._replace(zero=3).layout()
            seconds = parts(rank_share(model, cluster, layout, batch))
            work_s[key] = sum(seconds[part] for part in WORK) * p / m
        bound = work_s[key] * (m / p + (1 - 1 / p) / choice.interleave)
        # less what rounding may add
        bounds.append((bound * (1 - 1e-9), choice))
    return sorted(bounds, key=lambda bounded: bounded[0])


@checked
def best_layout(
    model: Transformer,
    cluster: Cluster,
    batch: Count,
    *,
    dtype: Dtype = "mixed bfloat16",
    optimizer: str = "adam",
    runners_up: Annotated[int, Bounds(least=0, most=1000)] = 5,
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
    capacity = _capacity(cluster)
    rejected: Counter[str] = Counter()
    common = {"dtype": dtype, "optimizer": optimizer, "software": software}
    choices = _choices(model, cluster, batch, common, rejected)
    if cluster.gpu.peaks.get(precision(dtype).compute_dtype) is None:
        ordered = [(0.0, choice) for choice in choices]  # nothing can be timed
    else:
        ordered = _by_bound(model, cluster, batch, choices)
    timed, too_large = _timed_layouts(model, cluster, batch, ordered, runners_up)
    if not timed:
        raise LayoutError(
            _no_layout(model, cluster, batch, capacity, too_large, software)
        )
    slower = len(ordered) - len(timed) - len(too_large)
    if slower:
        rejected["that are slower, whether they fit or not"] = slower
    if too_large:
        rejected["that don't fit in memory"] = len(too_large)
    if len(timed) > 1:
        rejected["that fit and are slower"] = len(timed) - 1
    best, *others = [
        step(model, cluster, entry.layout, batch) for entry in timed[: runners_up + 1]
    ]
    alike_s = (1 + MEDIAN_LEFT_OUT) * timed[0].seconds
    alike = sum(entry.seconds < alike_s for entry in timed[1:])
    return BestLayout(best, tuple(others), MappingProxyType(dict(rejected)), alike)


def _capacity(cluster: Cluster) -> float:
    """Bytes of a GPU that layouts may take. Raises LayoutError where it is unknown."""
    room = cluster.gpu.memory_bytes
    if room is None:
        raise LayoutError(
            f"Expected a device with a known memory, got {cluster.gpu.name}."
        )
    return room * (1 - cluster.reserve)


def _timed_layouts(
    model: Transformer,
    cluster: Cluster,
    batch: int,
    ordered: list[tuple[float, _Choice]],
    runners_up: int,
) -> tuple[list[_TimedLayout], list[_Choice]]:
    """The layouts that fit, the fastest first, and those that don't.

    `ordered` are by the least that they take: the search ends with the first that can
    be no runner-up, nor as good as the fastest.
    """
    capacity = _capacity(cluster)
    timed: list[_TimedLayout] = []
    too_large: list[_Choice] = []
    states: dict[tuple[object, ...], float] = {}  # bytes at least, without activations
    for i, (bound_s, choice) in enumerate(ordered):
        if len(timed) > runners_up:
            alike_s = (1 + MEDIAN_LEFT_OUT) * timed[0].seconds
            if bound_s > max(timed[runners_up].seconds, alike_s):
                break
        key = _states_key(choice)
        if states.get(key, 0.0) > capacity:
            too_large.append(choice)
            continue
        layout = choice.layout()
        share = rank_share(model, cluster, layout, batch)
        bytes_by_purpose = memory(share)
        states[key] = sum(bytes_by_purpose[purpose] for purpose in STATES)
        n_bytes = sum(bytes_by_purpose.values())
        if n_bytes > capacity:
            too_large.append(choice)
        else:
            seconds = sum(parts(share).values())
            bisect.insort(timed, _TimedLayout(seconds, n_bytes, i, layout))
    return timed, too_large


def _no_layout(
    model: Transformer,
    cluster: Cluster,
    batch: int,
    capacity: float,
    too_large: list[_Choice],
    software: Software,
) -> str:
    if not too_large:
        _, near = even_batch(model, cluster, batch, software)
        return (
            f"Expected a batch that a layout's data ranks divide, of {model.layers}"
            f" layers and {model.heads} heads on {cluster.gpus:,} GPUs, got"
            f" {sequences(batch, model)}. Choose {sequences(near, model)}."
        )
    layouts = [choice.layout() for choice in too_large]
    needs = [memory(rank_share(model, cluster, layout, batch)) for layout in layouts]
    totals = [sum(purposes.values()) for purposes in needs]
    least = min(totals)
    leanest = totals.index(least)
    purpose, most = max(needs[leanest].items(), key=lambda item: item[1])
    gpus = _usual_gpus(cluster.gpus * least / capacity, cluster.gpus_per_node)
    return (
        f"No layout fits: the leanest ({layouts[leanest]}) needs"
        f" {format_bytes(least)} of {format_bytes(capacity)} a GPU,"
        f" {format_bytes(least - capacity)} over, {format_bytes(most)} of it for"
        f" {purpose}. Take about {gpus:,} GPUs, larger ones, or shorter sequences."
    )


def _usual_gpus(need: float, gpus_per_node: int) -> int:
    """A number of GPUs that people have, of at least `need`: a power of two within a
    node, else whole nodes.
    """
    if need > gpus_per_node / 2:
        return math.ceil(need / gpus_per_node) * gpus_per_node
    return int(2 ** math.ceil(math.log2(need)))


@checked
def require_fit(predicted: Step) -> Step:
    """`predicted` if its GPUs hold it; else LayoutError with the excess, the largest
    purpose and what makes it smaller.
    """
    if predicted.fits:
        return predicted
    excess = predicted.memory_bytes - predicted.usable_bytes
    purpose, most = max(predicted.memory.items(), key=lambda item: item[1])
    reserved = ""
    if predicted.cluster.reserve:
        capacity = format_bytes(predicted.capacity_bytes)
        reserved = f" ({capacity} less {predicted.cluster.reserve:.0%} in reserve)"
    raise LayoutError(
        f"Expected at most {format_bytes(predicted.usable_bytes)} a GPU{reserved}, got"
        f" {format_bytes(predicted.memory_bytes)}: {format_bytes(excess)} over; the"
        f" largest part is {purpose}, {format_bytes(most)}. {PURPOSES[purpose]}"
    )
