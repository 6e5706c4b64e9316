"""The figure of speed-up by the number of ranks: predicted, and simulated on stand-in
devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.core.parameters import Count, Positive
from labkit.core.units import significant
from labkit.plot.core import Drawing, FigureSpec
from labkit.plot.style import CYCLE, DIAMOND, LIMIT, RECORDED


@Drawing
def speedup_by_ranks(
    ax: Axes,
    predicted: Mapping[str, Mapping[Count, Positive]],
    *,
    simulated: Mapping[Count, Positive] | None = None,
) -> FigureSpec:
    """Speed-up against one rank by the number of ranks, both logarithmic; the straight
    line is n ranks, n times.

    `predicted` has a dashed line with open diamonds for each name; `simulated`, on
    stand-in devices, are open squares. Raises BadArgument where there is nothing to
    draw or a number isn't above 0.
    """
    simulated = simulated or {}
    series = [*predicted.values(), simulated]
    values = [(n, x) for points in series for n, x in points.items()]
    if not values:
        raise BadArgument(
            "Expected speed-ups above 0 by the number of ranks, got"
            f" {brief_repr(predicted)}."
        )
    most = max(n for n, _ in values)
    speedups = [x for _, x in values]
    label = "simulated: stand-in devices, real all-reduce"
    if simulated:
        look: dict[str, Any] = {
            "marker": "s",
            "color": RECORDED,
            "markerfacecolor": "white",
            "markersize": 10,
        }
        ax.plot(
            list(simulated),
            list(simulated.values()),
            linestyle="",
            label=label,
            zorder=2.5,
            **look,
        )
    ax.plot([1, most], [1, most], color=LIMIT, linewidth=1.5, label="n ranks, n times")
    for i, (name, points) in enumerate(predicted.items()):
        ranks = sorted(points)
        color = CYCLE[(i + 1) % len(CYCLE)]
        style: dict[str, Any] = DIAMOND | {
            "color": color,
            "linestyle": "--",
            "markeredgewidth": 1.5,
        }
        powers = [j for j, n in enumerate(ranks) if n & (n - 1) == 0]
        ax.plot(
            ranks,
            [points[n] for n in ranks],
            markevery=powers,
            label=f"predicted: {name}",
            **style,
        )
    ax.set(
        xscale="log", yscale="log", xlabel="ranks", ylabel="times as fast as one rank"
    )
    ax.set(
        xlim=(1 / 1.4, most * 1.4),
        ylim=(min(1.0, *speedups) / 1.6, max(2.0, *speedups) * 2),
    )
    ax.xaxis.set_major_locator(
        FixedLocator(
            [2**i for i in range(0, 21, 1 if most <= 64 else 2) if 2**i <= most]
        )
    )
    ax.xaxis.set_major_formatter(lambda value, _: f"{int(value):,}")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}x")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
    return FigureSpec(_speedups_in_words(predicted, simulated), legend="right")


def _speedups_in_words(
    predicted: Mapping[str, Mapping[int, float]], simulated: Mapping[int, float]
) -> str:
    parts = []
    for name, points in predicted.items():
        best = max(points, key=lambda n: points[n])
        last = max(points)
        parts.append(
            f"{name}: {significant(points[last], 2)}x predicted on {last:,} ranks"
            + (
                f", at most {significant(points[best], 2)}x, on {best:,}"
                if best != last
                else ""
            )
        )
    if simulated:
        rates = [f"{significant(simulated[n], 2)}x on {n}" for n in sorted(simulated)]
        parts.append(f"simulated: {', '.join(rates)}")
    return "; ".join(parts) + "."
