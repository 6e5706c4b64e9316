"""The published steps that the model is compared with, and how far from the nearest of
them another step is.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from trainplan import csv_tables
from trainplan.cluster.hardware import Cluster, network
from trainplan.cluster.layout import Layout
from trainplan.cluster.software import Software
from trainplan.costs.memory_costs import precision
from trainplan.costs.transformers import Transformer
from trainplan.facts.devices import Device, find

# written by scripts/published_steps.py from the other published tables
TABLE = "planner_steps"
# table of published speeds -> who measured them
SOURCES = {
    row["class"]: row["measured_by"]
    for row in csv_tables.rows("planner_classes")
    if row["measured_by"]
}
# of Software, what shows in a step's time, but for its ZeRO-3
_HABITS = (
    "attention",
    "fused",
    "early_stop",
    "fused_gradients",
    "copied_gathers",
    "messages",
)
# a size that is 16 times as large counts as much as another kind
_SIZE = 1 / math.log(16)

Inputs = tuple[Transformer, Cluster, Layout, int]


class Nearest(NamedTuple):
    """The published step most like another, its class, how far off it is (1: one kind,
    or one size 16 times), in what.

    The class is its table, and what of it is hard to predict: "megatron bridge,
    experts".
    """

    label: str
    kind: str
    distance: float
    differs: tuple[str, ...]


def rows(name: str) -> tuple[Mapping[str, str], ...]:
    """The published steps of a table."""
    return tuple(row for row in csv_tables.published(TABLE) if row["table"] == name)


@functools.cache
def inputs(name: str) -> tuple[Inputs, ...]:
    """What `step` needs for each row of a table."""
    made = []
    for row in rows(name):
        read = {
            column: json.loads(row[column])
            for column in ("model", "device", "cluster", "layout", "software")
        }
        device = replace(find(read["device"].pop("name")), **read["device"])
        inter = read["cluster"].pop("inter", None)
        hop_s = read["cluster"].pop("hop_s", 0.0)
        read["cluster"]["torus"] = tuple(read["cluster"].get("torus", ())) or None
        cluster = Cluster(
            device,
            inter=None if inter is None else network(inter, hop_s=hop_s),
            **read["cluster"],
        )
        layout = Layout(software=Software(**read["software"]), **read["layout"])
        made.append((Transformer(**read["model"]), cluster, layout, int(row["batch"])))
    return tuple(made)


def generation(device: Device) -> str:
    """What devices have in common that are alike: an architecture of GPUs, a generation
    of TPUs.
    """
    return device.name if device.vendor == "Google" else device.architecture


def _kinds(model: Transformer, cluster: Cluster, layout: Layout) -> dict[str, object]:
    """What a step is, in words that two steps share or don't."""
    over_nodes = layout.tensor > cluster.gpus_per_node
    return {
        "another device": generation(cluster.gpu),
        "another precision": precision(layout.dtype).compute_dtype.removeprefix("b"),
        "another level of ZeRO": max(layout.zero, 1),
        "tensor ranks in other places": (layout.tensor > 1) + over_nodes,
        "a pipeline in one of them": layout.pipeline > 1,
        "context ranks in one of them": layout.context > 1,
        "experts in one of them": model.experts > 0,
        "adapters in one of them": model.adapters > 0,
        "another schedule": layout.schedule,
        "another library": [getattr(layout.software, name) for name in _HABITS],
        "another attention": model.fused_attention,
        "an offloaded optimizer": layout.offload,
        "groups that split among themselves": layout.shard is not None,
    }


def kind(table: str, model: Transformer, layout: Layout) -> str:
    """The class of a step of a table."""
    if model.experts:
        return f"{table}, experts"
    return (
        f"{table}, 8 bit"
        if precision(layout.dtype).compute_dtype == "float8"
        else table
    )


def _sizes(
    model: Transformer, cluster: Cluster, layout: Layout, batch: int
) -> dict[str, float]:
    """How large a step is, as logarithms."""
    tokens = batch * model.seq
    sizes = {
        "GPUs": cluster.gpus,
        "parameters": model.params,
        "work a GPU and step": tokens * model.flop_per_token / cluster.gpus,
        "tokens at once": layout.micro_batch * model.seq / layout.context,
    }
    return {name: math.log(size) for name, size in sizes.items()}


@functools.cache
def _known() -> tuple[tuple[str, str, str, dict[str, object], dict[str, float]], ...]:
    """Source, class, label with the table, kinds and sizes of every published speed."""
    return tuple(
        (
            source,
            kind(name, made[0], made[2]),
            f"{name}, {row['label']}",
            _kinds(*made[:3]),
            _sizes(*made),
        )
        for name, source in SOURCES.items()
        for row, made in zip(rows(name), inputs(name), strict=True)
    )


def compared(kind: str, value: object) -> bool:
    """Whether published steps, more than the few on machines of 2026, have a value of a
    kind of _kinds.
    """
    return any(
        theirs[kind] == value
        for _, table, _, theirs, _ in _known()
        if not table.startswith("machines of 2026")
    )


@functools.lru_cache(maxsize=4096)
def nearest(
    model: Transformer, cluster: Cluster, layout: Layout, batch: int, without: str = ""
) -> Nearest:
    """The Nearest published step to another, of all sources but one; with experts one
    that has some, where there is.
    """
    kinds = _kinds(model, cluster, layout)
    sizes = _sizes(model, cluster, layout, batch)

    def distance(
        their_kinds: dict[str, object], their_sizes: dict[str, float]
    ) -> float:
        far = sum(kinds[name] != their_kinds[name] for name in kinds)
        return far + _SIZE * sum(abs(sizes[name] - their_sizes[name]) for name in sizes)

    known = [one for one in _known() if one[0] != without]
    known = [
        one for one in known if one[1].endswith("experts") == (model.experts > 0)
    ] or known
    _, found, label, their_kinds, their_sizes = min(
        known, key=lambda one: distance(*one[3:])
    )
    differs = [name for name in kinds if kinds[name] != their_kinds[name]]
    for name in sizes:
        times = math.exp(sizes[name] - their_sizes[name])
        if not 1 / 3 < times < 3:
            differs.append(
                f"{max(times, 1 / times):.0f} times"
                f" {'as much' if times > 1 else 'less'} in {name}"
            )
    return Nearest(label, found, distance(their_kinds, their_sizes), tuple(differs))
