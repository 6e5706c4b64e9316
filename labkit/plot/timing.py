"""Figures of times: readings and what they claim, how far a speed-up goes, and which
costs pay off when.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from labkit.core.parameters import Items, NonNegative, Positive, Share
from labkit.core.results import Measurement
from labkit.core.units import format_seconds, significant
from labkit.measure.bench import Ratio, Timing
from labkit.plot.core import (
    Drawing,
    FigureSpec,
    label_seconds,
    name_rows,
    text_right_of,
)
from labkit.plot.style import (
    CYCLE,
    LIMIT,
    MEASURED,
    ON_WHITE,
    PREDICTED,
    RECORDED,
    series_style,
)
from trainplan.costs import break_even_steps

# where break_even's logarithmic axes begin and end
_STEPS = (100, 1e8)
_SECONDS = (1.0, 1e6)


@Drawing
def readings(ax: Axes, timings: Annotated[Sequence[Timing], Items(1)]) -> FigureSpec:
    """Each timing's readings as dots, its median as a line, its cold call as an open
    circle; seconds, logarithmic.
    """
    for y, timing in enumerate(timings):
        spread = np.linspace(-0.18, 0.18, len(timing.samples_s))
        style = series_style(y)
        ax.plot(
            timing.samples_s, y + spread, linestyle="", markersize=4, alpha=0.6, **style
        )
        ax.plot([timing.median_s] * 2, [y - 0.32, y + 0.32], color=LIMIT, linewidth=2)
        ax.plot(
            timing.first_s,
            y,
            "o",
            color=style["color"],
            fillstyle="none",
            markersize=10,
        )
    name_rows(ax, [timing.label for timing in timings])
    ax.set_xscale("log")
    label_seconds(ax.xaxis)
    ax.set_xlabel(
        "time of one call (dot: a reading, line: median, open circle: the first, cold"
        " call)"
    )
    sentences = [
        f"{timing.label}: median {format_seconds(timing.median_s)}, spread"
        f" {timing.spread:.0%}"
        for timing in timings
    ]
    return FigureSpec("; ".join(sentences) + ".")


@Drawing
def ratios(
    ax: Axes, named: Annotated[Mapping[str, Ratio | Measurement], Items(1)]
) -> FigureSpec:
    """Speed-ups with their 95 % intervals, a row each; an interval that crosses the
    line at 1 shows nothing.

    A ratio that somebody published is an open square with its origin.
    """
    ends = [
        ratio.high if isinstance(ratio, Ratio) else ratio.value
        for ratio in named.values()
    ]
    right = 1.25 * max([1.0, *ends])
    sentences = []
    for y, (name, ratio) in enumerate(named.items()):
        if isinstance(ratio, Measurement):
            words = f"{significant(ratio.value)}x, {ratio.came_from}"
            ax.plot(
                ratio.value,
                y,
                "s",
                color=RECORDED,
                markerfacecolor="white",
                markersize=8,
            )
            text_right_of(ax, ratio.value, y, words, xytext=(10, 0), bbox=ON_WHITE)
            sentences.append(f"{name}: {words} ({ratio.link})")
            continue
        words = f"{significant(ratio.value)}x, {ratio.verdict}"
        color = MEASURED if ratio.verdict in ("faster", "slower") else RECORDED
        ax.plot(
            [ratio.low, ratio.high],
            [y, y],
            color=color,
            linewidth=3,
            marker="|",
            markersize=10,
        )
        ax.plot(ratio.value, y, "o", color=color, markersize=8)
        # else it would cross the axis
        side, ha = (0, "center") if ratio.value > 0.15 * right else (-4, "left")
        text_right_of(
            ax,
            ratio.value,
            y,
            words,
            xytext=(side, 10),
            ha=ha,
            va="baseline",
            bbox=ON_WHITE,
        )
        sentences.append(f"{name}: {words}")
    ax.axvline(1.0, color=LIMIT, linewidth=2, zorder=1)
    name_rows(ax, list(named), above=0.7)
    ax.set_xlim(0, right)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    ax.set_xlabel("speed-up (dot) and its 95 % interval; black line: no difference")
    return FigureSpec("; ".join(sentences) + ".", height_in=1.1 + 0.55 * len(named))


@Drawing
def amdahl(ax: Axes, *, share: Share, factor: Positive) -> FigureSpec:
    """Speed-up of the whole against the factor by which a share (0 to 1) of its time
    gets faster, with the limit.

    Whole speed-up = 1 / ((1 - share) + share / factor), at most 1 / (1 - share).
    Source: G. M. Amdahl, Validity of the single processor approach to achieving large
    scale computing capabilities, AFIPS spring joint conference (1967).
    """
    factors = np.geomspace(1, 1000, 200)
    whole = 1 / ((1 - share) + share / factor)
    ax.plot(
        factors,
        1 / ((1 - share) + share / factors),
        color=CYCLE[0],
        label=f"share {share:.0%}",
    )
    ax.plot(factor, whole, "o", color=CYCLE[1], markersize=9)
    place: dict[str, Any] = {
        "xytext": (9, -9),
        "textcoords": "offset points",
        "va": "center",
    }
    ax.annotate(f"{significant(whole)}x", (factor, whole), **place)
    limit = "none" if share == 1 else f"{significant(1 / (1 - share))}x"
    if share < 1:
        ax.axhline(1 / (1 - share), color=LIMIT, linewidth=2, label=f"limit {limit}")
    # for any share: the limit's line moves, not the axis
    ax.set(xscale="log", yscale="log", ylim=(0.5, 1200))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(FixedLocator([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]))
        axis.set_major_formatter(lambda value, _: f"{value:g}x")
        axis.set_minor_formatter(lambda value, _: "")
    ax.set(
        xlabel="how many times faster that share gets",
        ylabel="the whole gets faster by",
    )
    sentence = (
        f"When {share:.0%} of the time gets {significant(factor)}x faster, "
        f"the whole gets {significant(whole)}x faster; limit: {limit}."
    )
    return FigureSpec(sentence, legend="upper left")


@Drawing
def break_even(
    ax: Axes,
    *,
    compile_s: NonNegative,
    eager_s: Positive,
    compiled_s: Positive,
    log: bool = False,
    without: str = "eager",
) -> FigureSpec:
    """Total time by steps, eager and compiled, calculated from seconds of compiling and
    of a step.

    `without` is the name of the way that isn't compiled. The axis ends at three times
    the steps that compiling needs to pay, or where it never pays, at three times those
    that last as long as compiling. With `log` the axes are logarithmic and the same for
    all times, for sliders: the lines move, not the axes. Raises BadArgument for
    negative numbers or steps of no time.
    """
    even = break_even_steps(compile_s, eager_s, compiled_s)
    if 0 < even < math.inf:
        until = math.ceil(3 * even)
    else:
        until = math.ceil(3 * max(compile_s, eager_s) / eager_s)
    x = np.geomspace(*_STEPS, 200) if log else np.array([0.0, float(until)])
    ax.plot(x, x * eager_s, color=MEASURED, linewidth=2, label=without)
    ax.plot(
        x,
        compile_s + x * compiled_s,
        color=PREDICTED,
        linewidth=2,
        linestyle="--",
        label="compiled",
    )
    if 0 < even < math.inf:
        ax.plot(even, even * eager_s, "o", color=LIMIT, markersize=8)
        ax.annotate(
            f"{_count(even)} steps",
            (even, even * eager_s),
            xytext=(8, -14),
            textcoords="offset points",
            bbox=ON_WHITE | {"alpha": 0.8},
        )
    ax.set_xlim(0, until)
    ax.set_ylim(0, None)
    if log:
        ax.set(xscale="log", yscale="log", xlim=_STEPS, ylim=_SECONDS)
    ax.xaxis.set_major_formatter(lambda value, _: _count(value))
    label_seconds(ax.yaxis)
    ax.set(xlabel="steps", ylabel="time from the start (calculated)")
    costs = (
        f"Compiling takes {format_seconds(compile_s)}, a step {format_seconds(eager_s)}"
        f" ({without}) and {format_seconds(compiled_s)} (compiled)"
    )
    outcome = "it never pays, because a compiled step is no faster"
    if math.isfinite(even):
        outcome = (
            f"it has paid after {_count(even)} steps, which last"
            f" {format_seconds(even * eager_s)}"
        )
    return FigureSpec(f"{costs}: {outcome}.", height_in=3.4, legend="upper left")


def _count(steps: float) -> str:
    return f"{int(steps):,}" if steps < 1e6 else f"{significant(steps / 1e6)} million"
