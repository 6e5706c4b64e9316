"""What differs between two training steps, and what each difference is worth by the
planner's own calculation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from trainplan._tables import ShownAsTable, Table
from trainplan._text import brief_repr, nearest
from trainplan._units import GIGA, TERA, significant
from trainplan.cluster import evidence
from trainplan.cluster.agreement import Compared
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import Layout
from trainplan.cluster.software import SOFTWARE, Software
from trainplan.cluster.step_prediction import Step, step
from trainplan.costs.transformers import Transformer
from trainplan.errors import LayoutError

# of a Transformer, what isn't its sizes
_ATTENTION = ("fused_attention", "dropout")
_ROUTING = ("balance", "capacity", "max_nodes")
_NAMES = ("name", "source")
# of a Layout, by the row of the table that they make
_RANKS = ("tensor", "pipeline", "context", "expert", "interleave", "schedule")
_SPLIT = ("zero", "shard", "offload", "prefetch", "reshard_after_forward")
# of a Software; all others make the row "library"
_COMPILE = ("fused", "fused_loss")
_KERNEL = ("attention",)
_DISPATCH = ("dispatch", "float8_dispatch", "expert_overlap")
_GRAPHS = ("graphs",)
_SMALL = 0.005  # how much of the speed a difference is worth that has no row in a table
# what no step is told, and so makes what is left unexplained
NOT_COMPARED = (
    "clocks and power limits, data loading, other traffic on the network, versions of"
    " libraries, and how evenly a learned router fills experts"
)


class Difference(NamedTuple):
    """One thing that differs, in words; `worth` is how many times as fast the first run
    is calculated to get by having it as the second.
    """

    name: str
    mine: str
    theirs: str
    worth: float


@dataclass(frozen=True, repr=False)
class Differences(ShownAsTable):
    """What differs between a run and another, what is worth most first.

    Worths are of tokens a second and GPU, each on top of those before it was applied:
    their product is `predicted`, the other run's prediction over this one's.
    `measured` is the same of what was measured, and `unexplained` what is left. In
    eight of ten published steps that is at most `usual`, or its reciprocal.
    """

    against: str
    rows: tuple[Difference, ...]
    measured: float
    usual: float

    @property
    def predicted(self) -> float:
        """How many times as fast the other run is calculated to be."""
        return math.prod(row.worth for row in self.rows)

    @property
    def unexplained(self) -> float:
        """How many times as fast the other run is beyond what is calculated."""
        return self.measured / self.predicted

    @property
    def _verdict(self) -> str:
        """Whether what is left unexplained is more than a prediction's usual error."""
        if all(abs(row.worth - 1) <= _SMALL for row in self.rows):
            return "All of the gap lies in what isn't compared."
        if 1 / self.usual <= self.unexplained <= self.usual:
            return (
                "What is left unexplained is no more than predictions are usually off"
                f" by: x {1 / self.usual:.2f} to {self.usual:.2f}."
            )
        slower, faster = "theirs", "yours"
        if self.unexplained > 1:
            slower, faster = faster, slower
        return (
            "More is left unexplained than predictions are usually off by: look for"
            f" what slows {slower}, or makes {faster} faster."
        )

    def table(self) -> Table:
        """A row a difference, then their product, what was measured, and the rest."""
        large = [row for row in self.rows if abs(row.worth - 1) > _SMALL]
        small = [row.name for row in self.rows if abs(row.worth - 1) <= _SMALL]
        cells = [(row.name, row.mine, row.theirs, _times(row.worth)) for row in large]
        cells += [
            ("calculated", "", "", _times(self.predicted)),
            ("measured", "", "", _times(self.measured)),
            ("unexplained", "", "", _times(self.unexplained)),
        ]
        rest = f" Worth nothing or next to it: {', '.join(small)}." if small else ""
        if not self.rows:
            rest = " Nothing that is compared differs."
        return Table(
            tuple(cells),
            ("what differs", "yours", "theirs", "worth"),
            title=f"Against {self.against}, in tokens a second and GPU",
            notes=(
                "Worth is calculated: how many times as fast yours gets by having it as"
                f" theirs, one after the other.{rest}",
                f"{self._verdict} Not compared: {NOT_COMPARED}.",
            ),
        )


