"""Figures of one request of a warp: the lines of memory that it touches, the banks of
shared memory that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from kerneltrace import BANK_BYTES, BANKS, LINE_BYTES, SECTOR_BYTES, WARP, Request
from kerneltrace.errors import KernelError
from labkit.core.display import brief_repr, cut
from labkit.plot.core import Drawing, FigureSpec
from labkit.plot.style import MEASURED

Array = np.ndarray[Any, Any]
# rows are lower where there are more than 16
_ROW_IN = 0.19
_LOW_ROW_IN = 0.155
_MANY = 16
_WIDTH_IN = 5.9
_GAP = 0.6  # height of a break, in rows
# x of the labels, the same in all pictures: one that is redrawn mustn't jump
_LEFT = -LINE_BYTES * 0.95 / _WIDTH_IN
_HEADER = -0.55  # y of the column names above the first row
ASKED: dict[str, Any] = {"facecolor": MEASURED, "edgecolor": "white", "linewidth": 0.8}
MOVED: dict[str, Any] = {
    "facecolor": "#fbe6bf",
    "edgecolor": "#b87a00",
    "hatch": "////",
    "linewidth": 0.0,
}
CONFLICT: dict[str, Any] = {
    "facecolor": "#E69F00",
    "edgecolor": "black",
    "linewidth": 1.2,
}
UNTOUCHED: dict[str, Any] = {
    "facecolor": "white",
    "edgecolor": "#b0b0b0",
    "linewidth": 0.6,
}


@Drawing
def warp_lines(ax: Axes, request: Request | Any) -> FigureSpec:
    """The 128-byte lines of memory that one request of a warp touches, a row each, with
    their 32-byte sectors.

    A number in a cell is the lane that asks for these bytes, "4×" stands for four
    lanes. Rows are in the order of their addresses, labeled with bytes from the
    array's first element; a break stands for lines nobody asked for. Raises KernelError
    for a request to shared memory.
    """
    _expect(request, shared=False)
    touched = np.unique(request.addresses[:, None] + np.arange(request.size))
    sectors = np.unique(touched // SECTOR_BYTES)
    lines = np.unique(touched // LINE_BYTES)
    rows = _draw_rows(ax, request, lines)
    columns = np.arange(0, LINE_BYTES, SECTOR_BYTES)
    cells(ax, np.tile(columns, len(lines)), np.repeat(rows, 4), SECTOR_BYTES, UNTOUCHED)
    at = rows[np.searchsorted(lines, sectors * SECTOR_BYTES // LINE_BYTES)]
    cells(ax, sectors * SECTOR_BYTES % LINE_BYTES, at, SECTOR_BYTES, MOVED)
    shared = _draw_asked(ax, request, lines, rows)
    cells(
        ax,
        sectors * SECTOR_BYTES % LINE_BYTES,
        at,
        SECTOR_BYTES,
        {"facecolor": "none", "edgecolor": "black"},
    )
    for byte in (*columns, LINE_BYTES):
        words(ax, byte, _HEADER, str(byte), ha="center")
    words(ax, LINE_BYTES + 6, _HEADER, "byte of the line")
    many = "; 4×: of four lanes" if shared else ""
    meaning = "number: lane" if request.size > 1 else "lanes on the right"
    key = {
        f"asked for ({meaning}{many})": ASKED,
        "moved, not asked for": MOVED,
        "not moved": UNTOUCHED,
    }
    sentence = _lines_in_words(request, len(touched), len(sectors), len(lines))
    return finished(
        ax,
        sentence,
        _source_line(request),
        columns=LINE_BYTES,
        rows=rows[-1] + 1,
        key=key,
    )


def _draw_asked(ax: Axes, request: Request, lines: Array, rows: Array) -> bool:
    """Draw the bytes that each lane asks for, and say whether several lanes ask for the
    same.
    """
    addresses, first, times = np.unique(
        request.addresses, return_index=True, return_counts=True
    )
    line = addresses // LINE_BYTES
    left = addresses % LINE_BYTES
    y = rows[np.searchsorted(lines, line)]
    width = np.minimum(request.size, LINE_BYTES - left)
    cells(ax, left, y, width, ASKED)
    rest = request.size - width
    # an access at an address that is no multiple of its size may reach into the next
    # line
    over = rest > 0
    cells(
        ax,
        0 * left[over],
        rows[np.searchsorted(lines, line[over] + 1)],
        rest[over],
        ASKED,
    )
    if request.size > 1:
        for x, at, w, i, n in zip(left, y, width, first, times, strict=True):
            _number(
                ax,
                x + w / 2,
                at,
                request.lanes[i],
                n,
                color="white",
                rotation=90 * (request.size == 2),
            )
    for line_number, at in zip(lines, rows, strict=True):
        inside = request.addresses // LINE_BYTES == line_number
        if request.size == 1 or (times[line == line_number] > 1).any():
            words(ax, LINE_BYTES + 3, at + 0.5, _ranges(request.lanes[inside]))
    return bool((times > 1).any())


def _lines_in_words(request: Request, different: int, sectors: int, lines: int) -> str:
    n = len(request.lanes)
    asked = len(request.lanes) * request.size
    moved = sectors * SECTOR_BYTES
    again = f", {different} of them different" if different < asked else ""
    return (
        f"{count_of(n, 'lane')} of the warp {'asks' if n == 1 else 'ask'} for"
        f" {count_of(asked, 'byte')} of {_name(request)}{again}:"
        f" {count_of(sectors, 'sector')} in {count_of(lines, 'line')}"
        f" {'moves' if sectors == 1 else 'move'}. {different} of the {moved:,} bytes"
        f" moved were asked for ({different / moved:.0%})."
    )


@Drawing
def banks(ax: Axes, request: Request | Any) -> FigureSpec:
    """The words of shared memory that one request of a warp asks for, a column a bank,
    a row for every 128 bytes.

    The row below counts the different words that each bank has to give: more than one
    is a conflict. A word that several lanes ask for counts once. 8-byte accesses are
    served by half-warps and 16-byte ones by quarters of a warp, each with a row of its
    own. Source: CUDA C++ Programming Guide, "Shared Memory". Raises KernelError for a
    request to other memory.
    """
    _expect(request, shared=True)
    wide, part, word = _words_by_part(request)
    counts = bank_words(request)  # (parts, banks)
    lines = np.unique(word // BANKS)
    rows = _draw_rows(ax, request, lines)
    cells(
        ax,
        np.tile(np.arange(0, LINE_BYTES, BANK_BYTES), len(lines)),
        np.repeat(rows, BANKS),
        BANK_BYTES,
        UNTOUCHED,
    )
    crowded = (counts[part[:, None], word % BANKS] > 1).any(axis=1)
    starts, first, times = np.unique(word[:, 0], return_index=True, return_counts=True)
    y = rows[np.searchsorted(lines, starts // BANKS)]
    x = starts % BANKS * BANK_BYTES
    for style, color, which in (
        (ASKED, "white", ~crowded[first]),
        (CONFLICT, "black", crowded[first]),
    ):
        cells(ax, x[which], y[which], wide * BANK_BYTES, style)
        for i in np.flatnonzero(which):
            _number(
                ax,
                x[i] + wide * BANK_BYTES / 2,
                y[i],
                request.lanes[first[i]],
                times[i],
                color=color,
            )
    for bank in range(BANKS):
        words(
            ax, (bank + 0.5) * BANK_BYTES, _HEADER, str(bank), ha="center", fontsize=7
        )
    words(ax, LINE_BYTES + 3, _HEADER, "bank")
    _draw_given(ax, rows[-1] + 1.5, counts)
    many = "; 4×: one word of four lanes" if (times > 1).any() else ""
    key = {
        f"asked for (number: lane{many})": ASKED,
        "in a bank that has to give more than one word": CONFLICT,
    }
    sentence = _banks_in_words(request, counts, len(np.unique(word)))
    end = rows[-1] + 1.5 + len(counts)
    return finished(
        ax, sentence, _source_line(request), columns=LINE_BYTES, rows=end, key=key
    )


def _words_by_part(request: Request) -> tuple[int, Array, Array]:
    """Words of 4 bytes that an access takes; the part of the warp that each lane is
    served with, (lanes,); and the words that it asks for, (lanes, words).
    """
    wide = max(request.size // BANK_BYTES, 1)
    part = request.lanes * wide // WARP
    word = (request.addresses // BANK_BYTES)[:, None] + np.arange(wide)
    return wide, part, word


def bank_words(request: Request) -> Array:
    """How many different words each bank of shared memory has to give for each part of
    the warp that is served together, (parts, banks).
    """
    wide, part, word = _words_by_part(request)
    pairs = np.unique(np.stack([np.repeat(part, wide), word.reshape(-1)]), axis=1)
    counts = np.zeros((wide, BANKS), int)
    np.add.at(counts, (pairs[0], pairs[1] % BANKS), 1)
    return counts


def _draw_given(ax: Axes, top: float, counts: Array) -> None:
    """Draw how many words each bank has to give, a row for each part of the warp, from
    `top` down.
    """
    lanes = WARP // len(counts)
    for i, row in enumerate(counts):
        y = top + i
        for bank, n in enumerate(row):
            weight = "bold" if n > 1 else "normal"
            color = "black" if n else "#999999"
            words(
                ax,
                (bank + 0.5) * BANK_BYTES,
                y + 0.5,
                str(n),
                ha="center",
                fontsize=7,
                weight=weight,
                color=color,
            )
        crowded = np.flatnonzero(row > 1)
        cells(
            ax,
            crowded * BANK_BYTES,
            np.full(len(crowded), y),
            BANK_BYTES,
            {**CONFLICT, "zorder": 1},
        )
        label = (
            "words" if len(counts) == 1 else f"lanes {i * lanes}-{(i + 1) * lanes - 1}"
        )
        words(ax, _LEFT, y + 0.5, label)
        words(ax, LINE_BYTES + 3, y + 0.5, f"{count_of(int(row.max()), 'round')}")


def _banks_in_words(request: Request, counts: Array, different: int) -> str:
    n = len(request.lanes)
    used = int(counts.any(axis=0).sum())
    most = int(counts.max())
    verdict = "no bank has to give more than one at a time: no conflict"
    if most > 1:
        verdict = f"a bank has to give up to {most} at a time: a {most}-way conflict"
    parts = {1: "", 2: "half-warps", 4: "quarters of a warp"}[len(counts)]
    tail = (
        f" {request.size}-byte accesses are served by {parts}, each for itself."
        if parts
        else ""
    )
    asked = n * max(request.size // BANK_BYTES, 1)
    same = (
        " Lanes that ask for the same word share it, which is no conflict."
        if different < asked
        else ""
    )
    return (
        f"{count_of(n, 'lane')} of the warp {'asks' if n == 1 else 'ask'} for"
        f" {count_of(different, 'different word')} of {_name(request)} in"
        f" {count_of(used, 'bank')}, and {verdict},"
        f" {count_of(int(counts.max(axis=1).sum()), 'round')}.{tail}{same}"
    )


# -- what these figures share with that of a warp's paths


def cells(ax: Axes, x: Any, y: Any, width: Any, style: dict[str, Any]) -> None:
    """Draw boxes one row high and `width` wide, with their upper left corners at `x`
    and `y`.
    """
    x, y, width = np.broadcast_arrays(
        np.asarray(x, float), np.asarray(y, float), np.asarray(width, float)
    )
    corners: Any = np.stack(
        [x, y, x + width, y, x + width, y + 1, x, y + 1], axis=-1
    ).reshape(-1, 4, 2)
    # edges on the border are drawn whole
    look: Any = {"zorder": 2, "linewidth": 0.8, "clip_on": False, **style}
    ax.add_collection(PolyCollection(corners, **look), autolim=False)


def words(ax: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Write at column `x` and row `y`."""
    ax.text(x, y, text, **{"fontsize": 8, "va": "center", "zorder": 3, **style})


