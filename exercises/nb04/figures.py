"""The figure of a calculated time: how long each part of the GPU would be busy."""

from __future__ import annotations

from matplotlib.axes import Axes

from kerneltrace.judge.estimate import Estimate
from labkit import plot


def draw_parts(axes: Axes, estimate: Estimate) -> str:
    """A row for each part of the GPU and one for all together, in calculated seconds; the sentence below the figure."""
    seconds_by_part = {**estimate.parts, "all together": estimate.seconds}
    bars = [plot.Bar(part, others=[("calculated", seconds)]) for part, seconds in seconds_by_part.items()]
    return plot.speed_bars.on(axes, bars, unit="s", log=True)