def _times(worth: float) -> str:
    return f"x {worth:.2f}" if worth >= 0.1 else f"x {worth:.2g}"


class _Run(NamedTuple):
    """What a step is calculated from."""

    model: Transformer
    cluster: Cluster
    layout: Layout
    batch: int

    def speed(self) -> float | None:
        """Tokens a second and GPU; None where this can't be calculated, such as a
        layout that doesn't divide.
        """
        try:
            return step(*self).tokens_per_s_per_gpu
        except LayoutError:
            return None


# one thing of a run made as another run has it
_Change = Callable[[_Run, _Run], _Run]


def published_run(label: str) -> Compared[Step]:
    """A published step beside its prediction, by its table and label, such as Nearest
    has, or by a part of them that no other has. Raises ValueError with the nearest.
    """
    runs = {
        f"{table}, {row['label']}": (table, i)
        for table in evidence.SOURCES
        for i, row in enumerate(evidence.rows(table))
    }
    parts = [whole for whole in runs if label.casefold() in whole.casefold()]
    if label not in runs and len(parts) > 1:
        raise ValueError(
            f"Expected more of a published step's label than {brief_repr(label)}, which"
            f" {len(parts)} have, such as {parts[0]!r} and {parts[1]!r}."
        )
    if len(parts) == 1:
        label = parts[0]
    if label not in runs:
        raise ValueError(
            "Expected the table and label of a published step, got"
            f" {brief_repr(label)}. The nearest are {'; '.join(nearest(label, runs))}."
        )
    table, i = runs[label]
    planned = step(*evidence.inputs(table)[i])
    published = float(evidence.rows(table)[i]["published"])
    return Compared(label, planned.tokens_per_s_per_gpu, published, planned)


def differences(mine: Compared[Step], theirs: Compared[Step]) -> Differences:
    """What differs between two runs, each measured and predicted in tokens a second and
    GPU.
    """
    start = _run(mine.by)
    goal = _run(theirs.by)
    left = {
        name: change
        for name, change in _CHANGES.items()
        if _changed(start, goal, [change]) != start
    }
    rows = []
    run = start
    while left:
        names, changed, worth = _next(run, goal, left)
        rows.append(_difference(names, run, changed, worth))
        run = changed
        for name in names:
            del left[name]
    rows.sort(key=lambda row: -abs(math.log(row.worth)))
    measured = theirs.published / mine.published
    usual = mine.by.interval_s[1] / mine.by.seconds
    return Differences(theirs.label, tuple(rows), measured, usual)


def _run(planned: Step) -> _Run:
    """What a step is calculated from, without the rules of its library, which a mixture
    of two runs may break.
    """
    software = replace(planned.layout.software, library="")
    layout = replace(planned.layout, software=software)
    model = replace(planned.model, name="", source="")
    return _Run(model, planned.cluster, layout, planned.batch)


def _next(
    run: _Run, goal: _Run, left: Mapping[str, _Change]
) -> tuple[tuple[str, ...], _Run, float]:
    """The changes to make next, what they make of a run, and how many times as fast
    that is: the one that is worth most.

    Several at once where each alone makes what can't be calculated, such as tensor
    ranks that don't divide the heads of the other model. The last make the other run.
    """
    before = run.speed()
    assert before is not None
    for groups in _together(list(left)):
        candidates = []
        for names in groups:
            if len(names) == len(left):
                changed: _Run | None = goal
            else:
                changed = _changed(run, goal, [left[name] for name in names])
            after = None if changed is None else changed.speed()
            if changed is not None and after is not None:
                candidates.append((names, changed, after / before))
        if candidates:
            return max(candidates, key=lambda made: abs(math.log(made[2])))
    raise AssertionError("all changes together make the other run")


def _changed(run: _Run, goal: _Run, changes: Sequence[_Change]) -> _Run | None:
    """A run with some changes; None where no such model or cluster can be, as with a
    torus of other sides.
    """
    try:
        for change in changes:
            run = change(run, goal)
    except ValueError:
        return None
    return run


