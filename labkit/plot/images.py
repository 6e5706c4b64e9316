"""Figures of images, and of which thread writes which element of an array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from labkit.core.errors import BadArgument
from labkit.core.parameters import Array
from labkit.plot.core import Drawing, FigureSpec, tick_names
from labkit.plot.style import CYCLE, RECORDED

_ROW = 20  # elements of a one-dimensional array in a row of the figure
_LONGEST = 400  # of more elements the squares would be too small to read
_FEW = 12  # columns up to which a square has room for whole words


@Drawing
def images(ax: Axes, pixels: Array, labels: Array) -> FigureSpec:
    """Images side by side with their labels below; `pixels` is (n, channels, height, width) in 0..1."""
    if pixels.ndim != 4 or not pixels.size or labels.shape != pixels.shape[:1]:
        raise BadArgument(
            f"Expected pixels (n, channels, height, width) and n labels, got shapes {pixels.shape} and {labels.shape}."
        )
    ax.imshow(np.concatenate([np.asarray(image).mean(axis=0) for image in pixels], axis=1), cmap="gray_r")
    width = pixels.shape[-1]
    ax.set_xticks([width * (i + 0.5) for i in range(len(labels))], [str(int(label)) for label in labels])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.set_xlabel("label")
    sentence = f"{len(labels)} images of {width} x {pixels.shape[-2]} pixels with their labels."
    return FigureSpec(sentence, height_in=1.6)


@Drawing
def grey_images(ax: Axes, named: Mapping[str, Array]) -> FigureSpec:
    """Images (rows, columns) of one shape side by side, their names below; white is 0, black the largest value.

    Raises BadArgument for images of different shapes.
    """
    shapes = {np.shape(image) for image in named.values()}
    if len(shapes) != 1 or len(shape := shapes.pop()) != 2:
        raise BadArgument(f"Expected images (rows, columns) of one shape, got {[np.shape(i) for i in named.values()]}.")
    rows, columns = shape
    gap = max(1, columns // 12)
    for i, image in enumerate(named.values()):
        left = i * (columns + gap)
        most = max(float(np.max(image, initial=0.0)), 1e-12)
        ax.imshow(image, cmap="gray_r", vmin=0.0, vmax=most, extent=(left, left + columns, rows, 0))
        ax.add_patch(Rectangle((left, 0), columns, rows, fill=False, edgecolor=RECORDED))
    width = len(named) * (columns + gap) - gap
    ax.set(xlim=(-0.2, width + 0.2), ylim=(rows + 0.2, -0.2))
    ax.set_xticks([i * (columns + gap) + columns / 2 for i in range(len(named))], tick_names(named))
    ax.set_yticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    sentence = f"{', '.join(named)}: {rows} rows and {columns} columns each."
    return FigureSpec(sentence, height_in=0.9 + 5.9 * rows / width)


@Drawing
def owners(ax: Axes, blocks: Array, threads: Array) -> FigureSpec:
    """Every element of an array as a square with the block and the thread that wrote it; -1 means that none did.

    `blocks` and `threads` are whole numbers of the same shape (n,) or (rows, columns), at most 400 of them; one
    dimension is wrapped into rows. Raises BadArgument for other shapes.
    """
    if blocks.shape != threads.shape or blocks.ndim not in (1, 2) or not 0 < blocks.size <= _LONGEST:
        raise BadArgument(
            f"Expected blocks and threads of one shape, (n,) or (rows, columns), with 1 to {_LONGEST} elements, got "
            f"{blocks.shape} and {threads.shape}. Draw a smaller array."
        )
    columns = blocks.shape[1] if blocks.ndim == 2 else min(len(blocks), _ROW)
    rows = -(-blocks.size // columns)
    for i, (block, thread) in enumerate(zip(blocks.flat, threads.flat, strict=True)):
        _draw_square(ax, i % columns, i // columns, int(block), int(thread), columns <= _FEW)
    _label_squares(ax, rows, columns, wrapped=blocks.ndim == 1)
    return FigureSpec(_owners_in_words(blocks), height_in=0.9 + 0.4 * rows)


def _draw_square(ax: Axes, column: int, row: int, block: int, thread: int, words: bool) -> None:
    if block < 0:
        ax.add_patch(Rectangle((column, row), 1, 1, facecolor="white", edgecolor=RECORDED, hatch="xx"))
        return
    color = (*to_rgb(CYCLE[block % len(CYCLE)]), 0.3)
    ax.add_patch(Rectangle((column, row), 1, 1, facecolor=color, edgecolor="white", linewidth=2))
    text = f"block {block}\nthread {thread}" if words else f"b{block}\nt{thread}"
    ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=6.5 if words else 7)


def _label_squares(ax: Axes, rows: int, columns: int, *, wrapped: bool) -> None:
    """Number the columns, and the rows: by their first element where they are `wrapped`."""
    step = 1 if columns <= _ROW else 4
    ax.set_xticks([c + 0.5 for c in range(0, columns, step)], [str(c) for c in range(0, columns, step)])
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
        words = f"{len(names)} blocks write {counts.min():,} to {counts.max():,} elements each"
    else:
        words = ", ".join(f"block {name} writes {n:,}" for name, n in zip(names, counts, strict=True))
    left = int((blocks < 0).sum())
    nobody = f" Nobody writes {left:,} of them (crossed out)." if left else ""
    return f"{blocks.size:,} elements: {words or 'no block writes any'}.{nobody}"
