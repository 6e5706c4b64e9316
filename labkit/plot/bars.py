"""The board's figure: bars of what was measured, beside each row's prediction, limit and values from elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullFormatter

from labkit.core.units import format_quantity, significant
from labkit.plot.core import Drawing, FigureSpec, name_rows, text_right_of
from labkit.plot.style import DIAMOND, HATCHED, LIMIT, MEASURED, ON_WHITE

_ELSEWHERE = "recorded or simulated"


@dataclass
class Bar:
    """One row of a board; values in the board's unit, `low` and `high` the quartiles of the measurement.

    `others` are values from elsewhere: (label with its origin, value). `note` is shown where nothing was measured.
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
    for container in list(ax.containers):
        container.remove()  # with its bars and whiskers
    for drawn in (*ax.patches, *ax.lines, *ax.collections, *ax.texts):
        drawn.remove()
    if (legend := ax.get_legend()) is not None:
        legend.remove()


@functools.partial(Drawing, clear=_wipe)
def speed_bars(ax: Axes, bars: Sequence[Bar], *, unit: str, log: bool = False) -> FigureSpec:
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
    ax.xaxis.set_major_formatter(lambda value, _: _tick(value, unit))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("time" if unit == "s" else unit)
    rows = sum(1 + 0.5 * len(bar.others) for bar in bars)
    return FigureSpec(
        "; ".join(_in_words(bar, unit) for bar in bars) + "." if bars else "Nothing measured yet.",
        height_in=1.1 + 0.5 * max(rows, 1),
        legend="below",
        columns=4,
    )


def _range(bars: Sequence[Bar]) -> tuple[float, float]:
    """The least and the greatest value that the bars have to show; 1 and 1 where there is none."""
    shown = [v for bar in bars for v in (bar.measured, bar.low, bar.high, bar.predicted, bar.limit) if v]
    shown += [value for bar in bars for _, value in bar.others]
    return min(shown, default=1.0), max(shown, default=1.0)


def _tick(value: float, unit: str) -> str:
    """A number on the axis; its unit only where that has a prefix of its own, as "ms" or "GFLOP/s"."""
    if value == 0:
        return "0"
    return format_quantity(value, unit).removesuffix("" if unit == "s" else f" {unit}")


def _draw_bar(ax: Axes, y: int, bar: Bar, unit: str) -> None:
    """Draw a row: what was measured, or the note, at its top, and below it what others measured."""
    span = 0.8 if bar.others else 0.5
    height = span / (1 + len(bar.others))
    top = y - span / 2 + height / 2
    if bar.measured is not None:
        low, high = bar.low or bar.measured, bar.high or bar.measured
        style = {**HATCHED, "label": _ELSEWHERE}
        if not bar.simulated:
            style = {"color": MEASURED, "label": "measured here (bar to the median, whisker = quartiles)"}
        whisker = [[bar.measured - low], [high - bar.measured]]
        ax.barh(top, bar.measured, height, xerr=whisker, capsize=3, **style)
        text_right_of(ax, max(high, bar.measured), top, format_quantity(bar.measured, unit), bbox=ON_WHITE)
    elif bar.note:
        left_edge: dict[str, Any] = {"xycoords": ax.get_yaxis_transform()}  # a log axis has no 0
        text_right_of(ax, 0, top, bar.note, style="italic", **left_edge)
    for i, (label, value) in enumerate(bar.others, start=1):
        ax.barh(top + i * height, value, height * 0.8, label=_ELSEWHERE, **HATCHED)
        text_right_of(ax, value, top + i * height, f"{format_quantity(value, unit)}, {label}", bbox=ON_WHITE)
    if bar.limit is not None:
        ax.plot([bar.limit, bar.limit], [y - 0.4, y + 0.4], color=LIMIT, linewidth=2, label="limit")
    if bar.predicted is not None:
        # on the lower edge of the bar, where it doesn't hide the value of a bar that ends near it
        ax.plot(bar.predicted, top + height / 2, markersize=9, label="your prediction", **DIAMOND)


def _in_words(bar: Bar, unit: str) -> str:
    if bar.measured is None:
        return f"{bar.name}: {bar.note or 'not measured yet'}"
    words = f"{bar.name}: {format_quantity(bar.measured, unit)}{' (simulated)' if bar.simulated else ''}"
    if bar.predicted:
        words += f", {significant(bar.measured / bar.predicted, 2)}x your guess"
    if bar.limit:
        words += f", {bar.measured / bar.limit:.0%} of the limit"
    return words
