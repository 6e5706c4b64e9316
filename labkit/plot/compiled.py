"""Figures of what a compiler made of a kernel."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from labkit.gpu.compiler import KernelResources
from labkit.gpu.occupancy import occupancy
from labkit.plot.core import ACCENT, MEASURED, Drawing, resize
from labkit.plot.labels import name_rows, write_beside


@Drawing
def register_caps(
    ax: Axes, builds: Mapping[int, KernelResources], *, block: int, compute_capability: tuple[int, int]
) -> str:
    """Bytes that each build spills a thread, stores and loads together, with its registers and occupancy beside it.

    `builds` are by register cap, in the order drawn; `block` is in threads.
    """
    spills = [one.spill_store_bytes + one.spill_load_bytes for one in builds.values()]
    filled = [
        occupancy(
            block, registers=one.registers, shared_bytes=one.shared_bytes, compute_capability=compute_capability
        ).fraction
        for one in builds.values()
    ]
    ax.barh(range(len(builds)), spills, 0.55, color=[MEASURED if spill else ACCENT for spill in spills])
    for y, (spill, one, fraction) in enumerate(zip(spills, builds.values(), filled, strict=True)):
        spilt = f"{spill} B spilt" if spill else "no spills"
        write_beside(ax, spill, y, f"{spilt}, {one.registers} registers, {fraction:.0%} occupancy", fontsize=9)
    name_rows(ax, [f"at most {cap}" for cap in builds])
    ax.set_xlim(0, 1.9 * max([*spills, 1]))
    ax.set_xlabel("spilled and read back, bytes a thread (from the compiler's log, not a time)")
    resize(ax, 1.3 + 0.42 * len(builds))
    each = (
        f"at most {cap} registers: {spill} B of spills, {fraction:.0%} occupancy"
        for cap, spill, fraction in zip(builds, spills, filled, strict=True)
    )
    return f"Blocks of {block} threads, compute capability {'.'.join(map(str, compute_capability))}: {'; '.join(each)}."
