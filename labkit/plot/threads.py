"""Figures of notebook 03: which thread does which element, images, and when bringing data to a GPU pays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from labkit.core.arguments import check_number
from labkit.core.errors import BadArgument
from labkit.core.units import format_seconds, significant
from labkit.plot.core import ACCENT, CYCLE, LIMIT, MARKERS, MEASURED, RECORDED, Drawing, resize
from labkit.plot.labels import label_ticks

_ROW = 20  # elements of a one-dimensional array in a row of the figure
_LONGEST = 400  # more elements than that can't be told apart
_FEW = 12  # columns up to which a square has room for whole words


@Drawing
def owners(ax: Axes, blocks: Any, threads: Any) -> str:
    """Every element of an array as a square with the block and the thread that wrote it; -1 means that none did.

    `blocks` and `threads` are whole numbers of the same shape (n,) or (rows, columns), at most 400 of them. Longer
    rows of elements are wrapped. Raises BadArgument for other shapes.
    """
    blocks, threads = np.asarray(blocks), np.asarray(threads)
    if blocks.shape != threads.shape or blocks.ndim not in (1, 2) or not 0 < blocks.size <= _LONGEST:
        raise BadArgument(
            f"Expected blocks and threads of one shape, (n,) or (rows, columns), with 1 to {_LONGEST} elements, got "
            f"{blocks.shape} and {threads.shape}. Draw a smaller array."
        )
    columns = blocks.shape[1] if blocks.ndim == 2 else min(len(blocks), _ROW)
    rows = -(-blocks.size // columns)
    for i, (block, thread) in enumerate(zip(blocks.flat, threads.flat, strict=True)):
        _square(ax, i % columns, i // columns, int(block), int(thread), columns <= _FEW)
    _frame(ax, rows, columns, "element" if blocks.ndim == 1 else "column")
    return _shares(blocks)


def _square(ax: Axes, column: int, row: int, block: int, thread: int, words: bool) -> None:
    if block < 0:
        ax.add_patch(Rectangle((column, row), 1, 1, facecolor="white", edgecolor=RECORDED, hatch="xx"))
        return
    color = CYCLE[block % len(CYCLE)]
    ax.add_patch(Rectangle((column, row), 1, 1, facecolor=to_rgba(color, 0.3), edgecolor="white", linewidth=2))
    text = f"block {block}\nthread {thread}" if words else f"b{block}\nt{thread}"
    ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=6.5 if words else 7)


def _frame(ax: Axes, rows: int, columns: int, name: str) -> None:
    """Number the columns, and the rows by their first element or by their own number."""
    step = 1 if columns <= _ROW else 4
    ax.set_xticks([c + 0.5 for c in range(0, columns, step)], [str(c) for c in range(0, columns, step)])
    numbered = range(rows if name == "column" or rows > 1 else 0)  # a single row of elements needs no number
    ax.set_yticks([r + 0.5 for r in numbered], [str(r) if name == "column" else f"{r * columns} +" for r in numbered])
    ax.set_ylabel("row" if name == "column" else "")
    ax.set_xlabel(name)
    ax.set_xlim(0, columns)
    ax.set_ylim(rows, 0)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    resize(ax, 0.9 + 0.4 * rows)


def _shares(blocks: Any) -> str:
    names, counts = np.unique(blocks[blocks >= 0], return_counts=True)
    if len(names) > 8:
        words = f"{len(names)} blocks write {counts.min():,} to {counts.max():,} elements each"
    else:
        words = ", ".join(f"block {name} writes {n:,}" for name, n in zip(names, counts, strict=True))
    left = int((blocks < 0).sum())
    nobody = f" Nobody writes {left:,} of them (crossed out)." if left else ""
    return f"{blocks.size:,} elements: {words or 'no block writes any'}.{nobody}"


@Drawing
def passes(ax: Axes, *, cpu_s: float, transfer_s: float, kernel_s: float, origin: str) -> str:
    """Time against how often data is worked on: on the CPU, and on a GPU that it is brought to once and back once.

    `cpu_s` and `kernel_s` are seconds of one pass, `transfer_s` those of both copies; `origin` says where the GPU's
    numbers come from. The GPU takes transfer_s + passes x kernel_s. Raises BadArgument for times not above zero.
    """
    for name, value in (("cpu_s", cpu_s), ("transfer_s", transfer_s), ("kernel_s", kernel_s)):
        check_number(name, value, above=0, advice="It is a time in seconds.")
    count = np.geomspace(1, 1000, 200)
    ends: Any = {"markevery": [0, -1], "markersize": 7}
    ax.plot(count, count * cpu_s, color=MEASURED, marker=MARKERS[0], label="CPU, measured here", **ends)
    label = f"GPU with transfers, {origin}"
    ax.plot(count, transfer_s + count * kernel_s, color=ACCENT, marker=MARKERS[1], label=label, **ends)
    ax.plot(count, count * kernel_s, color=LIMIT, linestyle=":", label=f"GPU, data already there, {origin}")
    ax.set(xscale="log", yscale="log", xlabel="passes over the data", ylabel="time")
    label_ticks(ax.xaxis, "{:,.0f}".format)
    label_ticks(ax.yaxis, format_seconds)
    ax.yaxis.set_minor_locator(NullLocator())
    ax.legend(frameon=False, fontsize=8)
    whole_s = transfer_s + kernel_s
    first = f"One pass: CPU {format_seconds(cpu_s)}, GPU {format_seconds(whole_s)} with transfers ({origin})."
    if cpu_s <= kernel_s:
        return f"{first} The GPU never wins: its kernel alone takes as long as the CPU or longer."
    even = transfer_s / (cpu_s - kernel_s)
    if even <= 1:
        gains = f"by {significant(cpu_s / whole_s)}x; without transfers it would be {significant(cpu_s / kernel_s)}x"
        return f"{first} The GPU wins from the first pass on, {gains}."
    ax.axvline(even, color=RECORDED, linestyle="--")
    return f"{first} Both take equally long at {significant(even)} passes; from there on the GPU wins."


@Drawing
def grey_images(ax: Axes, named: Mapping[str, Any]) -> str:
    """Images (rows, columns) of one shape side by side, their names below; white is 0, black the largest value."""
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
    ax.set_xlim(-0.2, width + 0.2)
    ax.set_ylim(rows + 0.2, -0.2)
    ax.set_xticks([i * (columns + gap) + columns / 2 for i in range(len(named))], list(named))
    ax.set_yticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    resize(ax, 0.9 + 5.9 * rows / width)
    return f"{' and '.join(named)}: {rows} rows and {columns} columns each."
