"""A predicted training step on a cluster: its time and memory by part, its rates and
utilization.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from trainplan._tables import Shown, Table
from trainplan._units import format_bytes, format_seconds, format_si, significant
from trainplan.arguments import Count, Positive, checked
from trainplan.cluster.constants import (
    CONSTANTS,
    LEARNED_OVERLOAD,
    LEARNED_SLOWDOWN,
    LEARNED_SOURCE,
    MEMORY_SPREAD,
    REPORTED,
    SPREAD,
    WIDENED,
    Constants,
)
from trainplan.cluster.divisibility import why_not
from trainplan.cluster.evidence import Nearest, compared, generation, nearest
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import Layout
from trainplan.cluster.rank_memory import memory
from trainplan.cluster.rank_share import dispatch, rank_share
from trainplan.cluster.software import SOFTWARE, TORCH
from trainplan.cluster.step_time import parts
from trainplan.costs.memory_costs import precision
from trainplan.costs.transformers import Transformer
from trainplan.errors import LayoutError

# distance of the nearest published step from which its interval may not hold
_FAR = 2.0
# share of MFU that is left without what a causal mask hides, below which both are shown
_MOSTLY = 0.85
# libraries of SOFTWARE that run on any cluster of GPUs
PRESETS = ("torch", "Megatron-LM", "Transformer Engine")
# devices of a step that was fitted, or for TPUs compared
_MOST_GPUS = 3072
_MOST = {"Google": 8192}
RELEASES = (
    "published steps of one layout with experts in 8 bit, on this device or with plain"
    " all-to-alls, differ by up to a factor of two between releases of a library"
)
LEARNED = (
    "the one published step with a learned router took from"
    f" {LEARNED_OVERLOAD:.1f} to {LEARNED_SLOWDOWN:.1f} times as long as with routing"
    " forced even"
)


@dataclass(frozen=True, repr=False)
class Step(Shown):
    """A calculated step of `batch` sequences: `parts` in seconds, `memory` in bytes on
    the fullest GPU.
    """

    model: Transformer
    cluster: Cluster
    layout: Layout
    batch: int
    parts: Mapping[str, float]
    memory: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """Time of the step."""
        return sum(self.parts.values())

    @property
    def memory_bytes(self) -> float:
        """Bytes on the fullest GPU."""
        return sum(self.memory.values())

    @property
    def capacity_bytes(self) -> float:
        """The GPU's memory as its maker prints it."""
        return self.cluster.gpu.memory_bytes or 0.0

    @property
    def memory_interval_bytes(self) -> tuple[float, float]:
        """Bytes on the fullest GPU between which eight of ten published steps were,
        also those of sources that nothing was fitted to.
        """
        width = math.exp(MEMORY_SPREAD)
        return self.memory_bytes / width, self.memory_bytes * width

    @property
    def fits(self) -> bool:
        """Whether the upper end of `memory_interval_bytes` leaves the cluster's reserve
        of a GPU's memory free.
        """
        return self.memory_interval_bytes[1] <= self.usable_bytes

    @property
    def tight(self) -> bool:
        """Whether what there is lies in `memory_interval_bytes`: it may run, or run out
        of memory.
        """
        low, high = self.memory_interval_bytes
        return low <= self.usable_bytes < high

    @property
    def too_large(self) -> bool:
        """Whether the lower end of `memory_interval_bytes` is more than there is."""
        return not self.fits and not self.tight

    @property
    def verdict(self) -> str:
        """Whether the memory suffices, in words: "fits", "tight: 72 GiB to 81 GiB of
        79 GiB", "does not fit".
        """
        if self.fits:
            return "fits"
        if self.too_large:
            return "does not fit"
        low, high = map(format_bytes, self.memory_interval_bytes)
        return f"tight: {low} to {high} of {format_bytes(self.usable_bytes)}"

    @property
    def usable_bytes(self) -> float:
        """The GPU's memory without the cluster's reserve."""
        return (1 - self.cluster.reserve) * self.capacity_bytes

    @functools.cached_property
    def nearest(self) -> Nearest:
        """The published step that is most like this one, and how far off it is."""
        return nearest(self.model, self.cluster, self.layout, self.batch)

    @functools.cached_property
    def by_library(self) -> Mapping[str, float]:
        """Seconds with the habits of PRESETS, where `software` is the default, or the
        step is `outside`.
        """
        if self.cluster.gpu.vendor == "Google" or (
            self.layout.software != TORCH and not self.outside
        ):
            return {}
        # how often ZeRO-3 gathers is the layout's choice as much
        reshard = self.layout.software.reshard
        seconds = {}
        for name in PRESETS:
            software = replace(SOFTWARE[name], reshard=reshard)
            layout = replace(self.layout, software=software)
            share = rank_share(self.model, self.cluster, layout, self.batch)
            seconds[name] = sum(parts(share).values())
        return seconds

    @functools.cached_property
    def interval_s(self) -> tuple[float, float]:
        """Seconds between which eight of ten published steps were that are as unlike
        the others as this one.

        The spread of the class of the nearest published step, widened by its distance
        so that of each source 80 % are inside when it is left out, and at least what
        the choice of library changes.
        """
        width = math.exp(SPREAD[self.nearest.kind] + WIDENED * self.nearest.distance)
        others = self.by_library.values()
        low = min([self.seconds / width, *others])
        high = max([self.seconds * width, *others])
        if self._learned:
            low /= LEARNED_OVERLOAD
            high *= LEARNED_SLOWDOWN / LEARNED_OVERLOAD
        return low, high

    @property
    def _learned(self) -> bool:
        """Whether expert ranks wait for the fullest of them."""
        has_ranks = self.model.experts > 0 and self.layout.expert > 1
        return has_ranks and self.layout.balance == "learned"

    @property
    def outside(self) -> tuple[str, ...]:
        """Why the interval may not hold: where this step is unlike all that the model
        was compared with.
        """
        near = self.nearest
        if near.distance <= _FAR:
            return self.unlike
        far = (
            f"the nearest published step ({near.label}) is unlike this one; different"
            f" here: {', '.join(near.differs)}"
        )
        return (*self.unlike, far)

    @property
    def unlike(self) -> tuple[str, ...]:
        """What of this step makes predictions worse, whatever was published."""
        layout = self.layout
        cluster = self.cluster
        dtype = precision(layout.dtype).compute_dtype
        compute_s = self.parts["compute"] + self.parts["recompute"]
        too_large = self.memory_bytes > REPORTED * self.capacity_bytes
        most_gpus = _MOST.get(cluster.gpu.vendor, _MOST_GPUS)
        is_plain = dispatch(self.model, cluster, layout) == "all-to-all"
        is_hopper = cluster.gpu.architecture.startswith("Hopper")
        is_dropless = not self.model.capacity
        has_scaled_experts = self.model.experts > 0 and precision(layout.dtype).scaled
        reasons = [
            (
                (is_plain or is_hopper) and is_dropless and has_scaled_experts,
                RELEASES,
            ),
            (self._learned, LEARNED),
            (
                not compared("another device", generation(cluster.gpu)),
                "few or no published steps were compared on this device",
            ),
            (
                dtype in ("float32", "tf32"),
                "no published step was computed in float32 or tf32",
            ),
            (
                self.model.state_space is not None,
                "no published step had state spaces beside attention",
            ),
            (
                self.model.compressed is not None,
                "no published step had attention to compressed keys",
            ),
            (self.model.adapters > 0, "two published steps alone trained adapters"),
            (
                cluster.gpus > most_gpus,
                f"the constants were fitted to steps on at most {most_gpus:,} of them",
            ),
            (
                layout.tensor > cluster.gpus_per_node,
                "no published step had tensor ranks in several nodes",
            ),
            (compute_s < 0.4 * self.seconds, "less than two fifths of it is compute"),
            (
                self.memory_bytes > self.usable_bytes and not too_large,
                "the memory is all but full, which costs time",
            ),
            (too_large, "it needs more memory than there is"),
            (
                not compared("another schedule", layout.schedule),
                f"few or no published steps had the schedule {layout.schedule}",
            ),
            (layout.offload, "no published step offloaded its optimizer"),
            (
                layout.shard is not None and cluster.gpu.vendor != "Google",
                "no published step had groups of ranks that split among themselves",
            ),
        ]
        return tuple(sentence for holds, sentence in reasons if holds)

    @property
    def tokens(self) -> int:
        """Tokens of the step."""
        return self.batch * self.model.seq

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second, of the whole cluster."""
        return self.tokens / self.seconds

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """Tokens a second and GPU, the figure that most publish."""
        return self.tokens_per_s / self.cluster.gpus

    @property
    def mfu(self) -> float:
        """Model FLOP utilization, 0 to 1, of the vendor's dense peak, by
        Transformer.flop_per_token.
        """
        peak = self.cluster.gpu.peaks.get(precision(self.layout.dtype).compute_dtype)
        assert peak is not None  # the step's time needed it
        return self.tokens_per_s_per_gpu * self.model.flop_per_token / peak

    @property
    def causal_mfu(self) -> float:
        """`mfu` without what of attention's square is hidden by a causal mask and
        windows, which fused attention doesn't compute.
        """
        hidden = self.model.hidden_flop_per_token
        return self.mfu * (1 - hidden / self.model.flop_per_token)

    @checked
    def train_s(self, tokens: Positive) -> float:
        """Seconds that a run of `tokens` takes, without failures."""
        return tokens / self.tokens_per_s

    def table(self) -> Table:
        """Time and memory by part."""
        capacity = format_bytes(self.capacity_bytes)
        rows = [
            (part, format_seconds(seconds), f"{seconds / self.seconds:.1%}")
            for part, seconds in self.parts.items()
        ]
        rows.append(("step", format_seconds(self.seconds), "100 %"))
        rows += [
            (purpose, format_bytes(n_bytes), f"{n_bytes / self.memory_bytes:.1%}")
            for purpose, n_bytes in self.memory.items()
        ]
        rows.append(("memory", format_bytes(self.memory_bytes), f"of {capacity}"))
        return Table(
            tuple(
                (part, value, share) for part, value, share in rows if share != "0.0%"
            ),
            ("part", "calculated", "share"),
            title=f"{self.layout}, {self.layout.dtype}",
            notes=(self._sentence(), *_assumed(self)),
        )

    @property
    def worth(self) -> str:
        """What the seconds are worth, as a sentence's end: interval, library, and why
        the interval may not hold.
        """
        low, high = map(format_seconds, self.interval_s)
        library = self._library()
        others = ", ".join(
            f"{name} {format_seconds(seconds)}"
            for name, seconds in self.by_library.items()
            if name != library
        )
        text = (
            f"Eight of ten published steps would be within {low} to {high}. Calculated"
            f" for {library}"
        )
        if others:
            text += f" (with {others})"
        if self.outside:
            text += f"; but {', and '.join(self.outside)}"
        return text

    def _library(self) -> str:
        """The name of the library that the step is calculated for."""
        if self.layout.software.library:
            return self.layout.software.library
        for name, software in SOFTWARE.items():
            if software == self.layout.software:
                return name
        return "a library of its own"

    def _sentence(self) -> str:
        return (
            f"{format_seconds(self.seconds)} a step,"
            f" {format_si(self.tokens_per_s, 'tokens/s')}, MFU {self.mfu:.1%}"
            f"{_causal(self)},"
            f" {format_bytes(self.memory_bytes)} of {format_bytes(self.capacity_bytes)}"
            f" a GPU ({self.verdict}). {self.worth}"
        )

    def __str__(self) -> str:
        return ". ".join(
            [f"{self.layout}, {self.layout.dtype}: {self._sentence()}", *_assumed(self)]
        )

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def sequences(batch: int, model: Transformer) -> str:
    """A batch in words, by its sequences and its tokens."""
    noun = "sequence" if batch == 1 else "sequences"
    return f"{batch:,} {noun} ({batch * model.seq:,} tokens)"


def steps_table(
    steps: Sequence[Step], tokens: float | None = None, notes: Sequence[str] = ()
) -> Table:
    """A row a layout of one model on one cluster, and below what the numbers are worth;
    `tokens` are a whole run's.
    """
    first = steps[0]
    headings = ["layout", "step", "tokens/s", "MFU", "memory"]
    if tokens is not None:
        headings.append("run")
    batch = sequences(first.batch, first.model)
    capacity = format_bytes(first.capacity_bytes)
    worth = f"Calculated, not measured. Of the first: {first.worth}."
    if any(entry.outside for entry in steps):
        worth += " A step with ? is unlike all that the model was compared with."
    return Table(
        tuple(_row(entry, tokens) for entry in steps),
        tuple(headings),
        title=(
            f"{first.model}\n{first.cluster}\n{batch} a step, {capacity} a GPU,"
            f" {first.layout.dtype}"
        ),
        notes=(
            worth,
            *_tightness(first),
            *_square(first),
            *_assumed(first),
            *_ends(steps),
            *notes,
        ),
    )


def _row(entry: Step, tokens: float | None) -> tuple[str, ...]:
    doubt = " ?" if entry.outside else ""
    cells = (
        entry.layout.short,
        format_seconds(entry.seconds) + doubt,
        format_si(entry.tokens_per_s, "tokens/s").removesuffix(" tokens/s"),
        f"{entry.mfu:.1%}",
        format_bytes(entry.memory_bytes) + _room(entry),
    )
    if tokens is None:
        return cells
    return (*cells, f"{significant(entry.train_s(tokens) / 86_400)} days")


def _room(entry: Step) -> str:
    """How a row's memory goes on where it isn't sure to fit."""
    if entry.fits:
        return ""
    return ", tight" if entry.tight else ", too much"


def _tightness(entry: Step) -> list[str]:
    """A note on a step whose memory isn't sure to suffice."""
    if not entry.tight:
        return []
    return [
        f"The first's memory is {entry.verdict}, between which eight of ten published"
        " steps would be: it may run, or run out of memory."
    ]


