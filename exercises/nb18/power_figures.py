"""The error of 2 ** x by multiply-adds, beside what bfloat16 rounds away."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from exercises.nb18 import powers
from labkit.plot.core import Drawing, FigureSpec
from labkit.plot.style import LIMIT, MEASURED

ROUNDED = 2.0**-8
"""The most that rounding to bfloat16 changes a number by, as a share of it."""


@Drawing
def power_error(ax: Axes, power: Any) -> FigureSpec:
    """The relative error of a function of tiles, from 2 ** -3 to 2 ** 0."""
    x = np.linspace(-3, 0, 3 * powers.BLOCK)
    got, _ = powers.run(power, "numbers from -3 to 0", x)
    errors = np.abs(got / np.exp2(x) - 1)
    ax.plot(x, np.maximum(errors, 1e-8), color=MEASURED)
    ax.axhline(ROUNDED, color=LIMIT, linewidth=2)
    ax.text(
        -3, 1.3 * ROUNDED, "rounding to bfloat16, at most", va="bottom", color=LIMIT
    )
    ax.set_yscale("log")
    ax.set(xlabel="x", ylabel="error of 2 ** x, as a share", ylim=(1e-8, 0.1))
    return FigureSpec(
        f"The largest error is {errors.max():.2e} of the power, {ROUNDED:.1e} is what"
        " rounding to bfloat16 may add.",
        height_in=2.8,
    )
