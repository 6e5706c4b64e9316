"""The figure of copies and steps on two streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from exercises.nb08.prefetching import Run
from exercises.nb08.simulated_cuda import Conflict, Work
from labkit.core.units import format_seconds
from labkit.plot.core import Drawing, FigureSpec, name_rows
from labkit.plot.style import CYCLE, ON_WHITE, PREDICTED, RECORDED

_ROWS = {"copy": "copies", "compute": "steps"}
_COLORS = {"copy": CYCLE[3], "compute": CYCLE[2]}
_INK = {"copy": "black", "compute": "white"}
_LETTER = 1 / 70  # of the width: a letter in a bar
_FEWEST = 1 / 200  # of the width: shorter bars have no edge
_WAITS: dict[str, Any] = {"facecolor": "white", "edgecolor": RECORDED, "hatch": "//"}


@Drawing
def two_streams(ax: Axes, run: Run, *, batches: int = 6) -> FigureSpec:
    """The copies and steps of the first batches over the clock, each with its batch's
    number, and where the loop's host waited for them.

    Bars with a red texture used the same memory at the same time.
    """
    last_s = max(step.end_s for step in run.gpu.steps[:batches])
    shown = [work for work in run.gpu.work if work.engine in _ROWS]
    shown = [work for work in shown if work.start_s < last_s]
    waits = [wait for wait in run.gpu.waits if wait.start_s < last_s]
    end_ms = 1e3 * max(work.end_s for work in shown)
    wrong = _both(run.gpu.conflicts)
    for work in shown:
        _bar(ax, work, end_ms, red=work in wrong)
    for wait in waits:
        wait_ms = 1e3 * (wait.end_s - wait.start_s)
        ax.barh(len(_ROWS), wait_ms, 0.6, left=1e3 * wait.start_s, **_WAITS)
    rows = [*_ROWS.values(), *(["host waits"] if waits else [])]
    name_rows(ax, rows)
    ax.set_xlim(-0.01 * end_ms, 1.01 * end_ms)
    ax.set_xlabel("ms (simulated)")
    label = "the same memory at the same time"
    red = Patch(facecolor="white", edgecolor=PREDICTED, hatch="xx", label=label)
    together_s = _both_busy_s(run.gpu.work)
    sentence = (
        f"Simulated: {len(run.gpu.steps)} steps end after"
        f" {format_seconds(run.seconds)}; for {format_seconds(together_s)} of it, a"
        " copy and a step ran at the same time. Numbers are those of the batches."
    )
    return FigureSpec(
        sentence,
        height_in=1.4 + 0.45 * len(rows),
        legend="below",
        handles=[red] if wrong & set(shown) else (),
    )


def _bar(ax: Axes, work: Work, end_ms: float, *, red: bool) -> None:
    """The bar of a copy or a step, with the number of its batch where there is room."""
    start_ms = 1e3 * work.start_s
    width_ms = 1e3 * (work.end_s - work.start_s)
    row = list(_ROWS).index(work.engine)
    style: dict[str, Any] = {"color": _COLORS[work.engine], "edgecolor": "white"}
    if red:
        style = {"color": "white", "edgecolor": PREDICTED, "hatch": "xx"}
    elif width_ms < _FEWEST * end_ms:  # a white edge would hide it
        style["edgecolor"] = style["color"]
    ax.barh(row, width_ms, 0.6, left=start_ms, **style)
    number = str(work.batch)
    if work.batch >= 0 and width_ms > len(number) * _LETTER * end_ms:
        ax.text(
            start_ms + width_ms / 2,
            row,
            number,
            ha="center",
            va="center",
            fontsize=9,
            color="black" if red else _INK[work.engine],
            bbox=ON_WHITE if red else None,
        )


def _both(conflicts: Sequence[Conflict]) -> set[Work]:
    """All work that conflicts with other work."""
    return {
        work for conflict in conflicts for work in (conflict.earlier, conflict.later)
    }


def _both_busy_s(work: Sequence[Work]) -> float:
    """The seconds in which both engines were busy; each does one thing at a time."""
    copies = [each for each in work if each.engine == "copy"]
    steps = [each for each in work if each.engine == "compute"]
    pairs = ((a, b) for a in copies for b in steps)
    return sum(
        max(min(a.end_s, b.end_s) - max(a.start_s, b.start_s), 0.0) for a, b in pairs
    )
