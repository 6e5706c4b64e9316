"""Figures of several devices: speed-up and traffic of ranks, a step by layout, and calculated against published.

Nothing here was measured on this machine: labels say "predicted", "calculated", "simulated", "counted" or "published".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from labkit.core.kinds import Items
from labkit.core.parameters import AnyNumber, Count, Positive
from labkit.core.units import format_bytes, format_quantity, format_seconds
from labkit.plot.core import Drawing, FigureSpec, label_seconds, name_rows, text_right_of
from labkit.plot.style import (
    CYCLE,
    EDGES,
    LIMIT,
    MARKERS,
    ON_WHITE,
    RECORDED,
    patches_of,
    series_style,
)  # fmt: skip

if TYPE_CHECKING:
    from trainplan.cluster import Step
    from trainplan.facts.agreement import Agreement

_ELEMENT_BYTES = 4  # float32
# Colour and texture: either alone tells two parts apart.
_PARTS: dict[str, tuple[str, str]] = {
    "compute": (CYCLE[0], ""),
    "recompute": (CYCLE[5], ".."),
    "tensor communication": (CYCLE[1], "//"),
    "context and expert communication": ("#999999", "--"),
    "pipeline communication": (CYCLE[4], "\\\\"),
    "bubble": ("#ffffff", ""),
    "data communication": (CYCLE[3], "xx"),
    "waiting for the slowest": ("#ffffff", ".."),
    "optimizer": (CYCLE[2], "++"),
}


@Drawing
def agreement(ax: Axes, tables: Annotated[Sequence[Agreement[Step]], Items(1)]) -> FigureSpec:
    """Predicted against published share of the GPUs' peak, a dot a run; the grey band is 10 % to each side of equal.

    The share is model FLOP utilisation, so that tables in different units fit one pair of axes.
    """
    most = 0.0
    for i, table in enumerate(tables):
        predicted = [100 * row.by.mfu for row in table.rows]
        published = [100 * row.by.mfu * row.published / row.predicted for row in table.rows]
        most = max(most, *predicted, *published)
        label = f"{table.name}: {len(table.rows)} runs, median error {table.median_error:.0%}"
        fill = "none" if i < len(CYCLE) else "full"  # the colours begin again
        ax.plot(published, predicted, label=label, linestyle="", fillstyle=fill, alpha=0.8, **series_style(i))
    ends = np.array([0, 1.08 * most])
    ax.fill_between(ends, 0.9 * ends, 1.1 * ends, color=RECORDED, alpha=0.2, linewidth=0)
    ax.plot(ends, ends, color=LIMIT, linewidth=1)
    ax.set(xlim=ends, ylim=ends, xlabel="published: % of peak (MFU)", ylabel="calculated: % of peak")
    errors = sorted(abs(row.error) for table in tables for row in table.rows)
    half, most_of = errors[(len(errors) - 1) // 2], errors[math.ceil(0.9 * len(errors)) - 1]
    worst = max(tables, key=lambda table: abs(table.worst.error))
    sentence = (
        f"Published runs: {len(errors)}. On the black line both agree; half are within {half:.1%} of it, nine of ten "
        f"within {most_of:.1%}. Farthest off, by {worst.worst.error:+.0%}: {worst.worst.label} ({worst.name})."
    )
    return FigureSpec(sentence, height_in=4.9, width_in=4.4, legend="right")


@Drawing
def step_parts(ax: Axes, steps: Mapping[str, Step]) -> FigureSpec:
    """One bar a layout: the parts of its calculated step; beside it the share of peak and the memory a GPU needs."""
    for y, step in enumerate(steps.values()):
        left = 0.0
        for part, seconds in step.parts.items():
            color, hatch = _PARTS[part]
            if seconds > 0:
                ax.barh(y, seconds, 0.55, left, color=color, hatch=hatch, **EDGES)
                left += seconds
        over = "" if step.fits else ": does not fit"
        held = f"{format_bytes(step.memory_bytes)} of {format_bytes(step.capacity_bytes)}{over}"
        text_right_of(ax, left, y, f"{format_seconds(step.seconds)}, MFU {step.mfu:.0%}\n{held}")
    name_rows(ax, list(steps))
    ax.set_xlim(0, 1.02 * max((step.seconds for step in steps.values()), default=1.0))
    label_seconds(ax.xaxis, ticks=5)
    ax.set_xlabel("time of a step (calculated)")
    there = {part for step in steps.values() for part, seconds in step.parts.items() if seconds > 0}
    said = [f"{name}: {format_seconds(step.seconds)}, {_largest(step)}" for name, step in steps.items()]
    return FigureSpec(
        "; ".join(said) + "." if said else "No layout to draw.",
        height_in=1.5 + 0.55 * max(len(steps), 1),
        legend="below",
        handles=patches_of({part: look for part, look in _PARTS.items() if part in there}),
        columns=3,
    )


def _largest(step: Step) -> str:
    rest = {part: s for part, s in step.parts.items() if part != "compute"}
    part = max(rest, key=lambda one: rest[one])
    return f"{step.parts['compute'] / step.seconds:.0%} of it compute, then {part} {rest[part] / step.seconds:.0%}"


@Drawing
def scales(
    ax: Axes,
    series: Mapping[str, Mapping[Positive, AnyNumber]],
    *,
    x: str,
    y: str,
    unit: str = "",
    marks: Mapping[str, Positive] | None = None,
) -> FigureSpec:
    """Lines of a value in `unit` over a size, {name: {size: value}}, both logarithmic.

    `marks` are sizes with a name, drawn as dashed lines. Values that aren't finite are left out.
    """
    said = []
    for i, (name, points) in enumerate(series.items()):
        there = sorted((size, value) for size, value in points.items() if math.isfinite(value))
        if not there:
            said.append(f"{name}: nothing to draw")
            continue
        sizes, values = zip(*there, strict=True)
        ax.plot(sizes, values, markersize=4, label=name, **series_style(i))
        ends = [f"{format_quantity(v, unit)} at {_count(s)}" for s, v in (there[0], there[-1])]
        said.append(f"{name}: {', '.join(dict.fromkeys(ends))}")
    ax.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
    for i, (name, at) in enumerate((marks or {}).items()):
        ax.axvline(at, color=LIMIT, linestyle="--", linewidth=1)
        place: dict[str, Any] = {"xycoords": ax.get_xaxis_transform(), "textcoords": "offset points"}
        ax.annotate(name, (at, 0.97 - 0.09 * i), xytext=(4, 0), va="top", fontsize=8, bbox=ON_WHITE, **place)
    ax.xaxis.set_major_formatter(lambda value, _: _count(value))
    ax.yaxis.set_major_formatter(lambda value, _: format_quantity(value, unit))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())
    sentence = f"{y} by {x}: {'; '.join(said)}." if said else "Nothing drawn yet."
    return FigureSpec(sentence, height_in=3.8, legend="below")


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


@Drawing
def bytes_by_tokens(
    ax: Axes,
    counted: Mapping[str, Mapping[Count, Positive]],
    *,
    params: Count,
    blocks: Count,
    hidden: Count,
    ranks: Count,
) -> FigureSpec:
    """Bytes that a rank sends in a step of float32, by tokens of the global batch: lines predicted, dots counted.

    `counted` maps "FSDP" and "tensor parallel" to bytes by tokens. FSDP moves all `params` three times, (n - 1) / n of
    them from each rank; tensor parallelism all-reduces tokens * hidden numbers four times a block by a ring.
    """
    share = (ranks - 1) / ranks * _ELEMENT_BYTES
    per_token = 8 * share * blocks * hidden
    lines = {"FSDP": (3 * share * params, 0.0), "tensor parallel": (0.0, per_token)}
    equal = 3 * params / (8 * blocks * hidden)
    seen = [tokens for found in counted.values() for tokens in found]
    x = np.geomspace(min([equal, *seen]) / 2, max([equal, *seen]) * 2, 100)
    for i, (way, (fixed, slope)) in enumerate(lines.items()):
        ax.plot(x, fixed + slope * x, color=CYCLE[i], linestyle=("-", "--")[i], label=f"{way}, predicted")
        if found := counted.get(way):
            ax.plot(list(found), list(found.values()), MARKERS[i], color=CYCLE[i], label=f"{way}, counted")
    ax.axvline(equal, color=LIMIT, linewidth=1, linestyle=":")
    ax.set_xscale("log", base=4)
    ax.set_yscale("log", base=4)
    ax.annotate(
        f"equal at {equal:,.0f} tokens", (equal, ax.get_ylim()[0]), xytext=(6, 8), textcoords="offset points",
        fontsize=9, bbox=ON_WHITE,
    )  # fmt: skip
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.yaxis.set_major_formatter(lambda value, _: format_bytes(value))
    ax.minorticks_off()
    ax.set(xlabel="tokens of the global batch in a step", ylabel="bytes sent by a rank")
    sentence = f"Left of {equal:,.0f} tokens tensor parallelism sends less, right of it FSDP does."
    return FigureSpec(sentence, height_in=3.6, legend="right")