def _causal(entry: Step) -> str:
    """MFU without what a causal mask hides, where that is much of it."""
    if entry.causal_mfu > _MOSTLY * entry.mfu:
        return ""
    windows = " and windows hide" if entry.model.window else " hides"
    return f" ({entry.causal_mfu:.1%} without what a causal mask{windows})"


def _square(entry: Step) -> list[str]:
    """A note on what MFU counts, where attention's square is much of it."""
    if entry.causal_mfu > _MOSTLY * entry.mfu:
        return []
    windows = ", and windows more" if entry.model.window else ""
    return [
        "MFU counts all of attention's square, of which a causal mask hides"
        f" half{windows}: without that the first has {entry.causal_mfu:.1%}."
    ]


def _assumed(entry: Step) -> list[str]:
    """Which device a short name such as "H100" was taken as, that a cloud's instances
    aren't counted, and how tokens are routed to experts; empty for a whole name and no
    experts.
    """
    gpu = entry.cluster.gpu
    assumed = [gpu.assumed] if gpu.assumed else []
    if gpu.instance:
        count = f"{entry.cluster.gpus:,}"
        assumed.append(f"Planned are {count} of these, not {count} instances.")
    if not entry.model.experts:
        return assumed
    if entry.layout.balance == "learned":
        routing = (
            f"Routing learned (balance=learned): the fullest expert rank has"
            f" {LEARNED_OVERLOAD:.1f} times the mean, and later more"
        )
    else:
        routing = (
            "Routing forced even (balance=forced): a learned router may take up to"
            f" {LEARNED_SLOWDOWN:.1f} times as long"
        )
    return [*assumed, f"{routing} ({LEARNED_SOURCE})."]


def _ends(steps: Sequence[Step]) -> list[str]:
    """Notes on the numbers of chunks of which the outer two have a layer fewer."""
    layers = steps[0].model.layers
    counts = {entry.layout.pipeline * entry.layout.interleave for entry in steps}
    return [
        f"{n:,} chunks (pp x vp) hold {layers} layers + embedding + head."
        for n in sorted(counts)
        if layers % n and (layers + 2) % n == 0
    ]


@checked
def step(
    model: Transformer,
    cluster: Cluster,
    layout: Layout,
    batch: Count,
    *,
    constants: Constants = CONSTANTS,
) -> Step:
    """One step of `batch` sequences (of the whole cluster), calculated, not measured.

    A layout that needs more than the GPU's memory is calculated all the same: Step.fits
    says so, and require_fit raises. Raises LayoutError where layout, model, cluster and
    batch don't divide, with the nearest that would.
    """
    reason = why_not(model, cluster, layout, batch)
    if reason:
        raise LayoutError(reason)
    share = rank_share(model, cluster, layout, batch)
    seconds = MappingProxyType(parts(share, constants))
    bytes_by_purpose = MappingProxyType(memory(share))
    return Step(model, cluster, layout, batch, seconds, bytes_by_purpose)
