"""The figure of notebook 03: which thread writes which element of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from labkit.core.arguments import as_array
from labkit.core.errors import BadArgument
from labkit.core.parameters import Array
from labkit.plot.core import Drawing, FigureSpec
from labkit.plot.style import CYCLE, RECORDED

_ROW = 20  # elements of a one-dimensional array in a row of the figure
_LONGEST = 400  # of more elements the squares would be too small to read
_FEW = 12  # columns up to which a square has room for whole words


@Drawing
def owners(ax: Axes, blocks: Array, threads: Array) -> FigureSpec:
    """Every element of an array as a square with the block and the thread that wrote
    it; -1 means that none did.

    `blocks` and `threads` are whole numbers of the same shape (n,) or (rows, columns),
    at most 400 of them; one dimension is wrapped into rows. Raises BadArgument for
    other shapes.
    """
    blocks = as_array(blocks)
    threads = as_array(threads)
    if (
        blocks.shape != threads.shape
        or blocks.ndim not in (1, 2)
        or not 0 < blocks.size <= _LONGEST
    ):
        raise BadArgument(
            "Expected blocks and threads of one shape, (n,) or (rows, columns), with 1"
            f" to {_LONGEST} elements, got {blocks.shape} and {threads.shape}. Draw a"
            " smaller array."
        )
    columns = blocks.shape[1] if blocks.ndim == 2 else min(len(blocks), _ROW)
    rows = -(-blocks.size // columns)
    for i, (block, thread) in enumerate(zip(blocks.flat, threads.flat, strict=True)):
        _draw_square(
            ax, i % columns, i // columns, int(block), int(thread), columns <= _FEW
        )
    _label_squares(ax, rows, columns, wrapped=blocks.ndim == 1)
    return FigureSpec(_owners_in_words(blocks), height_in=0.9 + 0.4 * rows)


def _draw_square(
    ax: Axes, column: int, row: int, block: int, thread: int, words: bool
) -> None:
    if block < 0:
        ax.add_patch(
            Rectangle(
                (column, row), 1, 1, facecolor="white", edgecolor=RECORDED, hatch="xx"
            )
        )
        return
    color = (*to_rgb(CYCLE[block % len(CYCLE)]), 0.3)
    ax.add_patch(
        Rectangle((column, row), 1, 1, facecolor=color, edgecolor="white", linewidth=2)
    )
    text = f"block {block}\nthread {thread}" if words else f"b{block}\nt{thread}"
    ax.text(
        column + 0.5,
        row + 0.5,
        text,
        ha="center",
        va="center",
        fontsize=6.5 if words else 7,
    )


def _label_squares(ax: Axes, rows: int, columns: int, *, wrapped: bool) -> None:
    """Number the columns, and the rows: by their first element where they are
    `wrapped`.
    """
    step = 1 if columns <= _ROW else 4
    ax.set_xticks(
        [c + 0.5 for c in range(0, columns, step)],
        [str(c) for c in range(0, columns, step)],
    )
    if wrapped and rows == 1:
        ax.set_yticks([])
    else:
        names = [f"{r * columns} +" if wrapped else str(r) for r in range(rows)]
        ax.set_yticks([r + 0.5 for r in range(rows)], names)
    ax.set(xlabel="element" if wrapped else "column", ylabel="" if wrapped else "row")
    ax.set(xlim=(0, columns), ylim=(rows, 0))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _owners_in_words(blocks: Any) -> str:
    names, counts = np.unique(blocks[blocks >= 0], return_counts=True)
    if len(names) > 8:
        words = (
            f"{len(names)} blocks write {counts.min():,} to {counts.max():,} elements"
            " each"
        )
    else:
        words = ", ".join(
            f"block {name} writes {n:,}" for name, n in zip(names, counts, strict=True)
        )
    left = int((blocks < 0).sum())
    nobody = f" Nobody writes {left:,} of them (crossed out)." if left else ""
    return f"{blocks.size:,} elements: {words or 'no block writes any'}.{nobody}"
