"""Figures of what compiling costs and brings: the time of an operator by its size, and when compiling has paid."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from labkit.core.units import format_seconds, significant
from labkit.plan.costs import break_even_steps
from labkit.plot.core import LIMIT, MEASURED, ON_WHITE, PREDICTED, Drawing, resize

_ON_WHITE = ON_WHITE | {"alpha": 0.8}


@Drawing
def time_by_size(ax: Axes, seconds: Mapping[int, float], *, overhead_s: float | None = None) -> str:
    """Seconds of one call by the number of elements, both logarithmic; a line at `overhead_s` where it is known."""
    sizes = sorted(seconds)
    ax.plot(sizes, [seconds[n] for n in sizes], "o-", color=MEASURED, label="measured, one call")
    if overhead_s:
        ax.axhline(overhead_s, color=LIMIT, linewidth=2, label=f"overhead {format_seconds(overhead_s)}")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.xaxis.set_major_formatter(lambda value, _: f"{int(value):,}" if value >= 1 else "")
    ax.yaxis.set_major_formatter(lambda value, _: format_seconds(value))
    ax.minorticks_off()
    ax.set(xlabel="elements", ylabel="time of one call")
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    ends = [f"{n:,} element{'s' * (n != 1)} in {format_seconds(seconds[n])}" for n in (sizes[0], sizes[-1])]
    return f"{'; '.join(ends)}."


@Drawing
def break_even(ax: Axes, *, compile_s: float, eager_s: float, compiled_s: float, steps: int | None = None) -> str:
    """Total time by steps, eager and compiled, calculated from seconds of compiling and of a step; x up to `steps`.

    `steps` None shows three times as many as it takes to pay, or where it never does, some that last as long as
    compiling. Raises BadArgument for negative numbers or steps of no time.
    """
    even = break_even_steps(compile_s, eager_s, compiled_s)
    until = steps or math.ceil(3 * even if 0 < even < math.inf else 3 * max(compile_s, eager_s) / eager_s)
    x = np.array([0, until])
    ax.plot(x, x * eager_s, color=MEASURED, linewidth=2, label="eager")
    ax.plot(x, compile_s + x * compiled_s, color=PREDICTED, linewidth=2, linestyle="--", label="compiled")
    if 0 < even <= until:
        ax.plot(even, even * eager_s, "o", color=LIMIT, markersize=8)
        ax.annotate(
            f"{_count(even)} steps", (even, even * eager_s), xytext=(8, -14), textcoords="offset points", bbox=_ON_WHITE
        )
    ax.set_xlim(0, until)
    ax.set_ylim(0, None)
    ax.xaxis.set_major_formatter(lambda value, _: _count(value))
    ax.yaxis.set_major_formatter(lambda value, _: format_seconds(value) if value else "0")
    ax.set(xlabel="steps", ylabel="time from the start (calculated)")
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    resize(ax, 3.4)
    each = (
        f"Compiling takes {format_seconds(compile_s)}, a step {format_seconds(eager_s)} eager and "
        f"{format_seconds(compiled_s)} compiled: "
    )
    if math.isinf(even):
        return each + "it never pays, because a compiled step is no faster."
    return each + f"it has paid after {_count(even)} steps, which last {format_seconds(even * eager_s)}."


def _count(steps: float) -> str:
    return f"{int(steps):,}" if steps < 1e6 else f"{significant(steps / 1e6)} million"
