"""A picture of calculated steps. It needs matplotlib, which nothing else here does."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainplan._units import format_bytes, format_seconds
from trainplan.cluster.step_prediction import Step

__all__ = ["draw_parts", "save_steps"]

# Color and texture of each part: either alone tells two parts apart.
_LOOKS = {
    "compute": ("#0072B2", ""),
    "recompute": ("#56B4E9", ".."),
    "tensor communication": ("#E69F00", "//"),
    "context and expert communication": ("#999999", "--"),
    "pipeline communication": ("#CC79A7", "\\\\"),
    "bubble": ("#ffffff", ""),
    "data communication": ("#D55E00", "xx"),
    "waiting for the slowest": ("#ffffff", ".."),
    "optimizer": ("#009E73", "++"),
    "activation offloading": ("#F0E442", "oo"),
}


def draw_parts(axes: Any, y: float, step: Step) -> float:
    """Draw the parts of a step's time side by side in row `y` of matplotlib's axes;
    where the bar ends, in seconds.
    """
    left = 0.0
    for part, seconds in step.parts.items():
        if seconds <= 0:
            continue
        color, hatch = _LOOKS[part]
        axes.barh(
            y,
            seconds,
            height=0.5,
            left=left,
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

    Raises RuntimeError without matplotlib, and ValueError for a file that can't be
    written.
    """
    require_picture(path)
    from matplotlib.figure import Figure  # optional

    figure = Figure(figsize=(9.0, 1.7 + 0.75 * len(steps)), layout="constrained")
    axes = figure.subplots()
    for y, step in enumerate(steps):
        right = draw_parts(axes, y, step)
        doubt = "?" if step.outside else ""
        rate = f" {format_seconds(step.seconds)}{doubt}, MFU {step.mfu:.0%}"
        axes.annotate(rate, (right, y), va="center", fontsize=9)
        memory = format_bytes(step.memory_bytes)
        capacity = format_bytes(step.capacity_bytes)
        layout = f"{step.layout}; {memory} of {capacity}"
        axes.annotate(layout, (0, y - 0.3), fontsize=8)
    first = steps[0]
    axes.set_title(
        f"{first.model.name} on {first.cluster.gpus:,} x {first.cluster.gpu.name}",
        loc="left",
        fontsize=10,
    )
    worth = "calculated"
    if any(step.outside for step in steps):
        worth += "; ?: unlike all published runs"
    axes.set(xlabel=f"seconds of a step ({worth})", yticks=[])
    axes.set_xlim(0, 1.22 * max(step.seconds for step in steps))
    axes.set_ylim(len(steps) - 0.5, -0.75)
    axes.spines[["top", "right", "left"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    figure.legend(
        list(by_label.values()),
        list(by_label),
        loc="outside lower center",
        ncols=4,
        fontsize=8,
    )
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"Expected a file that can be written, such as plan.png, got {str(path)!r}:"
            f" {error}."
        ) from error


def require_picture(path: str | Path) -> None:
    """Raise RuntimeError without matplotlib, and ValueError for a file that can't be a
    picture: another suffix, or no such folder.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise RuntimeError(
            "Expected matplotlib for a picture, and it isn't installed. Run `pip"
            " install matplotlib`."
        )
    is_picture = Path(path).suffix.lower() in (".png", ".pdf", ".svg")
    if not is_picture or not Path(path).parent.is_dir():
        raise ValueError(
            "Expected a file that can be written, such as plan.png, plan.pdf or"
            f" plan.svg in a folder that exists, got {str(path)!r}."
        )
