"""Curves: numbers by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from labkit.core.parameters import AnyNumber
from labkit.core.units import significant
from labkit.plot.core import Drawing, FigureSpec
from labkit.plot.style import CYCLE, series_style


@Drawing
def curves(ax: Axes, series: Mapping[str, Sequence[AnyNumber]], *, x: str = "step", y: str = "loss") -> FigureSpec:
    """Lines over their index from 1, one a name, each with a marker at its end; from the eighth on they are dashed."""
    for i, (name, values) in enumerate(series.items()):
        line = "-" if i < len(CYCLE) else "--"  # the colours begin again
        ax.plot(range(1, len(values) + 1), values, line, markevery=[-1], label=name, **series_style(i))
    ax.set(xlabel=x, ylabel=y)
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ends = [f"{name} {significant(values[-1])} after {len(values)}" for name, values in series.items() if len(values)]
    return FigureSpec(f"{y} by {x}: {'; '.join(ends)}." if ends else "Nothing drawn yet.")
