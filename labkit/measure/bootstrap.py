"""The uncertainty of a ratio of two medians, or of a mean, by
resampling (bootstrap).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from labkit.core.display import brief_repr
from labkit.core.errors import BadMeasurement

_RESAMPLES = 2000


def median_ratio_interval(
    a: Sequence[float], b: Sequence[float]
) -> tuple[float, float]:
    """95 % expanded percentile bootstrap interval of median(a) / median(b), for at
    least 5 readings each.

    Series of equal length are resampled in pairs, so that a disturbance common to both
    cancels. From 16 readings on, blocks of neighbors are resampled, since a slow
    moment lasts for several readings; a disturbance longer than a block still makes the
    interval too narrow. Sources: Politis and Romano, A circular block-resampling
    procedure for stationary data (1992); Hesterberg, What teachers should know about
    the bootstrap (2015), for the expansion that few readings need. Raises
    BadMeasurement for a reading that isn't above 0: no ratio has an interval then.
    """
    import numpy as np

    for readings in (a, b):
        if not all(0 < reading < math.inf for reading in readings):
            raise BadMeasurement(
                "Expected readings above 0 for the interval of a ratio, got"
                f" {brief_repr(tuple(readings))}."
            )
    # fixed: the same readings give the same interval
    generator = np.random.default_rng(0)
    rows = _resampled_rows(len(a), generator)
    others = rows if len(a) == len(b) else _resampled_rows(len(b), generator)
    medians_a = np.median(np.asarray(a)[rows], axis=1)  # (resamples,)
    medians_b = np.median(np.asarray(b)[others], axis=1)  # (resamples,)
    blocks = min(len(a) // _block(len(a)), len(b) // _block(len(b)))
    return _interval(medians_a / medians_b, blocks)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % expanded percentile bootstrap interval of the mean of two or more
    independent values (Hesterberg, 2015). Raises BadMeasurement for a value that isn't
    finite.
    """
    import numpy as np

    if not all(map(math.isfinite, values)):
        raise BadMeasurement(
            "Expected finite numbers for the interval of a mean, got"
            f" {brief_repr(tuple(values))}."
        )
    n = len(values)
    rows = np.random.default_rng(0).integers(0, n, size=(_RESAMPLES, n))
    return _interval(np.asarray(values)[rows].mean(axis=1), n)


def resampled_interval(
    rows: Sequence[Sequence[float]], statistic: Callable[[Any], Any]
) -> tuple[float, float]:
    """95 % expanded percentile bootstrap interval of a statistic of two or more
    independent rows (Hesterberg, 2015).

    `statistic` takes samples of all rows, an array (samples, rows, columns), and gives
    a number for each sample. Samples without a finite one are left out; nan and nan if
    none has one.
    """
    import numpy as np

    values = np.asarray(rows, dtype=float)  # (rows, columns)
    n = len(values)
    places = np.random.default_rng(0).integers(0, n, size=(_RESAMPLES, n))
    with np.errstate(divide="ignore", invalid="ignore"):
        resampled = np.asarray(statistic(values[places]))  # (resamples,)
    finite = resampled[np.isfinite(resampled)]
    return _interval(finite, n) if len(finite) else (math.nan, math.nan)


def _interval(resampled: Any, blocks: int) -> tuple[float, float]:
    import numpy as np

    tail = 100 * _expanded_tail(blocks)
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return float(low), float(high)


def _resampled_rows(n: int, generator: Any) -> Any:
    """Indices of resampled readings, in blocks of neighbors: an array
    (resamples, n).
    """
    import numpy as np

    block = _block(n)
    blocks = math.ceil(n / block)
    starts = generator.integers(0, n, size=(_RESAMPLES, blocks))
    rows = (starts[:, :, None] + np.arange(block)) % n  # (resamples, blocks, block)
    return rows.reshape(_RESAMPLES, -1)[:, :n]


def _block(n: int) -> int:
    """Readings in a block: about the square root of their number, or one for fewer than
    16.
    """
    return round(n**0.5) if n >= 16 else 1


def _expanded_tail(blocks: int) -> float:
    """The share to cut off on each side: below 2.5 %, by as much as Student's t is
    wider for so few blocks.

    Source of the approximation to t: Abramowitz and Stegun, Handbook of mathematical
    functions (1964), 26.7.5.
    """
    normal = statistics.NormalDist()
    freedom = blocks - 1
    z = normal.inv_cdf(0.975)
    t = (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    )
    return normal.cdf(-t * (blocks / freedom) ** 0.5)
