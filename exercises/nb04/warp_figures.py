"""A warp at work, as a picture that plays: its lanes, and what each line of the kernel
asks of memory.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from exercises.nb04.request_figures import (
    ASKED,
    CONFLICT,
    MOVED,
    UNTOUCHED,
    bank_words,
    cells,
    count_of,
    finished,
    words,
)
from kerneltrace import (
    BANK_BYTES,
    BANKS,
    LINE_BYTES,
    SECTOR_BYTES,
    WARP,
    Request,
    Trace,
    WarpStep,
    python_function,
)
from kerneltrace.errors import KernelError
from labkit.lesson.moving import Moving
from labkit.plot.core import Drawing, FigureSpec
from labkit.plot.moving import MOST_FRAMES

Array = np.ndarray[Any, Any]
_LANE = LINE_BYTES / WARP  # columns of a lane, as wide as a bank
_MOST_ROWS = 4  # of memory
_NOT_TAKEN: dict[str, Any] = {
    "facecolor": "#fbe6bf",
    "edgecolor": "#d9a441",
    "hatch": "\\\\\\\\",
}
_HERE: dict[str, Any] = {"facecolor": "#fff3b0", "edgecolor": "none"}
_KEY = {
    "takes part, asked for": ASKED,
    "does not take the branch": _NOT_TAKEN,
    "moved, not asked for": MOVED,
    "bank with several words": CONFLICT,
}
_VERBS = {"load": "reads", "store": "writes", "atomic": "changes"}


@dataclass(frozen=True)
class _Scene:
    """What is the same in all frames: the kernel's lines and the number of the first,
    and how many rows memory has.
    """

    lines: tuple[str, ...]
    first: int
    memory_rows: int


def warp_at_work(
    kernel: Any, trace: Trace | Any, warp: int = 0, *, most: int = MOST_FRAMES
) -> Moving:
    """What a warp does, a branch or a request to memory a frame: which lanes take part,
    and which sectors or banks move for them.

    `trace` is one of `kernel`. Long work is cut after `most` steps, at most 60, and the
    text below says so. Raises KernelError for what is no trace, ValueError for a warp
    without steps.
    """
    if not issubclass(type(trace), Trace):
        raise KernelError(
            "Expected a trace of the kernel: lab.trace(kernel, grid, block, ...)."
        )
    steps = trace.warp_steps(warp)
    if not steps:
        raise ValueError(f"Warp {warp:,} comes to no branch and asks for no memory.")
    shown = steps[: min(most, MOST_FRAMES)]
    scene = _scene(kernel, shown)
    frames = (warp_step(step, scene) for step in shown)
    parted = sum(step.parts for step in shown)
    asked = sum(step.request is not None for step in shown)
    cut_off = f" These are its first {len(shown)} steps." * (len(shown) < len(steps))
    text = (
        f"Warp {warp} of {trace.kernel} at work, a branch or a request to memory at a"
        f" time: {count_of(asked, 'request')}, and {count_of(parted, 'branch', 'es')}"
        f" at which lanes part.{cut_off}"
    )
    return Moving(frames, text)


def _scene(kernel: Any, steps: Sequence[WarpStep]) -> _Scene:
    lines, first = inspect.getsourcelines(python_function(kernel))
    source = tuple(textwrap.dedent("".join(lines)).splitlines())
    requests = [step.request for step in steps if step.request is not None]
    touched = [len(_lines_of(request)) for request in requests]
    return _Scene(source, first, min(max(touched, default=1), _MOST_ROWS))


def _lines_of(request: Request) -> Array:
    """Numbers of the lines of memory that have a row; of shared memory one."""
    if request.space == "shared":
        return np.zeros(1, int)
    touched = request.addresses[:, None] + np.arange(request.size)
    return np.unique(touched // LINE_BYTES)


@Drawing
def warp_step(ax: Axes, step: WarpStep | Any, scene: _Scene | Any) -> FigureSpec:
    """One step of a warp: the kernel with the line that runs, the 32 lanes, and below
    them the lines of memory or the banks that the step asks for.
    """
    y = _draw_source(ax, scene, step.line)
    y = _draw_lanes(ax, step.lanes, y + 1)
    what = _draw_request(ax, step.request, y + 1.5)
    title = f"{_lanes_in_words(step)}{what}"
    sentence = f"line {step.line}, {step.text}: {title}."
    rows = y + 2.5 + scene.memory_rows
    return finished(ax, sentence, title, columns=LINE_BYTES, rows=rows, key=_KEY)


def _draw_source(ax: Axes, scene: _Scene, line: int) -> float:
    """Write the kernel with its line `line` marked; the row below it."""
    at = line - scene.first
    cells(ax, 0, at, LINE_BYTES, _HERE)
    for row, text in enumerate(scene.lines):
        weight = "bold" if row == at else "normal"
        words(ax, 1, row + 0.5, text, family="monospace", fontsize=7, weight=weight)
    words(ax, -1, at + 0.5, f"line {line} ▸", ha="right")
    return float(len(scene.lines))


def _draw_lanes(ax: Axes, lanes: Sequence[int], y: float) -> float:
    """Draw the lanes in row `y`, their numbers above; the row below them."""
    ways = np.array(lanes)
    for style, way in ((ASKED, 1), (_NOT_TAKEN, 0), (UNTOUCHED, -1)):
        cells(ax, np.flatnonzero(ways == way) * _LANE, y, _LANE, style)
    for lane in range(WARP):
        color = "white" if ways[lane] == 1 else "#777777"
        middle = (lane + 0.5) * _LANE
        words(ax, middle, y + 0.5, str(lane), ha="center", fontsize=6.5, color=color)
    words(ax, -1, y + 0.5, "lanes", ha="right")
    return y + 1


def _draw_request(ax: Axes, request: Request | None, y: float) -> str:
    """Draw what a step asks of memory, from row `y` on; what it is, in words."""
    if request is None:
        words(ax, -1, y + 0.5, "memory", ha="right", color="#777777")
        return ""
    if request.space == "shared":
        return _draw_banks(ax, request, y)
    return _draw_lines(ax, request, y)


def _draw_lines(ax: Axes, request: Request, y: float) -> str:
    """Draw the lines of 128 bytes that a request touches, a row each."""
    touched = np.unique(request.addresses[:, None] + np.arange(request.size))
    sectors = np.unique(touched // SECTOR_BYTES)
    lines = _lines_of(request)
    for row, line in enumerate(lines[:_MOST_ROWS]):
        at = y + row
        columns = np.arange(0, LINE_BYTES, SECTOR_BYTES)
        moved = sectors[sectors * SECTOR_BYTES // LINE_BYTES == line]
        asked = request.addresses[request.addresses // LINE_BYTES == line]
        cells(ax, columns, at, SECTOR_BYTES, UNTOUCHED)
        cells(ax, moved * SECTOR_BYTES % LINE_BYTES, at, SECTOR_BYTES, MOVED)
        cells(ax, asked % LINE_BYTES, at, request.size, ASKED)
        frame = {"facecolor": "none", "edgecolor": "black"}
        cells(ax, moved * SECTOR_BYTES % LINE_BYTES, at, SECTOR_BYTES, frame)
        label = f"{request.array}, byte {line * LINE_BYTES - request.base:,}"
        words(ax, -1, at + 0.5, label, ha="right")
    if len(lines) > _MOST_ROWS:
        rest = f"{len(lines) - _MOST_ROWS} more lines"
        words(ax, -1, y + _MOST_ROWS + 0.5, rest, ha="right", color="#555555")
    sector_count = count_of(len(sectors), "sector")
    verb = "moves" if len(sectors) == 1 else "move"
    return f", and {sector_count} of 32 bytes {verb}"


def _draw_banks(ax: Axes, request: Request, y: float) -> str:
    """Draw the 32 banks of shared memory with the words that each has to give."""
    counts = bank_words(request)  # (parts, banks)
    most = counts.max(axis=0)  # (banks,)
    for style, which in (
        (UNTOUCHED, most == 0),
        (ASKED, most == 1),
        (CONFLICT, most > 1),
    ):
        cells(ax, np.flatnonzero(which) * BANK_BYTES, y, BANK_BYTES, style)
    for bank in np.flatnonzero(most > 1):
        middle = (bank + 0.5) * BANK_BYTES
        words(ax, middle, y + 0.5, str(most[bank]), ha="center", fontsize=6.5)
    words(ax, -1, y + 0.5, f"{request.array}, banks", ha="right")
    used = count_of(int((most > 0).sum()), "bank")
    rounds = count_of(int(counts.max(axis=1).sum()), "round")
    return f", in {used} of {BANKS}: {rounds}"


def _lanes_in_words(step: WarpStep) -> str:
    takes_part = count_of(step.lanes.count(1), "lane")
    if step.request is None:
        others = step.lanes.count(0)
        return f"{takes_part} take the branch, {others} do not"
    verb = _VERBS.get(step.kind, "ask for")
    plural = verb if step.lanes.count(1) == 1 else verb.removesuffix("s")
    return f"{takes_part} {plural} {step.request.array or 'memory'}"
