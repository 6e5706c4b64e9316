"""Figures of time: who worked when, what single runs say, which ratios are real, and how far a speed-up reaches."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from labkit.core.units import format_seconds, significant
from labkit.measure.bench import Ratio
from labkit.measure.simulated import Event
from labkit.plot.core import CYCLE, LIMIT, MARKERS, MEASURED, ON_WHITE, PREDICTED, RECORDED, Drawing, resize
from labkit.plot.labels import label_ticks, name_rows, write_beside

_LANES = {"host": CYCLE[0], "bus": CYCLE[3], "device": CYCLE[2]}


@Drawing
def timeline(ax: Axes, events: Sequence[Event], *, reads: Mapping[str, float]) -> str:
    """What ran on host, bus and device, as bars over the clock; `reads` are names and seconds of clock readings.

    The last event to end and the readings set the width. All of it is simulated, and the label says so.
    """
    events = [event for event in events if event.end_s > event.start_s]
    lanes = [lane for lane in _LANES if any(event.where == lane for event in events)]
    end_s = max([event.end_s for event in events] + list(reads.values()))
    busy_s = dict.fromkeys(lanes, 0.0)
    for event in events:
        y, color, width_s = lanes.index(event.where), _LANES[event.where], event.end_s - event.start_s
        busy_s[event.where] += width_s
        edge = color if width_s < 0.01 * end_s else "white"  # a white edge would hide a thin bar
        ax.barh(y, width_s, 0.5, left=event.start_s, color=color, edgecolor=edge)
        if width_s > len(event.name) / 75 * end_s:  # about 75 characters fit into the width of the figure
            ink = "black" if event.where == "bus" else "white"  # white on its pink is hard to read
            middle_s = event.start_s + width_s / 2
            ax.text(middle_s, y, event.name, ha="center", va="center", fontsize=8, color=ink)
    for i, (name, at_s) in enumerate(reads.items()):
        ax.axvline(at_s, color=PREDICTED, linestyle="--", linewidth=1.5)
        side, ha = (4, "left") if at_s < 0.8 * end_s else (-4, "right")
        style: dict[str, Any] = {"fontsize": 9, "color": PREDICTED, "ha": ha, "bbox": ON_WHITE}
        write_beside(ax, at_s, -0.62 - 0.34 * i, name, offset=(side, 0), **style)
    name_rows(ax, lanes, top=-0.7 - 0.34 * len(reads))
    ax.set_xlim(-0.02 * end_s, 1.02 * end_s)
    label_ticks(ax.xaxis, format_seconds, most=6)
    ax.set_xlabel("time (simulated)")
    resize(ax, 1.3 + 0.45 * len(lanes) + 0.2 * len(reads))
    busy = [f"{lane} busy for {format_seconds(spent_s)}" for lane, spent_s in busy_s.items()]
    read = [f"{name} at {format_seconds(at_s)}" for name, at_s in reads.items()]
    return f"Simulated: {', '.join(busy)}. Clock read: {', '.join(read) or 'never'}."


@Drawing
def single_runs(ax: Axes, speedups: Sequence[float]) -> str:
    """What each single comparison would have claimed, in the order taken; the line at 1 is 'no difference'."""
    turns = range(1, len(speedups) + 1)
    ax.axhline(1.0, color=LIMIT, linewidth=2)
    ax.plot(turns, speedups, "o", color=MEASURED, markersize=5, alpha=0.8)
    ax.set(xlabel="comparison, in the order taken", ylabel="claimed speed-up")
    round_ratios = None
    if max(speedups) > 4 * min(speedups):  # a stray would flatten all others
        ax.set_yscale("log")
        round_ratios = [f * 10.0**e for e in range(-4, 5) for f in (1, 2, 5)]
    label_ticks(ax.yaxis, "{:g}x".format, at=round_ratios)
    resize(ax, 3.0)
    off = sum(abs(ratio - 1) > 0.05 for ratio in speedups)
    low, middle, high = min(speedups), statistics.median(speedups), max(speedups)
    return (
        f"{len(speedups)} single comparisons: {significant(low)}x to {significant(high)}x, median "
        f"{significant(middle)}x; {off} of them are more than 5 % away from 1."
    )


@Drawing
def ratios(ax: Axes, named: Mapping[str, Ratio]) -> str:
    """Speed-ups with their 95 % intervals, a row each; an interval that crosses the line at 1 shows nothing."""
    for y, ratio in enumerate(named.values()):
        color = RECORDED if ratio.verdict == "no difference seen" else MEASURED
        ax.plot([ratio.low, ratio.high], [y, y], color=color, linewidth=3, marker="|", markersize=10)
        ax.plot(ratio.value, y, MARKERS[0], color=color, markersize=8)
        above: dict[str, Any] = {"offset": (0, 10), "ha": "center", "va": "baseline", "bbox": ON_WHITE}
        write_beside(ax, ratio.value, y, f"{significant(ratio.value)}x, {ratio.verdict}", **above)
    ax.axvline(1.0, color=LIMIT, linewidth=2, zorder=1)
    name_rows(ax, named, top=-0.7)
    ax.set_xlim(left=0, right=1.25 * max([1.0, *(ratio.high for ratio in named.values())]))
    label_ticks(ax.xaxis, "{:g}x".format)
    ax.set_xlabel("speed-up (dot) and its 95 % interval; black line: no difference")
    resize(ax, 1.1 + 0.55 * len(named))
    return "; ".join(f"{name}: {significant(ratio.value)}x, {ratio.verdict}" for name, ratio in named.items()) + "."


@Drawing
def amdahl(ax: Axes, *, share: float, factor: float) -> str:
    """Speed-up of the whole against the factor by which a share (0 to 1) of its time gets faster, with the limit.

    Whole speed-up = 1 / ((1 - share) + share / factor), at most 1 / (1 - share). Source: G. M. Amdahl, Validity of
    the single processor approach to achieving large scale computing capabilities, AFIPS spring joint conference (1967).
    """
    factors = np.geomspace(1, 1000, 200)
    whole = 1 / ((1 - share) + share / factor)
    ax.plot(factors, 1 / ((1 - share) + share / factors), color=CYCLE[0], label=f"share {share:.0%}")
    ax.plot(factor, whole, "o", color=CYCLE[1], markersize=9)
    ax.annotate(f"{significant(whole)}x", (factor, whole), xytext=(0, -16), textcoords="offset points", fontsize=10)
    limit = "none" if share == 1 else f"{significant(1 / (1 - share))}x"
    if share < 1:
        ax.axhline(1 / (1 - share), color=LIMIT, linewidth=2, label=f"limit {limit}")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(0.8, max(12.0, 1.5 / (1 - share)) if share < 1 else 1000)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(FixedLocator([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]))
        axis.set_major_formatter(lambda value, _: f"{value:g}x")
        axis.set_minor_formatter(lambda value, _: "")
    ax.set(xlabel="how many times faster that share gets", ylabel="the whole gets faster by")
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    return (
        f"When {share:.0%} of the time gets {significant(factor)}x faster, "
        f"the whole gets {significant(whole)}x faster; limit: {limit}."
    )
