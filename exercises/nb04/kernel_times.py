"""The kernels that others timed, each beside what its trace's estimate calculates."""

from __future__ import annotations

import functools

from labkit.core.units import KILO
from labkit.measure.published import table
from trainplan.facts.agreement import Agreement, Compared


@functools.cache
def published() -> tuple[Agreement[str], ...]:
    """Seconds of kernels that others timed, an agreement for each author, and what lab.trace(...).estimate calculates.

    Each row's `by` is the device. Source: table "kernel_times", whose calculated column scripts/kernel_times.py writes.
    """
    by_author: dict[str, list[Compared[str]]] = {}
    for row in table("kernel_times"):
        calculated_s, published_s = float(row["calculated_ms"]) / KILO, float(row["published_ms"]) / KILO
        one = Compared(f"{row['kernel']} on {row['device']}", calculated_s, published_s, row["device"])
        by_author.setdefault(row["who"], []).append(one)
    return tuple(Agreement(who, "s", tuple(rows)) for who, rows in by_author.items())
