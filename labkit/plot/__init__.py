"""One function a kind of figure. Each draws on axes and has a sentence that is shown below the figure.

Called plainly, `readings(timings, title="...")` returns a `Picture`, which a cell displays; called as
`readings.on(axes, timings)` it draws on axes that are there already, as the live boards do.

Four series always look the same: prediction (open diamond), limit (line), measured (solid, with its spread),
recorded or simulated (hatched bar or open square, its origin in the label). Bars stand on linear axes, points on
logarithmic ones. Colour is never the only mark.
"""

from labkit.plot.bars import PENDING, Bar, speed_bars
from labkit.plot.clusters import agreement, bytes_by_tokens, scales, speedup_by_ranks, step_parts
from labkit.plot.core import new_axes
from labkit.plot.formats import accuracy_by_seed, bits, gradients
from labkit.plot.hardware import jobs_by_device, reached, roofline, shortlist_of
from labkit.plot.images import grey_images, images, owners
from labkit.plot.kernel_limits import blocks_allowed, register_caps, time_bounds
from labkit.plot.kernels import banks, warp_lines
from labkit.plot.picture import Picture, to_png
from labkit.plot.profiles import memory_timeline, shares, step_strip
from labkit.plot.schedules import gantt, replays
from labkit.plot.timelines import queue, timeline
from labkit.plot.timing import amdahl, break_even, ratios, readings, single_runs
from labkit.plot.training import curves, rate_sweeps, seed_bands, time_to_accuracy
from labkit.plot.warp_paths import divergence

__all__ = [
    "PENDING",
    "Bar",
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
    "memory_timeline",
    "new_axes",
    "owners",
    "queue",
    "rate_sweeps",
    "ratios",
    "reached",
    "readings",
    "register_caps",
    "replays",
    "roofline",
    "scales",
    "seed_bands",
    "shares",
    "shortlist_of",
    "single_runs",
    "speed_bars",
    "speedup_by_ranks",
    "step_parts",
    "step_strip",
    "time_bounds",
    "time_to_accuracy",
    "timeline",
    "to_png",
    "warp_lines",
]
