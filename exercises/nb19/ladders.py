"""Ladders of others beside the reader's."""

from __future__ import annotations

from collections.abc import Mapping

from labkit.core.results import Measurement
from labkit.measure.bench import Ratio


def beside(mine: Mapping[str, Ratio], others: Mapping[str, Measurement]) -> dict[str, Ratio | Measurement]:
    """Published ratios, each below mine of the same rung, if there is one; for `lab.plot.ratios`."""
    rows: dict[str, Ratio | Measurement] = {}
    for what, other in others.items():
        if other.what in mine:
            rows[f"{other.what}, here"] = mine[other.what]
        rows[what] = other
    return rows
