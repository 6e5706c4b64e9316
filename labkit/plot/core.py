"""What every figure is made of: colours and markers, axes and their size, PNG, and the picture that a cell shows."""

from __future__ import annotations

import functools
import inspect
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation
from PIL import Image

# Okabe and Ito's colours (2008), which stay apart for colour-blind readers.
MEASURED, PREDICTED, LIMIT, RECORDED, ACCENT = "#0072B2", "#D55E00", "#000000", "#8a8a8a", "#009E73"
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_ROOM_IN = (2.8, 4.5, 0.7, 1.2)  # left, right, top, bottom of the axes; what stays empty is cropped
HATCHED: dict[str, Any] = {"facecolor": "white", "edgecolor": RECORDED, "hatch": "//"}  # not measured here
DIAMOND: dict[str, Any] = {
    "marker": "D",
    "color": PREDICTED,
    "fillstyle": "none",
    "markeredgewidth": 2,
    "linestyle": "",
}  # the reader's prediction
# Words that may lie on a line stay legible.
ON_WHITE: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def new_axes(height_in: float = 3.4) -> Axes:
    """Empty axes on a figure of its own, outside pyplot's state, for a picture of about `height_in` inches."""
    figure = Figure(dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    resize(axes, height_in)
    return axes


def resize(ax: Axes, height_in: float, width_in: float = 5.9) -> None:
    """Give axes `width_in` inches and a height for a picture of `height_in`, on a canvas with room for long labels."""
    width, height = width_in, max(height_in - 0.9, 0.4)
    left, right, top, bottom = _ROOM_IN
    figure = ax.get_figure(root=True)
    assert figure is not None  # new_axes made it
    figure.set_size_inches(left + width + right, bottom + height + top)
    total_width, total_height = figure.get_size_inches()
    ax.set_position((left / total_width, bottom / total_height, width / total_width, height / total_height))


def legend_below(ax: Axes, handles: Sequence[Artist], ncols: int) -> None:
    """Put a legend under the axis label, at a distance in inches, however high the figure is."""
    figure = ax.get_figure(root=True)
    assert figure is not None  # new_axes made it
    place = ax.transAxes + ScaledTranslation(0, -0.5, figure.dpi_scale_trans)
    ax.legend(
        handles=handles, ncols=ncols, frameon=False, fontsize=8, borderpad=0, loc="upper left",
        bbox_to_anchor=(0, 0), bbox_transform=place,
    )  # fmt: skip


def to_png(figure: Figure) -> bytes:
    """The figure as PNG, cropped to what is drawn so that no label is cut.

    Drawn once and cropped afterwards: bbox_inches="tight" would draw it twice, and a live frame has 50 ms.
    """
    canvas: Any = figure.canvas  # new_axes made it an Agg canvas
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    inked = pixels.view(np.uint32)[:, :, 0] != 0xFFFFFFFF  # the four bytes of an opaque white pixel
    top, bottom = _extent(inked.any(axis=1))
    left, right = _extent(inked.any(axis=0))
    buffer = io.BytesIO()
    cropped = np.ascontiguousarray(pixels[top:bottom, left:right, :3])
    Image.fromarray(cropped).save(buffer, format="png", compress_level=1)
    return buffer.getvalue()


def _extent(inked: Any, margin: int = 10) -> tuple[int, int]:
    """First and last index that is true, with a margin in pixels around them."""
    (found,) = np.nonzero(inked)
    if len(found) == 0:
        return 0, len(inked)
    return max(int(found[0]) - margin, 0), min(int(found[-1]) + margin, len(inked))


@dataclass(frozen=True)
class Picture:
    """A figure and the sentence below it; a cell that ends with it shows both."""

    ax: Axes
    sentence: str

    def __repr__(self) -> str:
        return self.sentence

    def _ipython_display_(self) -> None:
        from IPython.display import display

        # new_axes made the figure
        png, alt = to_png(self.ax.get_figure(root=True)), {"image/png": {"alt": self.sentence}}  # type: ignore[arg-type]
        display({"image/png": png, "text/plain": "<figure>"}, raw=True, metadata=alt)
        # raw, since IPython's Markdown would take a sentence that happens to be a path for a file
        display({"text/markdown": self.sentence, "text/plain": self.sentence}, raw=True)


class Drawing:
    """A figure: a function that draws on empty axes and returns the sentence that goes below them.

    Called, it makes its own axes; `on` draws on given ones, again and again for a live picture. Every figure takes a
    `title`; a function that declares one itself places it itself.
    """

    def __init__(self, draw: Callable[..., str], *, clear: Callable[[Axes], None] = Axes.clear) -> None:
        self._draw, self._clear = draw, clear
        self._places_title = "title" in inspect.signature(draw).parameters
        functools.update_wrapper(self, draw)

    def on(self, ax: Axes, *args: Any, title: str = "", **kwargs: Any) -> str:
        """Clear the axes and draw on them; the sentence."""
        self._clear(ax)
        if self._places_title:
            return self._draw(ax, *args, title=title, **kwargs)
        sentence = self._draw(ax, *args, **kwargs)
        if title:
            ax.set_title(title, loc="left", fontsize=11)
        return sentence

    def __call__(self, *args: Any, **kwargs: Any) -> Picture:
        """Draw on new axes."""
        axes = new_axes()
        return Picture(axes, self.on(axes, *args, **kwargs))
