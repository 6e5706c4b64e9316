"""The published steps that the model is compared with, and how far from the nearest of them another step is."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from trainplan.cluster.hardware import Cluster, network
from trainplan.cluster.layout import Layout
from trainplan.cluster.software import Software
from trainplan.costs.memory_costs import precision
from trainplan.costs.transformers import Transformer
from trainplan.facts.csv_tables import published
from trainplan.facts.devices import Device, find

TABLE = "planner_steps"  # written by scripts/published_steps.py from the other published tables
SOURCES = {  # of the speeds in each table: who measured them
    "megatron": "Narayanan et al.", "selective recomputation": "Korthikanti et al.", "zero bubble": "Qi et al.",
    "llm-foundry": "llm-foundry", "llm-foundry H100": "llm-foundry", "torchtitan": "torchtitan",
    "nanotron": "nanotron", "nemo": "NVIDIA", "megatron bridge": "NVIDIA", "MaxText": "MaxText",
}  # fmt: skip
_SIZE = 1 / math.log(16)  # a size that is 16 times as large counts as much as another kind

Inputs = tuple[Transformer, Cluster, Layout, int]


class Nearest(NamedTuple):
    """The published step most like another, its class, how far off it is (1: one kind, or one size 16 times), in what.

    The class is its table, and what of it is hard to predict: "megatron bridge, experts".
    """

    label: str
    kind: str
    distance: float
    differs: tuple[str, ...]


def rows(name: str) -> tuple[Mapping[str, str], ...]:
    """The published steps of a table."""
    return tuple(row for row in published(TABLE) if row["table"] == name)


@functools.cache
def inputs(name: str) -> tuple[Inputs, ...]:
    """What `step` needs for each row of a table."""
    made = []
    for row in rows(name):
        read = {column: json.loads(row[column]) for column in ("model", "device", "cluster", "layout", "software")}
        device = replace(find(read["device"].pop("name")), **read["device"])
        inter, hop_s = read["cluster"].pop("inter", None), read["cluster"].pop("hop_s", 0.0)
        read["cluster"]["torus"] = tuple(read["cluster"].get("torus", ())) or None
        cluster = Cluster(device, inter=None if inter is None else network(inter, hop_s=hop_s), **read["cluster"])
        layout = Layout(software=Software(**read["software"]), **read["layout"])
        made.append((Transformer(**read["model"]), cluster, layout, int(row["batch"])))
    return tuple(made)


def generation(device: Device) -> str:
    """What devices have in common that are alike: an architecture of GPUs, a generation of TPUs."""
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
        "another schedule": layout.schedule,
        "another library": _habits(layout.software),
        "another attention": model.fused_attention,
        "an offloaded optimizer": layout.offload,
        "groups that split among themselves": layout.shard is not None,
    }


def _habits(software: Software) -> tuple[object, ...]:
    """What of a library shows in a step's time, but for its ZeRO-3."""
    return (
        software.attention, software.fused, software.early_stop, software.fused_gradients, software.copied_gathers,
        software.messages,
    )  # fmt: skip


def kind(table: str, model: Transformer, layout: Layout) -> str:
    """The class of a step of a table."""
    if model.experts:
        return f"{table}, experts"
    return f"{table}, 8 bit" if precision(layout.dtype).compute_dtype == "float8" else table


def _sizes(model: Transformer, cluster: Cluster, layout: Layout, batch: int) -> dict[str, float]:
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
    """Source, class, label, kinds and sizes of every published speed."""
    return tuple(
        (source, kind(name, made[0], made[2]), row["label"], _kinds(*made[:3]), _sizes(*made))
        for name, source in SOURCES.items()
        for row, made in zip(rows(name), inputs(name), strict=True)
    )


@functools.lru_cache(maxsize=4096)
def nearest(model: Transformer, cluster: Cluster, layout: Layout, batch: int, without: str = "") -> Nearest:
    """The Nearest published step to another; of all sources but one."""
    kinds, sizes = _kinds(model, cluster, layout), _sizes(model, cluster, layout, batch)

    def distance(their_kinds: dict[str, object], their_sizes: dict[str, float]) -> float:
        far = sum(kinds[name] != their_kinds[name] for name in kinds)
        return far + _SIZE * sum(abs(sizes[name] - their_sizes[name]) for name in sizes)

    known = [one for one in _known() if one[0] != without]
    source, found, label, their_kinds, their_sizes = min(known, key=lambda one: distance(*one[3:]))
    differs = [name for name in kinds if kinds[name] != their_kinds[name]]
    for name in sizes:
        times = math.exp(sizes[name] - their_sizes[name])
        if not 1 / 3 < times < 3:
            differs.append(f"{max(times, 1 / times):.0f} times {'as much' if times > 1 else 'less'} in {name}")
    return Nearest(f"{source}, {label}", found, distance(their_kinds, their_sizes), tuple(differs))
