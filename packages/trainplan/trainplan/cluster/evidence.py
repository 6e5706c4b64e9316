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

from gpufacts import Device, find
from trainplan import csv_tables
from trainplan.cluster.hardware import Cluster, network
from trainplan.cluster.layout import Layout
from trainplan.cluster.rank_share import dispatch
from trainplan.cluster.software import Software
from trainplan.costs.memory_costs import precision
from trainplan.costs.transformers import Transformer

# written by trainplan_published/planner_steps.py from the other published tables
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
    return tuple(_inputs(row) for row in rows(name))


def _inputs(row: Mapping[str, str]) -> Inputs:
    device_fields = json.loads(row["device"])
    cluster_fields = json.loads(row["cluster"])
    layout_fields = json.loads(row["layout"])
    software = Software(**json.loads(row["software"]))
    device = replace(find(device_fields.pop("name")), **device_fields)
    bytes_per_s = cluster_fields.pop("inter", None)
    hop_s = cluster_fields.pop("hop_s", 0.0)
    inter = None if bytes_per_s is None else network(bytes_per_s, hop_s=hop_s)
    torus = tuple(cluster_fields.pop("torus", ())) or None
    return (
        Transformer(**json.loads(row["model"])),
        Cluster(device, inter=inter, torus=torus, **cluster_fields),
        Layout(software=software, **layout_fields),
        int(row["batch"]),
    )


def generation(device: Device) -> str:
    """What devices have in common that are alike: an architecture of GPUs, a generation
    of TPUs.
    """
    return device.name if device.vendor == "Google" else device.architecture


def _kinds(model: Transformer, cluster: Cluster, layout: Layout) -> dict[str, object]:
    """What a step is, in words that two steps share or don't."""
    if layout.tensor == 1:
        tensor_place = "nowhere"
    elif layout.tensor <= cluster.gpus_per_node:
        tensor_place = "in a node"
    else:
        tensor_place = "in several nodes"
    return {
        "another device": generation(cluster.gpu),
        "another precision": precision(layout.dtype).compute_dtype.removeprefix("b"),
        "another level of ZeRO": max(layout.zero, 1),
        "tensor ranks in other places": tensor_place,
        "a pipeline in one of them": layout.pipeline > 1,
        "context ranks in one of them": layout.context > 1,
        "experts in one of them": model.experts > 0,
        "tokens sent to experts otherwise": dispatch(model, cluster, layout),
        "expert ranks in several nodes": layout.expert > cluster.gpus_per_node,
        "another routing": layout.balance if model.experts else "",
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
    if precision(layout.dtype).compute_dtype == "float8":
        return f"{table}, 8 bit"
    return table


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


class _Published(NamedTuple):
    """A published step: who measured it, and the rest as in Nearest, by which it is
    compared.
    """

    source: str
    label: str
    kind: str
    kinds: dict[str, object]
    sizes: dict[str, float]

    def distance(self, kinds: dict[str, object], sizes: dict[str, float]) -> float:
        """How unlike a step of these kinds and sizes it is."""
        n_kinds = sum(kinds[name] != self.kinds[name] for name in kinds)
        ratios = sum(abs(sizes[name] - self.sizes[name]) for name in sizes)
        return n_kinds + _SIZE * ratios


@functools.cache
def _published() -> tuple[_Published, ...]:
    """Every published speed."""
    steps = []
    for table, source in SOURCES.items():
        for row, (model, cluster, layout, batch) in zip(
            rows(table), inputs(table), strict=True
        ):
            step = _Published(
                source,
                label=f"{table}, {row['label']}",
                kind=kind(table, model, layout),
                kinds=_kinds(model, cluster, layout),
                sizes=_sizes(model, cluster, layout, batch),
            )
            steps.append(step)
    return tuple(steps)


def compared(name: str, value: object) -> bool:
    """Whether published steps, more than the few on machines of 2026, have a value of a
    kind of _kinds.
    """
    return any(
        step.kinds[name] == value
        for step in _published()
        if not step.kind.startswith("machines of 2026")
    )


@functools.lru_cache(maxsize=4096)
def nearest(
    model: Transformer,
    cluster: Cluster,
    layout: Layout,
    batch: int,
    without: str = "",
    same_device: bool = False,
) -> Nearest:
    """The Nearest published step to another, of all sources but one; with experts one
    that has some, and on the same generation of devices if that is asked for, where
    there is.
    """
    kinds = _kinds(model, cluster, layout)
    sizes = _sizes(model, cluster, layout, batch)
    steps = [step for step in _published() if step.source != without]
    has_experts = model.experts > 0
    alike = [step for step in steps if step.kind.endswith("experts") == has_experts]
    if same_device:
        device = generation(cluster.gpu)
        here = [step for step in alike if step.kinds["another device"] == device]
        alike = here or alike
    near = min(alike or steps, key=lambda step: step.distance(kinds, sizes))
    differs = [name for name in kinds if kinds[name] != near.kinds[name]]
    for name in sizes:
        ratio = math.exp(sizes[name] - near.sizes[name])
        if ratio >= 3:
            differs.append(f"{ratio:.0f} times the {name}")
        elif ratio <= 1 / 3:
            differs.append(f"1/{1 / ratio:.0f} of the {name}")
    return Nearest(near.label, near.kind, near.distance(kinds, sizes), tuple(differs))
