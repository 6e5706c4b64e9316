"""Figures of profiles: what ran when in a step, what its memory held, and what limits a
training loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from labkit.core.units import format_bytes, format_seconds, significant
from labkit.plot.core import (
    Drawing,
    FigureSpec,
    label_seconds,
    name_rows,
    text_right_of,
)
from labkit.plot.style import (
    CYCLE,
    EDGES,
    LIMIT,
    ON_WHITE,
    PREDICTED,
    RECORDED,
    patches_of,
)

if TYPE_CHECKING:
    from steptime import Limit, MemoryTimeline, PartSpan, StepProfile
    from trainplan.costs import TrainingStep

# Color and texture: either alone tells two parts apart. A gap is left white.
_PARTS: dict[str, tuple[str, str]] = {
    "input": (CYCLE[4], "//"),
    "copies": (CYCLE[3], "\\\\"),
    "forward": (CYCLE[0], ""),
    "backward": (CYCLE[1], ".."),
    "optimizer": (CYCLE[2], "xx"),
    "gaps": ("#ffffff", ""),
    "communication": (CYCLE[5], "++"),
    "other": ("#c8c8c8", "--"),
}
_CATEGORIES: dict[str, tuple[str, str]] = {
    "parameters": (CYCLE[0], ""),
    "optimizer state": (CYCLE[2], "xx"),
    "gradients": (CYCLE[1], ".."),
    "activations": (CYCLE[4], "//"),
    "temporary and other": ("#c8c8c8", "--"),
}
_NARROWEST = 1 / 590  # of the width: a pixel, so that a short span can be seen
_TEXTURED = 1 / 80  # of the width: only in wider bars can a texture be seen
# edges would hide narrow bars; textures take their color
_NO_EDGES: dict[str, Any] = {**EDGES, "linewidth": 0}


@Drawing
def step_strip(ax: Axes, profile: StepProfile) -> FigureSpec:
    """One step as bars over time, a row for host and device each, and below them the
    share of each part in all steps.

    Spans shorter than a pixel are drawn a pixel wide, and those of one part with less
    than that between them as one. The rows show one step; the shares are those of the
    mean of all profiled steps.
    """
    mean_s = sum(profile.parts.values())
    length_s = max([span.end_s for span in profile.spans], default=mean_s) or mean_s
    lanes = [
        lane
        for lane in ("host", "device")
        if any(span.lane == lane for span in profile.spans)
    ]
    for part in _PARTS:
        if part != "gaps":
            _draw_spans(ax, profile.spans, lanes, part, length_s)
    _draw_shares(ax, profile.parts, len(lanes) + 0.15, length_s)
    name_rows(ax, lanes, below=1.65)
    ax.set_yticks(
        [*range(len(lanes)), len(lanes) + 0.15],
        [*lanes, f"all {profile.steps}: shares"],
    )
    ax.set_xlim(0, length_s)
    label_seconds(ax.xaxis, ticks=6)
    ax.set_xlabel(f"time in one step on {profile.device}")
    there = {part for part, s in profile.parts.items() if s > 0} | {
        span.part for span in profile.spans
    }
    largest = sorted(
        ((s, part) for part, s in profile.parts.items() if s > 0), reverse=True
    )[:3]
    words = ", ".join(
        f"{part} {s / mean_s:.0%} ({format_seconds(s)})" for s, part in largest
    )
    sentence = (
        f"A step takes {format_seconds(mean_s)}, the mean of {profile.steps}. Its"
        f" largest parts: {words}."
    )
    if any(
        span.part == "gaps" and span.end_s - span.start_s < length_s * _NARROWEST
        for span in profile.spans
    ):
        sentence += (
            " Gaps shorter than a pixel don't show in the rows; the bar of shares"
            " counts them."
        )
    handles = patches_of({part: look for part, look in _PARTS.items() if part in there})
    return FigureSpec(
        sentence, height_in=2.0 + 0.55 * len(lanes), legend="right", handles=handles
    )


def _draw_spans(
    ax: Axes,
    spans: Sequence[PartSpan],
    lanes: Sequence[str],
    part: str,
    length_s: float,
) -> None:
    """Draw a part's bars on all lanes as two collections: a patch a bar, or a texture
    in each, takes long to draw.
    """
    color, hatch = _PARTS[part]
    bars = [
        (y, *bar)
        for y, lane in enumerate(lanes)
        for bar in _merged(spans, lane, part, length_s * _NARROWEST)
    ]
    for wide, texture in ((True, hatch), (False, "")):
        boxes = [
            ((start_s, y - 0.3), (start_s, y + 0.3), (end_s, y + 0.3), (end_s, y - 0.3))
            for y, start_s, end_s in bars
            if (end_s - start_s > length_s * _TEXTURED) is wide
        ]
        if boxes:
            collection = PolyCollection(
                boxes, facecolor=color, hatch=texture, **_NO_EDGES
            )
            ax.add_collection(collection, autolim=False)


def _merged(
    spans: Sequence[PartSpan], lane: str, part: str, narrowest_s: float
) -> list[tuple[float, float]]:
    """Start and end of a part's bars on a lane: none shorter than `narrowest_s`, and
    those that then touch joined.
    """
    bars: list[tuple[float, float]] = []
    own = [span for span in spans if span.lane == lane and span.part == part]
    for start_s, end_s in sorted(
        (span.start_s, max(span.end_s, span.start_s + narrowest_s)) for span in own
    ):
        if bars and start_s <= bars[-1][1]:
            bars[-1] = (bars[-1][0], max(end_s, bars[-1][1]))
        else:
            bars.append((start_s, end_s))
    return bars


def _draw_shares(ax: Axes, parts: dict[str, float], y: float, length_s: float) -> None:
    """Draw the bar of shares, as wide as the step above it, with labels where there is
    room.
    """
    left = 0.0
    total_s = sum(parts.values())
    for part, (color, hatch) in _PARTS.items():
        share = parts.get(part, 0.0) / total_s
        if share <= 0:
            continue
        ax.barh(
            y, share * length_s, 0.5, left=left, facecolor=color, hatch=hatch, **EDGES
        )
        label = f"{part} {share:.0%}" if share > 0.12 else f"{share:.0%}"
        if len(label) * 0.0155 > share:  # a letter is about that wide
            label = label.split()[-1]
        if share > 0.05:
            middle = left + share * length_s / 2
            ax.text(
                middle,
                y,
                label,
                ha="center",
                va="center",
                fontsize=8,
                color="black",
                bbox=ON_WHITE,
            )
        left += share * length_s


@Drawing
def memory_timeline(
    ax: Axes, timeline: MemoryTimeline, *, predicted: TrainingStep | None = None
) -> FigureSpec:
    """Bytes alive over one step, stacked by category, with the peak marked; a dashed
    line at what costs predicts.

    Phases are named above. The areas have steps, since the bytes change only where
    something is allocated or freed.
    """
    times = np.array(timeline.times_s)
    end_s = max([float(times[-1]), *(phase.end_s for phase in timeline.phases)])
    series = {
        name: values for name, values in timeline.n_bytes.items() if max(values) > 0
    }
    below = np.zeros(len(times))
    for name, values in series.items():
        color, hatch = _CATEGORIES[name]
        above = below + np.array(values)
        ax.fill_between(
            times, below, above, step="post", facecolor=color, hatch=hatch, **EDGES
        )
        below = above
    handles: list[Any] = patches_of(
        {name: _CATEGORIES[name] for name in reversed(series)}
    )
    total = 0 if predicted is None else predicted.memory.total_bytes
    if total:
        handles.insert(
            0,
            ax.axhline(
                total, color=PREDICTED, linestyle="--", linewidth=2, label="predicted"
            ),
        )
    top = max(timeline.peak_bytes, total)
    ax.set(xlim=(0, end_s), ylim=(0, 1.3 * top))
    _name_phases(ax, timeline, end_s, 1.22 * top)
    _mark_peak(ax, timeline, end_s)
    label_seconds(ax.xaxis, ticks=6)
    # three to six round sizes
    ax.set_yticks(np.arange(0, 1.3 * top, 2.0 ** math.floor(math.log2(1.3 * top / 3))))
    ax.yaxis.set_major_formatter(lambda value, _: format_bytes(value))
    ax.set_xlabel("time in the step, by the host's clock")
    return FigureSpec(
        _memory_in_words(timeline, total),
        height_in=3.8,
        legend="right",
        handles=handles,
    )


def _name_phases(ax: Axes, timeline: MemoryTimeline, end_s: float, at: float) -> None:
    """Draw a line where a phase begins, and write its name where there
    is room for it.
    """
    for phase in timeline.phases:
        ax.axvline(phase.start_s, color=RECORDED, linestyle=":", linewidth=1, ymax=0.97)
        if (phase.end_s - phase.start_s) > 0.014 * len(phase.name) * end_s:
            ax.text(
                (phase.start_s + phase.end_s) / 2,
                at,
                phase.name,
                ha="center",
                va="center",
                fontsize=9,
            )


def _mark_peak(ax: Axes, timeline: MemoryTimeline, end_s: float) -> None:
    right = timeline.peak_s < 0.6 * end_s
    ax.plot(timeline.peak_s, timeline.peak_bytes, "v", color=LIMIT, markersize=8)
    ax.annotate(
        f"peak {format_bytes(timeline.peak_bytes)}",
        (timeline.peak_s, timeline.peak_bytes),
        xytext=(8 if right else -8, 9),
        textcoords="offset points",
        fontsize=9,
        va="center",
        ha="left" if right else "right",
        bbox=ON_WHITE,
    )


def _memory_in_words(timeline: MemoryTimeline, predicted_bytes: int) -> str:
    parts = sorted(
        ((n, name) for name, n in timeline.at_peak.items() if n), reverse=True
    )
    held = ", ".join(f"{name} {format_bytes(n)}" for n, name in parts)
    where = (
        f"{timeline.peak_phase} pass"
        if timeline.peak_phase in ("forward", "backward")
        else timeline.peak_phase
    )
    peak = f"Most memory in the {where}" if timeline.phases else "Most memory"
    sentence = f"{peak}: {format_bytes(timeline.peak_bytes)}, of which {held}."
    if not predicted_bytes:
        return sentence
    ratio = significant(timeline.peak_bytes / predicted_bytes)
    return (
        f"{sentence} Predicted without temporary tensors (dashed):"
        f" {format_bytes(predicted_bytes)}; measured {ratio}x of it."
    )


@Drawing
def shares(ax: Axes, limit: Limit) -> FigureSpec:
    """The loop's time by what limits it, the largest first, and how much faster the
    loop would be without it: what was tried, or at most 1 / (1 - the shares of its
    cause), if nothing else changes (Amdahl 1967).
    """
    ordered = [
        name
        for name in sorted(limit.shares, key=lambda name: -limit.shares[name])
        if limit.shares[name] > 0
    ]
    for y, name in enumerate(ordered):
        share = limit.shares[name]
        color = PREDICTED if name == limit.dominant else CYCLE[0]
        ax.barh(y, share, 0.55, facecolor=color, **EDGES)
        text = f"{share:.0%}, {limit.without(name)}" if share < 1 else "100%"
        text_right_of(
            ax, share, y, text + ", dominates" * (name == limit.dominant), fontsize=9
        )
    name_rows(ax, ordered)
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_xlabel(f"share of the loop's time ({format_seconds(limit.loop_s)} a step)")
    largest = limit.largest
    share = limit.shares[largest]
    words = limit.words(largest)
    fast = (
        limit.without(largest)
        if words == "-"
        else f"without it the loop would be {words} as fast"
    )
    bound = fast if share < 1 else "nothing else takes time"
    sentence = (
        f"{largest.capitalize()} dominates with {share:.0%} of the loop's time:"
        f" {bound}."
    )
    if limit.dominant is None:
        sentence = (
            f"Nothing dominates; the largest is {largest} with {share:.0%}: {bound}."
        )
    return FigureSpec(sentence, height_in=1.2 + 0.42 * len(ordered))
