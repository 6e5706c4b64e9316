"""The figure of a puzzle: its arrays on a few numbers, and who may touch which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from exercises.nb23.sketches import SKETCHES, Place, Sketch
from exercises.traced_kernels import Array
from labkit.plot.core import Drawing, FigureSpec
from labkit.plot.picture import Picture, picture_data, to_png
from labkit.plot.style import CYCLE, RECORDED

_ROW_IN = 0.2
_CELL_IN = 0.27
_GAP = 1.1  # between arrays side by side, in cells
_LINES: tuple[Any, ...] = ("solid", (0, (3, 1.5)))


@dataclass(frozen=True, repr=False)
class Sketched(Picture):
    """A picture with its sentences; `alt` says more, for whoever can't see."""

    alt: str = ""

    def image(self) -> tuple[dict[str, str], dict[str, Any]]:
        """Data and metadata of an output with the picture alone."""
        return picture_data(to_png(self.ax, self._frame), self._frame.size, self.alt)


def puzzle(number: str) -> Sketched:
    """What puzzle "23.1" asks for, on a few numbers."""
    sketch = SKETCHES[number]
    picture = _sketched(sketch)
    alt = f"{picture.sentence} {_in_words(sketch)}"
    return Sketched(picture.ax, picture.sentence, alt=alt)


@Drawing
def _sketched(ax: Axes, sketch: Sketch) -> FigureSpec:
    is_flat = all(array.ndim == 1 for array in sketch.arrays.values())
    place_of = _one_below_another(sketch) if is_flat else _side_by_side(sketch)
    for name, array in sketch.arrays.items():
        left, top = place_of[name]
        _draw_array(ax, name, array, left, top, is_flat)
        for i, toucher in enumerate(sketch.touchers):
            for cell in toucher.places.get(name, ()):
                _mark(ax, cell, left, top, i)
    right = max(
        left + _shape(sketch.arrays[name])[1] for name, (left, _) in place_of.items()
    )
    rows = max(
        top + _shape(sketch.arrays[name])[0] for name, (_, top) in place_of.items()
    )
    ax.set_xlim(-1.2, right + 0.2)
    ax.set_ylim(rows + 0.1, -1.0 if not is_flat else -0.1)
    ax.axis("off")
    return FigureSpec(
        f"{sketch.sentence} {_marked(sketch)}",
        height_in=0.9 + _ROW_IN * (rows + (1.1 if not is_flat else 0.2)),
        width_in=_CELL_IN * (right + 1.4),
    )


def _shape(array: Array) -> tuple[int, int]:
    return (1, len(array)) if array.ndim == 1 else (array.shape[0], array.shape[1])


def _one_below_another(sketch: Sketch) -> dict[str, tuple[float, float]]:
    return {name: (1.5, 1.3 * i) for i, name in enumerate(sketch.arrays)}


def _side_by_side(sketch: Sketch) -> dict[str, tuple[float, float]]:
    left = 0.0
    place_of = {}
    for name, array in sketch.arrays.items():
        place_of[name] = (left, 0.0)
        left += _shape(array)[1] + _GAP
    return place_of


def _draw_array(
    ax: Axes, name: str, array: Array, left: float, top: float, beside: bool
) -> None:
    """An array as squares, with its name `beside` it or else above."""
    rows, columns = _shape(array)
    if beside:
        ax.text(left - 0.3, top + 0.5, name, ha="right", va="center", fontsize=9)
    else:
        ax.text(left, top - 0.15, name, ha="left", va="bottom", fontsize=9)
    cells = array.reshape(rows, columns)
    for row, column in np.ndindex(rows, columns):
        corner = left + column, top + row
        ax.add_patch(
            Rectangle(corner, 1, 1, facecolor="white", edgecolor=RECORDED, lw=0.6)
        )
        value = float(cells[row, column])
        text = _number(value)
        ax.text(
            corner[0] + 0.5,
            corner[1] + 0.52,
            text,
            ha="center",
            va="center",
            fontsize=7 if len(text) < 4 else 5.5,
        )


def _mark(ax: Axes, cell: Place, left: float, top: float, i: int) -> None:
    """Mark an element as one that toucher `i` touches: by a color and a line."""
    row, column = (0, cell) if isinstance(cell, int) else cell
    inset = 0.07 + 0.1 * i
    size = 1 - 2 * inset
    ax.add_patch(
        Rectangle(
            (left + column + inset, top + row + inset),
            size,
            size,
            fill=False,
            edgecolor=CYCLE[i],
            linestyle=_LINES[i],
            linewidth=1.6,
        )
    )


def _marked(sketch: Sketch) -> str:
    """Whose elements are marked, and how."""
    first, *others = (toucher.who for toucher in sketch.touchers)
    if not others:
        return f"Marked: {first}."
    return f"Solid lines: {first}; dashed: {others[0]}."


def _in_words(sketch: Sketch) -> str:
    """What the first toucher reads and writes; the last array is the one written."""
    toucher = sketch.touchers[0]
    *inputs, output = sketch.arrays
    reads = [
        _places_in_words(name, toucher.places[name])
        for name in inputs
        if name in toucher.places
    ]
    writes = _places_in_words(output, toucher.places[output])
    who = toucher.who[0].upper() + toucher.who[1:]
    *others, last = reads
    read = f"{', '.join(others)} and {last}" if others else last
    return f"{who} reads {read}, and writes {writes}."


def _places_in_words(name: str, places: Sequence[Place]) -> str:
    """Elements of an array: "x[1, 2]", "4 numbers of x"."""
    if len(places) > 1:
        return f"{len(places)} numbers of {name}"
    (place,) = places
    indices = (place,) if isinstance(place, int) else place
    return f"{name}[{', '.join(map(str, indices))}]"


def _number(value: float) -> str:
    """A number that fits into a square."""
    if value == int(value):
        return f"{value:.0f}"
    return f"{value:.2f}".lstrip("0") if 0 <= value < 1 else f"{value:.1f}"
