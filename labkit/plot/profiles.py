"""Figures of profiles: what ran when in a step, what its memory held, and what limits a training loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from labkit.core.units import format_bytes, format_seconds, significant
from labkit.plot.core import CYCLE, LIMIT, ON_WHITE, PREDICTED, RECORDED, Drawing, resize
from labkit.plot.labels import label_ticks, name_rows, write_beside

if TYPE_CHECKING:
    from labkit.measure.profiling import Limit, PartSpan, StepProfile
    from labkit.measure.profiling.memory_by_category import MemoryTimeline
    from labkit.plan.costs import TrainingMemory, TrainingStep

# colour and texture: either alone tells two parts apart. A gap is what is left white.
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
_LIMITS: dict[str, str] = {
    "input": "//",
    "launch overhead": "\\\\",
    "memory bandwidth": "..",
    "arithmetic": "",
    "communication": "++",
}
_NARROWEST = 1 / 590  # of the width: a pixel, so that a short span can be seen
_TEXTURED = 1 / 80  # of the width: wider bars have a texture
_EDGES: dict[str, Any] = {"edgecolor": "#404040", "linewidth": 0.4}
_NO_EDGES: dict[str, Any] = _EDGES | {"linewidth": 0}  # edges would hide narrow bars; textures need a colour


@Drawing
def step_strip(ax: Axes, profile: StepProfile) -> str:
    """One step as bars over time, a row for host and device each, and below them the share of each part in all steps.

    Spans shorter than a pixel are drawn a pixel wide, neighbours of one part that are closer together as one. The
    rows are one step; the shares are those of the mean of all profiled ones.
    """
    mean_s = sum(profile.parts.values())
    length_s = max([span.end_s for span in profile.spans], default=mean_s) or mean_s
    lanes = [lane for lane in ("host", "device") if any(span.lane == lane for span in profile.spans)]
    for part in _PARTS:
        if part != "gaps":
            _draw_spans(ax, profile.spans, lanes, part, length_s)
    _shares_below(ax, profile.parts, len(lanes), length_s)
    ax.set_yticks([*range(len(lanes)), len(lanes) + 0.15], [*lanes, f"all {profile.steps}: shares"])
    ax.set_ylim(len(lanes) + 0.65, -0.5)
    ax.set_xlim(0, length_s)
    label_ticks(ax.xaxis, format_seconds, most=6)
    ax.set_xlabel(f"time in one step on {profile.device}")
    shown = [part for part in _PARTS if profile.parts.get(part, 0) > 0 or any(s.part == part for s in profile.spans)]
    _legend_right(ax, [(part, *_PARTS[part]) for part in shown])
    resize(ax, 2.0 + 0.55 * len(lanes))
    largest = sorted(((s, part) for part, s in profile.parts.items() if s > 0), reverse=True)[:3]
    words = ", ".join(f"{part} {s / mean_s:.0%} ({format_seconds(s)})" for s, part in largest)
    said = f"A step takes {format_seconds(mean_s)}, the mean of {profile.steps}. Its largest parts: {words}."
    if any(span.part == "gaps" and span.end_s - span.start_s < length_s * _NARROWEST for span in profile.spans):
        said += " Gaps shorter than a pixel don't show in the rows; the bar of shares counts them."
    return said


def _draw_spans(ax: Axes, spans: Sequence[PartSpan], lanes: Sequence[str], part: str, length_s: float) -> None:
    """The bars of a part on all lanes, in two collections: a patch a bar, or a texture in each, takes long to draw."""
    color, hatch = _PARTS[part]
    bars = [(y, *bar) for y, lane in enumerate(lanes) for bar in _merged(spans, lane, part, length_s * _NARROWEST)]
    for wide, texture in ((True, hatch), (False, "")):  # no texture can be seen in a narrow bar
        boxes = [
            ((start_s, y - 0.3), (start_s, y + 0.3), (end_s, y + 0.3), (end_s, y - 0.3))
            for y, start_s, end_s in bars
            if (end_s - start_s > length_s * _TEXTURED) is wide
        ]
        if boxes:
            collection = PolyCollection(boxes, facecolor=color, hatch=texture, **_NO_EDGES)
            ax.add_collection(collection, autolim=False)


def _merged(spans: Sequence[PartSpan], lane: str, part: str, narrowest_s: float) -> list[tuple[float, float]]:
    """Begin and end of a part's bars on a lane: none shorter than `narrowest_s`, those that then touch joined."""
    bars: list[tuple[float, float]] = []
    own = [span for span in spans if span.lane == lane and span.part == part]
    for start_s, end_s in sorted((span.start_s, max(span.end_s, span.start_s + narrowest_s)) for span in own):
        if bars and start_s <= bars[-1][1]:
            bars[-1] = (bars[-1][0], max(end_s, bars[-1][1]))
        else:
            bars.append((start_s, end_s))
    return bars


