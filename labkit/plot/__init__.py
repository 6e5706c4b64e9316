"""One function a kind of figure. Each draws on an Axes and returns the sentence that stands below the figure.

Called plainly, `speed_bars(rows, unit="images/s")` returns a `Picture`, which a cell displays; called with
`speed_bars.on(axes, rows, unit=...)` it draws on axes that are there already, as the live boards do.

Four series always look the same: prediction (open diamond), limit (line), measured (solid bar with spread),
recorded or simulated (hatched, its origin in the label). Colour is never the only mark.
"""

from labkit.plot.bounds import blocks_allowed, time_bounds
from labkit.plot.compiled import register_caps
from labkit.plot.core import Drawing, Picture, new_axes, resize, to_png
from labkit.plot.hardware import jobs_by_device, reached, roofline, shortlist, shortlist_of
from labkit.plot.kernels import banks, warp_lines
from labkit.plot.results import Bar, curves, images, readings, speed_bars
from labkit.plot.threads import grey_images, owners, passes
from labkit.plot.timing import amdahl, ratios, single_runs, timeline
from labkit.plot.traces import divergence, heat_map

__all__ = [
    "Bar",
    "Drawing",
    "Picture",
    "amdahl",
    "banks",
    "blocks_allowed",
    "curves",
    "divergence",
    "grey_images",
    "heat_map",
    "images",
    "jobs_by_device",
    "new_axes",
    "owners",
    "passes",
    "ratios",
    "reached",
    "readings",
    "register_caps",
    "resize",
    "roofline",
    "shortlist",
    "shortlist_of",
    "single_runs",
    "speed_bars",
    "time_bounds",
    "timeline",
    "to_png",
    "warp_lines",
]
