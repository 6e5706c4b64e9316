"""The figure of scaling: how many times as fast several ranks are, predicted, simulated and measured."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.core.units import significant
from labkit.plot.core import CYCLE, DIAMOND, HATCHED, LIMIT, MEASURED, Drawing
from labkit.plot.labels import label_ticks

_BAR = 1.18  # a bar reaches from n / 1.18 to 1.18 n: on a logarithmic axis all are as wide
_NO_POINTS: Mapping[int, float] = {}


@Drawing
def speedup_by_ranks(
    ax: Axes,
    predicted: Mapping[str, Mapping[int, float]],
    *,
    simulated: Mapping[int, float] = _NO_POINTS,
    measured: Mapping[int, float] = _NO_POINTS,
    title: str = "",
) -> str:
    """Speed-up against one rank by the number of ranks, both logarithmic; the straight line is n ranks, n times.

    `predicted` has a dashed line with open diamonds for each name; `simulated`, on stand-in devices, are hatched bars,
    `measured` solid ones. BadArgument where there is nothing to draw or a number isn't above 0.
    """
    series = [*predicted.values(), simulated, measured]
    values = [(n, x) for points in series for n, x in points.items()]
    if not values or any(not (n >= 1 and x > 0) for n, x in values):
        raise BadArgument(f"Expected speed-ups above 0 by the number of ranks, got {brief_repr(predicted)}.")
    most, least = max(n for n, _ in values), min(x for _, x in values)
    for points, style, label in (
        (simulated, HATCHED, "simulated: stand-in devices, real all-reduce"),
        (measured, {"color": MEASURED}, "measured here"),
    ):
        for i, (n, x) in enumerate(sorted(points.items())):
            ax.bar(n / _BAR, x, n * (_BAR - 1 / _BAR), align="edge", label=label if i == 0 else None, **style)
    ax.plot([1, most], [1, most], color=LIMIT, linewidth=1.5, label="n ranks, n times")
    for i, (name, points) in enumerate(predicted.items()):
        ranks, color = sorted(points), CYCLE[(i + 1) % len(CYCLE)]
        style = DIAMOND | {"color": color, "linestyle": "--", "markeredgewidth": 1.5}
        few = [j for j, n in enumerate(ranks) if n & (n - 1) == 0]
        ax.plot(ranks, [points[n] for n in ranks], markevery=few, label=f"predicted: {name}", **style)
    _dress(ax, most, min(least, 1.0), max(x for _, x in values), title)
    return _in_words(predicted, simulated, measured)


def _dress(ax: Axes, most: int, least: float, highest: float, title: str) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(1 / 1.4, most * 1.4)
    ax.set_ylim(least / 1.6, max(highest, 2.0) * 2)
    ticks = [2**i for i in range(0, 21, 1 if most <= 64 else 2) if 2**i <= most]
    label_ticks(ax.xaxis, "{:,}".format, at=ticks)
    label_ticks(ax.yaxis, "{:,.10g}x".format)
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set(xlabel="ranks", ylabel="times as fast as one rank")
    ax.set_title(title, loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=8, loc="upper left")


def _in_words(
    predicted: Mapping[str, Mapping[int, float]], simulated: Mapping[int, float], measured: Mapping[int, float]
) -> str:
    parts = []
    for name, points in predicted.items():
        best = max(points, key=lambda n: points[n])
        last = max(points)
        parts.append(
            f"{name}: {significant(points[last], 2)}x predicted on {last:,} ranks"
            + (f", at most {significant(points[best], 2)}x, on {best:,}" if best != last else "")
        )
    for points, origin in ((simulated, "simulated"), (measured, "measured")):
        if points:
            found = ", ".join(f"{significant(points[n], 2)}x on {n}" for n in sorted(points))
            parts.append(f"{origin}: {found}")
    return "; ".join(parts) + "."
