"""Search of layouts: all that a library runs and that divide a model and a cluster. Of
the fastest that fit the one that an engineer would take is first.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from trainplan._tables import ShownAsTable, Table
from trainplan._units import format_bytes
from trainplan.arguments import Bounds, Count, Dtype, checked
from trainplan.cluster.constants import MEDIAN_LEFT_OUT, MEMORY_SPREAD
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import RECOMPUTES, Layout, divisors, layers_of_stages
from trainplan.cluster.libraries import rules, splits, usual_software, why_not_in
from trainplan.cluster.preference import (
    idea,
    is_surer,
    preference,
    preferred,
    recipe,
    why,
)
from trainplan.cluster.rank_memory import PURPOSES, STATES, memory
from trainplan.cluster.rank_share import RankShare, rank_share
from trainplan.cluster.software import TORCHTITAN, Software, versions
from trainplan.cluster.step_prediction import Step, sequences, step, steps_table
from trainplan.cluster.step_time import WORK, parts
from trainplan.costs.memory_costs import precision
from trainplan.costs.transformers import Transformer
from trainplan.errors import LayoutError

_MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_LONG = 16_384  # tokens a sequence, from which context ranks are tried
_SHORT = 2048  # tokens of a context rank at least
_IDEAS = 3  # layouts of different kinds that are shown where no number is asked for
_SLOWEST = 1.5  # times the fastest layout's seconds that another kind may take
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
    offload_activations: bool = False

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
    """The layout to take, others, and how many were rejected for each reason.

    `fastest` is calculated to take the fewest seconds of all that fit. `step` is that,
    or one that the model can't tell from it and that has more to be said for it: it is
    within the model's median error on tables that it wasn't fitted to
    (trainplan.cluster.preference). `alike` is how many others are within that error of
    the fastest. `tight` is the fastest of those of which it is in doubt whether they
    fit, where `step` isn't one.
    """

    step: Step
    fastest: Step
    runners_up: tuple[Step, ...]
    rejected: Mapping[str, int]
    alike: int = 0
    tight: Step | None = None

    @property
    def layout(self) -> Layout:
        """The layout to take."""
        return self.step.layout

    @property
    def tried(self) -> int:
        """How many layouts there were: the rejected ones and the one to take."""
        return sum(self.rejected.values()) + 1

    @property
    def notes(self) -> tuple[str, ...]:
        """Why this layout, which published runs are near, why the others were rejected,
        and what wasn't searched.
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
            *self._advice(),
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

    def _advice(self) -> list[str]:
        """The fastest layout where another is to be taken, why that is, chunks of a
        single layer, and each layout's recipe or nearest published step.
        """
        notes = []
        if self.fastest.layout != self.layout:
            gain = self.step.seconds / self.fastest.seconds - 1
            notes.append(
                f"The fastest calculated is {self.fastest.layout.short}, {gain:.1%}"
                f" faster{_doubt(self.fastest)}. The first"
                f" {why(self.step, self.fastest)}."
            )
        tight = self.tight
        if tight and tight.seconds < (1 - MEDIAN_LEFT_OUT) * self.step.seconds:
            gain = self.step.seconds / tight.seconds - 1
            notes.append(
                f"Where it fits, {tight.layout.short} is {gain:.0%} faster: its"
                f" {format_bytes(tight.memory_bytes)} are tight."
            )
        chunks = self.layout.pipeline * self.layout.interleave
        if chunks >= self.step.model.layers and self.layout.interleave > 1:
            notes.append(
                "The first has chunks of a single layer: with more layers a chunk all"
                f" that fit are slower by {MEDIAN_LEFT_OUT:.0%} or more, or less like"
                " published steps."
            )
        return notes + [_precedent(planned) for planned in self._shown]

    @property
    def _shown(self) -> tuple[Step, ...]:
        return (self.step, *self.runners_up)[:_IDEAS]

    def table(self) -> Table:
        """The layout to take, others, and the notes below."""
        return steps_table((self.step, *self.runners_up), notes=self.notes)


def _doubt(planned: Step) -> str:
    """That no published step is like a calculated one, as a sentence goes on."""
    return ", without a published step that is like it" if planned.outside else ""


