"""Figures of notebook 11: accuracy by time with seeds as bands, time to accuracy by
batch, and accuracy by rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from exercises.nb11.several_seeds import amount
from labkit.core.parameters import Count, Items, Share
from labkit.core.units import format_seconds, significant
from labkit.plot.core import Drawing, FigureSpec
from labkit.plot.style import LIMIT, PREDICTED, series_style

if TYPE_CHECKING:
    from exercises.nb11.gradient_noise import GradientNoise
    from exercises.nb11.several_seeds import Runs
    from labkit.train.training import RateSweep, Run


@Drawing
def seed_bands(
    ax: Axes, named: Mapping[str, Sequence[Run]], *, accuracy: Share | None = None
) -> FigureSpec:
    """Validation accuracy by seconds of training: median over the seeds, band from
    lowest to highest.

    A seed that has ended keeps its last accuracy. A black line marks `accuracy` (0 to
    1), where it is given.
    """
    begun = {name: runs for name, runs in named.items() if len(runs)}
    for i, (name, runs) in enumerate(begun.items()):
        style = series_style(i)
        at, low, middle, high = _band(runs)
        ax.fill_between(at, low, high, color=style["color"], alpha=0.2, linewidth=0)
        seeds = f"{name} ({len(runs)} seed{'s' * (len(runs) != 1)})"
        ax.plot(at, middle, markevery=[-1], label=seeds, **style)
    if accuracy is not None:
        ax.axhline(100 * accuracy, color=LIMIT, linewidth=1)
    ax.set(xlabel="seconds of training", ylabel="validation accuracy, %", ylim=(0, 101))
    ax.set_xlim(left=0)
    ends = [_ends(name, runs, accuracy) for name, runs in begun.items()]
    sentence = "; ".join(ends) + "." if ends else "No epoch has ended yet."
    return FigureSpec(sentence, height_in=3.6, legend="lower right")


def _band(
    runs: Sequence[Run],
) -> tuple[list[float], list[float], list[float], list[float]]:
    """Seconds, and lowest, median and highest accuracy in percent then.

    They are those at which an epoch of some seed ends, once all seeds have ended one.
    """
    first_s = max(run.seconds[0] for run in runs)
    grid = np.array(
        sorted({at_s for run in runs for at_s in run.seconds if at_s >= first_s})
    )
    values = 100 * np.array(
        [np.interp(grid, run.seconds, run.accuracies) for run in runs]
    )
    low, middle, high = (
        np.quantile(values, share, axis=0).tolist() for share in (0, 0.5, 1)
    )
    return grid.tolist(), low, middle, high


def _ends(name: str, runs: Sequence[Run], accuracy: float | None) -> str:
    if accuracy is None:
        best = [100 * max(run.accuracies) for run in runs]
        return (
            f"{name}: best accuracy {significant(min(best))} to"
            f" {significant(max(best))} %"
        )
    arrived = [
        seconds for run in runs if (seconds := run.time_to(accuracy)) is not None
    ]
    words = (
        f"{name}: {len(arrived)} of {len(runs)} seeds reached"
        f" {significant(100 * accuracy)} %"
    )
    if not arrived:
        return words
    low = format_seconds(min(arrived))
    high = format_seconds(max(arrived))
    return f"{words}, after {low}" + (f" to {high}" if low != high else "")


@Drawing
def time_to_accuracy(
    ax: Axes,
    named: Mapping[str, Mapping[Count, Runs]],
    accuracy: Share,
    *,
    what: Literal["seconds", "steps", "epochs"] = "seconds",
    noise: GradientNoise | None = None,
) -> FigureSpec:
    """Median seconds, steps or epochs to an accuracy (0 to 1) by batch; whiskers from
    the first seed to the last.

    A whisker that ends at the top says that some seeds never arrived, a cross that half
    of them or more didn't. `noise` adds the critical batch that the gradient noise
    scale predicts, with its interval.
    """
    get = {"seconds": "time_to", "steps": "steps_to", "epochs": "epochs_to"}[what]
    times = {
        name: {batch: getattr(runs, get)(accuracy) for batch, runs in by.items()}
        for name, by in named.items()
    }
    finite = [
        v
        for by in times.values()
        for r in by.values()
        for v in r.values
        if math.isfinite(v)
    ]
    top = 2 * max(finite, default=1.0)
    for i, (name, by) in enumerate(times.items()):
        style = series_style(i)
        color = style["color"]
        shift = 1.03**i  # so that whiskers don't hide each other
        there = sorted(batch for batch in by if math.isfinite(by[batch].median))
        ax.plot(
            [b * shift for b in there],
            [by[b].median for b in there],
            label=name,
            **style,
        )
        for batch, reached in by.items():
            if reached.arrived:
                ends = (reached.low, min(reached.high, top))
                ax.plot(
                    [batch * shift] * 2, ends, color=color, linewidth=1.5, alpha=0.6
                )
            if math.isinf(reached.median):
                ax.plot(
                    batch * shift,
                    top,
                    "x",
                    color=color,
                    markersize=9,
                    markeredgewidth=2,
                )
    if any(
        math.isinf(reached.median) for by in times.values() for reached in by.values()
    ):
        ax.plot(
            [],
            [],
            "x",
            color=LIMIT,
            markersize=9,
            markeredgewidth=2,
            label="half of the seeds or more never did",
        )
    batches = sorted({batch for by in named.values() for batch in by})
    shown: list[float] = [*batches]
    if noise is not None and math.isfinite(noise.scale):
        ax.axvspan(
            noise.low, min(noise.high, 1e6), color=PREDICTED, alpha=0.12, linewidth=0
        )
        ax.axvline(
            noise.scale,
            color=PREDICTED,
            linestyle="--",
            label="critical batch, predicted from gradient noise",
        )
        shown.append(noise.scale)
    _log_axes(ax, batches, shown, what)
    if finite:
        ax.set_ylim(min(finite) / 1.4, 1.3 * top)
    words = [
        f"{name}, batch {batch}: {reached.arrived} of {len(reached.values)} seeds, "
        f"median {amount(reached.median, reached.unit)}"
        for name, by in times.items()
        for batch, reached in by.items()
    ]
    percent = f"{significant(100 * accuracy)} %"
    title = f"To {percent} on held-out images"
    return FigureSpec(
        f"To {percent}: {'; '.join(words)}.", title=title, height_in=4.2, legend="below"
    )


def _log_axes(
    ax: Axes, batches: Sequence[int], shown: Sequence[float], what: str
) -> None:
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="batch, images a step",
        ylabel=f"{what} to the accuracy",
    )
    ax.xaxis.set_major_locator(FixedLocator(batches))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if shown:
        ax.set_xlim(min(shown) / 1.4, max(shown) * 1.4)
    ax.yaxis.set_major_locator(
        FixedLocator([f * 10.0**e for e in range(-4, 7) for f in (1, 1.5, 2, 3, 5, 7)])
    )
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")


@Drawing
def rate_sweeps(
    ax: Axes,
    named: Annotated[Mapping[str, RateSweep], Items(1)],
    *,
    y: str = "held-out accuracy",
) -> FigureSpec:
    """What each learning rate led to: a dot a seed, a line through the middles, a ring
    at the best rate of each name.

    A cross at the top is a seed with an infinite cost: it diverged, or never arrived.
    """
    finite = [
        v
        for sweep in named.values()
        for values in sweep.results.values()
        for v in values
        if math.isfinite(v)
    ]
    top = 1.2 * max(finite, default=1.0)
    words = []
    for i, (name, sweep) in enumerate(named.items()):
        style = series_style(i)
        rates = sorted(sweep.results)
        ax.plot(
            rates,
            [min(sweep.middle(rate), 2 * top) for rate in rates],
            label=name,
            **style,
        )
        for rate in rates:
            for value in sweep.results[rate]:
                ax.plot(
                    rate,
                    min(value, top),
                    "x" if math.isinf(value) else ".",
                    color=style["color"],
                    alpha=0.6,
                )
        best = sweep.best
        middle = sweep.middle(sweep.best)
        ax.plot(
            best,
            min(middle, 2 * top),
            "o",
            color=style["color"],
            fillstyle="none",
            markersize=13,
        )
        words.append(
            f"{name}: best rate {best:g},"
            f" {significant(middle)}{', at the edge' if sweep.at_edge else ''}"
        )
    ax.set(xscale="log", xlabel="learning rate", ylabel=y)
    ax.set_ylim(top=1.03 * top)  # the line to an infinite middle leaves the axes
    rates = sorted({rate for sweep in named.values() for rate in sweep.results})
    ax.set_xticks(rates, [f"{rate:g}" for rate in rates], fontsize=8)
    ax.xaxis.set_minor_locator(NullLocator())
    columns = 1 + (len(named) > 3)
    return FigureSpec(
        f"{y} by learning rate. {'; '.join(words)}.",
        height_in=3.6,
        legend="below",
        columns=columns,
    )
