"""Figures that make one picture which plays: an animated PNG, and a still one for
whoever asks for no motion.
"""

from __future__ import annotations

import base64
import io
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import Blend

from labkit.core.arguments import brief_repr
from labkit.core.display import LITERAL, as_html, linked_html
from labkit.core.errors import BadArgument
from labkit.core.parameters import Number, checked
from labkit.core.text import printable
from labkit.plot.picture import (
    DPI,
    STYLE,
    TEXT,
    Frame,
    Picture,
    figure_of,
    inked,
    pixels_of,
)

MOST_FRAMES = 60
# colors by their numbers: others before these
_WHITE = 62
_AS_BEFORE = 63
_LAST_IS_LONGER = 3
# The picture plays while <details> is open, and nothing moves before that: neither a
# script nor a kernel is needed. Without these rules the moving picture stands above the
# still one. The label is the same in both states: it makes sense without rules, too.
_RULES = (
    ".labkit-moving[open]+img{display:none}"
    ".labkit-moving>summary{cursor:pointer;display:inline-block;min-height:24px;"
    "padding:0 .6em;border:1px solid currentColor;border-radius:4px;list-style:none}"
    ".labkit-moving>summary::-webkit-details-marker{display:none}"
)


@dataclass(frozen=True)
class Film:
    """Frames of one size: each as a PNG, and all as one animated PNG, which shows the
    last frame where animations are unknown.

    `size` is width and height in CSS pixels; `sentences` has what each frame shows, or
    "".
    """

    frames: tuple[bytes, ...]
    sentences: tuple[str, ...]
    animated: bytes
    size: tuple[int, int]

    def data(
        self, text: str, caption: str, css: str = "", name: str = ""
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Data and metadata of a cell's output that plays when ▶ is pressed, without
        kernel or script.

        `text` is the text alternative, `caption` stands below, `css` is added to the
        page, and `name` to the figure's classes. Front ends without HTML show the last
        frame: they can't tell who asks for no motion.
        """
        moving = base64.b64encode(self.animated).decode()
        still = base64.b64encode(self.frames[-1]).decode()
        play = (
            '<details class="labkit-moving"><summary>▶ Play or stop</summary>'
            f"{self._img(text, moving)}</details>"
        )
        attributes = f'class="{LITERAL}" style="{TEXT}"'
        below = f"<figcaption {attributes}>{linked_html(caption)}</figcaption>"
        figure = (
            f'<figure class="{name}" style="margin:0">'
            f"{play}{self._img(text, still)}{below}</figure>"
        )
        html = f"<style>{STYLE}{_RULES}{css}</style>{figure}"
        width, height = self.size
        data = {"text/html": html, "image/png": still, "text/plain": printable(caption)}
        about_png = {"width": width, "height": height, "alt": printable(text)}
        return data, {"image/png": about_png}

    def _img(self, text: str, base64_png: str) -> str:
        width, height = self.size
        return (
            f'<img class="labkit-picture" alt="{as_html(text)}" width="{width}"'
            f' height="{height}" style="max-width:100%;height:auto"'
            f' src="data:image/png;base64,{base64_png}">'
        )


@checked
def film(
    frames: Any, *, frame_s: Annotated[float, Number(least=0.2, most=60)] = 0.8
) -> Film:
    """Draw matplotlib Figures, or what functions of `lab.plot` return, as a film that
    shows each for `frame_s` seconds.

    Raises BadArgument for no frames, more than 60, and anything else.
    """
    drawn, sentences = _drawn(frames)
    whole = Frame()
    for frame, _ in drawn:
        whole.left = min(whole.left, frame.left)
        whole.top = min(whole.top, frame.top)
        whole.right = max(whole.right, frame.right)
        whole.bottom = max(whole.bottom, frame.bottom)
    size = (whole.right - whole.left, whole.bottom - whole.top)
    images = []
    for frame, cropped in drawn:
        image = Image.new("RGB", size, "white")
        image.paste(cropped, (frame.left - whole.left, frame.top - whole.top))
        images.append(image)
    numbers, colors = _in_few_colors(images)
    pngs = tuple(_saved(_image(each, colors)) for each in numbers)
    return Film(pngs, sentences, _animated(numbers, colors, frame_s), whole.size)


def _drawn(
    frames: Iterable[Any],
) -> tuple[list[tuple[Frame, Image.Image]], tuple[str, ...]]:
    """What is inked of each figure, with its place, and what each shows in words."""
    drawn: list[tuple[Frame, Image.Image]] = []
    sentences = []
    advice = (
        f"Expected 1 to {MOST_FRAMES} figures, as in (figure(i) for i in range(12)),"
        " each a Figure of matplotlib or what a function of lab.plot returns"
    )
    try:
        each_frame = iter(frames)
    except TypeError:
        raise BadArgument(f"{advice}; got {brief_repr(frames)}.") from None
    for each in each_frame:
        is_picture = isinstance(each, Picture)
        figure = figure_of(each.ax) if is_picture else each
        if not isinstance(figure, Figure):
            raise BadArgument(f"{advice}; got {brief_repr(each)} among them.")
        if len(drawn) == MOST_FRAMES:
            raise BadArgument(f"{advice}; got more.")
        figure.set_dpi(DPI)
        pixels = pixels_of(figure)  # (height, width, 4)
        frame = Frame()
        frame.grow(inked(pixels))
        if frame.right == 0:
            raise BadArgument(f"{advice}; figure {len(drawn)} is blank.")
        # a copy: pixels are the canvas's own
        colors = pixels[frame.top : frame.bottom, frame.left : frame.right, :3].copy()
        drawn.append((frame, Image.fromarray(colors)))
        FigureCanvasAgg(figure)  # the pixels of the former canvas are freed
        sentences.append(each.sentence if is_picture else "")
    if not drawn:
        raise BadArgument(f"{advice}; got none.")
    return drawn, tuple(sentences)


def _in_few_colors(images: list[Image.Image]) -> tuple[list[Any], list[int]]:
    """The color numbers of each image, bytes of shape (height, width), and the palette
    of all: what doesn't change between two frames has the same numbers.
    """
    width, height = images[0].size
    half = (max(width // 2, 1), max(height // 2, 1))
    sheet = Image.new("RGB", (half[0], half[1] * len(images)), "white")
    for i, image in enumerate(images):
        smaller = image.resize(half, Image.Resampling.NEAREST)
        sheet.paste(smaller, (0, i * half[1]))
    found = sheet.quantize(_WHITE, Image.Quantize.MEDIANCUT).getpalette() or []
    colors = [*found[: 3 * _WHITE], *[255] * (3 * 256)][: 3 * 256]
    palette = Image.new("P", (1, 1))
    palette.putpalette(colors)
    numbers = []
    for image in images:
        nearest = image.quantize(palette=palette, dither=Image.Dither.NONE)
        is_white = (np.asarray(image) == 255).all(axis=2)  # (height, width)
        number = np.minimum(np.asarray(nearest), _WHITE)  # (height, width)
        numbers.append(np.where(is_white, np.uint8(_WHITE), number))
    return numbers, colors[: 3 * (_AS_BEFORE + 1)]


def _image(numbers: Any, colors: list[int]) -> Image.Image:
    image = Image.frombytes("P", numbers.shape[::-1], numbers.tobytes())
    image.putpalette(colors)
    return image


def _saved(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _animated(numbers: list[Any], colors: list[int], frame_s: float) -> bytes:
    """One animated PNG, in which a frame has only the pixels that change."""
    changes = [numbers[0]]
    for before, after in itertools.pairwise(numbers):
        as_before = np.uint8(_AS_BEFORE)
        changes.append(np.where(after == before, as_before, after))
    frame_ms = [round(1000 * frame_s)] * len(changes)
    frame_ms[-1] *= _LAST_IS_LONGER
    # what a program shows that knows no animations
    default = _image(numbers[-1], colors)
    buffer = io.BytesIO()
    default.save(
        buffer,
        format="png",
        optimize=True,
        save_all=True,
        append_images=[_image(change, colors) for change in changes],
        default_image=True,
        duration=frame_ms,
        loop=0,
        transparency=_AS_BEFORE,
        blend=Blend.OP_OVER,
    )
    return buffer.getvalue()