def _precedent(planned: Step) -> str:
    """The published step that is most like a calculated one, and the recipe that its
    library ships.
    """
    near = planned.nearest
    differs = ""
    if near.differs:
        differs = f"; different here: {', '.join(near.differs)}"
    text = f"Nearest published to {planned.layout.short}: {near.label}{differs}."
    recipe_name = recipe(planned)
    if recipe_name:
        text += f" A recipe has its ranks: {recipe_name}."
    return text


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
        if model.state_groups % tensor or model.out_groups % tensor:
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


_FIXED = ("dtype", "optimizer", "offload_activations")


def _runnable(
    model: Transformer, layout: Layout, field: str, values: list[Any]
) -> list[Any]:
    """The values of a field with which the library of a layout runs it: by rules of
    the field, and by those of what no search chooses, such as a dtype that can't be
    with zero=3.
    """
    field_rules = [
        rule
        for rule in rules(layout.software.library)
        if rule.field == field
        or (rule.field in _FIXED and any(name == field for name, _ in rule.where))
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
    dtype: Dtype = "",
    optimizer: str = "adam",
    offload_activations: bool = False,
    runners_up: Annotated[int, Bounds(least=0, most=1000)] | None = None,
    software: Software | None = None,
) -> BestLayout:
    """The layout of `batch` sequences to take, of all data x tensor x pipeline x ZeRO
    that divide: of those that fit the fastest, or one as fast that speaks for itself.

    So are context ranks for long sequences and expert ranks for mixtures of experts;
    NOT_SEARCHED says what isn't tried. Only what the library of `software` runs is
    tried: torchtitan's, if nothing else is named (TRL's for adapters, Megatron-Core's
    for models that torchtitan hasn't), and everything with SOFTWARE["torch"], a program
    of one's own. `dtype` is the library's own, if none is
    named. Where nothing fits, layouts are taken that are tight. `runners_up` is how
    many others are shown, the fastest first; with None two that are other ideas (other
    kinds of parallelism, or parameters split), where some are not much slower. Raises
    LayoutError where nothing divides, and where nothing fits: then with the leanest
    layout, what needs most, and how much is too much.
    """
    capacity = _capacity(cluster)
    software = software or usual_software(model, cluster.gpu)
    dtype = dtype or software.dtype
    rejected: Counter[str] = Counter()
    common: dict[str, Any] = {
        "dtype": dtype,
        "optimizer": optimizer,
        "offload_activations": offload_activations,
        "software": software,
    }
    # what no layout changes: the library runs no such model or optimizer
    chosen = set(_Choice._fields) - set(common)
    reason = why_not_in(model, Layout(**common), software.library, chosen)
    if reason:
        raise LayoutError(reason)
    choices = _choices(model, cluster, batch, common, rejected)
    if cluster.gpu.peaks.get(precision(dtype).compute_dtype) is None:
        ordered = [(0.0, choice) for choice in choices]  # nothing can be timed
    else:
        ordered = _by_bound(model, cluster, batch, choices)
    # bytes whose interval's upper end fits; else any that are calculated to fit
    for room in (capacity / math.exp(MEMORY_SPREAD), capacity):
        fitting = _Fitting(model, cluster, batch, room, capacity)
        timed, too_large = _timed_layouts(fitting, ordered, runners_up or 0)
        if timed:
            break
    else:
        raise LayoutError(
            _no_layout(model, cluster, batch, capacity, too_large, software)
        )
    slower = len(ordered) - len(timed) - len(too_large)
    rejected["that are slower, whether they fit or not"] = slower
    rejected["that don't fit in memory, or are tight"] = len(too_large)
    rejected["that fit and aren't preferred"] = len(timed) - 1

    def planned(layout: Layout) -> Step:
        return step(model, cluster, layout, batch)

    best, *others = _advised(timed, planned)
    if runners_up is not None:
        layouts = [entry.layout for entry in timed if entry.layout != best.layout]
        others = [planned(layout) for layout in layouts[:runners_up]]
    return BestLayout(
        best,
        planned(timed[0].layout),
        tuple(others),
        MappingProxyType(dict(+rejected)),  # without those of which there are none
        len(_alike(timed)) - 1,
        None if fitting.tight is None else planned(fitting.tight),
    )


def _alike(timed: list[_TimedLayout]) -> list[_TimedLayout]:
    """Those of timed layouts, the fastest first, that the model can't tell from it."""
    alike_s = (1 + MEDIAN_LEFT_OUT) * timed[0].seconds
    return timed[: bisect.bisect_left(timed, (alike_s,))]


