"""The cluster model compared with published steps: one row a run, predicted beside published, with the errors."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainplan.arguments import Count, Positive, checked
from trainplan.cluster.constants import CONSTANTS, Constants
from trainplan.cluster.hardware import Cluster, network
from trainplan.cluster.layout import Layout
from trainplan.cluster.software import Software
from trainplan.cluster.step_prediction import Step, step
from trainplan.costs.transformers import Transformer
from trainplan.errors import LayoutError, lookup
from trainplan.facts.agreement import Agreement, Compared
from trainplan.facts.csv_tables import published
from trainplan.facts.devices import find
from trainplan.tables import Shown
from trainplan.units import GIGA

TABLE = "planner_steps"  # written by scripts/published_steps.py from the other published tables
COMPARISONS = (
    "megatron", "selective recomputation", "zero bubble", "llm-foundry", "llm-foundry H100", "torchtitan", "nanotron",
    "nemo", "megatron bridge", "zero bubble memory",
)  # fmt: skip
NOT_FITTED = ("MaxText", "machines of 2026")  # TPUs; GB300, DeepSeek-V3, LoRA, and two whole trainings


@functools.cache
def _inputs(name: str) -> tuple[tuple[Transformer, Cluster, Layout, int], ...]:
    """What `step` needs for each row of one table."""
    made = []
    for row in _rows(name):
        read = {column: json.loads(row[column]) for column in ("model", "device", "cluster", "layout", "software")}
        device = replace(find(read["device"].pop("name")), **read["device"])
        inter = read["cluster"].pop("inter", None)
        read["cluster"]["torus"] = tuple(read["cluster"].get("torus", ())) or None
        cluster = Cluster(device, inter=None if inter is None else network(inter), **read["cluster"])
        layout = Layout(software=Software(**read["software"]), **read["layout"])
        made.append((Transformer(**read["model"]), cluster, layout, int(row["batch"])))
    return tuple(made)


def _rows(name: str) -> tuple[Mapping[str, str], ...]:
    return tuple(row for row in published(TABLE) if row["table"] == name)


def compare(name: str, constants: Constants = CONSTANTS) -> Agreement[Step]:
    """The model with any constants compared with a table of COMPARISONS: speeds, or GB on the fullest GPU."""
    rows = _rows(name)
    unit, compared = rows[0]["unit"], []
    for row, inputs in zip(rows, _inputs(name), strict=True):
        found = step(*inputs, constants=constants)
        predicted = found.memory_bytes / GIGA if unit == "GB" else found.tokens_per_s_per_gpu
        compared.append(Compared(row["label"], predicted, float(row["published"]), found))
    return Agreement(name, unit, tuple(compared), rows[0]["source"])


@checked
def published_steps(name: str) -> Agreement[Step]:
    """The model compared with a published table in COMPARISONS, or in NOT_FITTED, to which no constant was fitted.

    Raises BadArgument with the nearest name.
    """
    return compare(lookup(name, {table: table for table in (*COMPARISONS, *NOT_FITTED)}, "published table"))


@dataclass(frozen=True, repr=False)
class HeldAgainst(Compared[Step], Shown):
    """A run of the reader's own beside its prediction; speeds in tokens a second and GPU."""

    @property
    def expected(self) -> bool:
        """Whether the run is in the prediction's interval."""
        low, high = self.by.interval_s
        return low <= self.by.seconds * (1 + self.error) <= high

    def __str__(self) -> str:
        where = "within" if self.expected else "outside"
        why = "".join(f"; {reason}" for reason in self.by.outside)
        return (
            f"predicted {self.predicted:,.0f} tokens/s a GPU, measured {self.published:,.0f}: "
            f"{self.error:+.1%}, {where} the interval in which eight of ten published steps are{why}"
        )


@checked(error=LayoutError)
def held_against(
    model: Transformer, cluster: Cluster, layout: Layout, batch: Count, tokens_per_s_per_gpu: Positive
) -> HeldAgainst:
    """How far off the planner is on a run of `batch` sequences that reached a speed, in tokens a second and GPU."""
    found = step(model, cluster, layout, batch)
    return HeldAgainst(str(layout), found.tokens_per_s_per_gpu, float(tokens_per_s_per_gpu), found)
