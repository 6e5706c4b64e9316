"""Lines: numbers by step, values over a size, and the bytes that ranks
send by tokens.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import (
    FixedLocator,
    Locator,
    LogLocator,
    MaxNLocator,
    NullFormatter,
)

from labkit.core.parameters import AnyNumber, Count, Positive
from labkit.core.units import format_bytes, format_quantity, significant
from labkit.plot.core import Drawing, FigureSpec
from labkit.plot.style import CYCLE, LIMIT, MARKERS, ON_WHITE, series_style

_ELEMENT_BYTES = 4  # float32
Points = Mapping[Positive, AnyNumber]
Marks = Mapping[str, Positive]


@Drawing
def curves(
    ax: Axes,
    series: Mapping[str, Sequence[AnyNumber]],
    *,
    x: str = "step",
    y: str = "loss",
) -> FigureSpec:
    """Lines over their index from 1, one a name, each with a marker at its end; from
    the eighth on they are dashed.
    """
    for i, (name, values) in enumerate(series.items()):
        line = "-" if i < len(CYCLE) else "--"  # the colors begin again
        ax.plot(
            range(1, len(values) + 1),
            values,
            line,
            markevery=[-1],
            label=name,
            **series_style(i),
        )
    ax.set(xlabel=x, ylabel=y)
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ends = [
        f"{name} {significant(values[-1])} after {len(values)}"
        for name, values in series.items()
        if len(values)
    ]
    return FigureSpec(
        f"{y} by {x}: {'; '.join(ends)}." if ends else "Nothing drawn yet."
    )


@Drawing
def scales(
    ax: Axes,
    series: Mapping[str, Points],
    *,
    x: str,
    y: str,
    unit: str = "",
    marks: Marks | None = None,
    log: bool = False,
) -> FigureSpec:
    """Lines of a value in `unit` over a size, {name: {size: value}}.

    An axis is logarithmic where its greatest number is ten times its least or more.
    With `log` both are, and each size has a tick: a power of the size is a straight
    line. A linear axis of values begins at 0, unless one is negative. `marks` are sizes
    with a name, drawn as dashed lines. Values that aren't finite are left out.
    """
    sentences = []
    drawn = []
    for i, (name, points) in enumerate(series.items()):
        finite = sorted(
            (size, value) for size, value in points.items() if math.isfinite(value)
        )
        if not finite:
            sentences.append(f"{name}: nothing to draw")
            continue
        drawn += finite
        sizes, values = zip(*finite, strict=True)
        ax.plot(sizes, values, markersize=4, label=name, **series_style(i))
        ends = [
            f"{format_quantity(value, unit)} at {_count(size)}"
            for size, value in (finite[0], finite[-1])
        ]
        sentences.append(f"{name}: {', '.join(dict.fromkeys(ends))}")
    ax.set(xlabel=x, ylabel=y)
    if drawn:
        sizes, values = zip(*drawn, strict=True)
        _scale_axis(ax, "x", sizes, log=log)
        _scale_axis(ax, "y", values, log=log)
    for i, (name, size) in enumerate((marks or {}).items()):
        _draw_mark(ax, i, name, size)
    ax.xaxis.set_major_formatter(lambda value, _: _count(value))
    ax.yaxis.set_major_formatter(lambda value, _: format_quantity(value, unit))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())
    sentence = (
        f"{y} by {x}: {'; '.join(sentences)}." if sentences else "Nothing drawn yet."
    )
    columns = 2 if len(series) > 4 else 1
    return FigureSpec(sentence, height_in=3.8, legend="below", columns=columns)


def _scale_axis(
    ax: Axes, name: Literal["x", "y"], numbers: Sequence[float], *, log: bool
) -> None:
    """Make an axis of positive numbers logarithmic where they span a factor of ten or
    `log` asks for it, and choose its ticks.
    """
    low = min(numbers)
    high = max(numbers)
    locator: Locator
    if low > 0 and (log or 10 * low <= high):
        few_decades = 100 if name == "x" else 1000
        subs = (1, 2, 5) if high < few_decades * low else (1,)
        locator = LogLocator(subs=subs)
        if log and name == "x":
            locator = FixedLocator(sorted(set(numbers)))
        (ax.set_xscale if name == "x" else ax.set_yscale)("log")
    else:
        locator = MaxNLocator(8, steps=(1, 2, 5, 10), integer=name == "x")
        if name == "y" and low >= 0:
            ax.set_ylim(bottom=0)  # so that twice as high is twice as much
    (ax.xaxis if name == "x" else ax.yaxis).set_major_locator(locator)


def _draw_mark(ax: Axes, i: int, name: str, size: float) -> None:
    ax.axvline(size, color=LIMIT, linestyle="--", linewidth=1)
    ax.annotate(
        name,
        (size, 0.97 - 0.09 * i),
        xycoords=ax.get_xaxis_transform(),
        xytext=(4, 0),
        textcoords="offset points",
        va="top",
        fontsize=8,
        bbox=ON_WHITE,
    )


def _count(value: float) -> str:
    if value >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:g}"


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
    """Bytes that a rank sends in a step of float32, by tokens of the global batch:
    lines predicted, dots counted.

    `counted` maps "FSDP" and "tensor parallel" to bytes by tokens. FSDP moves all
    `params` three times, (n - 1) / n of them from each rank; tensor parallelism
    all-reduces tokens * hidden numbers four times a block by a ring.
    """
    share = (ranks - 1) / ranks * _ELEMENT_BYTES
    lines = {
        "FSDP": (3 * share * params, 0.0),
        "tensor parallel": (0.0, 8 * share * blocks * hidden),
    }
    equal = 3 * params / (8 * blocks * hidden)
    tokens = [equal, *itertools.chain.from_iterable(counted.values())]
    x = np.geomspace(min(tokens) / 2, max(tokens) * 2, 100)
    for i, (way, (fixed, slope)) in enumerate(lines.items()):
        ax.plot(
            x,
            fixed + slope * x,
            color=CYCLE[i],
            linestyle=("-", "--")[i],
            label=f"{way}, predicted",
        )
        if points := counted.get(way):
            ax.plot(
                list(points),
                list(points.values()),
                MARKERS[i],
                color=CYCLE[i],
                label=f"{way}, counted",
            )
    ax.axvline(equal, color=LIMIT, linewidth=1, linestyle=":")
    ax.set_xscale("log", base=4)
    ax.set_yscale("log", base=4)
    ax.annotate(
        f"equal at {equal:,.0f} tokens",
        (equal, ax.get_ylim()[0]),
        xytext=(6, 8),
        textcoords="offset points",
        fontsize=9,
        bbox=ON_WHITE,
    )
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.yaxis.set_major_formatter(lambda value, _: format_bytes(value))
    ax.minorticks_off()
    ax.set(xlabel="tokens of the global batch in a step", ylabel="bytes sent by a rank")
    sentence = (
        f"Left of {equal:,.0f} tokens tensor parallelism sends less, right of it FSDP"
        " does."
    )
    return FigureSpec(sentence, height_in=3.6, legend="right")
