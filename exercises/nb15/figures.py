"""Figures of notebooks 15 and 21: a step by layout, and calculated against published
runs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from matplotlib.axes import Axes

from labkit.core.parameters import Items
from labkit.core.units import format_bytes, format_seconds
from labkit.plot.core import (
    Drawing,
    FigureSpec,
    label_seconds,
    name_rows,
    text_right_of,
)
from labkit.plot.style import CYCLE, LIMIT, RECORDED, series_style
from trainplan.figures import draw_parts

if TYPE_CHECKING:
    from exercises.nb15.elastic import LoggedStep
    from trainplan.cluster import Agreement, Step


@Drawing
def agreement(
    ax: Axes, tables: Annotated[Sequence[Agreement[Step]], Items(1)]
) -> FigureSpec:
    """Predicted against published share of the GPUs' peak, a dot a run; the gray band
    is 10 % to each side of equal.

    The share is model FLOP utilization, so that tables in different units fit one pair
    of axes.
    """
    most = 0.0
    for i, table in enumerate(tables):
        predicted = [100 * row.by.mfu for row in table.rows]
        published = [
            100 * row.by.mfu * row.published / row.predicted for row in table.rows
        ]
        most = max(most, *predicted, *published)
        label = (
            f"{table.name}: {len(table.rows)} runs, median error"
            f" {table.median_error:.0%}"
        )
        fill = "none" if i < len(CYCLE) else "full"  # the colors begin again
        ax.plot(
            published,
            predicted,
            label=label,
            linestyle="",
            fillstyle=fill,
            alpha=0.8,
            **series_style(i),
        )
    ends = np.array([0, 1.08 * most])
    ax.fill_between(
        ends, 0.9 * ends, 1.1 * ends, color=RECORDED, alpha=0.2, linewidth=0
    )
    ax.plot(ends, ends, color=LIMIT, linewidth=1)
    ax.set(
        xlim=ends,
        ylim=ends,
        xlabel="published: % of peak (MFU)",
        ylabel="calculated: % of peak",
    )
    errors = sorted(abs(row.error) for table in tables for row in table.rows)
    half = errors[(len(errors) - 1) // 2]
    most_of = errors[math.ceil(0.9 * len(errors)) - 1]
    worst = max(tables, key=lambda table: abs(table.worst.error))
    outside = sum(bool(row.by.outside) for table in tables for row in table.rows)
    sentence = (
        f"Published runs: {len(errors)}. On the black line both agree; half are within"
        f" {half:.1%} of it, nine of ten within {most_of:.1%}. Farthest off, by"
        f" {worst.worst.error:+.0%}: {worst.worst.label} ({worst.name})."
    )
    if outside:
        sentence += f" Of the runs {outside} are unlike most others (step.outside)."
    return FigureSpec(sentence, height_in=4.9, width_in=4.4, legend="right")


@Drawing
def step_parts(ax: Axes, steps: Mapping[str, Step]) -> FigureSpec:
    """One bar a layout: the parts of its calculated step; beside it the share of peak
    and the memory a GPU needs.
    """
    for y, step in enumerate(steps.values()):
        end = draw_parts(ax, y, step)
        over = "" if step.fits else f": {step.verdict}"
        over += "\nunlike all published runs" * bool(step.outside)
        held = (
            f"{format_bytes(step.memory_bytes)} of"
            f" {format_bytes(step.capacity_bytes)}{over}"
        )
        text_right_of(
            ax, end, y, f"{format_seconds(step.seconds)}, MFU {step.mfu:.0%}\n{held}"
        )
    name_rows(ax, list(steps))
    ax.set_xlim(0, 1.02 * max((step.seconds for step in steps.values()), default=1.0))
    label_seconds(ax.xaxis, ticks=5)
    ax.set_xlabel("time of a step (calculated)")
    sentences = [
        f"{name}: {format_seconds(step.seconds)}, {_largest(step)}"
        for name, step in steps.items()
    ]
    return FigureSpec(
        "; ".join(sentences) + "." if sentences else "No layout to draw.",
        height_in=1.5 + 0.55 * max(len(steps), 1),
        legend="below",
        columns=3,
    )


def _largest(step: Step) -> str:
    rest = {part: s for part, s in step.parts.items() if part != "compute"}
    part = max(rest, key=lambda name: rest[name])
    return (
        f"{step.parts['compute'] / step.seconds:.0%} of it compute, then {part}"
        f" {rest[part] / step.seconds:.0%}"
    )


@Drawing
def restarts(ax: Axes, log: Annotated[Sequence[LoggedStep], Items(1)]) -> FigureSpec:
    """Loss by the seconds since torchrun was called, a line for each start of the
    ranks; gray is time without steps.
    """
    sentences = []
    idle_from_s = 0.0
    for restart, group in itertools.groupby(log, key=lambda entry: entry.restart):
        own = list(group)
        name = f"restart {restart}" if restart else "first start"
        ax.axvspan(idle_from_s, own[0].at_s, color=RECORDED, alpha=0.25, linewidth=0)
        style = series_style(restart) | {"marker": ""}
        ax.plot(
            [entry.at_s for entry in own],
            [entry.loss for entry in own],
            label=name,
            **style,
        )
        waited = f"after {format_seconds(own[0].at_s - idle_from_s)} without a step"
        sentences.append(f"{name}: steps {own[0].step} to {own[-1].step}, {waited}")
        idle_from_s = own[-1].at_s
    ax.set(xlabel="seconds since torchrun was called (measured)", ylabel="loss")
    ax.set_ylim(bottom=0)
    return FigureSpec("; ".join(sentences) + ".", legend="right")
