"""The kernels that others timed, each beside what its trace's estimate calculates."""

from __future__ import annotations

import functools

from labkit.core.units import KILO
from labkit.measure.published import table
from trainplan.cluster import Agreement, Compared

_TIMES = ("published", "calculated", "low", "high")


@functools.cache
def published() -> tuple[Agreement[bool], ...]:
    """Seconds of kernels that others timed, and what lab.trace(...).estimate says:
    those fitted to, those held out.

    A row's `by` says if its time is inside the estimate's bounds. Source:
    "kernel_times" (kerneltrace_published/kernel_times.py).
    """
    rows: dict[str, list[Compared[bool]]] = {"": [], "yes": []}
    for row in table("kernel_times"):
        took, calculated, low, high = (
            float(row[f"{name}_ms"]) / KILO for name in _TIMES
        )
        comparison = Compared(
            f"{row['kernel']} on {row['device']}", calculated, took, low <= took <= high
        )
        rows[row["held_out"]].append(comparison)
    return Agreement("fitted to", "s", tuple(rows[""])), Agreement(
        "held out", "s", tuple(rows["yes"])
    )