def _shares_below(ax: Axes, parts: dict[str, float], row: int, length_s: float) -> None:
    """The bar of shares, stretched to the width of the step above it; labelled where there is room."""
    left, total_s = 0.0, sum(parts.values())
    for part in _PARTS:
        width = length_s * parts.get(part, 0.0) / total_s
        if width <= 0:
            continue
        color, hatch = _PARTS[part]
        ax.barh(row + 0.15, width, 0.5, left=left, facecolor=color, hatch=hatch, **_EDGES)
        if width > 0.12 * length_s:
            label = f"{part} {width / length_s:.0%}"
        else:
            label = f"{width / length_s:.0%}" if width > 0.05 * length_s else ""
        if len(label) * 0.0155 * length_s > width:  # about so wide is a letter
            label = label.split()[-1]
        if label:
            middle = left + width / 2
            ax.text(middle, row + 0.15, label, ha="center", va="center", fontsize=8, color="black", bbox=ON_WHITE)
        left += width


def _legend_right(ax: Axes, entries: Sequence[tuple[str, str, str]], lines: Sequence[Line2D] = ()) -> None:
    handles: list[Patch | Line2D] = [*lines]
    handles += [Patch(facecolor=color, hatch=hatch, label=name, **_EDGES) for name, color, hatch in entries]
    ax.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.02), frameon=False, fontsize=9, handleheight=1.2,
        handlelength=2.2, borderaxespad=0.0,
    )  # fmt: skip


@Drawing
def memory_timeline(
    ax: Axes, timeline: MemoryTimeline, *, predicted: TrainingMemory | TrainingStep | None = None
) -> str:
    """Bytes alive over one step, stacked by category, with the peak marked; the line is the sum that costs predicts.

    Phases are named above. Between two changes the bytes stay what they are, so the areas have steps.
    """
    times = np.array(timeline.times_s)
    end_s = max([float(times[-1]), *(phase.end_s for phase in timeline.phases)])
    series = {name: values for name, values in timeline.n_bytes.items() if max(values) > 0}
    below = np.zeros(len(times))
    for name, values in series.items():
        color, hatch = _CATEGORIES[name]
        above = below + np.array(values)
        ax.fill_between(times, below, above, step="post", facecolor=color, hatch=hatch, **_EDGES)
        below = above
    top = max(timeline.peak_bytes, 0 if predicted is None else _total_bytes(predicted))
    ax.set_ylim(0, 1.3 * top)
    ax.set_xlim(0, end_s)
    for phase in timeline.phases:  # a line where it begins, and its name where there is room for it
        ax.axvline(phase.start_s, color=RECORDED, linestyle=":", linewidth=1, ymax=0.97)
        if (phase.end_s - phase.start_s) > 0.014 * len(phase.name) * end_s:
            middle_s = (phase.start_s + phase.end_s) / 2
            ax.text(middle_s, 1.22 * top, phase.name, ha="center", va="center", fontsize=9)
    _mark_peak(ax, timeline, end_s)
    lines = []
    if predicted is not None:
        lines = [ax.axhline(_total_bytes(predicted), color=PREDICTED, linestyle="--", linewidth=2, label="predicted")]
    _legend_right(ax, [(name, *_CATEGORIES[name]) for name in reversed(series)], lines)
    label_ticks(ax.xaxis, format_seconds, most=6)
    step_bytes = 2.0 ** math.floor(math.log2(1.3 * top / 3))  # four or so round sizes in powers of two
    ax.set_yticks(np.arange(0, 1.3 * top, step_bytes))
    label_ticks(ax.yaxis, format_bytes)
    ax.set_xlabel("time in the step, by the host's clock")
    resize(ax, 3.8)
    return _in_words(timeline, predicted)


