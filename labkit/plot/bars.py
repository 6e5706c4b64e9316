"""Figures of what was measured: a board's bars, curves that grow, single readings, and images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullFormatter

from labkit.core.units import format_quantity, format_seconds, significant
from labkit.measure.bench import Timing
from labkit.plot.core import CYCLE, DIAMOND, HATCHED, LIMIT, MARKERS, MEASURED, Drawing, legend_below, resize
from labkit.plot.labels import label_ticks, name_rows, write_beside


@dataclass
class Bar:
    """One row of a board; values in the board's unit, `low` and `high` the quartiles of the measurement.

    `others` are values from elsewhere: (label with its origin, value). `note` stands where nothing was measured.
    """

    name: str
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    predicted: float | None = None
    limit: float | None = None
    others: Sequence[tuple[str, float]] = field(default_factory=tuple)
    note: str = ""
    simulated: bool = False


def _wipe(ax: Axes) -> None:
    """Remove what was drawn and keep the axes: `clear` makes every tick anew, a third of a live frame's time."""
    for artist in (*ax.patches, *ax.lines, *ax.collections, *ax.texts):
        artist.remove()
    if (legend := ax.get_legend()) is not None:
        legend.remove()


@partial(Drawing, clear=_wipe)
def speed_bars(ax: Axes, bars: Sequence[Bar], *, unit: str, log: bool = False) -> str:
    """Bars of what was measured, with each row's prediction, limit and recorded values; x in `unit`."""
    for y, bar in enumerate(bars):
        _draw_bar(ax, y, bar, unit)
    name_rows(ax, [bar.name for bar in bars])
    least, most = _range(bars)
    if log:
        ax.set_xscale("log")
        ax.set_xlim(least / 2, most * 2)
    else:
        ax.set_xlim(0, most * 1.18)
        ax.xaxis.set_major_locator(MaxNLocator(5))
    if all(bar.measured is None and not bar.others for bar in bars):
        ax.set_xticks([])
    label_ticks(ax.xaxis, lambda value: _tick(value, unit))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("time" if unit == "s" else unit)
    handles = _legend_handles(bars)
    if handles:
        legend_below(ax, handles, ncols=len(handles))
    return "; ".join(_in_words(bar, unit) for bar in bars) + "." if bars else "Nothing measured yet."


def _range(bars: Sequence[Bar]) -> tuple[float, float]:
    """The least and the largest value that the bars have to show; 1 and 1 where there is none."""
    shown = [v for bar in bars for v in (bar.measured, bar.low, bar.high, bar.predicted, bar.limit) if v]
    shown += [value for bar in bars for _, value in bar.others]
    return min(shown, default=1.0), max(shown, default=1.0)


def _tick(value: float, unit: str) -> str:
    """A number on the axis; its unit only where that has a prefix of its own, as "ms" or "GFLOP/s"."""
    if value == 0:
        return "0"
    return format_quantity(value, unit).removesuffix("" if unit == "s" else f" {unit}")


def _draw_bar(ax: Axes, y: float, bar: Bar, unit: str) -> None:
    height = 0.5 / (1 + len(bar.others))
    if bar.measured is not None:
        low, high = bar.low or bar.measured, bar.high or bar.measured
        style = HATCHED if bar.simulated else {"color": MEASURED}
        at, whiskers = y - 0.25 + height / 2, [[bar.measured - low], [high - bar.measured]]
        ax.barh(at, bar.measured, height, xerr=whiskers, capsize=3, **style)
        _label(ax, max(high, bar.measured), at, format_quantity(bar.measured, unit))
    elif bar.note:
        left = ax.get_yaxis_transform()  # a log axis has no 0
        write_beside(ax, 0, y + 0.25, bar.note, style="italic", xycoords=left)
    for i, (label, value) in enumerate(bar.others, start=1):
        at = y - 0.25 + (i + 0.5) * height
        ax.barh(at, value, height * 0.8, **HATCHED)
        _label(ax, value, at, f"{format_quantity(value, unit)}, {label}")
    if bar.limit is not None:
        ax.plot([bar.limit, bar.limit], [y - 0.4, y + 0.4], color=LIMIT, linewidth=2)
    if bar.predicted is not None:
        ax.plot(bar.predicted, y, markersize=9, **DIAMOND)


