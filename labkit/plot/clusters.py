"""Figures of clusters: predicted against published, a step by layout, and what grows with the number of GPUs.

Nothing here was measured on this machine: the axes say "calculated" or "published".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from labkit.core.units import format_bytes, format_quantity, format_seconds
from labkit.plot.core import CYCLE, LIMIT, MARKERS, ON_WHITE, RECORDED, Drawing, legend_below, resize
from labkit.plot.labels import label_ticks, name_rows, write_beside

if TYPE_CHECKING:
    from labkit.plan.cluster import Step
    from labkit.plan.published import Agreement

# colour and texture: either alone tells two parts apart
_PARTS: dict[str, tuple[str, str]] = {
    "compute": (CYCLE[0], ""),
    "recompute": (CYCLE[5], ".."),
    "tensor communication": (CYCLE[1], "//"),
    "pipeline communication": (CYCLE[4], "\\\\"),
    "bubble": ("#ffffff", ""),
    "data communication": (CYCLE[3], "xx"),
    "optimizer": (CYCLE[2], "++"),
}
_EDGES: dict[str, Any] = {"edgecolor": "#404040", "linewidth": 0.5}


@Drawing
def agreement(ax: Axes, tables: Sequence[Agreement[Step]]) -> str:
    """Predicted against published share of the GPUs' peak, a dot a run; the grey band is 10 % to each side of equal.

    The share is model FLOP utilisation, so that tables in different units meet on one pair of axes.
    """
    most = 0.0
    for i, table in enumerate(tables):
        predicted = [100 * row.by.mfu for row in table.rows]
        published = [100 * row.by.mfu * row.published / row.predicted for row in table.rows]
        most = max(most, *predicted, *published)
        style: dict[str, Any] = {"color": CYCLE[i % len(CYCLE)], "fillstyle": "none", "alpha": 0.8}
        label = f"{table.name}: {len(table.rows)} runs, median error {table.median_error:.0%}"
        ax.plot(published, predicted, MARKERS[i % len(MARKERS)], label=label, **style)
    ends = np.array([0, 1.08 * most])
    ax.fill_between(ends, 0.9 * ends, 1.1 * ends, color=RECORDED, alpha=0.2, linewidth=0)
    ax.plot(ends, ends, color=LIMIT, linewidth=1)
    ax.set(xlim=ends, ylim=ends, xlabel="published: % of peak (MFU)", ylabel="calculated: % of peak")
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.16), borderpad=0)
    resize(ax, 4.9, 4.4)
    return f"{'. '.join(map(str, tables))}. On the black line both agree."


@Drawing
def step_parts(ax: Axes, steps: Mapping[str, Step]) -> str:
    """One bar a layout: the parts of its calculated step; beside it the share of peak and the memory a GPU needs."""
    seen: dict[str, None] = {}
    for y, step in enumerate(steps.values()):
        left = 0.0
        for part, seconds in step.parts.items():
            if seconds > 0:
                color, hatch = _PARTS[part]
                ax.barh(y, seconds, 0.55, left, color=color, hatch=hatch, **_EDGES)
                seen[part] = None
                left += seconds
        over = "" if step.fits else ": does not fit"
        held = f"{format_bytes(step.memory_bytes)} of {format_bytes(step.capacity_bytes)}{over}"
        words = f"{format_seconds(step.seconds)}, MFU {step.mfu:.0%}\n{held}"
        write_beside(ax, left, y, words)
    name_rows(ax, steps)
    longest = max((step.seconds for step in steps.values()), default=1.0)
    ax.set_xlim(0, 1.02 * longest)
    plain: Callable[[float], str] = "{:,.0f} s".format  # minutes would have labels such as 3.33 min
    label_ticks(ax.xaxis, lambda s: (plain if longest > 60 else format_seconds)(s) if s else "0", most=5)
    ax.set_xlabel("time of a step (calculated)")
    handles = [
        Patch(facecolor=_PARTS[part][0], hatch=_PARTS[part][1], label=part, **_EDGES) for part in _PARTS if part in seen
    ]
    resize(ax, 1.5 + 0.55 * max(len(steps), 1))
    legend_below(ax, handles, ncols=3)
    said = [f"{name}: {format_seconds(step.seconds)}, {_largest(step)}" for name, step in steps.items()]
    return "; ".join(said) + "." if said else "No layout to draw."


def _largest(step: Step) -> str:
    rest = {part: s for part, s in step.parts.items() if part != "compute"}
    part = max(rest, key=lambda one: rest[one])
    return f"{step.parts['compute'] / step.seconds:.0%} of it compute, then {part} {rest[part] / step.seconds:.0%}"


@Drawing
def scales(
    ax: Axes,
    series: Mapping[str, Mapping[float, float]],
    *,
    x: str,
    y: str,
    unit: str = "",
    marks: Mapping[str, float] | None = None,
    log_y: bool = True,
) -> str:
    """Lines of a value in `unit` over a size, {name: {size: value}}; sizes logarithmic, values too unless told.

    `marks` are sizes with a name, drawn as dashed lines. Values that aren't finite are left out.
    """
    said = []
    for i, (name, points) in enumerate(series.items()):
        there = sorted((size, value) for size, value in points.items() if math.isfinite(value))
        if not there:
            said.append(f"{name}: nothing to draw")
            continue
        sizes, values = zip(*there, strict=True)
        ax.plot(sizes, values, color=CYCLE[i % len(CYCLE)], marker=MARKERS[i % len(MARKERS)], markersize=4, label=name)
        ends = [f"{format_quantity(v, unit)} at {_count(s)}" for s, v in (there[0], there[-1])]
        said.append(f"{name}: {', '.join(dict.fromkeys(ends))}")
    ax.set_xscale("log")
    if log_y:
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
    else:
        ax.set_ylim(bottom=0)
    for i, (name, at) in enumerate((marks or {}).items()):
        ax.axvline(at, color=LIMIT, linestyle="--", linewidth=1)
        inside: dict[str, Any] = {"xycoords": ax.get_xaxis_transform(), "va": "top", "bbox": ON_WHITE}
        write_beside(ax, at, 0.97 - 0.09 * i, name, offset=(4, 0), **inside)
    label_ticks(ax.xaxis, _count)
    label_ticks(ax.yaxis, lambda value: format_quantity(value, unit) if value else "0")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())
    ax.set(xlabel=x, ylabel=y)
    if series:
        ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.2), borderpad=0)
    resize(ax, 3.8)
    return f"{y} by {x}: {'; '.join(said)}." if said else "Nothing drawn yet."


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
