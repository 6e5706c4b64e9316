"""A pipeline schedule that plays: which rank computes which micro-batch, where it
waits, and how many activations it holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

import labkit as lab
from labkit import plot
from labkit.core.parameters import checked
from labkit.core.units import format_seconds
from labkit.plot.core import label_seconds, name_rows, text_beside
from labkit.plot.picture import Picture
from labkit.plot.style import CYCLE, EDGES
from trainplan.schedule import ScheduleSpan, Timetable

MOST_MOMENTS = 25
_KINDS = {
    "F": ("F: forward", CYCLE[5]),
    "B": ("B: backward", CYCLE[1]),
    "W": ("W: backward of the weights", "#F0E442"),
}
_IDLE: dict[str, Any] = {"facecolor": "#e4e4e4", "edgecolor": "#b8b8b8", "linewidth": 0}
_RUNNING: dict[str, Any] = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.8}
_HIGH = 0.84
_AT_ONCE = 1e-9  # of the makespan: times that close are the same


@checked
def schedule(plan: Timetable, *, title: str = "A schedule") -> lab.Moving:
    """A picture that plays what `lab.schedule.simulate` made, in at most 25 moments."""
    text = (
        f"{title}: {plan.ranks} ranks, {plan.schedule.microbatches} micro-batch"
        f"{'es' * (plan.schedule.microbatches > 1)}, as time goes by. Gray is the"
        f" bubble, in the end {plan.bubble:.0%} of the ranks' time; squares are the"
        " micro-batches whose activations a rank holds (simulated)."
    )
    return lab.Moving(_frames(plan, title), text, step="moment")


def _frames(plan: Timetable, title: str) -> Iterator[Picture]:
    for now_s in moments(plan):
        axes = plot.new_axes(1.7 + 0.4 * plan.ranks)
        _draw(axes, plan, now_s)
        axes.set_title(title, loc="left", fontsize=11, pad=26)
        yield Picture(axes, _in_words(plan, now_s))


def moments(plan: Timetable) -> list[float]:
    """Seconds from the start, from 0 to the end: one for each of the shortest steps, or
    for every so many of them.
    """
    shortest_s = min(span.seconds for span in plan.spans if span.seconds > 0)
    steps = math.ceil(plan.makespan_s / shortest_s * (1 - _AT_ONCE))
    every = math.ceil(steps / (MOST_MOMENTS - 1))
    whole = [i * shortest_s for i in range(0, steps, every)]
    return [*whole, plan.makespan_s]


def held(plan: Timetable, rank: int, now_s: float) -> float:
    """Micro-batches whose activations a rank holds: a forward that has begun keeps
    them, a backward frees them at its end.
    """
    close_s = _AT_ONCE * plan.makespan_s
    frees = "W" if plan.schedule.split else "B"
    steps = [span for span in plan.spans if span.rank == rank]
    begun = sum(span.kind == "F" and span.start_s < now_s - close_s for span in steps)
    freed = sum(span.kind == frees and span.end_s <= now_s + close_s for span in steps)
    return (begun - freed) / plan.schedule.parts


def _running(plan: Timetable, rank: int, now_s: float) -> ScheduleSpan | None:
    """The step that a rank computes just before this moment."""
    close_s = _AT_ONCE * plan.makespan_s
    for span in plan.spans:
        is_begun = span.start_s < now_s - close_s
        if span.rank == rank and is_begun and span.end_s >= now_s - close_s:
            return span
    return None


def _draw(axes: Axes, plan: Timetable, now_s: float) -> None:
    idle = [_box(rank, 0, now_s) for rank in range(plan.ranks)]
    axes.add_collection(PolyCollection(idle, **_IDLE), autolim=False)
    _draw_steps(axes, plan, now_s)
    for rank in range(plan.ranks):
        running = _running(plan, rank, now_s)
        words = "waits" if now_s else ""
        if running:
            words = f"{running.kind}{running.label}"
            box = _box(rank, running.start_s, now_s)
            axes.add_collection(PolyCollection([box], **_RUNNING), autolim=False)
        number = held(plan, rank, now_s)
        text_beside(axes, rank, words)
        squares = "■" * round(number)
        text_beside(axes, rank, f"{' ' * 12}holds {number:g} {squares}")
    axes.axvline(now_s, color="black", linewidth=1)
    axes.set_xlim(0, plan.makespan_s)
    name_rows(axes, [f"rank {rank}" for rank in range(plan.ranks)])
    label_seconds(axes.xaxis, ticks=8)
    axes.set_xlabel("time (simulated)")
    _draw_legend(axes, {span.kind for span in plan.spans})


def _box(rank: int, start_s: float, end_s: float) -> list[tuple[float, float]]:
    top = rank - _HIGH / 2
    bottom = rank + _HIGH / 2
    return [(start_s, top), (start_s, bottom), (end_s, bottom), (end_s, top)]


def _draw_steps(axes: Axes, plan: Timetable, now_s: float) -> None:
    """The steps that have begun, as far as they are done."""
    boxes_of: dict[str, list[list[tuple[float, float]]]] = {kind: [] for kind in _KINDS}
    for span in plan.spans:
        if span.start_s >= now_s:
            continue
        until_s = min(span.end_s, now_s)
        boxes_of[span.kind].append(_box(span.rank, span.start_s, until_s))
        name = span.kind + span.label
        if until_s - span.start_s > 0.012 * len(name) * plan.makespan_s:
            middle_s = (span.start_s + until_s) / 2
            axes.text(middle_s, span.rank, name, ha="center", va="center", fontsize=7.5)
    for kind, boxes in boxes_of.items():
        _, color = _KINDS[kind]
        steps = PolyCollection(boxes, facecolor=color, **EDGES)
        axes.add_collection(steps, autolim=False)


def _draw_legend(axes: Axes, kinds: set[str]) -> None:
    handles = [
        Patch(facecolor=color, label=name, **EDGES)
        for kind, (name, color) in _KINDS.items()
        if kind in kinds
    ]
    handles.append(Patch(label="idle: the bubble", **_IDLE))
    axes.legend(
        handles=handles,
        ncols=len(handles),
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        frameon=False,
        fontsize=9,
    )


def _in_words(plan: Timetable, now_s: float) -> str:
    if not now_s:
        return "Nothing is computed yet."
    doing = []
    for rank in range(plan.ranks):
        running = _running(plan, rank, now_s)
        what = f"computes {running.kind}{running.label}" if running else "waits"
        doing.append(f"rank {rank} {what}")
    busy_s = sum(max(min(span.end_s, now_s) - span.start_s, 0.0) for span in plan.spans)
    idle = 1 - busy_s / (plan.ranks * now_s)
    return (
        f"At {format_seconds(now_s)} {', '.join(doing)}. So far the ranks were idle for"
        f" {idle:.0%} of their time (simulated)."
    )
