"""The figure of what a class guessed, and of what was measured afterwards."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from labkit.core.kinds import Items
from labkit.core.units import format_quantity
from labkit.plot.bars import quantity_tick
from labkit.plot.core import Drawing, FigureSpec
from labkit.plot.style import MEASURED, PREDICTED

_BINS = 13  # edges of a histogram's bins


@Drawing
def guess_histogram(
    ax: Axes, guesses: Annotated[Sequence[float], Items(1)], measured: Sequence[float] = (), *, unit: str
) -> FigureSpec:
    """How many guessed how much, as open bars, and each measured value as a dot below them; x in `unit`.

    The axis is logarithmic for ratios (unit "x"), and where the greatest value is five times the least or more.
    """
    shown = np.asarray([*guesses, *measured], float)
    low, high = float(shown.min()), float(shown.max())
    wide = low > 0 and high >= 5 * low
    log = wide or (low > 0 and unit == "x")
    room = 1.1 * (high / low) ** 0.05 if log else 0.05 * (high - low) + 0.05 * abs(high)
    edges = np.geomspace(low / room, high * room, _BINS) if log else np.linspace(low - room, high + room, _BINS)
    most = float(np.histogram(guesses, edges)[0].max())
    ax.hist(guesses, edges.tolist(), facecolor="white", edgecolor=PREDICTED, linewidth=1.5, label="guesses")
    ax.plot(measured, [-0.12 * most] * len(measured), "o", color=MEASURED, alpha=0.6, label="measured")
    ax.set_ylim(-0.25 * most, 1.05 * most)
    ax.set_yticks(range(0, int(most) + 1, max(int(most) // 4, 1)))
    ax.set_xscale("log" if log else "linear")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=6) if wide else MaxNLocator(4))
    ax.xaxis.set_major_formatter(lambda value, _: quantity_tick(value, unit))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set(xlabel="time" if unit == "s" else unit, ylabel="readers")
    words = f"{_counted(guesses, 'guess', 'guesses', unit)}; {_counted(measured, 'measured', 'measured', unit)}."
    return FigureSpec(words, height_in=2.4, width_in=3.2, legend="below", columns=2)


def _counted(values: Sequence[float], one: str, many: str, unit: str) -> str:
    """How many values, from where to where, and their middle, in words."""
    if len(values) == 0:
        return f"none {many}"
    least, middle, most = (format_quantity(f(values), unit) for f in (min, statistics.median, max))
    return f"1 {one}, {middle}" if len(values) == 1 else f"{len(values)} {many}, {least} to {most}, middle {middle}"
