"""One function a kind of figure. Each draws on axes and has a sentence that is shown
below the figure.

Called plainly, `readings(timings, title="...")` returns a `Picture`, which a cell
displays; called as `readings.on(axes, timings)` it draws on axes that are there
already, as the live boards do.

Four series always look the same: prediction (open diamond), limit (line), measured
(solid, with its spread), recorded or simulated (hatched bar or open square, its origin
in the label). Bars stand on linear axes, points on logarithmic ones. Color is never
the only mark.
"""

from labkit.plot.bars import PENDING, Bar, speed_bars
from labkit.plot.core import new_axes
from labkit.plot.images import gray_images, images
from labkit.plot.lines import bytes_by_tokens, curves, scales
from labkit.plot.picture import Picture, drop_pixels, to_png
from labkit.plot.schedules import gantt
from labkit.plot.timelines import queue, timeline
from labkit.plot.timing import amdahl, break_even, ratios, readings

__all__ = [
    "PENDING",
    "Bar",
    "Picture",
    "amdahl",
    "break_even",
    "bytes_by_tokens",
    "curves",
    "drop_pixels",
    "gantt",
    "gray_images",
    "images",
    "new_axes",
    "queue",
    "ratios",
    "readings",
    "scales",
    "speed_bars",
    "timeline",
    "to_png",
]
