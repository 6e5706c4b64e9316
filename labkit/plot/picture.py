"""A figure as a PNG, and as what a cell shows and a notebook keeps."""

from __future__ import annotations

import base64
import io
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import Formatter, LogFormatter, LogFormatterMathtext
from PIL import Image

from labkit.core.display import LITERAL, as_html, linked_html
from labkit.core.parameters import checked
from labkit.core.text import printable

# as shown; drawn with twice as many, so that a figure is sharp on a high-density screen
PX_AN_INCH = 100
_SHARPER = 2
DPI = _SHARPER * PX_AN_INCH
_MARGIN_PX = 10
# of a text in a figure
_LONGEST = 160
_MOST_LINES = 4

# Figures are white in every theme. In JupyterLab's dark one they are dimmed, so that
# they don't glare.
STYLE = (
    ".labkit-picture{background:#fff;border-radius:4px}"
    "[data-jp-theme-light='false'] .labkit-picture{filter:brightness(.85)}"
)
# of sentences for the reader: lines of a readable length
TEXT = "max-width:48em;line-height:1.4;margin:0.3em 0"


def figure_of(ax: Axes) -> Figure:
    """The figure that `new_axes` made for these axes."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


@dataclass
class Frame:
    """What is cut out of a figure, in pixels from its upper left corner. It only grows,
    so live frames don't jump.
    """

    left: int = 10**6
    top: int = 10**6
    right: int = 0
    bottom: int = 0

    def grow(self, inked: Any) -> None:
        """Take in what is drawn, the true pixels, with a margin."""
        margin = _SHARPER * _MARGIN_PX
        rows = np.flatnonzero(inked.any(axis=1))
        columns = np.flatnonzero(inked.any(axis=0))
        if len(rows):
            self.left = max(min(self.left, int(columns[0]) - margin), 0)
            self.top = max(min(self.top, int(rows[0]) - margin), 0)
            self.right = max(self.right, int(columns[-1]) + margin)
            self.bottom = max(self.bottom, int(rows[-1]) + margin)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height as shown, in CSS pixels."""
        width = (self.right - self.left) // _SHARPER
        height = (self.bottom - self.top) // _SHARPER
        return width, height


@checked
def to_png(ax: Axes, frame: Frame | None = None, *, again: bool = False) -> bytes:
    """Draw the figure of these axes as PNG, cropped to what is drawn so that no label
    is cut, or to `frame` if larger.

    It is drawn once and cropped afterwards: bbox_inches="tight" would draw it twice,
    and live frames have 200 ms each. `again` says that it will soon be drawn again: the
    canvas, with its pixels and the sizes of texts, is kept.
    """
    pixels = pixels_of(figure_of(ax))  # (height, width, 4)
    frame = Frame() if frame is None else frame
    frame.grow(inked(pixels))
    right = max(frame.right, frame.left + 2)
    bottom = max(frame.bottom, frame.top + 2)
    whole = Image.frombuffer("RGBA", pixels.shape[1::-1], pixels, "raw", "RGBA", 0, 1)
    cropped = whole.crop((frame.left, frame.top, right, bottom))
    # a figure that was larger before keeps its size
    if right > whole.width or bottom > whole.height:
        cropped = Image.alpha_composite(
            Image.new("RGBA", cropped.size, "white"), cropped
        )
    if not again:
        drop_pixels(ax)
    # a third in bytes
    few = cropped.convert("RGB").quantize(
        256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
    )
    # 254 would be no white
    few.putpalette([255 if value >= 250 else value for value in few.getpalette() or ()])
    buffer = io.BytesIO()
    few.save(buffer, format="png", compress_level=1)
    return buffer.getvalue()


def pixels_of(figure: Figure) -> Any:
    """Draw a figure; its pixels, bytes of shape (height, width, 4), are those of its
    canvas.
    """
    canvas: Any = figure.canvas
    if not isinstance(canvas, FigureCanvasAgg):
        canvas = FigureCanvasAgg(figure)
    with rc_context({"text.parse_math": False}), warnings.catch_warnings():
        # such a letter is drawn as a box
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        _write_literally(figure)
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def inked(pixels: Any) -> Any:
    """Which pixels aren't an opaque white: (height, width) of (height, width, 4)."""
    return pixels.view(np.uint32)[:, :, 0] != 0xFFFFFFFF


