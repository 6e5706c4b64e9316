"""Fit the constants of labkit.plan.cluster.constants, and print them beside those in use.

Links: the lines of lab.costs.fit_link through data/published/collectives_busbw_a100_h200.csv. Rates: the
three fitted fields of labkit.plan.cluster.constants, at once, to the 10 steps of megatron_table1.csv and the 139 of
llmfoundry_throughput_a100.csv; both tables weigh the same, and an error counts by its size, not its square, so that a
few odd rows (memory nearly full) don't decide. No other table takes part, whatever it would ask for.

usage: fit_cluster.py
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import sys
from collections.abc import Callable

import numpy as np

from labkit.plan.cluster.constants import CONSTANTS, NVLINK3, NVLINK4, Constants
from labkit.plan.cluster.validation import llmfoundry, megatron
from labkit.plan.costs.collectives import Link, fit_link
from labkit.plan.published import table

FITTED = ("sustained", "attention", "contention")
START = Constants(sustained=0.7, attention=0.5, contention=0.2)
_NVLS_FROM = 2**21  # bytes from which the H200 curve is NVLS, below it is a ring (column "algorithm")


def measured(gpu: str) -> list[tuple[float, float]]:
    """Points of bytes and seconds of the all-reduces over 8 GPUs that were timed at every size."""
    rows = [row for row in table("collectives_busbw_a100_h200") if row["gpu"] == gpu and row["time_us"]]
    return [(float(row["payload_bytes"]), 1e-6 * float(row["time_us"])) for row in rows]


def bus(algorithm: str) -> list[float]:
    """Bus bandwidths in bytes/s of H200 all-reduces of 8 GiB and more by an algorithm, on 4 to 8 GPUs."""
    rows = [row for row in table("collectives_busbw_a100_h200") if row["gpu"] == "H200 SXM" and not row["time_us"]]
    chosen = [row for row in rows if row["collective"] == "all-reduce" and row["algorithm"].startswith(algorithm)]
    return [1e9 * float(row["busbw_gbs"]) for row in chosen]


def links() -> dict[str, Link]:
    """NVLINK3 and NVLINK4 as fitted. The H200's ring was timed small, or huge: its bulk start is the A100's."""
    a100 = _line(measured("A100 SXM"), protocols=2)
    points = measured("H200 SXM")
    ring = _line([point for point in points if point[0] < _NVLS_FROM])
    switch = _line([point for point in points if point[0] >= _NVLS_FROM], "nvls", protocols=2)
    h200 = Link(a100.alpha_s, statistics.median(bus("Ring")), low_latency=ring, switch=switch)
    return {"NVLINK3": a100, "NVLINK4": h200}


def _line(points: list[tuple[float, float]], algorithm: str = "ring", protocols: int = 1) -> Link:
    sizes, seconds = [size for size, _ in points], [time for _, time in points]
    return fit_link(sizes, seconds, 8, algorithm=algorithm, protocols=protocols)


def residuals(constants: Constants) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of predicted over published of every step, and its weight: one over its table's length."""
    tables = (megatron(constants), llmfoundry(constants))
    weights = [np.full(len(each.rows), 1 / len(each.rows)) for each in tables]
    return np.array([math.log1p(row.error) for each in tables for row in each.rows]), np.concatenate(weights)


def loss(constants: Constants) -> float:
    """Mean size of the logarithm of predicted over published, the two tables' means added."""
    errors, weights = residuals(constants)
    return float(np.abs(errors) @ weights)


def fit(start: Constants = START, rounds: int = 15, change: float = 0.01) -> Constants:
    """Least sizes of errors by repeatedly weighted least squares over the logarithms of the fitted constants."""

    def moved(constants: Constants, by: dict[str, float]) -> Constants:
        return dataclasses.replace(constants, **{k: getattr(constants, k) * math.exp(v) for k, v in by.items()})

    now = start
    for _ in range(rounds):
        errors, weights = residuals(now)
        slopes = [(residuals(moved(now, {name: change}))[0] - errors) / change for name in FITTED]
        root = np.sqrt(weights / np.maximum(np.abs(errors), 0.01))
        found = np.linalg.lstsq(root[:, None] * np.stack(slopes, axis=1), -root * errors, rcond=None)[0]
        now = moved(now, dict(zip(FITTED, np.clip(found, -0.3, 0.3), strict=True)))
    return now


def main(say: Callable[[str], object] = sys.stdout.write) -> None:
    """Print what is fitted beside what is in use."""
    for (name, fitted), used in zip(links().items(), (NVLINK3, NVLINK4), strict=True):
        for part, ours, theirs in (
            ("bulk", fitted, used),
            ("low latency", fitted.low_latency, used.low_latency),
            ("switch", fitted.switch, used.switch),
            (
                "switch, low latency",
                fitted.switch and fitted.switch.low_latency,
                used.switch and used.switch.low_latency,
            ),
        ):
            if ours is not None and theirs is not None:
                say(f"{name} {part}: fitted {ours}; in use {theirs}\n")
    found = fit()
    for field in FITTED:
        say(f"{field}: fitted {getattr(found, field):.4g}, in use {getattr(CONSTANTS, field):.4g}\n")
    for constants in (found, CONSTANTS):
        say(f"loss {loss(constants):.5f}; {megatron(constants)}; {llmfoundry(constants)}\n")


if __name__ == "__main__":
    main()
