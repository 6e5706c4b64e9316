"""Figures of what limits a kernel: times beside published ones, the blocks an SM has room for, and spilled registers.

All of it is calculated or read from the compiler's log; nothing was measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from kerneltrace.judge.occupancy import Occupancy, occupancy
from labkit.core.kinds import Items
from labkit.core.parameters import Count
from labkit.plot.core import Drawing, FigureSpec, label_seconds, name_rows, text_right_of
from labkit.plot.style import LIMIT, MEASURED, PREDICTED, RECORDED, series_style
from trainplan.facts.agreement import Agreement

if TYPE_CHECKING:
    from kerneltrace.compiler import KernelResources


@Drawing
def calculated_times(ax: Axes, tables: Annotated[Sequence[Agreement[Any]], Items(1)]) -> FigureSpec:
    """Calculated over published seconds of kernels, a dot each; the grey band is a factor of 2 to each side."""
    for i, table in enumerate(tables):
        published, calculated = [row.published for row in table.rows], [row.predicted for row in table.rows]
        ax.plot(published, calculated, label=table.name, linestyle="", fillstyle="none", **series_style(i))
    times = [seconds for table in tables for row in table.rows for seconds in (row.published, row.predicted)]
    ends = np.array([min(times) / 2, 2 * max(times)])
    ax.fill_between(ends, ends / 2, ends * 2, color=RECORDED, alpha=0.2, linewidth=0)
    ax.plot(ends, ends, color=LIMIT, linewidth=1)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="published time", ylabel="calculated time")
    for axis in (ax.xaxis, ax.yaxis):
        label_seconds(axis)
    rows = [row for table in tables for row in table.rows]
    worst = max(rows, key=lambda row: abs(math.log(row.predicted / row.published)))
    half = statistics.median(abs(row.error) for row in rows)
    sentence = (
        f"{len(rows)} launches that others timed. On the black line both agree; half are within {half:.0%} of it. "
        f"Farthest off: {worst.label}, calculated {worst.predicted / worst.published:.2g} times as long as published."
    )
    return FigureSpec(sentence, height_in=4.6, width_in=4.4, legend="right")


@Drawing
def blocks_allowed(ax: Axes, found: Occupancy) -> FigureSpec:
    """The blocks that one SM could hold if each of its resources were the only one; the shortest bar decides."""
    for y, blocks in enumerate(found.allows.values()):
        limits = blocks == found.blocks_per_sm
        ax.barh(y, blocks, 0.5, color=PREDICTED if limits else RECORDED)
        text_right_of(ax, blocks, y, f"{blocks}{', limits' if limits else ''}", fontsize=9)
    ax.axvline(found.blocks_per_sm, color=LIMIT, linewidth=2)
    name_rows(ax, list(found.allows))
    ax.set_xlim(0, 1.2 * max(found.allows.values()))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlabel("blocks an SM could hold by this resource alone")
    title = f"{found.warps_per_sm} of {found.max_warps_per_sm} warps: {found.fraction:.0%} occupancy"
    return FigureSpec(str(found), title=title, height_in=1.2 + 0.35 * len(found.allows))


@Drawing
def register_caps(
    ax: Axes,
    builds: Annotated[Mapping[Count, KernelResources], Items(1)],
    *,
    block: Count,
    compute_capability: tuple[int, int],
) -> FigureSpec:
    """Bytes that each build spills a thread, stores and loads together, with its registers and occupancy beside it.

    `builds` are by register cap, in the order drawn; `block` is in threads.
    """
    each, most = [], 1
    for y, (cap, build) in enumerate(builds.items()):
        spill = build.spill_store_bytes + build.spill_load_bytes
        needs = {"registers": build.registers, "shared_bytes": build.shared_bytes}
        filled = f"{occupancy(block, **needs, compute_capability=compute_capability).fraction:.0%} occupancy"
        most = max(most, spill)
        ax.barh(y, spill, 0.55, color=MEASURED)
        text = f"{f'{spill} B spilt' if spill else 'no spills'}, {build.registers} registers, {filled}"
        text_right_of(ax, spill, y, text, fontsize=9)
        each.append(f"at most {cap} registers: {spill} B of spills, {filled}")
    name_rows(ax, [f"at most {cap}" for cap in builds])
    ax.set_xlim(0, 1.9 * most)  # room for the text at the longest bar
    ax.set_xlabel("spilled and read back, bytes a thread (from the compiler's log, not a time)")
    capability = ".".join(map(str, compute_capability))
    sentence = f"Blocks of {block} threads, compute capability {capability}: {'; '.join(each)}."
    return FigureSpec(sentence, height_in=1.3 + 0.42 * len(builds))
