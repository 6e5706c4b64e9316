"""The board's figure: bars of what was measured, beside each row's prediction, limit
and values from elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from labkit.core.parameters import NonNegative, checked
from labkit.core.units import format_quantity, is_count
from labkit.measure.probe import TOLERANCE
from labkit.plot.core import Drawing, FigureSpec, text_right_of, tick_names
from labkit.plot.style import DIAMOND, HATCHED, LIMIT, MEASURED, ON_WHITE, RECORDED

PENDING = "not measured yet"
_ELSEWHERE = "recorded, published, simulated or calculated"
_BEYOND = (
    " (beyond it: the clock was slower for the limit, a cache holds the data, or work"
    " is skipped or not awaited)"
)
_HERE = {
    False: "measured here (bar to the median, whisker = {})",
    True: "measured here (dot: median, whisker = {})",
}
# A row's lanes, from the top: what was measured, the prediction, and each value from
# elsewhere. In units of a lane.
_LANE_IN = 0.25
_GUESS = 0.8
_BETWEEN = 1.0


@checked
@dataclass
class Bar:
    """One row of a board; values in the board's unit, `low` and `high` the quartiles of
    the measurement.

    Of a ratio, in x or %, they are the ends of its 95 % interval.

    `others` are values from elsewhere: (label with its origin, value). `note` is shown
    where nothing was measured.
    """

    name: str
    measured: NonNegative | None = None
    low: NonNegative | None = None
    high: NonNegative | None = None
    predicted: NonNegative | None = None
    limit: NonNegative | None = None
    others: Sequence[tuple[str, float]] = field(default_factory=tuple)
    note: str = ""
    simulated: bool = False


def _wipe(ax: Axes) -> None:
    """Remove what was drawn and keep the axes: `clear` makes every tick anew, a third
    of a live frame's time.
    """
    for drawn in (*ax.patches, *ax.lines, *ax.collections, *ax.texts):
        drawn.remove()
    ax.containers.clear()  # matplotlib 3.10.0 leaves them there when they are removed
    if (legend := ax.get_legend()) is not None:
        legend.remove()


@functools.partial(Drawing, clear=_wipe)
def speed_bars(
    ax: Axes, bars: Sequence[Bar], *, unit: str, log: bool = False
) -> FigureSpec:
    """Bars of what was measured, with each row's prediction, limit and recorded values;
    x in `unit`.

    On a logarithmic axis they are points, since the length of a bar would say nothing
    there.
    """
    tops = []
    below = 0.0
    for bar in bars:
        tops.append(below)
        below += _draw_row(ax, below, bar, unit, log) + _BETWEEN
    ax.set_yticks(tops, tick_names(bar.name for bar in bars))
    ax.set_ylim(max(below, 2.0) - 0.5, -1.0)
    least, most = _range(bars)
    if log:
        ax.set_xscale("log")
        ax.set_xlim(least / 2, most * 2)
        subs = (1, 2, 5) if most < 10 * least else (1,)
        ax.xaxis.set_major_locator(LogLocator(subs=subs))
        ax.grid(axis="y", linewidth=0.4)
    else:
        ax.set_xlim(0, most * 1.18)
        ax.xaxis.set_major_locator(MaxNLocator(5))
    if all(bar.measured is None and not bar.others for bar in bars):
        ax.set_xticks([])
    nothing_measured = all(bar.measured is None for bar in bars)
    waiting = any(bar.note in ("", PENDING) and not bar.others for bar in bars)
    if nothing_measured and waiting:
        look: dict[str, Any] = {"marker": "o"} if log else {"linewidth": 8}
        # the legend's room is taken from the first frame on
        ax.plot([], [], color=MEASURED, label=_here(log, unit), **look)
    ax.xaxis.set_major_formatter(lambda value, _: quantity_tick(value, unit))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("time" if unit == "s" else unit)
    sentence = "Nothing measured yet."
    if bars:
        sentence = "; ".join(_in_words(bar, unit) for bar in bars) + "."
    return FigureSpec(
        sentence,
        height_in=1.1 + _LANE_IN * max(below, 2.0),
        legend="below",
        columns=4,
    )


def _here(log: bool, unit: str) -> str:
    return _HERE[log].format("95 % interval" if unit in ("x", "%") else "quartiles")


def _range(bars: Sequence[Bar]) -> tuple[float, float]:
    """The least and the greatest value that the bars have to show; 1 and 1 where there
    is none.
    """
    values: list[float] = []
    for bar in bars:
        own = (bar.measured, bar.low, bar.high, bar.predicted, bar.limit)
        values += [value for value in own if value]
        values += [value for _, value in bar.others]
    return min(values, default=1.0), max(values, default=1.0)


def quantity_tick(value: float, unit: str) -> str:
    """A number on the axis; its unit only where that has a prefix of its own, as "ms"
    or "GFLOP/s".
    """
    if not value:
        return "0"
    if value == 1 and is_count(unit):
        # format_quantity writes the singular, "1 visitor"
        return "1"
    text = format_quantity(value, unit)
    return text if unit == "s" else text.removesuffix(f" {unit}")


def _draw_row(ax: Axes, y: float, bar: Bar, unit: str, log: bool) -> float:
    """Draw a row from the center of its first lane at `y` down; return how many lanes
    it has.
    """
    # a point is as wide as its marker
    beside: dict[str, Any] = {"bbox": ON_WHITE, "xytext": (10 if log else 6, 0)}
    if bar.measured is not None:
        low = bar.low or bar.measured
        high = bar.high or bar.measured
        label = _ELSEWHERE if bar.simulated else _here(log, unit)
        _draw_value(ax, bar.measured, y, 1.0, label, log=log, whisker=(low, high))
        text_right_of(
            ax,
            max(high, bar.measured),
            y,
            format_quantity(bar.measured, unit),
            **beside,
        )
    elif bar.note:
        # a log axis has no 0
        left_edge: dict[str, Any] = {"xycoords": ax.get_yaxis_transform()}
        text_right_of(ax, 0, y, bar.note, style="italic", bbox=ON_WHITE, **left_edge)
    only_others = bar.measured is None and not bar.note and bar.others
    own = 0.0 if only_others else 1.0
    own_lanes = own if bar.predicted is None else own + _GUESS
    lanes = own_lanes
    for label, value in bar.others:
        text = f"{format_quantity(value, unit)}, {label}"
        _draw_value(ax, value, y + lanes, 0.8, _ELSEWHERE, log=log)
        text_right_of(ax, value, y + lanes, text, **beside)
        lanes += 1
    if bar.limit is not None:
        # it is no limit of what others have
        beside_lanes = own_lanes or lanes
        ax.plot(
            [bar.limit] * 2,
            [y - 0.8, y + beside_lanes - 0.3],
            color=LIMIT,
            linewidth=2,
            label="limit",
            zorder=1.5,
        )
    # in a lane of its own, where no bar or text can hide it, and above the limit's line
    if bar.predicted is not None:
        place = y + own - 0.5 + _GUESS / 2
        ax.plot(
            bar.predicted,
            place,
            markersize=8,
            label="your prediction",
            zorder=5,
            **DIAMOND,
        )
    return lanes


def _draw_value(
    ax: Axes,
    value: float,
    y: float,
    height: float,
    label: str,
    *,
    log: bool,
    whisker: Sequence[float] = (),
) -> None:
    """Draw a value as a bar, on a logarithmic axis as a point; hatched or open where it
    was not measured here.
    """
    simulated = label == _ELSEWHERE
    style: dict[str, Any] = {"label": label, "capsize": 3}
    if whisker:
        style["xerr"] = [[value - whisker[0]], [whisker[1] - value]]
    if log:
        open_square: dict[str, Any] = {
            "color": RECORDED,
            "fmt": "s",
            "markerfacecolor": "white",
        }
        dot: dict[str, Any] = {"color": MEASURED, "fmt": "o"}
        ax.errorbar(
            value, y, markersize=8, **style, **(open_square if simulated else dot)
        )
    else:
        ax.barh(
            y, value, height, **style, **(HATCHED if simulated else {"color": MEASURED})
        )


def _in_words(bar: Bar, unit: str) -> str:
    if bar.measured is None:
        others = [
            f"{format_quantity(value, unit)} ({label})" for label, value in bar.others
        ]
        if bar.note:
            others.insert(0, bar.note)
        return f"{bar.name}: {', '.join(others) or PENDING}"
    words = f"{bar.name}: {format_quantity(bar.measured, unit)}"
    if bar.simulated:
        words += " (simulated)"
    if bar.limit:
        words += f", {bar.measured / bar.limit:.0%} of the limit"
        if unit == "s":  # a time has a floor
            is_beyond = bar.limit > (1 + TOLERANCE) * bar.measured
        else:
            is_beyond = bar.measured > (1 + TOLERANCE) * bar.limit
        if is_beyond:
            words += _BEYOND
    return words
