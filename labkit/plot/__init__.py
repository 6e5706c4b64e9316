"""One function a kind of figure. Each draws on axes and has a sentence that is shown
below the figure.

Called plainly, `readings(timings, title="...")` returns a `Picture`, which a cell
displays; called as `readings.on(axes, timings)` it draws on axes that are there
already, as the live boards do.

Four series always look the same: prediction (open diamond), limit (line), measured
(solid, with its spread), recorded or simulated (hatched bar or open square, its origin
in the label). Bars stand on linear axes, points on logarithmic ones. Colour is never
the only mark.
"""

from labkit.plot.bars import PENDING as PENDING, Bar as Bar, speed_bars as speed_bars
from labkit.plot.core import new_axes as new_axes
from labkit.plot.images import grey_images as grey_images, images as images
from labkit.plot.lines import (
    bytes_by_tokens as bytes_by_tokens,
    curves as curves,
    scales as scales,
)
from labkit.plot.picture import (
    Picture as Picture,
    drop_pixels as drop_pixels,
    to_png as to_png,
)
from labkit.plot.schedules import gantt as gantt
from labkit.plot.timelines import queue as queue, timeline as timeline
from labkit.plot.timing import (
    amdahl as amdahl,
    break_even as break_even,
    ratios as ratios,
    readings as readings,
)
