"""Figures of whole traces: where the lanes of a warp part, and how often each element of an array is visited."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator

from labkit.core.arguments import is_whole
from labkit.core.display import brief_repr, cut
from labkit.core.errors import KernelError
from labkit.gpu.trace import Trace
from labkit.gpu.trace.traced_thread import WARP
from labkit.plot.core import MEASURED, Drawing, resize
from labkit.plot.kernels import canvas, cells, key, words

Array = np.ndarray[Any, Any]
_TAKEN: dict[str, Any] = {"facecolor": MEASURED, "edgecolor": "white"}
_NOT_TAKEN: dict[str, Any] = {"facecolor": "#fbe6bf", "edgecolor": "#d9a441", "hatch": "\\\\\\\\"}
_ABSENT: dict[str, Any] = {"facecolor": "white", "edgecolor": "#e0e0e0"}
_NEVER: dict[str, Any] = {"facecolor": "white", "edgecolor": "#b0b0b0", "hatch": "xxx", "linewidth": 0.0}
_MOST_ROWS, _MOST_CELLS, _MOST_PIXELS = 48, 256, 256
_COLORS = "cividis_r"
_STRIP_IN = 4.4  # leaves room for source lines of 60 characters in the width of a page
_DONE = {"": "visited", "load": "read", "store": "written", "atomic": "changed by atomics"}


@Drawing
def divergence(ax: Axes, trace: Trace, warp: int = 0) -> str:
    """What each lane of a warp did at each `if` and each turn of a `while`: taken, not taken, or not there.

    Rows are in the order of the source; the turns of a loop follow each other. Long loops are cut to 48 rows in all,
    and the sentence says so. Raises KernelError for a warp that the launch does not have.
    """
    labels, lanes = _expect(trace).paths(_warp(trace, warp))
    if not labels:
        canvas(ax, f"{trace.kernel}, warp {warp}", columns=WARP, rows=1, width_in=_STRIP_IN)
        words(ax, 0, 0.5, "no if, no while")
        return f"Warp {warp} comes to no if and no while: its lanes can't part there."
    order, turns = _in_source_order(labels)
    drawn = _shortened(order, turns)
    canvas(ax, f"{trace.kernel}, warp {warp}", columns=WARP, rows=len(drawn), width_in=_STRIP_IN)
    for style, value in ((_TAKEN, 1), (_NOT_TAKEN, 0), (_ABSENT, -1)):
        row, lane = np.nonzero(lanes[drawn] == value)
        cells(ax, lane, row, 1, {"linewidth": 0.6, **style})
    for y, i in enumerate(drawn):
        again = y > 0 and labels[i] == labels[drawn[y - 1]]
        told = f"    turn {turns[i]}" if again else cut(labels[i], 60)
        words(ax, WARP + 0.6, y + 0.5, told, family="monospace", parse_math=False)
        if _parts(lanes[i]):
            words(ax, -0.4, y + 0.5, "lanes part ▸", ha="right")
    for lane in (*range(0, WARP, 4), WARP - 1):
        words(ax, lane + 0.5, -0.55, str(lane), ha="center")
    words(ax, WARP + 0.6, -0.55, "lane")
    key(ax, len(drawn), {"taken": _TAKEN, "not taken": _NOT_TAKEN, "not there": _ABSENT})
    parted = sum(_parts(row) for row in lanes)
    cut_off = f" Drawn are {len(drawn)} of them." if len(drawn) < len(labels) else ""
    return (
        f"Warp {warp} comes {len(labels):,} time{'s' * (len(labels) > 1)} to an if or a turn of a while; "
        f"its lanes part at {parted:,}.{cut_off}"
    )


def _parts(row: Array) -> bool:
    return bool((row == 1).any() and (row == 0).any())


def _in_source_order(labels: Sequence[str]) -> tuple[list[int], dict[int, int]]:
    """Numbers of the branches by line and label, and which turn, from 1, each is."""
    seen: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        seen.setdefault(label, []).append(i)
    lines = sorted(seen, key=lambda label: int(label.split(":")[0].removeprefix("line ")))
    turns = {i: turn for same in seen.values() for turn, i in enumerate(same, 1)}
    return [i for label in lines for i in seen[label]], turns


def _shortened(order: Sequence[int], turns: dict[int, int]) -> list[int]:
    """At most 48 branches: of each loop its first turns, as many as all fit."""
    most = max(turns.values())
    while most > 1 and sum(turns[i] <= most for i in order) > _MOST_ROWS:
        most -= 1
    return [i for i in order if turns[i] <= most][:_MOST_ROWS]


@Drawing
def heat_map(ax: Axes, trace: Trace, array: str, kind: str = "") -> str:
    """How often the launch visits each element of `array`, or reads, writes or atomically changes it by `kind`.

    A long one-dimensional array is wrapped into rows, one of three or more dimensions is flattened to two, and a
    large one is shown in blocks by their most visited element; the sentence says so. A shared array is summed over
    the blocks of the launch. Raises KernelError for an array or a kind that the trace does not have, or no elements.
    """
    visits = _expect(trace).visits(array, kind)
    if not visits.size:
        raise KernelError(f"The array {array!r} has no elements to draw: its shape is {visits.shape}.")
    grid, told = _as_grid(visits)
    peaks, block = _in_blocks(grid)
    norm = _norm(peaks)
    ax.clear()
    cell_in = _fit(ax, *grid.shape)
    _draw_counts(ax, peaks, block, norm, grid.size - visits.size, grid.shape)
    if grid.size <= _MOST_CELLS and cell_in > 0.06 * len(f"{grid.max()}") + 0.02:
        _write_numbers(ax, grid, norm)
    _label_axes(ax, visits.ndim, grid)
    title = f"{trace.kernel}: how often {cut(array, 30)} is {_DONE[kind]}"
    ax.set_title(title, loc="left", fontsize=11, parse_math=False)
    handles = _levels(peaks, norm)
    ax.legend(handles=handles, frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1), borderpad=0)
    blocks = f" A cell shows the most visited of {block[0]} × {block[1]} elements." if max(block) > 1 else ""
    return _heat_words(visits, array, kind) + told + blocks


def _fit(ax: Axes, rows: int, columns: int) -> float:
    """Give the axes room for square cells where the shape allows; the width of a cell in inches."""
    cell_in = min(5.9 / columns, 4.6 / rows, 0.36)
    width_in, height_in = max(cell_in * columns, min(5.9, 0.36 * columns)), max(cell_in * rows, min(0.3 * rows, 2.0))
    resize(ax, height_in + 0.9, width_in=width_in)
    ax.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    return width_in / columns


def _draw_counts(
    ax: Axes, peaks: Array, block: tuple[int, int], norm: Normalize, spare: int, shape: tuple[int, ...]
) -> None:
    """Draw counts as colours; what nobody visits stays hatched, and the `spare` end of the last row is left out."""
    rows, columns = shape
    ax.add_patch(Rectangle((-0.5, -0.5), columns, rows, **_NEVER))
    ax.add_patch(Rectangle((columns - spare - 0.5, rows - 1.5), spare, 1, facecolor="white", zorder=1.5))
    extent = (-0.5, peaks.shape[1] * block[1] - 0.5, peaks.shape[0] * block[0] - 0.5, -0.5)
    seen, limits = np.ma.masked_equal(peaks, 0), (ax.get_xlim(), ax.get_ylim())
    ax.imshow(seen, cmap=_COLORS, norm=norm, aspect="auto", interpolation="nearest", extent=extent, zorder=2)
    ax.set(xlim=limits[0], ylim=limits[1])


def _as_grid(visits: Array) -> tuple[Array, str]:
    """The counts in rows and columns, and what was done to have them so."""
    if visits.ndim == 2:
        return visits, ""
    if visits.ndim > 2:
        last = visits.shape[-1]
        return visits.reshape(-1, last), f" Its {visits.ndim} dimensions are flattened to rows of {last:,}."
    if visits.size <= WARP:
        return visits.reshape(1, -1), ""
    columns = min(max(WARP, 2 ** math.ceil(math.log2(visits.size) / 2)), _MOST_PIXELS)
    rows = -(-visits.size // columns)
    return np.pad(visits, (0, rows * columns - visits.size)).reshape(rows, columns), f" A row holds {columns} elements."


def _in_blocks(grid: Array) -> tuple[Array, tuple[int, int]]:
    """The greatest count of each block of elements, and the blocks' size, so that a picture shows each block."""
    high, wide = (-(-n // _MOST_PIXELS) for n in grid.shape)
    padded = np.pad(grid, ((0, -grid.shape[0] % high), (0, -grid.shape[1] % wide)))
    return padded.reshape(padded.shape[0] // high, high, -1, wide).max(axis=(1, 3)), (high, wide)


def _norm(grid: Array) -> Normalize:
    """Counts to colours: logarithmic where one element would make all others look alike."""
    low, high = int(grid[grid > 0].min(initial=grid.max(initial=1))), max(int(grid.max()), 1)
    return LogNorm(max(low, 1), high) if high > 20 * max(low, 1) else Normalize(low, high)


def _levels(grid: Array, norm: Normalize) -> list[Patch]:
    """What colours stand for: each count where there are few, else steps between the least and the greatest."""
    counts = np.unique(grid[grid > 0])
    if len(counts) > 6:
        spread = np.geomspace if isinstance(norm, LogNorm) else np.linspace
        counts = np.unique(np.round(spread(counts[0], counts[-1], 5)).astype(int))
    colors: Any = ScalarMappable(norm, _COLORS)  # its stubs know no single numbers
    found = [Patch(facecolor=colors.to_rgba(n), label=_times(int(n))) for n in counts[::-1]]
    return found + [Patch(**_NEVER, label="never")] * bool((grid == 0).any())


def _write_numbers(ax: Axes, grid: Array, norm: Normalize) -> None:
    for (row, column), n in np.ndenumerate(grid):
        if n:
            color = "white" if norm(n) > 0.5 else "black"
            words(ax, column, row, str(n), ha="center", fontsize=6.5, color=color)


def _label_axes(ax: Axes, dimensions: int, grid: Array) -> None:
    rows, columns = grid.shape
    for axis, n in ((ax.xaxis, columns), (ax.yaxis, rows)):
        axis.set_major_locator(MaxNLocator(8, steps=[1, 2, 4, 8, 10]) if n > 8 else FixedLocator(range(n)))
    if dimensions > 1:
        second, first = (
            ("second index", "first index") if dimensions == 2 else ("last index", "other indices, flattened")
        )
        ax.set(xlabel=second, ylabel=first)
        return
    ax.set_xlabel("element")
    if rows == 1:
        ax.set_yticks([])
    else:
        ax.set(xlabel="element of the row", ylabel="first element")
        ax.yaxis.set_major_formatter(lambda value, _: f"{value * columns:,.0f}")


def _heat_words(visits: Array, array: str, kind: str) -> str:
    done, seen = _DONE[kind], visits[visits > 0]
    if not len(seen):
        return f"No element of {array} is {done}."
    low, high = int(seen.min()), int(seen.max())
    each = _times(low) if low == high else f"{low:,} to {_times(high)}"
    never = visits.size - len(seen)
    rest = f"; {never:,} never" if never else ""
    return f"{len(seen):,} of {visits.size:,} elements of {array} are {done}, {each} each, {seen.sum():,} in all{rest}."


def _times(n: int) -> str:
    return f"{n:,} time{'s' * (n != 1)}"


def _expect(trace: Any) -> Trace:
    """KernelError unless this is a trace."""
    if not isinstance(trace, Trace):
        raise KernelError(
            f"Expected a trace, got {brief_repr(trace)}. Make one with lab.trace(kernel, grid, block, ...)."
        )
    return trace


def _warp(trace: Trace, warp: Any) -> int:
    if is_whole(warp) and 0 <= warp < trace.warps:
        return int(warp)
    raise KernelError(f"Expected a warp from 0 to {trace.warps - 1:,}, got {brief_repr(warp)}.")
