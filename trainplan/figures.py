"""A picture of calculated steps. It needs matplotlib, which nothing else here does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainplan.arguments import require_picture
from trainplan.cluster.step_prediction import Step
from trainplan.cluster.step_time import PARTS
from trainplan.errors import PlanError
from trainplan.units import format_bytes, format_seconds

# Colour and texture of each part: either alone tells two parts apart.
_LOOKS: Mapping[str, tuple[str, str]] = dict(
    zip(
        PARTS,
        (
            ("#0072B2", ""),
            ("#56B4E9", ".."),
            ("#E69F00", "//"),
            ("#999999", "--"),
            ("#CC79A7", "\\\\"),
            ("#ffffff", ""),
            ("#D55E00", "xx"),
            ("#ffffff", ".."),
            ("#009E73", "++"),
        ),
        strict=True,
    )
)


def draw_parts(axes: Any, y: float, step: Step) -> float:
    """Draw the parts of a step's time side by side in row `y` of matplotlib's axes;
    where the bar ends, in seconds.
    """
    left = 0.0
    for part, seconds in step.parts.items():
        if seconds > 0:
            color, hatch = _LOOKS[part]
            axes.barh(
                y,
                seconds,
                0.5,
                left,
                color=color,
                hatch=hatch,
                edgecolor="#404040",
                linewidth=0.5,
                label=part,
            )
            left += seconds
    return left


def save_steps(steps: Sequence[Step], path: str | Path) -> None:
    """Draw a bar a step, the parts of its time side by side, and write it to a PNG, PDF
    or SVG file.

    Raises PlanError without matplotlib, and for a file that can't be written.
    """
    require_picture(path)
    from matplotlib.figure import Figure  # optional

    figure = Figure(figsize=(9.0, 1.7 + 0.75 * len(steps)), layout="constrained")
    axes = figure.subplots()
    for y, step in enumerate(steps):
        left = draw_parts(axes, y, step)
        held = (
            f"{format_bytes(step.memory_bytes)} of {format_bytes(step.capacity_bytes)}"
        )
        doubt = "?" * bool(step.outside)
        axes.annotate(
            f" {format_seconds(step.seconds)}{doubt}, MFU {step.mfu:.0%}",
            (left, y),
            va="center",
            fontsize=9,
        )
        axes.annotate(f"{step.layout}; {held}", (0, y - 0.3), fontsize=8)
    first = steps[0]
    axes.set_title(
        f"{first.model.name} on {first.cluster.gpus:,} x {first.cluster.gpu.name}",
        loc="left",
        fontsize=10,
    )
    doubted = "; ?: unlike all published runs" * any(step.outside for step in steps)
    axes.set(xlabel=f"seconds of a step (calculated{doubted})", yticks=[])
    axes.set_xlim(0, 1.22 * max(one.seconds for one in steps))
    axes.set_ylim(len(steps) - 0.5, -0.75)
    axes.spines[["top", "right", "left"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    figure.legend(
        list(named.values()),
        list(named),
        loc="outside lower center",
        ncols=4,
        fontsize=8,
    )
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise PlanError(
            f"Expected a file that can be written, such as plan.png, got {str(path)!r}:"
            f" {error}."
        ) from error
