"""Figures and tables of notebook 21."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from exercises.nb15.figures import agreement, step_parts as step_parts
from labkit import plot
from labkit.core.display import Table
from labkit.measure import published
from labkit.plot import Picture
from trainplan import cluster, costs

_LINK_BYTES_PER_S = 90e9  # of a TPU v5p, one way
_HOP_S = 1e-6


def announced(family: str = "TPU") -> Table:
    """What vendors have announced of a family of chips that the catalog leaves out."""
    rows = [
        (row["name"], row["what"], f"{row['value']} {row['unit']}", row["announced"])
        for row in published.table("announced")
        if row["name"].startswith(family)
    ]
    links = {
        row["link"] for row in published.table("announced") if family in row["name"]
    }
    heads = ("announced, not measured", "", "", "at")
    return Table(tuple(rows), heads, notes=tuple(sorted(links)))


def all_reduce(
    torus_all_reduce_s: Callable[[float, tuple[int, ...], float, float], float],
) -> Picture:
    """Seconds of an all-reduce over 64 chips, by size: on a torus of TPUs v5p, in one
    ring of them, and over 8 nodes of 8 H100 as notebook 15's planner sees them.
    """
    h100s = cluster.Cluster("H100 SXM5 80GB", 64)
    link = cluster.group_link(h100s, 64, 1)
    ways: dict[str, Callable[[float], float]] = {
        "one ring of 64 (calculated)": lambda n: (
            2 * 63 * (n / 64 / (2 * _LINK_BYTES_PER_S) + _HOP_S)
        ),
        "64 H100 (the planner)": lambda n: costs.all_reduce_s(n, 64, link),
        "4 x 4 x 4 (yours)": lambda n: torus_all_reduce_s(
            n, (4, 4, 4), _LINK_BYTES_PER_S, _HOP_S
        ),
    }
    sizes = [10.0**power for power in range(3, 11)]
    seconds = {name: {n / 1e6: way(n) for n in sizes} for name, way in ways.items()}
    return plot.scales(seconds, x="MB", y="all-reduce over 64 chips", unit="s")


def planned(chips: Sequence[str]) -> Picture:
    """Steps of MaxText on each of the chips, published and as notebook 15's planner
    predicts them.
    """
    runs = cluster.published_steps("MaxText")
    tables = []
    for chip in chips:
        rows = tuple(row for row in runs.rows if row.by.cluster.gpu.name == chip)
        tables.append(replace(runs, name=chip, rows=rows))
    picture: Picture = agreement(tables, title="MaxText on TPUs")
    return picture