def _advised(
    timed: list[_TimedLayout], planned: Callable[[Layout], Step]
) -> list[Step]:
    """The step to take, and those of other ideas that aren't much slower, the fastest
    first.
    """
    best = preferred(planned(entry.layout) for entry in _alike(timed))
    by_idea: dict[tuple[bool, ...], list[_TimedLayout]] = defaultdict(list)
    for entry in timed:
        by_idea[idea(entry.layout)].append(entry)
    others = [
        preferred(planned(entry.layout) for entry in _alike(entries))
        for key, entries in itertools.islice(by_idea.items(), _IDEAS)
        if key != idea(best.layout)
        and entries[0].seconds <= _SLOWEST * timed[0].seconds
    ]
    surer = [other for other in others if is_surer(other, best, timed[0].seconds)]
    if surer:
        others.append(best)
        best = min(surer, key=preference)
        others.remove(best)
    others.sort(key=lambda other: other.seconds)
    return [best, *others[: _IDEAS - 1]]


def _capacity(cluster: Cluster) -> float:
    """Bytes of a GPU that layouts may take. Raises LayoutError where it is unknown."""
    room = cluster.gpu.memory_bytes
    if room is None:
        raise LayoutError(
            f"Expected a device with a known memory, got {cluster.gpu.name}."
        )
    return room * (1 - cluster.reserve)


class _Ideas:
    """The fewest seconds of a layout of each idea, while a search goes on."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[bool, ...], float] = {}

    def add(self, seconds: float, layout: Layout) -> None:
        """Keep the seconds of a layout that fits."""
        key = idea(layout)
        self.seconds[key] = min(seconds, self.seconds.get(key, math.inf))

    def are_found(self, bound_s: float) -> bool:
        """Whether layouts that take `bound_s` at least can't change the ideas shown."""
        fewest = sorted(self.seconds.values())
        most_s = _SLOWEST * fewest[0]
        if len(fewest) >= _IDEAS:
            most_s = min(most_s, (1 + MEDIAN_LEFT_OUT) * fewest[_IDEAS - 1])
        return bound_s > most_s

    def may_be_better(self, bound_s: float, choice: _Choice) -> bool:
        """Whether a layout that takes `bound_s` at least may be as fast as the fastest
        of its idea.
        """
        fewest_s = self.seconds.get(idea(choice), math.inf)
        return bound_s <= (1 + MEDIAN_LEFT_OUT) * fewest_s


class _Fitting:
    """Which layouts take at most `room` bytes a GPU, most of them without being
    calculated: of layouts that are known by parts of theirs, bytes at least.

    `tight` is the fastest of those that take more, and at most `capacity`.
    """

    def __init__(
        self,
        model: Transformer,
        cluster: Cluster,
        batch: int,
        room: float,
        capacity: float,
    ) -> None:
        self.model = model
        self.cluster = cluster
        self.batch = batch
        self.room = room
        self.capacity = capacity
        self.tight: Layout | None = None
        self.tight_s = math.inf
        self.states: dict[tuple[object, ...], float] = {}  # without activations
        # with micro-batches of one sequence, the fewest
        self.single: dict[_Choice, float] = {}

    def share(self, choice: _Choice, bound_s: float) -> tuple[RankShare, float] | None:
        """A rank's share of a layout that fits and its bytes; None for others.

        `bound_s` are seconds that the layout takes at least.
        """
        most = self.capacity if bound_s < self.tight_s else self.room
        key = _states_key(choice)
        if self.states.get(key, 0.0) > most:
            return None
        leanest = choice._replace(micro_batch=1)
        if leanest not in self.single:
            bytes_by_purpose = memory(self._share(leanest))
            states = sum(bytes_by_purpose[purpose] for purpose in STATES)
            self.states[key] = states
            self.single[leanest] = sum(bytes_by_purpose.values())
        if self.single[leanest] > most:
            return None
        share = self._share(choice)
        n_bytes = self.single[leanest]
        if choice != leanest:
            n_bytes = sum(memory(share).values())
        if n_bytes <= self.room:
            return share, n_bytes
        if n_bytes <= most:
            self._keep_tight(share)
        return None

    def _keep_tight(self, share: RankShare) -> None:
        seconds = sum(parts(share).values())
        if seconds < self.tight_s:
            self.tight = share.layout
            self.tight_s = seconds

    def _share(self, choice: _Choice) -> RankShare:
        return rank_share(self.model, self.cluster, choice.layout(), self.batch)