def _together(names: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """Groups of changes to try, alone first, then more together."""
    for size in (1, 2, 3):
        yield list(itertools.combinations(names, min(size, len(names))))
    yield [tuple(names)]


def _difference(
    names: Sequence[str], run: _Run, changed: _Run, worth: float
) -> Difference:
    """The row of changes that were made at once."""
    mine = ", ".join(_SAID[name](run) for name in names)
    theirs = ", ".join(_SAID[name](changed) for name in names)
    if mine == theirs and "device" in names:  # of one name, such as slower variants
        both = list(zip(_rates(run), _rates(changed), strict=True))
        mine = ", ".join(rate for rate, other in both if rate != other)
        theirs = ", ".join(other for rate, other in both if rate != other)
    return Difference(" and ".join(names), mine, theirs, worth)


# ---- what may differ, how it is changed, and how it is said ----


def _model_fields(names: Sequence[str]) -> _Change:
    known = {field.name for field in fields(Transformer)}

    def change(run: _Run, goal: _Run) -> _Run:
        # what a model without experts can't have
        routing = (
            _ROUTING if bool(run.model.experts) != bool(goal.model.experts) else ()
        )
        values = {
            name: getattr(goal.model, name)
            for name in (*names, *(routing if "experts" in names else ()))
            if name in known
        }
        return run._replace(model=replace(run.model, **values))

    return change


def _layout_fields(names: Sequence[str]) -> _Change:
    """A change of fields of the layout, of which the data ranks follow."""
    known = {field.name for field in fields(Layout)}

    def change(run: _Run, goal: _Run) -> _Run:
        values = {name: getattr(goal.layout, name) for name in names if name in known}
        layout = replace(run.layout, data=1, **values)
        data = max(run.cluster.gpus // layout.gpus, 1)
        return run._replace(layout=replace(layout, data=data))

    return change


def _software_fields(names: Sequence[str]) -> _Change:
    known = {field.name for field in fields(Software)}

    def change(run: _Run, goal: _Run) -> _Run:
        habits = goal.layout.software
        values = {name: getattr(habits, name) for name in names if name in known}
        software = replace(run.layout.software, **values)
        return run._replace(layout=replace(run.layout, software=software))

    return change


def _one_after_the_other(*changes: _Change) -> _Change:
    def change(run: _Run, goal: _Run) -> _Run:
        for part in changes:
            run = part(run, goal)
        return run

    return change


def _with_device(run: _Run, goal: _Run) -> _Run:
    """The other run's kind of GPU and links, in as large a cluster as before."""
    node = min(goal.cluster.gpus_per_node, run.cluster.gpus)
    same = (
        run.cluster.gpu == goal.cluster.gpu
        and run.cluster.inside == goal.cluster.inside
        and run.cluster.between == goal.cluster.between
        and run.cluster.torus == goal.cluster.torus
        and min(run.cluster.gpus_per_node, run.cluster.gpus) == node
    )
    if same:
        return run
    return run._replace(
        cluster=replace(goal.cluster, gpus=run.cluster.gpus, gpus_per_node=node)
    )


def _with_gpus(run: _Run, goal: _Run) -> _Run:
    """As many GPUs as the other run has, with as many sequences each."""
    gpus = goal.cluster.gpus
    if gpus == run.cluster.gpus:
        return run
    layout = replace(run.layout, data=1)
    is_same_device = run.cluster.gpu == goal.cluster.gpu
    node = (goal if is_same_device else run).cluster.gpus_per_node
    node = min(node, gpus)
    return run._replace(
        cluster=replace(run.cluster, gpus=gpus, gpus_per_node=node),
        layout=replace(layout, data=max(gpus // layout.gpus, 1)),
        batch=max(round(run.batch * gpus / run.cluster.gpus), 1),
    )


def _with_batch(run: _Run, goal: _Run) -> _Run:
    """As many sequences a GPU as the other run has."""
    batch = max(round(goal.batch * run.cluster.gpus / goal.cluster.gpus), 1)
    return run._replace(batch=batch)


_OTHER_MODEL = tuple(
    field.name
    for field in fields(Transformer)
    if field.name not in (*_ATTENTION, *_ROUTING, *_NAMES, "seq")
)
_SOFTWARE = tuple(field.name for field in fields(Software))
_LIBRARY = tuple(
    name
    for name in _SOFTWARE
    if name not in (*_COMPILE, *_KERNEL, *_DISPATCH, *_GRAPHS, "library")
)
_CHANGES: Mapping[str, _Change] = {
    "model": _model_fields(_OTHER_MODEL),
    "sequence": _model_fields(("seq",)),
    "routing": _model_fields(_ROUTING),
    "device": _with_device,
    "GPUs": _with_gpus,
    "sequences a GPU": _with_batch,
    "precision": _layout_fields(("dtype", "optimizer")),
    "recompute": _layout_fields(("recompute",)),
    "micro-batch": _layout_fields(("micro_batch",)),
    "ranks": _layout_fields((*_RANKS, "sequence_parallel")),
    "ZeRO": _layout_fields((*_SPLIT, "overlap")),
    "compile": _software_fields(_COMPILE),
    "attention": _one_after_the_other(
        _model_fields(_ATTENTION), _software_fields(_KERNEL)
    ),
    "dispatch": _software_fields(_DISPATCH),
    "CUDA graphs": _software_fields(_GRAPHS),
    "library": _software_fields(_LIBRARY),
}


def _ranks_said(run: _Run) -> str:
    layout = run.layout
    said = f"tp={layout.tensor},pp={layout.pipeline}"
    for short, value in (
        ("cp", layout.context),
        ("ep", layout.expert),
        ("vp", layout.interleave),
    ):
        if value > 1:
            said += f",{short}={value}"
    return said if layout.schedule == "1F1B" else f"{said},{layout.schedule}"


def _device_said(run: _Run) -> str:
    node = min(run.cluster.gpus_per_node, run.cluster.gpus)
    return f"{run.cluster.gpu.name}, {node} a node"


def _rates(run: _Run) -> tuple[str, str, str]:
    """What a device is beside its name: bytes a second of its memory and of its link
    between nodes, and watts.
    """
    gpu = run.cluster.gpu
    memory = gpu.bandwidth_bytes_per_s or 0
    link = run.cluster.between.bytes_per_s
    return (
        f"{memory / TERA:.3g} TB/s",
        f"{gpu.tdp_w or 0:g} W",
        f"link {link / GIGA:.3g} GB/s",
    )


def _split_said(run: _Run) -> str:
    layout = run.layout
    said = f"zero={layout.zero}"
    if layout.shard is not None:
        said += f" in groups of {layout.shard}"
    return said + ", offloaded" * layout.offload


def _compile_said(run: _Run) -> str:
    software = run.layout.software
    compiled = "blocks" * software.fused, "loss" * software.fused_loss
    return " and ".join(part for part in compiled if part) or "nothing fused"


def _attention_said(run: _Run) -> str:
    if not run.model.fused_attention:
        return "not fused"
    return f"FlashAttention-{run.layout.software.attention}"


def _library_said(run: _Run) -> str:
    """The presets that work like this one in all that makes the row "library"."""
    habits = [getattr(run.layout.software, name) for name in _LIBRARY]
    for name, preset in SOFTWARE.items():
        if [getattr(preset, field) for field in _LIBRARY] == habits:
            return name
    return "its own habits"


def _fields_said(names: Sequence[str], of_software: bool) -> Callable[[_Run], str]:
    """What is set of some fields of a model, or of a software."""

    def said(run: _Run) -> str:
        holder = run.layout.software if of_software else run.model
        values = [getattr(holder, name) for name in names if hasattr(holder, name)]
        return ", ".join(map(str, values))

    return said


_SAID: Mapping[str, Callable[[_Run], str]] = {
    "model": lambda run: f"{significant(run.model.params / GIGA)}B parameters",
    "sequence": lambda run: f"{run.model.seq:,} tokens",
    "routing": _fields_said(_ROUTING, of_software=False),
    "device": _device_said,
    "GPUs": lambda run: f"{run.cluster.gpus:,}",
    "sequences a GPU": lambda run: f"{run.batch / run.cluster.gpus:g}",
    "precision": lambda run: run.layout.dtype,
    "recompute": lambda run: run.layout.recompute,
    "micro-batch": lambda run: str(run.layout.micro_batch),
    "ranks": _ranks_said,
    "ZeRO": _split_said,
    "compile": _compile_said,
    "attention": _attention_said,
    "dispatch": _fields_said(_DISPATCH, of_software=True),
    "CUDA graphs": _fields_said(_GRAPHS, of_software=True),
    "library": _library_said,
}
