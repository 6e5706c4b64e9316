"""Figures of what limits a kernel: times from counted bytes, the blocks an SM has room for, and spilled registers.

All of it is calculated or read from the compiler's log; nothing was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from labkit.core.kinds import Items
from labkit.core.parameters import Count, Positive
from labkit.core.units import format_seconds
from labkit.gpu.occupancy import Occupancy, occupancy
from labkit.plot.core import Drawing, FigureSpec, label_seconds, name_rows, text_right_of
from labkit.plot.style import HATCHED, LIMIT, MEASURED, ON_WHITE, PREDICTED, RECORDED

if TYPE_CHECKING:
    from labkit.gpu.compiler import KernelResources


@Drawing
def time_bounds(
    ax: Axes, rows: Annotated[Mapping[str, tuple[Positive, Positive]], Items(1)], *, gpu: str
) -> FigureSpec:
    """Seconds that a kernel needs at least, and seconds that it would need if no cache helped, a row each.

    `rows` maps a name to these two, calculated from counts and the rates of `gpu`. The axis is logarithmic.
    """
    for y, (least_s, uncached_s) in enumerate(rows.values()):
        ax.barh(y, uncached_s - least_s, 0.45, left=least_s, **HATCHED)
        ax.plot([least_s, least_s], [y - 0.35, y + 0.35], color=LIMIT, linewidth=2.5)
        text = format_seconds(least_s)
        if uncached_s > 1.01 * least_s:
            text += f" to {format_seconds(uncached_s)}"
        text_right_of(ax, max(least_s, uncached_s), y, text, bbox=ON_WHITE)
    times_s = [seconds for pair in rows.values() for seconds in pair]
    low_s, high_s = min(times_s) / 1.5, max(times_s) * 2.5  # room for the text at the longest bar
    ax.set(xscale="log", xlim=(low_s, high_s))
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high_s < 300 * low_s else (1,)))
    ax.xaxis.set_minor_locator(NullLocator())
    label_seconds(ax.xaxis)
    name_rows(ax, list(rows))
    ax.set_xlabel("calculated time; black line: at least, end of the hatched bar: if no cache helped")
    each = (
        f"{name}: at least {format_seconds(least_s)}, {format_seconds(uncached_s)} without a cache"
        for name, (least_s, uncached_s) in rows.items()
    )
    sentence = f"Calculated for {gpu}, not measured. {'; '.join(each)}."
    return FigureSpec(sentence, height_in=1.1 + 0.45 * len(rows))


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