def _total_bytes(predicted: TrainingMemory | TrainingStep) -> int:
    memory: TrainingMemory = getattr(predicted, "memory", predicted)  # type: ignore[arg-type]  # a TrainingStep has one
    return memory.total_bytes


def _mark_peak(ax: Axes, timeline: MemoryTimeline, end_s: float) -> None:
    right = timeline.peak_s < 0.6 * end_s
    ax.plot(timeline.peak_s, timeline.peak_bytes, "v", color=LIMIT, markersize=8)
    place: dict[str, Any] = {"offset": (8, 9), "ha": "left"} if right else {"offset": (-8, 9), "ha": "right"}
    peak = f"peak {format_bytes(timeline.peak_bytes)}"
    write_beside(ax, timeline.peak_s, timeline.peak_bytes, peak, fontsize=9, bbox=ON_WHITE, **place)


def _in_words(timeline: MemoryTimeline, predicted: TrainingMemory | TrainingStep | None) -> str:
    parts = sorted(((n, name) for name, n in timeline.at_peak.items() if n), reverse=True)
    held = ", ".join(f"{name} {format_bytes(n)}" for n, name in parts)
    where = f"{timeline.peak_phase} pass" if timeline.peak_phase in ("forward", "backward") else timeline.peak_phase
    peak = f"Most memory in the {where}" if timeline.phases else "Most memory"
    said = f"{peak}: {format_bytes(timeline.peak_bytes)}, of which {held}."
    if predicted is None:
        return said
    total = _total_bytes(predicted)
    ratio = significant(timeline.peak_bytes / total)
    return f"{said} Predicted without temporary tensors (dashed): {format_bytes(total)}; measured {ratio}x of it."


@Drawing
def shares(ax: Axes, limit: Limit) -> str:
    """The loop's time by what limits it, the largest first, and how much faster the loop would be at most without it.

    The bound is 1 / (1 - share): nothing else changes when a limit vanishes (Amdahl 1967).
    """
    ordered = sorted(limit.shares, key=lambda name: -limit.shares[name])
    for y, name in enumerate(ordered):
        share = limit.shares[name]
        color = PREDICTED if name == limit.dominant else CYCLE[0]
        ax.barh(y, share, 0.55, facecolor=color, hatch=_LIMITS.get(name, ""), **_EDGES)
        text = f"{share:.0%}, without it at most {significant(limit.bound(name))}x" if share < 1 else "100%"
        if name == limit.dominant:
            text += ", dominates"
        write_beside(ax, share, y, text, fontsize=9)
    name_rows(ax, ordered)
    ax.set_xlim(0, 1)
    label_ticks(ax.xaxis, "{:.0%}".format)
    ax.set_xlabel(f"share of the loop's time ({format_seconds(limit.loop_s)} a step)")
    resize(ax, 1.2 + 0.42 * len(ordered))
    largest = limit.largest
    share = limit.shares[largest]
    fast = f"without it the loop would be at most {significant(limit.gain)}x as fast"
    bound = fast if share < 1 else "nothing else takes time"
    if limit.dominant is None:
        return f"Nothing dominates; the largest is {largest} with {share:.0%}: {bound}."
    return f"{largest.capitalize()} dominates with {share:.0%} of the loop's time: {bound}."