def _timed_layouts(
    fitting: _Fitting, ordered: list[tuple[float, _Choice]], runners_up: int
) -> tuple[list[_TimedLayout], list[_Choice]]:
    """The layouts that fit, the fastest first, and the others.

    `ordered` are by the least that they take: the search ends with the first that can
    be none of `runners_up`, nor as good as the fastest of three ideas.
    """
    timed: list[_TimedLayout] = []
    too_large: list[_Choice] = []
    ideas = _Ideas()
    for i, (bound_s, choice) in enumerate(ordered):
        if len(timed) > runners_up:
            alike_s = (1 + MEDIAN_LEFT_OUT) * timed[0].seconds
            if bound_s > max(timed[runners_up].seconds, alike_s):
                if ideas.are_found(bound_s):
                    break
                if not ideas.may_be_better(bound_s, choice):
                    continue
        fits = fitting.share(choice, bound_s)
        if fits is None:
            too_large.append(choice)
            continue
        share, n_bytes = fits
        seconds = sum(parts(share).values())
        bisect.insort(timed, _TimedLayout(seconds, n_bytes, i, share.layout))
        ideas.add(seconds, share.layout)
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
    share = math.exp(MEMORY_SPREAD) * least / capacity
    gpus = _usual_gpus(cluster.gpus * share, cluster.gpus_per_node)
    leaner = _leaner(model, needs[leanest], least - capacity)
    advice = f"Take about {gpus:,} GPUs or larger ones."
    if leaner:
        advice = f"Take about {gpus:,} GPUs, larger ones, or {leaner}."
    if not splits(model, software.library):
        advice = (
            f"{software.library} splits nothing among them: take larger GPUs, or"
            " software with FSDP."
        )
    of_model = f" of {model.name}" if model.name else ""
    return (
        f"No layout fits {cluster.gpus:,} x {cluster.gpu.name}:"
        f" the leanest{of_model} ({layouts[leanest]}) needs"
        f" {format_bytes(least)} of {format_bytes(capacity)} a GPU,"
        f" {format_bytes(least - capacity)} over; the largest part is {purpose},"
        f" {format_bytes(most)}. {advice}"
    )


def _leaner(model: Transformer, needs: Mapping[str, float], excess: float) -> str:
    """What else makes the leanest layout smaller by `excess` bytes; empty for
    nothing.
    """
    states = sum(needs[purpose] for purpose in STATES)
    of_tokens = sum(needs.values()) - states
    if of_tokens > states or of_tokens > 2 * excess:
        return "shorter sequences"
    if not model.adapters:
        return "train adapters alone (--finetune lora:16)"
    if not (model.quantized or model.experts):
        return "keep the weights in 4 bit (--finetune qlora:16)"
    return ""


def _usual_gpus(need: float, gpus_per_node: int) -> int:
    """A number of GPUs that people have, of at least `need`: a power of two within a
    node, else whole nodes.
    """
    if need > gpus_per_node / 2:
        return math.ceil(need / gpus_per_node) * gpus_per_node
    return int(2 ** math.ceil(math.log2(need)))


@checked
def require_fit(predicted: Step) -> Step:
    """`predicted` if its GPUs hold what is calculated, though it be tight; else
    LayoutError with the excess, the largest purpose and what makes it smaller.
    """
    if predicted.memory_bytes <= predicted.usable_bytes:
        return predicted
    raise LayoutError(excess(predicted))


def excess(predicted: Step) -> str:
    """By how much a step's memory is too large, what needs most, and what makes that
    smaller.
    """
    over = predicted.memory_bytes - predicted.usable_bytes
    purpose, most = max(predicted.memory.items(), key=lambda item: item[1])
    reserved = ""
    if predicted.cluster.reserve:
        capacity = format_bytes(predicted.capacity_bytes)
        reserved = f" ({capacity} less {predicted.cluster.reserve:.0%} in reserve)"
    return (
        f"Expected at most {format_bytes(predicted.usable_bytes)} a GPU{reserved}, got"
        f" {format_bytes(predicted.memory_bytes)}: {format_bytes(over)} over; the"
        f" largest part is {purpose}, {format_bytes(most)}. {PURPOSES[purpose]}"
    )