def finished(
    ax: Axes,
    sentence: str,
    title: str,
    *,
    columns: int,
    rows: float,
    key: dict[str, dict[str, Any]],
    width_in: float = _WIDTH_IN,
) -> FigureSpec:
    """Set limits for `rows` rows from y = 0 at the top and x from 0 to `columns`; `key`
    names the styles of cells.
    """
    ax.set_axis_off()
    row_in = _ROW_IN if rows <= _MANY else _LOW_ROW_IN
    ax.set(xlim=(0, columns), ylim=(rows, 0))
    handles = [Patch(**style, label=label) for label, style in key.items()]
    above_names = 1.4 * 72 * row_in  # 72 points an inch
    size = {
        "height_in": rows * row_in + 0.9,
        "width_in": width_in,
        "title_pad": above_names,
    }
    return FigureSpec(
        sentence,
        title=title,
        legend="below",
        handles=handles,
        columns=max(len(key), 1),
        **size,
    )


def _expect(request: Any, *, shared: bool) -> None:
    """Raise KernelError unless this is a request to the memory that is drawn."""
    if not issubclass(type(request), Request):
        raise KernelError(
            f"Expected one request of a trace, got {brief_repr(request)}. "
            'Take one with trace.request("x", kind="load").'
        )
    if (request.space == "shared") != shared:
        here, other = ("banks", "warp_lines") if shared else ("warp_lines", "banks")
        raise KernelError(
            f"{here} draws requests to {'shared' if shared else 'global'} memory, but"
            f" {_name(request)} lies in {request.space or 'other'} memory. Draw this"
            f" one with figures.{other}."
        )


