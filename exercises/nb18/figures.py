"""Figures of tiles: which thread holds which numbers of one, and which tiles of a
matmul are computed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from exercises.nb18 import evidence
from exercises.nb18.compiled import Code
from labkit.plot import Picture, gray_images
from labkit.plot.core import Drawing, FigureSpec
from labkit.plot.style import LIMIT, MEASURED, RECORDED

# light, for the dark cells of one thread
_WARPS = ("#cfe3f2", "#fbe6bf", "#cdeade", "#f3d3c4")
_ROW = 128  # numbers in a row of the picture
_WARP = 32
Order = Callable[[int, int, int], tuple[int, int]]


@Drawing
def tile_shares(ax: Axes, numbers: int, code: Code | Any) -> FigureSpec:
    """A tile of `numbers`, in rows of 128: the warp that loads each, and the numbers of
    thread 0.

    A thread loads `code.vector` neighbors, the next thread those after them, and all
    threads begin again from where the last one ended (the layout that Triton calls
    blocked).
    """
    threads = code.counts["threads"]
    thread = np.arange(numbers) // code.vector % threads
    for i, owner in enumerate(thread.tolist()):
        color = MEASURED if owner == 0 else _WARPS[owner // _WARP % len(_WARPS)]
        ax.add_patch(
            Rectangle(
                (i % _ROW, i // _ROW),
                1,
                1,
                facecolor=color,
                edgecolor="white",
                linewidth=0.3,
            )
        )
    mine = np.flatnonzero(thread == 0)
    runs = [
        f"{run[0]} to {run[-1]}" for run in np.split(mine, len(mine) // code.vector)
    ]
    ax.set(
        xlim=(0, _ROW),
        ylim=(-(-numbers // _ROW), 0),
        xlabel="number in the row",
        ylabel="row of 128 numbers",
    )
    ax.spines[:].set_visible(False)
    handles = [
        Patch(facecolor=color, label=f"warp {i}")
        for i, color in enumerate(_WARPS[: threads // _WARP])
    ]
    handles.append(Patch(facecolor=MEASURED, label="thread 0"))
    sentence = (
        f"{numbers:,} numbers for {threads} threads: thread 0 loads"
        f" {' and '.join(runs)}, with an instruction for each {code.vector};"
        f" {code.origin}."
    )
    return FigureSpec(sentence, height_in=2.6, legend="right", handles=handles)


def keys_by_program(attention: Any) -> Picture:
    """Which keys of a head each program of a kernel of causal attention loads, a row a
    program, and the share of all products that it computes.
    """
    trace = evidence.causal_trace(attention)
    loads = [trace.touched("k", program)[0, :, 0] for program in range(trace.programs)]
    share = evidence.share_with_mask(trace)
    title = f"{trace.programs} programs, and {share:.0%} of the FLOP of all scores"
    rows = np.stack(loads).repeat(16, 0)  # (16 * programs, keys)
    return gray_images({"keys by program": rows}, title=title)


@Drawing
def first_tiles(
    ax: Axes,
    orders: Mapping[str, Order | Any],
    *,
    rows: int = 32,
    columns: int = 32,
    at_once: int = 132,
) -> FigureSpec:
    """Grids of c's tiles, one for each order: those of the first `at_once` programs,
    and the stripes that they need.
    """
    gap = 6
    sentences = []
    for i, (name, order) in enumerate(orders.items()):
        left = i * (columns + gap)
        ax.add_patch(
            Rectangle((left, 0), columns, rows, facecolor="white", edgecolor=RECORDED)
        )
        places = [order(program, rows, columns) for program in range(at_once)]
        for row, column in places:
            ax.add_patch(
                Rectangle(
                    (left + column, row),
                    1,
                    1,
                    facecolor=MEASURED,
                    edgecolor="white",
                    linewidth=0.4,
                )
            )
        of_a = {row for row, _ in places}
        of_b = {column for _, column in places}
        for row in of_a:
            ax.add_patch(Rectangle((left - 2, row), 1, 1, facecolor=LIMIT))
        for column in of_b:
            ax.add_patch(Rectangle((left + column, -2), 1, 1, facecolor=LIMIT))
        sentences.append(
            f"{name}: {len(of_a)} of a and {len(of_b)} of b, {len(of_a) + len(of_b)}"
            " in all"
        )
        ax.text(left, rows + 1, name, va="top", fontsize=9)
    ax.set(
        xlim=(-3, len(orders) * (columns + gap) - gap + 1),
        ylim=(rows + 4, -3),
        aspect="equal",
    )
    ax.set_axis_off()
    handles = [
        Patch(facecolor=MEASURED, label="tiles of c at once"),
        Patch(facecolor=LIMIT, label="stripes needed"),
    ]
    sentence = (
        f"The first {at_once} programs, and the stripes of a (left) and b (above) that"
        f" they need. {'; '.join(sentences)}."
    )
    return FigureSpec(sentence, height_in=3.6, legend="right", handles=handles)
