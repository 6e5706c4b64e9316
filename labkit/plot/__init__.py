"""One function a kind of figure. Each draws on an Axes and returns the sentence that stands below the figure.

Called plainly, `speed_bars(rows, unit="images/s")` returns a `Picture`, which a cell displays; called with
`speed_bars.on(axes, rows, unit=...)` it draws on axes that are there already, as the live boards do.

Four series always look the same: prediction (open diamond), limit (line), measured (solid bar with spread),
recorded or simulated (hatched, its origin in the label). Colour is never the only mark.
"""

from labkit.plot.bars import Bar, curves, images, readings, speed_bars
from labkit.plot.bounds import blocks_allowed, time_bounds
from labkit.plot.clusters import agreement, scales, step_parts
from labkit.plot.compiled import register_caps
from labkit.plot.core import Drawing, Picture, new_axes, resize, to_png
from labkit.plot.formats import accuracy_by_seed, bits, gradients, loses
from labkit.plot.graphs import break_even, time_by_size
from labkit.plot.hardware import jobs_by_device, reached, roofline, shortlist, shortlist_of
from labkit.plot.input_pipelines import queue
from labkit.plot.kernels import banks, warp_lines
from labkit.plot.parallel import bytes_by_tokens
from labkit.plot.profiles import memory_timeline, shares, step_strip
from labkit.plot.scaling import speedup_by_ranks
from labkit.plot.schedules import gantt, replays
from labkit.plot.threads import grey_images, owners, passes
from labkit.plot.timing import amdahl, ratios, single_runs, timeline
from labkit.plot.training import range_test, seed_bands, time_to_accuracy
from labkit.plot.warp_paths import divergence

__all__ = [
    "Bar",
    "Drawing",
    "Picture",
    "accuracy_by_seed",
    "agreement",
    "amdahl",
    "banks",
    "bits",
    "blocks_allowed",
    "break_even",
    "bytes_by_tokens",
    "curves",
    "divergence",
    "gantt",
    "gradients",
    "grey_images",
    "images",
    "jobs_by_device",
    "loses",
    "memory_timeline",
    "new_axes",
    "owners",
    "passes",
    "queue",
    "range_test",
    "ratios",
    "reached",
    "readings",
    "register_caps",
    "replays",
    "resize",
    "roofline",
    "scales",
    "seed_bands",
    "shares",
    "shortlist",
    "shortlist_of",
    "single_runs",
    "speed_bars",
    "speedup_by_ranks",
    "step_parts",
    "step_strip",
    "time_bounds",
    "time_by_size",
    "time_to_accuracy",
    "timeline",
    "to_png",
    "warp_lines",
]
