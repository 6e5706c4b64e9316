"""Figures of what limits a kernel: times that follow from counts of bytes, and the blocks that an SM has room for."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from labkit.core.units import format_seconds
from labkit.gpu.occupancy import Occupancy
from labkit.plot.core import HATCHED, LIMIT, ON_WHITE, PREDICTED, RECORDED, Drawing, resize
from labkit.plot.labels import label_ticks, name_rows, write_beside


@Drawing
def time_bounds(ax: Axes, rows: Mapping[str, tuple[float, float]], *, gpu: str) -> str:
    """Seconds that a kernel needs at least, and seconds it would need if no cache helped, a row each.

    `rows` maps a name to these two, calculated from counts and the rates of `gpu`. On a logarithmic scale.
    """
    for y, (least_s, uncached_s) in enumerate(rows.values()):
        ax.barh(y, uncached_s - least_s, 0.45, left=least_s, **HATCHED)
        ax.plot([least_s, least_s], [y - 0.35, y + 0.35], color=LIMIT, linewidth=2.5)
        text = format_seconds(least_s)
        if uncached_s > 1.01 * least_s:
            text += f" to {format_seconds(uncached_s)}"
        write_beside(ax, max(least_s, uncached_s), y, text, bbox=ON_WHITE | {"alpha": 0.8, "pad": 0.5})
    times_s = [seconds for pair in rows.values() for seconds in pair]
    ax.set_xscale("log")
    low_s, high_s = min(times_s) / 1.5, max(times_s) * 2.5
    ax.set_xlim(low_s, high_s)
    label_ticks(ax.xaxis, format_seconds, at=_ticks_s(low_s, high_s))
    name_rows(ax, rows)
    ax.set_xlabel("calculated time; black line: at least, end of the hatched bar: if no cache helped")
    resize(ax, 1.1 + 0.45 * len(rows))
    each = (
        f"{name}: at least {format_seconds(least_s)}, {format_seconds(uncached_s)} without a cache"
        for name, (least_s, uncached_s) in rows.items()
    )
    return f"Calculated for {gpu}, not measured. {'; '.join(each)}."


def _ticks_s(low_s: float, high_s: float) -> list[float]:
    """1, 2 and 5 times powers of ten between two times, every second one left out where there would be many."""
    marks = [factor * 10.0**power for power in range(-10, 4) for factor in (1, 2, 5)]
    inside = [mark for mark in marks if low_s <= mark <= high_s]
    return inside if len(inside) < 8 else [mark for mark in inside if f"{mark:e}".startswith("1.0")]


@Drawing
def blocks_allowed(ax: Axes, found: Occupancy) -> str:
    """The blocks that one SM could hold if each of its resources were the only one; the shortest bar decides."""
    for y, blocks in enumerate(found.allows.values()):
        tight = blocks == found.blocks_per_sm
        ax.barh(y, blocks, 0.5, color=PREDICTED if tight else RECORDED)
        text = f"{blocks}{', limits' if tight else ''}"
        write_beside(ax, blocks, y, text, offset=(5, 0), fontsize=9)
    ax.axvline(found.blocks_per_sm, color=LIMIT, linewidth=2)
    name_rows(ax, found.allows)
    ax.set_xlim(0, 1.2 * max(found.allows.values()))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlabel("blocks an SM could hold by this resource alone")
    title = f"{found.warps_per_sm} of {found.max_warps_per_sm} warps: {found.fraction:.0%} occupancy"
    ax.set_title(title, loc="left", fontsize=11)
    resize(ax, 1.2 + 0.35 * len(found.allows))
    return str(found)
