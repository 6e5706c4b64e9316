"""Figures of a kernel: its requests to memory, the paths of its warps, its calculated
times, and what an SM holds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from exercises.nb04.request_figures import (
    banks as banks,
    cells,
    finished,
    warp_lines as warp_lines,
    words,
)
from exercises.nb04.warp_figures import warp_at_work as warp_at_work
from kerneltrace import WARP, Estimate, Occupancy, Trace
from kerneltrace.errors import KernelError
from labkit import plot
from labkit.core.arguments import is_whole
from labkit.core.display import brief_repr, cut
from labkit.core.parameters import Items
from labkit.plot.core import (
    Drawing,
    FigureSpec,
    label_seconds,
    name_rows,
    text_right_of,
)
from labkit.plot.style import LIMIT, MEASURED, PREDICTED, RECORDED, series_style
from trainplan.cluster import Agreement

Array = np.ndarray[Any, Any]
_TAKEN: dict[str, Any] = {"facecolor": MEASURED, "edgecolor": "white"}
_NOT_TAKEN: dict[str, Any] = {
    "facecolor": "#fbe6bf",
    "edgecolor": "#d9a441",
    "hatch": "\\\\\\\\",
}
_ABSENT: dict[str, Any] = {"facecolor": "white", "edgecolor": "#e0e0e0"}
_MOST_ROWS = 48
_STRIP_IN = 4.4  # leaves room for source lines of 60 characters in the width of a page


@Drawing
def divergence(ax: Axes, trace: Trace | Any, warp: int | Any = 0) -> FigureSpec:
    """What each lane of a warp did at each `if` and each turn of a `while`: taken, not
    taken, or not there.

    Rows are in the order of the source; the turns of a loop follow each other. Long
    loops are cut to 48 rows in all, and the sentence says so. Raises KernelError for
    what is no trace and a warp that the launch does not have.
    """
    if not issubclass(type(trace), Trace):
        shown = brief_repr(trace)
        raise KernelError(
            f"Expected a trace, got {shown}. Make one with lab.trace(kernel, grid,"
            " block, ...)."
        )
    if not is_whole(warp) or not 0 <= warp < trace.warps:
        raise KernelError(
            f"Expected a warp from 0 to {trace.warps - 1:,}, got {brief_repr(warp)}."
        )
    labels, lanes = trace.paths(warp)
    title = f"{trace.kernel}, warp {warp}"
    if not labels:
        words(ax, 0, 0.5, "no if, no while")
        sentence = (
            f"Warp {warp} comes to no if and no while: its lanes can't part there."
        )
        return finished(
            ax, sentence, title, columns=WARP, rows=1, key={}, width_in=_STRIP_IN
        )
    order, turns = _in_source_order(labels)
    drawn = _shortened(order, turns)
    for style, value in ((_TAKEN, 1), (_NOT_TAKEN, 0), (_ABSENT, -1)):
        row, lane = np.nonzero(lanes[drawn] == value)
        cells(ax, lane, row, 1, {"linewidth": 0.6, **style})
    for y, i in enumerate(drawn):
        again = y > 0 and labels[i] == labels[drawn[y - 1]]
        label = f"    turn {turns[i]}" if again else cut(labels[i], 60)
        words(ax, WARP + 0.6, y + 0.5, label, family="monospace")
        if _parts(lanes[i]):
            words(ax, -0.4, y + 0.5, "lanes part ▸", ha="right")
    for lane in (*range(0, WARP, 4), WARP - 1):
        words(ax, lane + 0.5, -0.55, str(lane), ha="center")
    words(ax, WARP + 0.6, -0.55, "lane")
    parted = sum(_parts(row) for row in lanes)
    cut_off = f" Drawn are {len(drawn)} of them." if len(drawn) < len(labels) else ""
    sentence = (
        f"Warp {warp} comes {len(labels):,} time{'s' * (len(labels) > 1)} to an if or a"
        f" turn of a while; its lanes part at {parted:,}.{cut_off}"
    )
    key = {"taken": _TAKEN, "not taken": _NOT_TAKEN, "not there": _ABSENT}
    return finished(
        ax, sentence, title, columns=WARP, rows=len(drawn), key=key, width_in=_STRIP_IN
    )


def _parts(row: Array) -> bool:
    return bool((row == 1).any() and (row == 0).any())


def _in_source_order(labels: Sequence[str]) -> tuple[list[int], dict[int, int]]:
    """Indices of the branches in the order of line and label, and the turn of its loop
    that each is, from 1.
    """
    seen: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        seen.setdefault(label, []).append(i)
    lines = sorted(
        seen, key=lambda label: int(label.split(":")[0].removeprefix("line "))
    )
    turns = {i: turn for same in seen.values() for turn, i in enumerate(same, 1)}
    return [i for label in lines for i in seen[label]], turns


def _shortened(order: Sequence[int], turns: dict[int, int]) -> list[int]:
    """At most 48 branches: of every loop the same number of first turns, as many as
    fit.
    """
    most = max(turns.values())
    while most > 1 and sum(turns[i] <= most for i in order) > _MOST_ROWS:
        most -= 1
    return [i for i in order if turns[i] <= most][:_MOST_ROWS]


@Drawing
def calculated_times(
    ax: Axes, tables: Annotated[Sequence[Agreement[Any]], Items(1)]
) -> FigureSpec:
    """Calculated over published seconds of kernels, a dot each; the gray band is a
    factor of 2 to each side.
    """
    for i, table in enumerate(tables):
        published = [row.published for row in table.rows]
        calculated = [row.predicted for row in table.rows]
        ax.plot(
            published,
            calculated,
            label=table.name,
            linestyle="",
            fillstyle="none",
            **series_style(i),
        )
    times = [
        seconds
        for table in tables
        for row in table.rows
        for seconds in (row.published, row.predicted)
    ]
    ends = np.array([min(times) / 2, 2 * max(times)])
    ax.fill_between(ends, ends / 2, ends * 2, color=RECORDED, alpha=0.2, linewidth=0)
    ax.plot(ends, ends, color=LIMIT, linewidth=1)
    ax.set(
        xscale="log",
        yscale="log",
        xlim=ends,
        ylim=ends,
        xlabel="published time",
        ylabel="calculated time",
    )
    for axis in (ax.xaxis, ax.yaxis):
        label_seconds(axis)
    rows = [row for table in tables for row in table.rows]
    worst = max(rows, key=lambda row: abs(math.log(row.predicted / row.published)))
    named = []
    for table in tables:
        inside = sum(bool(row.by) for row in table.rows)
        half = statistics.median(abs(row.error) for row in table.rows)
        named.append(
            f"{table.name}: {inside} of {len(table.rows)} inside their brackets, half"
            f" within {half:.0%}"
        )
    sentence = (
        f"{len(rows)} launches that others timed. On the black line both agree."
        f" {'; '.join(named)}. Farthest off: {worst.label}, calculated"
        f" {worst.predicted / worst.published:.2g} times as long as published."
    )
    return FigureSpec(sentence, height_in=4.6, width_in=4.4, legend="right")


@Drawing
def blocks_allowed(ax: Axes, found: Occupancy) -> FigureSpec:
    """The blocks that one SM could hold if each of its resources were the only one; the
    shortest bar decides.
    """
    for y, blocks in enumerate(found.allows.values()):
        limits = blocks == found.blocks_per_sm
        ax.barh(y, blocks, 0.5, color=PREDICTED if limits else RECORDED)
        text_right_of(
            ax, blocks, y, f"{blocks}{', limits' if limits else ''}", fontsize=9
        )
    ax.axvline(found.blocks_per_sm, color=LIMIT, linewidth=2)
    name_rows(ax, list(found.allows))
    ax.set_xlim(0, 1.2 * max(found.allows.values()))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlabel("blocks an SM could hold by this resource alone")
    title = (
        f"{found.warps_per_sm} of {found.max_warps_per_sm} warps: {found.fraction:.0%}"
        " occupancy"
    )
    return FigureSpec(str(found), title=title, height_in=1.2 + 0.35 * len(found.allows))


def draw_parts(axes: Axes, estimate: Estimate) -> str:
    """A row for each part of the GPU and one for all together, in calculated seconds;
    the sentence below the figure.
    """
    seconds_by_part = {**estimate.parts, "all together": estimate.seconds}
    bars = [
        plot.Bar(part, others=[("calculated", seconds)])
        for part, seconds in seconds_by_part.items()
    ]
    return plot.speed_bars.on(axes, bars, unit="s", log=True)
