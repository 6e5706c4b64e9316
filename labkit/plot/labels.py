"""Labels that most figures share: names of rows, numbers at ticks, and words beside a point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator


def name_rows(ax: Axes, names: Iterable[str], *, top: float = -0.5) -> None:
    """Name the rows at y = 0, 1, 2 and so on, from the top down; the axis ends half a row below them, and at `top`."""
    listed = list(names)
    ax.set_yticks(range(len(listed)), listed)
    ax.set_ylim(max(len(listed), 1) - 0.5, top)


def label_ticks(
    axis: Axis, words: Callable[[float], str], *, at: Sequence[float] | None = None, most: int | None = None
) -> None:
    """Label an axis's ticks by the `words` for their values; ticks only `at` these values, or about `most` of them."""
    if at is not None:
        axis.set_major_locator(FixedLocator(at))
        axis.set_minor_locator(NullLocator())
    elif most is not None:
        axis.set_major_locator(MaxNLocator(most))
    axis.set_major_formatter(lambda value, _: words(value))


def write_beside(ax: Axes, x: float, y: float, text: str, offset: tuple[float, float] = (6, 0), **style: Any) -> None:
    """Write beside a point, at an offset in points: small, and centred on the point's height unless `style` differs."""
    look: dict[str, Any] = {"va": "center", "fontsize": 8} | style
    ax.annotate(text, (x, y), xytext=offset, textcoords="offset points", **look)
