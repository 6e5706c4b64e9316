"""Frames by matplotlib alone: what a live frame of labkit is held against."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.figure import Figure

from labkit.plot.picture import DPI, PX_AN_INCH


def board(width_px: int, height_px: int) -> bytes:
    """The same three rows, limits, names and legend, drawn by matplotlib at the same
    size and sharpness, as PNG.
    """
    figure = _figure(width_px, height_px)
    axes = figure.add_axes((0.15, 0.3, 0.6, 0.6))
    values = [64 / (0.105 * i) for i in (1, 2, 3)]
    axes.barh(
        range(3),
        values,
        xerr=[0.05 * value for value in values],
        capsize=3,
        label="measured here",
    )
    for i, value in enumerate(values):
        axes.annotate(
            f"{value:,.0f} images/s",
            (value, i),
            xytext=(6, 0),
            textcoords="offset points",
            fontsize=8,
        )
        axes.plot(
            [1000, 1000],
            [i - 0.4, i + 0.4],
            color="black",
            label="limit" if i == 0 else None,
        )
    axes.set_yticks(range(3), ["one", "two", "three"])
    axes.set_xlabel("images/s")
    axes.set_title("Three rows", loc="left")
    axes.legend(
        loc="upper left", bbox_to_anchor=(0, -0.2), ncols=4, frameon=False, fontsize=8
    )
    return _png(figure)


def curves(losses: Sequence[float], width_px: int, height_px: int) -> bytes:
    """One growing curve, its last value and a legend, drawn the same way, as PNG."""
    figure = _figure(width_px, height_px)
    axes = figure.add_axes((0.15, 0.2, 0.6, 0.65))
    axes.plot(losses, label="loss")
    axes.annotate(
        f"{losses[-1]:.3g}",
        (len(losses) - 1, losses[-1]),
        xytext=(6, 0),
        textcoords="offset points",
        fontsize=8,
    )
    axes.set_xlabel("step")
    axes.set_title("A thousand steps", loc="left")
    axes.legend(frameon=False, fontsize=8)
    return _png(figure)


def _figure(width_px: int, height_px: int) -> Figure:
    size_inches = (width_px / PX_AN_INCH, height_px / PX_AN_INCH)
    return Figure(figsize=size_inches, dpi=DPI)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
