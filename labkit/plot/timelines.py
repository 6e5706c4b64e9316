"""Figures of what ran when on one machine: host, bus and device, and the workers of an
input pipeline.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.core.parameters import NonNegative
from labkit.core.units import format_seconds
from labkit.plot.core import Drawing, FigureSpec, label_seconds, name_rows
from labkit.plot.style import ACCENT, CYCLE, MEASURED, ON_WHITE, PREDICTED

if TYPE_CHECKING:
    from labkit.measure.simulated import Event
    from labkit.train.data import BatchTimes

_LANES = {"host": CYCLE[0], "bus": CYCLE[3], "device": CYCLE[2]}
_READ = 0.34  # rows that the name of a clock reading takes
_LETTER = 1 / 75  # of the width: a letter in a bar
_NUMBER = 1 / 40  # of the width: the number of a batch
_TRAINS: dict[str, Any] = {
    "facecolor": MEASURED,
    "edgecolor": "white",
    "label": "trains",
}
_LOADS: dict[str, Any] = {"facecolor": ACCENT, "edgecolor": "white", "label": "loads"}
_STARVES: dict[str, Any] = {
    "facecolor": "white",
    "edgecolor": PREDICTED,
    "hatch": "xx",
    "label": "waits, not ready",
}
_RECEIVES: dict[str, Any] = {
    "facecolor": "white",
    "edgecolor": PREDICTED,
    "label": "waits, ready",
}


@Drawing
def timeline(
    ax: Axes, events: Sequence[Event], *, reads: Mapping[str, NonNegative]
) -> FigureSpec:
    """What ran on host, bus and device, as bars over the clock; `reads` are names and
    seconds of clock readings.

    The axis ends at the last event or reading. All of it is simulated, and the label
    says so.
    """
    events = [event for event in events if event.end_s > event.start_s]
    lanes = [lane for lane in _LANES if any(event.where == lane for event in events)]
    end_s = max([event.end_s for event in events] + list(reads.values()))
    busy_s = dict.fromkeys(lanes, 0.0)
    for event in events:
        y = lanes.index(event.where)
        width_s = event.end_s - event.start_s
        color = _LANES[event.where]
        # a white edge would hide a thin bar
        edge = color if width_s < 0.01 * end_s else "white"
        ax.barh(y, width_s, 0.5, left=event.start_s, color=color, edgecolor=edge)
        # white on the bus's pink is hard to read
        ink = "black" if event.where == "bus" else "white"
        room_s = len(event.name) * _LETTER * end_s
        _write_in_bar(ax, y, event.start_s, event.end_s, event.name, room_s, ink)
        busy_s[event.where] += width_s
    for i, (name, at_s) in enumerate(reads.items()):
        ax.axvline(at_s, color=PREDICTED, linestyle="--", linewidth=1.5)
        side, ha = (4, "left") if at_s < 0.8 * end_s else (-4, "right")
        ax.annotate(
            name,
            (at_s, -0.62 - _READ * i),
            xytext=(side, 0),
            textcoords="offset points",
            fontsize=9,
            color=PREDICTED,
            ha=ha,
            va="center",
            bbox=ON_WHITE,
        )
    name_rows(ax, lanes, above=0.7 + _READ * len(reads))
    ax.set_xlim(-0.02 * end_s, 1.02 * end_s)
    label_seconds(ax.xaxis, ticks=6)
    ax.set_xlabel("time (simulated)")
    busy = [
        f"{lane} busy for {format_seconds(seconds)}" for lane, seconds in busy_s.items()
    ]
    read = [f"{name} at {format_seconds(at_s)}" for name, at_s in reads.items()]
    return FigureSpec(
        f"Simulated: {', '.join(busy)}. Clock read: {', '.join(read) or 'never'}.",
        height_in=1.3 + 0.45 * len(lanes) + 0.2 * len(reads),
    )


def _write_in_bar(
    ax: Axes, y: int, start_s: float, end_s: float, text: str, room_s: float, color: str
) -> None:
    """Write into a bar that is longer than the `room_s` that the text takes."""
    if text and end_s - start_s > room_s:
        ax.text(
            (start_s + end_s) / 2,
            y,
            text,
            ha="center",
            va="center",
            fontsize=8,
            color=color,
        )


@Drawing
def queue(ax: Axes, times: Sequence[BatchTimes]) -> FigureSpec:
    """Bars over the clock: each worker's loading, batch by batch, and the trainer's
    work and waiting.

    A wait is divided where the batch becomes ready: what follows is its way from the
    worker to the trainer. `times` is a loader's `times` after an epoch, or some of them
    in a row. A trainer that loads its own batches waits while it loads. Raises
    BadArgument for fewer than two batches: when the last one's work ends isn't known.
    """
    if len(times) < 2:
        raise BadArgument(
            f"Expected the times of two batches or more, got {brief_repr(times)}. Run"
            " an epoch first."
        )
    zero_s = min([times[0].asked_s, *(batch.begun_s for batch in times)])
    end_s = times[-1].taken_s - zero_s
    workers = sorted({batch.worker for batch in times if batch.worker >= 0})

    def bar(
        lane: int, start_s: float, stop_s: float, number: str, look: dict[str, Any]
    ) -> None:
        left_s = start_s - zero_s
        right_s = stop_s - zero_s
        width_s = max(stop_s - start_s, 0.0)
        ax.barh(lane, width_s, 0.6, left=left_s, linewidth=0.5, **look)
        _write_in_bar(ax, lane, left_s, right_s, number, _NUMBER * end_s, "white")

    for number, (batch, following) in enumerate(itertools.pairwise(times)):
        bar(0, batch.taken_s, following.asked_s, str(number), _TRAINS)
    for number, batch in enumerate(times):
        lane = 1 + workers.index(batch.worker) if workers else 0
        bar(lane, batch.begun_s, batch.ready_s, str(number), _LOADS)
        if workers:
            came_s = batch.asked_s + batch.starved_s
            bar(0, batch.asked_s, came_s, "", _STARVES)
            bar(0, came_s, batch.taken_s, "", _RECEIVES)
    name_rows(ax, ["trainer", *(f"worker {worker}" for worker in workers)])
    ax.set_xlim(-0.01 * end_s, 1.01 * end_s)
    label_seconds(ax.xaxis, ticks=6)
    ax.set_xlabel(
        "time; a batch has the same number where it is loaded and where it is used"
    )
    worked_s = sum(
        after.asked_s - batch.taken_s for batch, after in itertools.pairwise(times)
    )
    waited_s = sum(batch.waited_s for batch in times)
    starved = sum(batch.starved_s for batch in times) / waited_s if waited_s else 0.0
    sentence = (
        f"{len(times)} batches in {format_seconds(end_s)}: the trainer worked"
        f" {format_seconds(worked_s)} and waited {format_seconds(waited_s)},"
        f" {waited_s / (worked_s + waited_s):.0%} of its time; for {starved:.0%} of the"
        " wait the batch was not ready."
    )
    height_in = 1.3 + 0.4 * (1 + len(workers))
    return FigureSpec(sentence, height_in=height_in, legend="below", columns=2)
