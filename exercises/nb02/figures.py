"""The figure of what single comparisons would have claimed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from labkit.core.parameters import Items, Positive
from labkit.core.units import significant
from labkit.plot.core import Drawing, FigureSpec
from labkit.plot.style import LIMIT, MEASURED


@Drawing
def single_runs(
    ax: Axes, speedups: Annotated[Sequence[Positive], Items(1)]
) -> FigureSpec:
    """What each single comparison would have claimed, in the order taken; the line at 1
    is 'no difference'.
    """
    ax.axhline(1.0, color=LIMIT, linewidth=2)
    ax.plot(
        range(1, len(speedups) + 1),
        speedups,
        "o",
        color=MEASURED,
        markersize=5,
        alpha=0.8,
    )
    ax.set(xlabel="comparison, in the order taken", ylabel="claimed speed-up")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if max(speedups) > 4 * min(speedups):  # an outlier would flatten all others
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(
            FixedLocator([f * 10.0**e for e in range(-4, 5) for f in (1, 2, 5)])
        )
        ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    off = sum(abs(ratio - 1) > 0.05 for ratio in speedups)
    low = min(speedups)
    middle = statistics.median(speedups)
    high = max(speedups)
    sentence = (
        f"{len(speedups)} single comparisons: {significant(low)}x to"
        f" {significant(high)}x, median {significant(middle)}x; {off} of them are more"
        " than 5 % away from 1."
    )
    return FigureSpec(sentence, height_in=3.0)