def _label(ax: Axes, x: float, y: float, text: str) -> None:
    on_white = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}  # a limit may run behind it
    write_beside(ax, x, y, text, bbox=on_white)


def _legend_handles(bars: Sequence[Bar]) -> list[Patch | Line2D]:
    """Only the series that are there."""
    handles: list[Patch | Line2D] = []
    if any(bar.measured is not None and not bar.simulated for bar in bars):
        handles.append(Patch(color=MEASURED, label="measured here (bar to the median, whisker = quartiles)"))
    if any(bar.predicted is not None for bar in bars):
        handles.append(Line2D([], [], label="your prediction", **DIAMOND))
    if any(bar.limit is not None for bar in bars):
        handles.append(Line2D([], [], color=LIMIT, linewidth=2, label="limit"))
    if any(bar.others or bar.simulated for bar in bars):
        handles.append(Patch(**HATCHED, label="recorded or simulated"))
    return handles


def _in_words(bar: Bar, unit: str) -> str:
    if bar.measured is None:
        return f"{bar.name}: {bar.note or 'not measured yet'}"
    words = f"{bar.name}: {format_quantity(bar.measured, unit)}{' (simulated)' if bar.simulated else ''}"
    if bar.predicted:
        words += f", {significant(bar.measured / bar.predicted, 2)}x your guess"
    if bar.limit:
        words += f", {bar.measured / bar.limit:.0%} of the limit"
    return words


@Drawing
def images(ax: Axes, pixels: Any, labels: Any) -> str:
    """Images side by side with their labels below; `pixels` is (n, channels, height, width) in 0..1."""
    ax.imshow(np.concatenate([np.asarray(image).mean(axis=0) for image in pixels], axis=1), cmap="gray_r")
    width = pixels.shape[-1]
    ax.set_xticks([width * (i + 0.5) for i in range(len(labels))], [str(int(label)) for label in labels])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.set_xlabel("label")
    resize(ax, 1.6)
    return f"{len(labels)} images of {width} x {pixels.shape[-2]} pixels with their labels."


@Drawing
def curves(ax: Axes, series: Mapping[str, Sequence[float]], *, x: str = "step", y: str = "loss") -> str:
    """Lines over their index, one a name, each with a marker of its own at its end."""
    for i, (name, values) in enumerate(series.items()):
        marker, color = MARKERS[i % len(MARKERS)], CYCLE[i % len(CYCLE)]
        ax.plot(range(1, len(values) + 1), values, color=color, marker=marker, markevery=[-1], label=name)
    ax.set(xlabel=x, ylabel=y)
    ax.set_ylim(bottom=0)
    if series:
        ax.legend(frameon=False, fontsize=8)
    ends = [f"{name} {significant(values[-1])} after {len(values)}" for name, values in series.items() if len(values)]
    return f"{y} by {x}: {'; '.join(ends)}." if ends else "Nothing drawn yet."


@Drawing
def readings(ax: Axes, timings: Sequence[Timing], log: bool = False) -> str:
    """Every reading of some timings as a dot, the median as a line, the cold call as an open circle; x in seconds."""
    for y, timing in enumerate(timings):
        spread = np.linspace(-0.18, 0.18, len(timing.samples_s))
        color, marker = CYCLE[y % len(CYCLE)], MARKERS[y % len(MARKERS)]
        ax.plot(timing.samples_s, y + spread, marker, color=color, markersize=4, alpha=0.6)
        ax.plot([timing.median_s] * 2, [y - 0.32, y + 0.32], color=LIMIT, linewidth=2)
        ax.plot(timing.first_s, y, "o", color=color, fillstyle="none", markersize=10)
    name_rows(ax, [timing.label for timing in timings])
    if log:
        ax.set_xscale("log")
    else:
        ax.set_xlim(left=0)
    label_ticks(ax.xaxis, format_seconds)
    ax.set_xlabel("time of one call (dot: a reading, line: median, open circle: the first, cold call)")
    return "; ".join(f"{t.label}: median {format_seconds(t.median_s)}, spread {t.spread:.0%}" for t in timings) + "."