def _draw_rows(ax: Axes, request: Request, lines: Array) -> Array:
    """Label a row for each line of 128 bytes, mark where lines are left out, and return
    the y of each row.
    """
    skipped = np.diff(lines, prepend=lines[0] - 1) - 1
    rows: Array = np.arange(len(lines)) + _GAP * np.cumsum(skipped > 0)
    words(
        ax,
        _LEFT,
        _HEADER,
        f"{_name(request)} from" if len(_name(request)) < 9 else "array from",
    )
    before = 0
    for line, y, gap in zip(lines, rows, skipped, strict=True):
        words(ax, _LEFT, y + 0.5, f"byte {line * LINE_BYTES - request.base:,}")
        if gap:
            ax.plot(
                [0, LINE_BYTES],
                [y - _GAP / 2] * 2,
                color="#888888",
                linewidth=1.2,
                linestyle=(0, (1, 4)),
            )
            note = "" if gap == before else f" {count_of(int(gap), 'line')} left out"
            words(
                ax,
                LINE_BYTES + 3,
                y - _GAP / 2,
                f"⋮{note}",
                color="#555555",
                fontsize=7,
            )
        before = gap
    return rows


def _number(ax: Axes, x: float, y: float, lane: int, times: int, **style: Any) -> None:
    """Write the lane into a cell, or how many lanes there are."""
    text, size = (str(lane), 6.5) if times == 1 else (f"{times}×", 6)
    words(ax, x, y + 0.5, text, **{"fontsize": size, "ha": "center", **style})


def _ranges(lanes: Sequence[int] | Array) -> str:
    """Lanes in words: "lanes 0-7, 16, 24-31"."""
    ordered = np.sort(np.asarray(lanes))
    pieces = np.split(ordered, np.flatnonzero(np.diff(ordered) != 1) + 1)
    ranges = [str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in pieces]
    return cut(f"lane{'s' * (len(ordered) > 1)} {', '.join(ranges)}", 40)


def count_of(n: int, noun: str, ending: str = "s") -> str:
    """A number and its noun, such as "1 sector" or "2 branches"."""
    return f"{n:,} {noun}{'' if n == 1 else ending}"


def _name(request: Request) -> str:
    return request.array or "memory"


def _source_line(request: Request) -> str:
    return f"line {request.line}: {cut(request.text, 60)}"
