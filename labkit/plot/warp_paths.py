"""The figure of how the lanes of a warp take a kernel's branches, and where they part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from kerneltrace import Trace
from kerneltrace.log.grid import WARP
from labkit.core.arguments import is_whole
from labkit.core.display import brief_repr, cut
from labkit.core.errors import KernelError
from labkit.plot.core import Drawing, FigureSpec
from labkit.plot.kernels import cells, finished, words
from labkit.plot.style import MEASURED

Array = np.ndarray[Any, Any]
_TAKEN: dict[str, Any] = {"facecolor": MEASURED, "edgecolor": "white"}
_NOT_TAKEN: dict[str, Any] = {"facecolor": "#fbe6bf", "edgecolor": "#d9a441", "hatch": "\\\\\\\\"}
_ABSENT: dict[str, Any] = {"facecolor": "white", "edgecolor": "#e0e0e0"}
_MOST_ROWS = 48
_STRIP_IN = 4.4  # leaves room for source lines of 60 characters in the width of a page


@Drawing
def divergence(ax: Axes, trace: Trace | Any, warp: int | Any = 0) -> FigureSpec:
    """What each lane of a warp did at each `if` and each turn of a `while`: taken, not taken, or not there.

    Rows are in the order of the source; the turns of a loop follow each other. Long loops are cut to 48 rows in all,
    and the sentence says so. Raises KernelError for what is no trace and a warp that the launch does not have.
    """
    if not issubclass(type(trace), Trace):
        told = brief_repr(trace)
        raise KernelError(f"Expected a trace, got {told}. Make one with lab.trace(kernel, grid, block, ...).")
    if not is_whole(warp) or not 0 <= warp < trace.warps:
        raise KernelError(f"Expected a warp from 0 to {trace.warps - 1:,}, got {brief_repr(warp)}.")
    labels, lanes = trace.paths(warp)
    title = f"{trace.kernel}, warp {warp}"
    if not labels:
        words(ax, 0, 0.5, "no if, no while")
        sentence = f"Warp {warp} comes to no if and no while: its lanes can't part there."
        return finished(ax, sentence, title, columns=WARP, rows=1, key={}, width_in=_STRIP_IN)
    order, turns = _in_source_order(labels)
    drawn = _shortened(order, turns)
    for style, value in ((_TAKEN, 1), (_NOT_TAKEN, 0), (_ABSENT, -1)):
        row, lane = np.nonzero(lanes[drawn] == value)
        cells(ax, lane, row, 1, {"linewidth": 0.6, **style})
    for y, i in enumerate(drawn):
        again = y > 0 and labels[i] == labels[drawn[y - 1]]
        told = f"    turn {turns[i]}" if again else cut(labels[i], 60)
        words(ax, WARP + 0.6, y + 0.5, told, family="monospace")
        if _parts(lanes[i]):
            words(ax, -0.4, y + 0.5, "lanes part ▸", ha="right")
    for lane in (*range(0, WARP, 4), WARP - 1):
        words(ax, lane + 0.5, -0.55, str(lane), ha="center")
    words(ax, WARP + 0.6, -0.55, "lane")
    parted = sum(_parts(row) for row in lanes)
    cut_off = f" Drawn are {len(drawn)} of them." if len(drawn) < len(labels) else ""
    sentence = (
        f"Warp {warp} comes {len(labels):,} time{'s' * (len(labels) > 1)} to an if or a turn of a while; "
        f"its lanes part at {parted:,}.{cut_off}"
    )
    key = {"taken": _TAKEN, "not taken": _NOT_TAKEN, "not there": _ABSENT}
    return finished(ax, sentence, title, columns=WARP, rows=len(drawn), key=key, width_in=_STRIP_IN)


def _parts(row: Array) -> bool:
    return bool((row == 1).any() and (row == 0).any())


def _in_source_order(labels: Sequence[str]) -> tuple[list[int], dict[int, int]]:
    """Indices of the branches in the order of line and label, and the turn of its loop that each is, from 1."""
    seen: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        seen.setdefault(label, []).append(i)
    lines = sorted(seen, key=lambda label: int(label.split(":")[0].removeprefix("line ")))
    turns = {i: turn for same in seen.values() for turn, i in enumerate(same, 1)}
    return [i for label in lines for i in seen[label]], turns


def _shortened(order: Sequence[int], turns: dict[int, int]) -> list[int]:
    """At most 48 branches: of every loop the same number of first turns, as many as fit."""
    most = max(turns.values())
    while most > 1 and sum(turns[i] <= most for i in order) > _MOST_ROWS:
        most -= 1
    return [i for i in order if turns[i] <= most][:_MOST_ROWS]
