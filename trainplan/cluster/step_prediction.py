"""A predicted training step on a cluster: its time and memory by part, its rates and
utilisation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from trainplan.arguments import Count, Positive, checked
from trainplan.cluster.constants import CONSTANTS, REPORTED, SPREAD, WIDENED, Constants
from trainplan.cluster.evidence import Nearest, compared, generation, nearest
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import Layout, why_not
from trainplan.cluster.rank_memory import memory
from trainplan.cluster.rank_share import rank_share
from trainplan.cluster.software import SOFTWARE, TORCH
from trainplan.cluster.step_time import parts
from trainplan.costs.memory_costs import precision
from trainplan.costs.transformers import Transformer
from trainplan.errors import LayoutError
from trainplan.tables import Shown, Table
from trainplan.units import format_bytes, format_seconds, format_si, significant

# distance of the nearest published step from which its interval may not hold
_FAR = 2.0
# libraries of SOFTWARE that run on any cluster of GPUs
PRESETS = ("torch", "Megatron-LM", "Transformer Engine")
# devices of a step that was fitted, or for TPUs compared
_MOST_GPUS = 3072
_MOST = {"Google": 8192}
EXPERTS = "published steps with experts were up to a factor of two slower or faster"


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
    def fits(self) -> bool:
        """Whether the fullest GPU's bytes leave the cluster's reserve of its memory
        free.
        """
        return self.memory_bytes <= self.usable_bytes

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
        presets = {name: replace(SOFTWARE[name], reshard=reshard) for name in PRESETS}
        layouts = {
            name: replace(self.layout, software=software)
            for name, software in presets.items()
        }
        shares = {
            name: rank_share(self.model, self.cluster, one, self.batch)
            for name, one in layouts.items()
        }
        return {name: sum(parts(share).values()) for name, share in shares.items()}

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
        return min((self.seconds / width, *others)), max(
            (self.seconds * width, *others)
        )

    @property
    def outside(self) -> tuple[str, ...]:
        """Why the interval may not hold: where this step is unlike all that the model
        was compared with.
        """
        near = self.nearest
        far = f"the nearest published step ({near.label}) has {', '.join(near.differs)}"
        return (*self.unlike, far) if near.distance > _FAR else self.unlike

    @property
    def unlike(self) -> tuple[str, ...]:
        """What of this step makes predictions worse, whatever was published."""
        layout = self.layout
        gpu = self.cluster.gpu
        room = self.capacity_bytes
        most = _MOST.get(gpu.vendor, _MOST_GPUS)
        on_gpus = gpu.vendor != "Google"
        computing = self.parts["compute"] + self.parts["recompute"]
        compute_dtype = precision(layout.dtype).compute_dtype
        scheduled = compared("another schedule", layout.schedule)
        reasons = {
            EXPERTS: self.model.experts > 0,
            "few or no published steps were compared on this device": not compared(
                "another device", generation(gpu)
            ),
            "no published step was computed in float32 or tf32": (
                compute_dtype in ("float32", "tf32")
            ),
            "no published step was computed in 4 bit": compute_dtype == "float4",
            "two published steps alone trained adapters": self.model.adapters > 0,
            f"the constants were fitted to steps on at most {most:,} of them": (
                self.cluster.gpus > most
            ),
            "no published step had tensor ranks in several nodes": (
                layout.tensor > self.cluster.gpus_per_node
            ),
            "less than two fifths of it is compute": computing < 0.4 * self.seconds,
            "the memory is all but full, which costs time": (
                not self.fits and self.memory_bytes <= REPORTED * room
            ),
            "it needs more memory than there is": self.memory_bytes > REPORTED * room,
            f"few or no published steps had the schedule {layout.schedule}": (
                not scheduled
            ),
            "no published step offloaded its optimizer": layout.offload,
            "no published step had groups of ranks that split among themselves": (
                layout.shard is not None and on_gpus
            ),
        }
        return tuple(reason for reason, holds in reasons.items() if holds)

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
        """Model FLOP utilisation, 0 to 1, of the vendor's dense peak, by
        Transformer.flop_per_token.
        """
        top = self.cluster.gpu.peaks.get(precision(self.layout.dtype).compute_dtype)
        assert top is not None  # the step's time needed it
        return self.tokens_per_s_per_gpu * self.model.flop_per_token / top

    @checked
    def train_s(self, tokens: Positive) -> float:
        """Seconds that a run of `tokens` takes, without failures."""
        return tokens / self.tokens_per_s

    def table(self) -> Table:
        """Time and memory by part."""
        rows = [
            (part, format_seconds(s), f"{s / self.seconds:.1%}")
            for part, s in self.parts.items()
        ]
        rows += [("step", format_seconds(self.seconds), "100 %")]
        rows += [
            (purpose, format_bytes(b), f"{b / self.memory_bytes:.1%}")
            for purpose, b in self.memory.items()
        ]
        rows += [
            (
                "memory",
                format_bytes(self.memory_bytes),
                f"of {format_bytes(self.capacity_bytes)}",
            )
        ]
        rows = [row for row in rows if row[2] != "0.0%"]
        return Table(
            tuple(rows),
            ("part", "calculated", "share"),
            title=str(self.layout),
            notes=(self._sentence(),),
        )

    @property
    def worth(self) -> str:
        """What the seconds are worth, as a sentence's end: interval, library, and why
        the interval may not hold.
        """
        low, high = map(format_seconds, self.interval_s)
        known = (name for name, one in SOFTWARE.items() if one == self.layout.software)
        library = self.layout.software.library or next(known, "a library of its own")
        others = ", ".join(
            f"{name} {format_seconds(s)}"
            for name, s in self.by_library.items()
            if name != library
        )
        said = (
            f"Eight of ten published steps would be within {low} to {high}. Calculated"
            f" for {library}"
        )
        said += f" (with {others})" * bool(others)
        return said + "; but " * bool(self.outside) + ", and ".join(self.outside)

    def _sentence(self) -> str:
        return (
            f"{format_seconds(self.seconds)} a step,"
            f" {format_si(self.tokens_per_s, 'tokens/s')}, MFU {self.mfu:.1%},"
            f" {format_bytes(self.memory_bytes)} of {format_bytes(self.capacity_bytes)}"
            f" a GPU. {self.worth}"
        )

    def __str__(self) -> str:
        return f"{self.layout}: {self._sentence()}"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def sequences(batch: int, model: Transformer) -> str:
    """A batch in words, by its sequences and its tokens."""
    return f"{batch:,} sequence{'s' * (batch != 1)} ({batch * model.seq:,} tokens)"


def steps_table(
    steps: Sequence[Step], tokens: float | None = None, notes: Sequence[str] = ()
) -> Table:
    """A row a layout of one model on one cluster, and below what the numbers are worth;
    `tokens` are a whole run's.
    """
    rows = [
        (
            one.layout.short,
            format_seconds(one.seconds) + " ?" * bool(one.outside),
            format_si(one.tokens_per_s, "tokens/s").removesuffix(" tokens/s"),
            f"{one.mfu:.1%}",
            format_bytes(one.memory_bytes),
            *(
                []
                if tokens is None
                else [f"{significant(one.train_s(tokens) / 86_400)} days"]
            ),
        )
        for one in steps
    ]
    first = steps[0]
    headings = ("layout", "step", "tokens/s", "MFU", "memory")
    worth = f"Calculated, not measured. Of the first: {first.worth}."
    if any(one.outside for one in steps):
        worth += " A step with ? is unlike all that the model was compared with."
    layers = first.model.layers
    counts = {one.layout.pipeline * one.layout.interleave for one in steps}
    uneven = [n for n in sorted(counts) if layers % n and not (layers + 2) % n]
    ends = [
        f"{n:,} chunks (pp x vp) hold {layers} layers + embedding + head."
        for n in uneven
    ]
    batch = (
        f"{sequences(first.batch, first.model)} a step,"
        f" {format_bytes(first.capacity_bytes)} a GPU"
    )
    title = f"{first.model}\n{first.cluster}\n{batch}"
    run = ("run",) * (tokens is not None)
    return Table(tuple(rows), headings + run, title=title, notes=(worth, *ends, *notes))


@checked(error=LayoutError)
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
    if reason := why_not(model, cluster, layout, batch):
        raise LayoutError(reason)
    share = rank_share(model, cluster, layout, batch)
    seconds = MappingProxyType(parts(share, constants))
    held = MappingProxyType(memory(share))
    return Step(model, cluster, layout, batch, seconds, held)
