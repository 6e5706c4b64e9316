"""Figures of images."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from labkit.core.arguments import as_array
from labkit.core.errors import BadArgument
from labkit.core.parameters import Array
from labkit.plot.core import Drawing, FigureSpec, tick_names
from labkit.plot.style import RECORDED


@Drawing
def images(
    ax: Axes, pixels: Array, labels: Array, *, below: str = "label"
) -> FigureSpec:
    """Images side by side with a whole number below each, their labels or what `below`
    says; `pixels` is (n, channels, height, width) in 0..1.
    """
    pixels = as_array(pixels)
    labels = as_array(labels)
    if pixels.ndim != 4 or not pixels.size or labels.shape != pixels.shape[:1]:
        raise BadArgument(
            "Expected pixels (n, channels, height, width) and n labels, got shapes"
            f" {pixels.shape} and {labels.shape}."
        )
    gray = [np.asarray(image).mean(axis=0) for image in pixels]  # each (height, width)
    ax.imshow(np.concatenate(gray, axis=1), cmap="gray_r")
    height, width = pixels.shape[2:]
    middles = [width * (i + 0.5) for i in range(len(labels))]
    ax.set_xticks(middles, [str(int(label)) for label in labels])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.set_xlabel(below)
    numbers = ", ".join(str(int(label)) for label in labels)
    return FigureSpec(
        f"{len(labels)} images of {width} x {height} pixels, {below}: {numbers}.",
        height_in=1.6,
    )


@Drawing
def gray_images(ax: Axes, named: Mapping[str, Array]) -> FigureSpec:
    """Images (rows, columns) of one shape side by side, their names below; white is 0,
    black the largest value.

    Raises BadArgument for images of different shapes.
    """
    arrays = [as_array(image) for image in named.values()]
    shapes = [image.shape for image in arrays]
    if len(set(shapes)) != 1 or len(shapes[0]) != 2:
        raise BadArgument(
            f"Expected images (rows, columns) of one shape, got {shapes}."
        )
    rows, columns = shapes[0]
    gap = max(1, columns // 12)
    for i, image in enumerate(arrays):
        left = i * (columns + gap)
        most = max(float(np.max(image, initial=0.0)), 1e-12)
        ax.imshow(
            image,
            cmap="gray_r",
            vmin=0.0,
            vmax=most,
            extent=(left, left + columns, rows, 0),
        )
        ax.add_patch(
            Rectangle((left, 0), columns, rows, fill=False, edgecolor=RECORDED)
        )
    width = len(named) * (columns + gap) - gap
    ax.set(xlim=(-0.2, width + 0.2), ylim=(rows + 0.2, -0.2))
    ax.set_xticks(
        [i * (columns + gap) + columns / 2 for i in range(len(named))],
        tick_names(named),
    )
    ax.set_yticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    sentence = f"{', '.join(named)}: {rows} rows and {columns} columns each."
    return FigureSpec(sentence, height_in=0.9 + 5.9 * rows / width)
