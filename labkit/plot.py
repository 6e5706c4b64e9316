"""One function a kind of figure. Each draws on an Axes and returns the sentence that stands below the figure.

Called plainly, `speed_bars(rows, unit="images/s")` returns a `Picture`, which a cell displays; called with
`speed_bars.on(axes, rows, unit=...)` it draws on axes that are there already, as the live boards do.

Four series always look the same: prediction (open diamond), limit (line), measured (solid bar with spread),
recorded or simulated (hatched, its origin in the label). Colour is never the only mark.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, ParamSpec

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation
from PIL import Image

from labkit.bench import Timing
from labkit.units import format_quantity, format_seconds, significant

P = ParamSpec("P")

# Okabe and Ito's colours (2008), which stay apart for colour-blind readers.
MEASURED, PREDICTED, LIMIT, RECORDED, ACCENT = "#0072B2", "#D55E00", "#000000", "#8a8a8a", "#009E73"
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_ROOM_IN = (2.8, 4.5, 0.7, 1.2)  # left, right, top, bottom of the axes; what stays empty is cropped
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


def to_png(figure: Figure) -> bytes:
    """The figure as PNG, cropped to what is drawn so that no label is cut.

    Drawn once and cropped afterwards: bbox_inches="tight" would draw it twice, and a live frame has 50 ms.
    """
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    box = figure.get_tightbbox(canvas.get_renderer()).padded(0.1)
    left, right = (round(x * figure.dpi) for x in (box.x0, box.x1))
    top, bottom = (pixels.height - round(y * figure.dpi) for y in (box.y1, box.y0))
    buffer = io.BytesIO()
    cropped = pixels.crop((max(left, 0), max(top, 0), min(right, pixels.width), min(bottom, pixels.height)))
    cropped.save(buffer, format="png", compress_level=1)
    return buffer.getvalue()


@dataclass(frozen=True)
class Picture:
    """A figure and the sentence below it; a cell that ends with it shows both."""

    ax: Axes
    sentence: str

    def __repr__(self) -> str:
        return self.sentence

    def _ipython_display_(self) -> None:
        from IPython.display import Markdown, display

        png, alt = to_png(self.ax.get_figure(root=True)), {"image/png": {"alt": self.sentence}}  # type: ignore[arg-type]
        display({"image/png": png, "text/plain": "<figure>"}, raw=True, metadata=alt)  # type: ignore[no-untyped-call]
        display(Markdown(self.sentence))  # type: ignore[no-untyped-call]


class Drawing(Generic[P]):
    """A function that draws on axes, callable without them."""

    def __init__(self, draw: Callable[Concatenate[Axes, P], str]) -> None:
        self.on = draw
        functools.update_wrapper(self, draw)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Picture:
        """Draw on new axes; `height_in` of the figure follows from the function's own needs."""
        axes = new_axes()
        return Picture(axes, self.on(axes, *args, **kwargs))


@dataclass
class Bar:
    """One row of a board; values in the board's unit, `low` and `high` the quartiles of the measurement.

    `others` are values from elsewhere: (label with its origin, value). `note` stands where nothing was measured.
    """

    name: str
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    predicted: float | None = None
    limit: float | None = None
    others: Sequence[tuple[str, float]] = field(default_factory=tuple)
    note: str = ""
    simulated: bool = False


@Drawing
def speed_bars(ax: Axes, bars: Sequence[Bar], *, unit: str, title: str = "", log: bool = False) -> str:
    """Bars of what was measured, with each row's prediction, limit and recorded values; x in `unit`."""
    ax.clear()
    for y, bar in enumerate(bars):
        _draw_bar(ax, y, bar, unit)
    ax.set_yticks(range(len(bars)), [bar.name for bar in bars])
    ax.set_ylim(max(len(bars), 1) - 0.5, -0.5)
    if log:
        ax.set_xscale("log")
    else:
        ax.set_xlim(left=0)
        ax.margins(x=0.18)
        ax.xaxis.set_major_locator(MaxNLocator(5))
    if all(bar.measured is None and not bar.others for bar in bars):
        ax.set_xticks([])
    ax.set_xlabel(unit)
    ax.set_title(title, loc="left", fontsize=11)
    handles = _legend_handles(bars)
    if handles:
        _legend_below(ax, handles)
    return "; ".join(_in_words(bar, unit) for bar in bars) + "." if bars else "Nothing measured yet."


def _draw_bar(ax: Axes, y: float, bar: Bar, unit: str) -> None:
    height = 0.5 / (1 + len(bar.others))
    if bar.measured is not None:
        low, high = bar.low or bar.measured, bar.high or bar.measured
        hatch: dict[str, Any] = (
            {"color": "white", "edgecolor": RECORDED, "hatch": "//"} if bar.simulated else {"color": MEASURED}
        )
        ax.barh(
            y - 0.25 + height / 2,
            bar.measured,
            height,
            xerr=[[bar.measured - low], [high - bar.measured]],
            capsize=3,
            **hatch,
        )
        _label(ax, max(high, bar.measured), y - 0.25 + height / 2, format_quantity(bar.measured, unit))
    elif bar.note:
        ax.annotate(
            bar.note, (0, y + 0.25), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8, style="italic"
        )
    for i, (label, value) in enumerate(bar.others, start=1):
        at = y - 0.25 + (i + 0.5) * height
        ax.barh(at, value, height * 0.8, color="white", edgecolor=RECORDED, hatch="//")
        _label(ax, value, at, f"{format_quantity(value, unit)}, {label}")
    if bar.limit is not None:
        ax.plot([bar.limit, bar.limit], [y - 0.4, y + 0.4], color=LIMIT, linewidth=2)
    if bar.predicted is not None:
        ax.plot(
            bar.predicted,
            y,
            marker="D",
            markersize=9,
            color=PREDICTED,
            fillstyle="none",
            markeredgewidth=2,
            linestyle="",
        )


