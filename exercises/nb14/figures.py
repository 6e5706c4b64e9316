"""The figure of published schedules: predicted against published throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from labkit.plot.core import Drawing, FigureSpec, name_rows
from labkit.plot.style import LIMIT, RECORDED, series_style

if TYPE_CHECKING:
    from trainplan.cluster import Agreement


@Drawing
def replays(ax: Axes, runs: Agreement[str]) -> FigureSpec:
    """How far each published run's predicted throughput is off, a row for each
    schedule; the band is 5 % each way.
    """
    names = list(dict.fromkeys(row.by for row in runs.rows))
    models = list(dict.fromkeys(row.label.partition(",")[0] for row in runs.rows))
    for i, model in enumerate(models):
        some = [row for row in runs.rows if row.label.partition(",")[0] == model]
        places = [
            names.index(row.by) + 0.24 * (i - (len(models) - 1) / 2) for row in some
        ]
        style: dict[str, Any] = {
            **series_style(i),
            "fillstyle": "none",
            "markersize": 7,
            "linestyle": "",
        }
        ax.plot([100 * row.error for row in some], places, label=model, **style)
    ax.axvspan(-5, 5, color=RECORDED, alpha=0.2, linewidth=0)
    ax.axvline(0, color=LIMIT, linewidth=1)
    widest = 1.05 * max(10.0, 100 * abs(runs.worst.error))
    ax.set_xlim(-widest, widest)
    name_rows(ax, names)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:+g}%" if value else "0")
    ax.set_xlabel(f"predicted over published {runs.unit}, less 1; gray: within 5 %")
    sentence = f"{runs}. Source: {runs.source}."
    height_in = 1.4 + 0.42 * len(names)
    return FigureSpec(
        sentence, height_in=height_in, legend="below", columns=len(models)
    )
