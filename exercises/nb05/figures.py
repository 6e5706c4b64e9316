"""The figure of what a cap on registers costs: spills and occupancy, as the compiler
and a formula give them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from matplotlib.axes import Axes

from kerneltrace import occupancy
from labkit.core.parameters import Count, Items
from labkit.plot.core import Drawing, FigureSpec, name_rows, text_right_of
from labkit.plot.style import MEASURED

if TYPE_CHECKING:
    from kerneltrace import KernelResources


@Drawing
def register_caps(
    ax: Axes,
    builds: Annotated[Mapping[Count, KernelResources], Items(1)],
    *,
    block: Count,
    compute_capability: tuple[int, int],
) -> FigureSpec:
    """Bytes that each build spills a thread, stores and loads together, with its
    registers and occupancy beside it.

    `builds` are by register cap, in the order drawn; `block` is in threads.
    """
    each = []
    most = 1
    for y, (cap, build) in enumerate(builds.items()):
        spill = build.spill_store_bytes + build.spill_load_bytes
        needs = {"registers": build.registers, "shared_bytes": build.shared_bytes}
        fit = occupancy(block, **needs, compute_capability=compute_capability)
        most = max(most, spill)
        ax.barh(y, spill, 0.55, color=MEASURED)
        spills = f"{spill} B spilt" if spill else "no spills"
        text = f"{spills}, {build.registers} registers, {fit.fraction:.0%} occupancy"
        text_right_of(ax, spill, y, text, fontsize=9)
        words = f"{spill} B of spills, {fit.fraction:.0%} occupancy"
        each.append(f"at most {cap} registers: {words}")
    name_rows(ax, [f"at most {cap}" for cap in builds])
    ax.set_xlim(0, 1.9 * most)  # room for the text at the longest bar
    ax.set_xlabel(
        "spilled and read back, bytes a thread (from the compiler's log, not a time)"
    )
    capability = ".".join(map(str, compute_capability))
    sentence = (
        f"Blocks of {block} threads, compute capability {capability}:"
        f" {'; '.join(each)}."
    )
    return FigureSpec(sentence, height_in=1.3 + 0.42 * len(builds))