def _legend_below(ax: Axes, handles: Sequence[Patch | Line2D]) -> None:
    """A legend under the axis label, at a distance in inches, however high the figure is."""
    figure = ax.get_figure(root=True)
    assert figure is not None  # axes are always made with one
    below = ax.transAxes + ScaledTranslation(0, -0.5, figure.dpi_scale_trans)
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, 0), "bbox_transform": below}
    ax.legend(handles=handles, ncols=len(handles), frameon=False, fontsize=8, borderpad=0, **place)


def _label(ax: Axes, x: float, y: float, text: str) -> None:
    ax.annotate(text, (x, y), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8)


def _legend_handles(bars: Sequence[Bar]) -> list[Patch | Line2D]:
    """Only the series that are there."""
    handles: list[Patch | Line2D] = []
    if any(bar.measured is not None and not bar.simulated for bar in bars):
        handles.append(Patch(color=MEASURED, label="measured here (bar to the median, whisker = quartiles)"))
    if any(bar.predicted is not None for bar in bars):
        style: dict[str, Any] = {"fillstyle": "none", "markeredgewidth": 2, "linestyle": ""}
        handles.append(Line2D([], [], marker="D", color=PREDICTED, label="your prediction", **style))
    if any(bar.limit is not None for bar in bars):
        handles.append(Line2D([], [], color=LIMIT, linewidth=2, label="limit"))
    if any(bar.others or bar.simulated for bar in bars):
        handles.append(Patch(facecolor="white", edgecolor=RECORDED, hatch="//", label="recorded or simulated"))
    return handles


def _in_words(bar: Bar, unit: str) -> str:
    if bar.measured is None:
        return f"{bar.name}: {bar.note or 'not measured yet'}"
    words = f"{bar.name}: {format_quantity(bar.measured, unit)}{' (simulated)' if bar.simulated else ''}"
    if bar.predicted:
        words += f", {significant(bar.measured / bar.predicted, 2)}x your guess"
    if bar.limit:
        words += f", {bar.measured / bar.limit:.0%} of the limit"
    return words


@Drawing
def images(ax: Axes, pixels: Any, labels: Any) -> str:
    """Images side by side with their labels below; `pixels` is (n, channels, height, width) in 0..1."""
    ax.clear()
    ax.imshow(np.concatenate([np.asarray(image).mean(axis=0) for image in pixels], axis=1), cmap="gray_r")
    width = pixels.shape[-1]
    ax.set_xticks([width * (i + 0.5) for i in range(len(labels))], [str(int(label)) for label in labels])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.set_xlabel("label")
    resize(ax, 1.6)
    return f"{len(labels)} images of {width} x {pixels.shape[-2]} pixels with their labels."


@Drawing
def curves(
    ax: Axes, series: Mapping[str, Sequence[float]], *, x: str = "step", y: str = "loss", title: str = ""
) -> str:
    """Lines over their index, one a name, each with a marker of its own at its end."""
    ax.clear()
    for i, (name, values) in enumerate(series.items()):
        marker, color = MARKERS[i % len(MARKERS)], CYCLE[i % len(CYCLE)]
        ax.plot(range(1, len(values) + 1), values, color=color, marker=marker, markevery=[-1], label=name)
    ax.set(xlabel=x, ylabel=y)
    ax.set_title(title, loc="left", fontsize=11)
    ax.set_ylim(bottom=0)
    if series:
        ax.legend(frameon=False, fontsize=8)
    ends = [f"{name} {significant(values[-1])} after {len(values)}" for name, values in series.items() if len(values)]
    return f"{y} by {x}: {'; '.join(ends)}." if ends else "Nothing drawn yet."


@Drawing
def readings(ax: Axes, timings: Sequence[Timing], *, title: str = "", log: bool = False) -> str:
    """Every reading of some timings as a dot, the median as a line, the cold call as an open circle; x in seconds."""
    ax.clear()
    for y, timing in enumerate(timings):
        spread = np.linspace(-0.18, 0.18, len(timing.samples_s))
        color, marker = CYCLE[y % len(CYCLE)], MARKERS[y % len(MARKERS)]
        ax.plot(timing.samples_s, y + spread, marker, color=color, markersize=4, alpha=0.6)
        ax.plot([timing.median_s] * 2, [y - 0.32, y + 0.32], color=LIMIT, linewidth=2)
        ax.plot(timing.first_s, y, "o", color=color, fillstyle="none", markersize=10)
    ax.set_yticks(range(len(timings)), [timing.label for timing in timings])
    ax.set_ylim(len(timings) - 0.5, -0.5)
    if log:
        ax.set_xscale("log")
    else:
        ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(lambda value, _: format_seconds(value))
    ax.set_xlabel("time of one call (dot: a reading, line: median, open circle: the first, cold call)")
    ax.set_title(title, loc="left", fontsize=11)
    return "; ".join(f"{t.label}: median {format_seconds(t.median_s)}, spread {t.spread:.0%}" for t in timings) + "."
