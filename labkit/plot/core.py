"""What all figures share: axes and their size, title and legend, and labels of axes."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from labkit.core.parameters import Number, checked
from labkit.core.text import printable
from labkit.core.units import format_seconds
from labkit.plot.picture import DPI, Picture, figure_of

# left, right, top, bottom of the axes; to_png crops what stays empty
_ROOM_IN = (2.8, 4.5, 0.9, 1.2)
_WIDTH_IN = 5.9
# Room for tick labels and axis label between the axes and a legend below them. In
# inches, since a share of the axes' height would put the legend of a low figure into
# the labels and that of a high one far away.
_LABELS_IN = 0.5
_GAP_IN = 0.05
_LONGEST_NAME = 44  # letters, for which there is room left of the axes
# what matplotlib calls an artist without a label
_UNNAMED = re.compile(r"_nolegend_|_(child|container)\d+")
_PLACES: dict[str, dict[str, Any]] = {
    "right": {
        "loc": "upper left",
        "bbox_to_anchor": (1.01, 1.02),
        "borderaxespad": 0.0,
    },
    "above": {"loc": "lower left", "bbox_to_anchor": (-0.01, 1.0)},
}


@dataclass(frozen=True)
class FigureSpec:
    """What a figure function returns: the sentence below its figure, and how the figure
    is to be finished.

    `title` is used where the caller gives none; `title_pad` is its distance from the
    axes in points. Axes keep their size without `height_in`, that of the whole picture
    in inches. `legend` is "right", "above" or "below", all outside of the axes, or a
    `loc` of matplotlib's; it names each label once, and stays away without any.
    """

    sentence: str
    title: str = ""
    title_pad: float = 6.0
    height_in: float | None = None
    width_in: float = _WIDTH_IN
    legend: str = "best"
    # what the legend shows in place of the artists with a label
    handles: Sequence[Any] = ()
    columns: int = 1


@checked
def new_axes(height_in: Annotated[float, Number(above=0, most=100)] = 3.4) -> Axes:
    """Make empty axes on a figure of its own, outside pyplot's state, for a picture of
    about `height_in` inches.
    """
    figure = Figure(dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    _resize(axes, height_in)
    return axes


def _resize(ax: Axes, height_in: float, width_in: float = _WIDTH_IN) -> None:
    """Make axes `width_in` wide and high enough for a picture of `height_in`, with room
    for long labels around.
    """
    height = max(height_in - 0.9, 0.1)  # title and labels take about 0.9 inches
    left, right, top, bottom = _ROOM_IN
    total_width = left + width_in + right
    total_height = bottom + height + top
    figure_of(ax).set_size_inches(total_width, total_height)
    ax.set_position(
        (
            left / total_width,
            bottom / total_height,
            width_in / total_width,
            height / total_height,
        )
    )


class Drawing:
    """A figure function: `draw(axes, ...)` draws what is particular to it, and this
    does what all figures need.

    Called, it draws on new axes and returns a Picture; `on` draws on given axes, as
    live boards do, and returns the sentence. Both take `title` besides the function's
    own arguments. `clear` empties the axes before.
    """

    def __init__(
        self,
        draw: Callable[..., FigureSpec],
        clear: Callable[[Axes], None] = Axes.clear,
    ) -> None:
        self.draw = checked(draw)
        self._clear = clear
        functools.update_wrapper(self, draw)
        own = inspect.signature(draw)
        title = inspect.Parameter(
            "title", inspect.Parameter.KEYWORD_ONLY, default="", annotation="str"
        )
        # what help() shows
        self.__signature__ = own.replace(
            parameters=[*list(own.parameters.values())[1:], title]
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Picture:
        """Draw on new axes."""
        axes = new_axes()
        return Picture(axes, self.on(axes, *args, **kwargs))

    @checked
    def on(self, ax: Axes, *args: Any, title: str = "", **kwargs: Any) -> str:
        """Clear these axes and draw on them; return the sentence."""
        self._clear(ax)
        spec = self.draw(ax, *args, **kwargs)
        if spec.height_in is not None:
            _resize(ax, spec.height_in, spec.width_in)
        ax.set_title(title or spec.title, loc="left", fontsize=11, pad=spec.title_pad)
        _draw_legend(ax, spec)
        return spec.sentence


def _draw_legend(ax: Axes, spec: FigureSpec) -> None:
    handles = list(spec.handles)
    for artist in (*ax.get_children(), *ax.containers, *handles):
        label = str(artist.get_label())
        if label.startswith("_") and not _UNNAMED.fullmatch(label):
            # a name: matplotlib would leave it out for its underscore
            artist.set_label(f" {label}")
    if not handles:
        all_handles, labels = ax.get_legend_handles_labels()
        handles = [all_handles[labels.index(label)] for label in dict.fromkeys(labels)]
    if not handles:
        return
    place = _PLACES.get(spec.legend, {"loc": spec.legend})
    if spec.legend == "below":
        room_in = _LABELS_IN if ax.get_xlabel() else _GAP_IN
        below = ScaledTranslation(0, -room_in, figure_of(ax).dpi_scale_trans)
        place = {
            "loc": "upper left",
            "bbox_to_anchor": (0, 0),
            "bbox_transform": ax.transAxes + below,
            "borderpad": 0,
        }
    ax.legend(
        handles=handles,
        ncols=spec.columns,
        frameon=False,
        fontsize=8 if spec.legend == "below" else 9,
        handleheight=1.2,
        handlelength=2.2,
        columnspacing=1.4,
        **place,
    )


# -- what many figure functions draw alike


def tick_names(names: Iterable[str]) -> list[str]:
    """Names as ticks can show them, each on one line."""
    return [printable(" ".join(name.split()), _LONGEST_NAME) for name in names]


def name_rows(
    ax: Axes, names: Sequence[str], *, above: float = 0.5, below: float = 0.5
) -> None:
    """Name the rows at y = 0, 1, ... from the top down, with room `above` the first and
    `below` the last, in rows.
    """
    ax.set_yticks(range(len(names)), tick_names(names))
    ax.set_ylim(max(len(names), 1) - 1 + below, -above)


def text_right_of(ax: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Write a value right of the end of its bar, six points away."""
    place: dict[str, Any] = {
        "xytext": (6, 0),
        "textcoords": "offset points",
        "va": "center",
    }
    ax.annotate(text, (x, y), **{"fontsize": 8, **place, **style})


def text_beside(ax: Axes, y: float, text: str, **style: Any) -> None:
    """Write right of the axes, beside row `y`."""
    place: dict[str, Any] = {
        "xycoords": ("axes fraction", "data"),
        "va": "center",
        "annotation_clip": False,
    }
    ax.annotate(text, (1.02, y), fontsize=8, **place, **style)


def label_seconds(axis: Axis, ticks: int | None = None) -> None:
    """Label an axis of seconds in readable units, with about `ticks` ticks where that
    is given.
    """
    if ticks is not None:
        axis.set_major_locator(MaxNLocator(ticks))
    axis.set_major_formatter(lambda value, _: _tick_of_seconds(value))


def _tick_of_seconds(value: float) -> str:
    if value == 0:
        return "0"
    # whole seconds even above two minutes, where round ticks such as 200 s would read
    # 3.33 min
    whole = value >= 60 or (value >= 1 and abs(value - round(value)) < 1e-9)
    return f"{value:,.0f} s" if whole else format_seconds(value)