def drop_pixels(ax: Axes) -> None:
    """Free the pixels of the last drawing, some megabytes: a figure that a notebook
    holds has no need of them.
    """
    FigureCanvasAgg(figure_of(ax))


def _write_literally(figure: Figure) -> None:
    """Let no text be taken for a formula, which a price in US$ or a reader's own name
    may look like, and cut long ones.

    The rest of the drawing makes tick labels anew, with rcParams that say the same. A
    logarithmic axis has formulas as tick labels unless it was given others: it gets
    plain numbers.
    """
    for text in figure.findobj(Text):
        text.set_parse_math(False)
        lines = printable(text.get_text(), _LONGEST).split("\n")
        text.set_text("\n".join(lines[:_MOST_LINES]))
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_formatter(), LogFormatterMathtext):
                axis.set_major_formatter(lambda value, _: f"{value:g}")
            if isinstance(axis.get_minor_formatter(), LogFormatterMathtext):
                axis.set_minor_formatter(_MinorLabels(axis.get_major_formatter()))


class _MinorLabels(LogFormatter):
    """Labels those minor ticks that matplotlib would, in the way of the major ones."""

    def __init__(self, major: Formatter) -> None:
        super().__init__(minor_thresholds=None)
        self._major = major

    def __call__(self, x: float, pos: int | None = None) -> str:
        return self._major(x, pos) if super().__call__(x, pos) else ""


def picture_data(
    png: bytes,
    size: tuple[int, int],
    sentence: str,
    *,
    caption: str = "",
    css: str = "",
    name: str = "",
) -> tuple[dict[str, str], dict[str, Any]]:
    """Data and metadata of a cell's output that shows a figure `size` CSS pixels wide
    and high.

    It is there as HTML and as PNG: front ends and nbconvert's HTML prefer the first,
    which alone gives an image its text alternative (JupyterLab renders none for PNG);
    GitHub and nbconvert's other formats have the second to fall back on. `caption`
    stands below, `css` is added to the page, and `name` to the figure's classes.
    """
    image = base64.b64encode(png).decode()
    width, height = size
    img = (
        f'<img class="labkit-picture" alt="{as_html(sentence)}"'
        f' width="{width}" height="{height}" style="max-width:100%;height:auto"'
        f' src="data:image/png;base64,{image}">'
    )
    below = ""
    if caption:
        attributes = f'class="{LITERAL}" style="{TEXT}"'
        below = f"<figcaption {attributes}>{linked_html(caption)}</figcaption>"
    figure = f'<figure class="{name}" style="margin:0">{img}{below}</figure>'
    html = f"<style>{STYLE}{css}</style>{figure}"
    data = {"text/html": html, "image/png": image, "text/plain": "<figure>"}
    about_png = {"width": width, "height": height, "alt": printable(sentence)}
    return data, {"image/png": about_png}


def sentence_data(sentence: str) -> dict[str, str]:
    """Data of a cell's output that shows a sentence as it is, with nothing in it taken
    for Markdown or formulas.
    """
    html = f'<div class="{LITERAL}" style="{TEXT}">{linked_html(sentence)}</div>'
    return {"text/html": html, "text/plain": printable(sentence)}


@dataclass(frozen=True)
class Picture:
    """A figure and the sentence below it; a cell that ends with it shows both."""

    ax: Axes
    sentence: str
    _frame: Frame = field(default_factory=Frame, repr=False)

    def __repr__(self) -> str:
        return printable(self.sentence)

    def data(self, more: str = "") -> tuple[dict[str, str], dict[str, Any]]:
        """Data and metadata of one output with the figure and, below it, its sentence
        and `more`.
        """
        png = to_png(self.ax, self._frame)
        caption = f"{self.sentence} {more}".rstrip()
        data, metadata = picture_data(
            png, self._frame.size, self.sentence, caption=caption
        )
        return data | {"text/plain": printable(caption)}, metadata

    def _ipython_display_(self) -> None:
        from IPython.display import display

        data, metadata = picture_data(
            to_png(self.ax, self._frame), self._frame.size, self.sentence
        )
        display(data, raw=True, metadata=metadata)
        display(sentence_data(self.sentence), raw=True)
