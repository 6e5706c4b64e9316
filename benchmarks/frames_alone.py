"""A board's frame by matplotlib alone: what a live frame of labkit is held against."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

from labkit.plot.picture import DPI, PX_AN_INCH


def board(width_px: int, height_px: int) -> bytes:
    """The same three rows, limits, names and legend, drawn by matplotlib at the same
    size and sharpness, as PNG.
    """
    figure = Figure(figsize=(width_px / PX_AN_INCH, height_px / PX_AN_INCH), dpi=DPI)
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
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
