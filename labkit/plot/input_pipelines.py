"""The picture of an input pipeline: which worker made which batch when, and when the trainer had to wait for one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.core.units import format_seconds
from labkit.plot.core import ACCENT, MEASURED, PREDICTED, Drawing, resize
from labkit.plot.labels import label_ticks, name_rows

if TYPE_CHECKING:
    from labkit.train.data import BatchTimes

_WAITING: dict[str, Any] = {"facecolor": "white", "edgecolor": PREDICTED, "hatch": "xx"}
_NAMED = 40  # a number fits into a bar that is a fortieth of the width


@Drawing
def queue(ax: Axes, times: Sequence[BatchTimes], *, title: str = "") -> str:
    """Bars over the clock: each worker's loading, batch by batch, and the trainer's work and waiting.

    `times` is a loader's `times` after an epoch, or some of them in a row. A trainer that loads for itself
    waits while it loads. Raises BadArgument for fewer than two batches, since the last one's work has no end.
    """
    if not isinstance(times, Sequence) or len(times) < 2:
        raise BadArgument(f"Expected the times of two batches or more, got {brief_repr(times)}. Run an epoch first.")
    zero_s = min([times[0].asked_s, *(batch.begun_s for batch in times)])
    end_s = times[-1].taken_s - zero_s
    workers = sorted({batch.worker for batch in times if batch.worker >= 0})
    lanes = ["trainer", *(f"worker {worker}" for worker in workers)]
    for number, batch in enumerate(times):
        lane = 1 + workers.index(batch.worker) if workers else 0
        _numbered_bar(ax, lane, batch.begun_s - zero_s, batch.ready_s - zero_s, number, end_s, ACCENT)
        if workers:
            waited_s = max(batch.taken_s - batch.asked_s, 0.0)
            ax.barh(0, waited_s, 0.6, left=batch.asked_s - zero_s, linewidth=0.5, **_WAITING)
    for number, (batch, following) in enumerate(itertools.pairwise(times)):
        _numbered_bar(ax, 0, batch.taken_s - zero_s, following.asked_s - zero_s, number, end_s, MEASURED)
    _label(ax, lanes, end_s, title, waits=bool(workers))
    worked_s = sum(after.asked_s - batch.taken_s for batch, after in itertools.pairwise(times))
    waited_s = sum(batch.waited_s for batch in times)
    return (
        f"{len(times)} batches in {format_seconds(end_s)}: the trainer worked {format_seconds(worked_s)} and waited "
        f"{format_seconds(waited_s)}, {waited_s / (worked_s + waited_s):.0%} of its time."
    )


def _numbered_bar(ax: Axes, lane: int, start_s: float, stop_s: float, number: int, end_s: float, color: str) -> None:
    """Draw a bar, and the batch's number where the bar has room for it."""
    length_s = max(stop_s - start_s, 0.0)
    ax.barh(lane, length_s, 0.6, left=start_s, linewidth=0.5, facecolor=color, edgecolor="white")
    if stop_s - start_s > end_s / _NAMED:
        ax.text((start_s + stop_s) / 2, lane, str(number), ha="center", va="center", fontsize=8, color="white")


def _label(ax: Axes, lanes: Sequence[str], end_s: float, title: str, *, waits: bool) -> None:
    name_rows(ax, lanes)
    ax.set_xlim(-0.01 * end_s, 1.01 * end_s)
    label_ticks(ax.xaxis, format_seconds, most=6)
    ax.set_xlabel("time; a batch has the same number where it is loaded and where it is used")
    ax.set_title(title, loc="left", fontsize=11)
    kinds = [Patch(facecolor=MEASURED, label="trains"), Patch(facecolor=ACCENT, label="loads")]
    if waits:
        kinds.append(Patch(**_WAITING, label="waits"))
    ax.legend(handles=kinds, frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    resize(ax, 1.3 + 0.4 * len(lanes))
