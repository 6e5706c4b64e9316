"""A reader's bests at puzzles, from the first to the best, beside par."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from labkit.core.parameters import Positive
from labkit.plot.core import Drawing, FigureSpec, name_rows, text_beside
from labkit.plot.style import LIMIT, MEASURED

_ROW_IN = 0.2


@Drawing
def bests(
    ax: Axes,
    ways: Mapping[str, Sequence[Positive]],
    notes: Mapping[str, str],
    sentence: str,
) -> FigureSpec:
    """A row for each puzzle: what each best costs, times par, in the order in which the
    bests were reached; nothing where the puzzle is open. The note stands on the right.
    """
    for row, (name, way) in enumerate(ways.items()):
        if way:
            _draw_way(ax, row, way)
        text_beside(ax, row, notes.get(name, ""))
    ax.axvline(1, color=LIMIT, linewidth=1.2)
    name_rows(ax, list(ways))
    costs = [cost for way in ways.values() for cost in way]
    ax.set_xscale("log", base=2)
    ax.set_xlim(min([*costs, 1]) / 1.15, max([*costs, 2]) * 1.15)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_xlabel("cost / par (logarithmic)")
    return FigureSpec(
        sentence,
        height_in=0.9 + _ROW_IN * max(len(ways), 2),
        width_in=4.2,
        legend="below",
        handles=_handles(),
        columns=3,
    )


def _draw_way(ax: Axes, row: int, way: Sequence[float]) -> None:
    ax.plot(way, [row] * len(way), color=MEASURED, linewidth=1)
    ax.plot(way[:-1], [row] * (len(way) - 1), **_mark("none"))
    ax.plot(way[-1:], [row], **_mark("full"))


def _mark(fill: str) -> dict[str, Any]:
    return {
        "marker": "o",
        "color": MEASURED,
        "fillstyle": fill,
        "linestyle": "",
        "markersize": 6,
        "zorder": 3,  # above the line of par
    }


def _handles() -> list[Line2D]:
    return [
        Line2D([], [], label="best", **_mark("full")),
        Line2D([], [], label="bests before", **_mark("none")),
        Line2D([], [], label="par", color=LIMIT, linewidth=1.2),
    ]
