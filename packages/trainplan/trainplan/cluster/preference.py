"""Which of several layouts that are calculated to be as fast an engineer would take:
one with published runs behind it, the library's recipe, few chunks, room in memory.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpufacts import find
from trainplan.cluster.constants import MEDIAN_LEFT_OUT, WIDENED
from trainplan.cluster.evidence import generation
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import Layout
from trainplan.cluster.step_prediction import Step
from trainplan.costs.transformers import Transformer
from trainplan.csv_tables import rows

_RANKS = ("tensor", "pipeline", "context", "expert")
_ROOMY = 8  # tenths of a GPU's memory up to which more room is worth nothing
_USUAL_SEQ = 8192  # tokens at most of a recipe that doesn't say how long sequences are
# what a Preference is better in, by its field, as a sentence goes on
_REASONS = {
    "doubts": "is more like published steps",
    "single": "has chunks of more than one layer",
    "recipe": "is laid out as a recipe of its library",
    "chunks": "has fewer chunks",
    "tenths": "leaves more memory free",
    "kinds": "has fewer kinds of parallelism",
    "seconds": "is faster",
}


class Preference(NamedTuple):
    """What speaks against a layout, the weightiest first: the least is preferred.

    `doubts`: reasons why the step's interval may not hold. `single`: whether chunks
    are a single layer. `recipe`: 0 where a recipe that its library ships for the model
    has these ranks and chunks on such a GPU, 1 where it has these ranks, else 2.
    `chunks`: of a pipeline rank. `tenths`: of the GPU's memory that are begun, where
    more than _ROOMY are. `kinds`: of parallelism beside data ranks.
    """

    doubts: int
    single: bool
    recipe: int
    chunks: int
    tenths: int
    kinds: int
    seconds: float


def idea(layout: Any) -> tuple[bool, ...]:
    """What makes layouts different ideas, not neighbors: the kinds of parallelism, and
    whether data ranks split the parameters.

    `layout` is a Layout, or has its ranks and its level of ZeRO.
    """
    kinds = (getattr(layout, ranks) > 1 for ranks in _RANKS)
    return (*kinds, layout.zero == 3)


def preference(planned: Step) -> Preference:
    """The Preference of a calculated step."""
    layout = planned.layout
    stages = layout.pipeline * layout.interleave
    is_single = stages > 1 and planned.model.layers <= stages
    _, rank = _nearest_recipe(planned.model, planned.cluster, layout)
    full = planned.memory_bytes / (planned.capacity_bytes or math.inf)
    return Preference(
        doubts=len(planned.outside),
        # not where a library's own recipe is so
        single=is_single and rank > 0,
        recipe=rank,
        chunks=layout.interleave,
        tenths=max(math.ceil(10 * full), _ROOMY),
        kinds=sum(idea(layout)[: len(_RANKS)]),
        seconds=planned.seconds,
    )


def preferred(steps: Iterable[Step]) -> Step:
    """Of calculated steps the one to take: of those that are slower than the fastest by
    less than the model's median error the one with the least Preference.
    """
    candidates = list(steps)
    fastest_s = min(planned.seconds for planned in candidates)
    alike_s = (1 + MEDIAN_LEFT_OUT) * fastest_s
    alike = [planned for planned in candidates if planned.seconds <= alike_s]
    return min(alike, key=preference)


def is_surer(other: Step, best: Step, fastest_s: float) -> bool:
    """Whether to take a step in place of the best that has doubts: it has fewer, and is
    slower than the fastest by less than the median error and what the best's interval
    is wider by, being further from published steps.
    """
    if len(other.outside) >= len(best.outside):
        return False
    further = max(best.nearest.distance - other.nearest.distance, 0)
    margin = (1 + MEDIAN_LEFT_OUT) * math.exp(WIDENED * further)
    return other.seconds <= margin * fastest_s


def why(chosen: Step, fastest: Step) -> str:
    """What a chosen step is better in than the fastest, as a sentence goes on."""
    mine = preference(chosen)
    other = preference(fastest)
    return next(
        _REASONS[field]
        for field in Preference._fields
        if getattr(mine, field) < getattr(other, field)
    )


def recipe(planned: Step) -> str:
    """The recipe of a step's library that has its ranks, by name; "" where none has."""
    row, _ = _nearest_recipe(planned.model, planned.cluster, planned.layout)
    return "" if row is None else f"{row['name']} ({row['source'].split(' ')[0]})"


def _nearest_recipe(
    model: Transformer, cluster: Cluster, layout: Layout
) -> tuple[Mapping[str, str] | None, int]:
    """The recipe that is most like a layout, and Preference.recipe."""
    nearest_row = None
    least = 2
    for row in _recipes(layout.software.library, model.name, model.seq):
        if any(int(row[ranks]) != getattr(layout, ranks) for ranks in _RANKS):
            continue
        if (int(row["zero"]) == 3) != (layout.zero == 3):
            continue
        is_alike = int(row["interleave"]) == layout.interleave and (
            not row["gpu"] or _generation(row["gpu"]) == generation(cluster.gpu)
        )
        rank = 0 if is_alike else 1
        if rank < least:
            nearest_row = row
            least = rank
    return nearest_row, least


@functools.cache
def _recipes(library: str, name: str, seq: int) -> Sequence[Mapping[str, str]]:
    """The recipes of a library for a model and sequences of such a length."""
    return [
        row
        for row in rows("recipes")
        if row["library"] == library
        and row["model"] == name
        and (row["seq"] == str(seq) or (not row["seq"] and seq <= _USUAL_SEQ))
    ]


@functools.cache
def _generation(gpu: str) -> str:
    return generation(find(gpu))
