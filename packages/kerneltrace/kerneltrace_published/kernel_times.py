"""Calculate kernel_times.csv anew, from traces of
tests/test_kerneltrace/published_kernels.py.

usage: python -m kerneltrace_published.kernel_times [--all]

It calculates the rows that are not held out, and prints the intervals that they
support. --all calculates those that are held out, too: no constant may be chosen with
them in view.
"""

from __future__ import annotations

import csv
import importlib
import math
import statistics
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from kerneltrace.judge.estimate import CLASSES

TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = ("calculated", "low", "high")
SHARE = 0.9
"""Of the rows that an interval should contain."""


def main() -> int:
    """Write the table's calculated columns and print the intervals; the exit status."""
    sys.path.insert(0, str(TABLE.parents[1] / "tests"))
    launches = importlib.import_module("test_kerneltrace.published_kernels").LAUNCHES
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if not row["held_out"] or "--all" in sys.argv:
            estimate = launches[row["kernel"]].estimate(row["device"])
            times_s = (estimate.seconds, *estimate.interval_s)
            row |= {
                f"{name}_ms": f"{1e3 * s:.4g}"
                for name, s in zip(COLUMNS, times_s, strict=True)
            }
            row["limit"] = estimate.limit
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(intervals(rows))
    return 0


def intervals(rows: Iterable[Mapping[str, str]]) -> dict[str, tuple[float, float]]:
    """For each class of limit the least and the most that published over calculated
    time is expected to be.

    For each source it takes the ratios of the other sources, and widens their middle
    SHARE until SHARE of the rows that were left out so are inside, summed over sources.
    Rows that are held out don't count.
    """
    ratios: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        if not row["held_out"]:
            ratio = float(row["published_ms"]) / float(row["calculated_ms"])
            ratios.setdefault(CLASSES.get(row["limit"], "arithmetic"), []).append(
                (row["source"], math.log(ratio))
            )
    return {name: _interval(found) for name, found in sorted(ratios.items())}


def _interval(found: list[tuple[str, float]]) -> tuple[float, float]:
    wider = 0.0
    while sum(
        _left_out(found, source, wider) for source in {source for source, _ in found}
    ) < SHARE * len(found):
        wider += 0.01
    low, high = _middle([ratio for _, ratio in found])
    return (
        math.floor(100 * math.exp(low - wider)) / 100,
        math.ceil(100 * math.exp(high + wider)) / 100,
    )


def _left_out(found: list[tuple[str, float]], source: str, wider: float) -> int:
    """How many rows of a source are inside the interval of the others, `wider` on both
    sides.
    """
    low, high = _middle([ratio for other, ratio in found if other != source])
    return sum(
        low - wider <= ratio <= high + wider
        for other, ratio in found
        if other == source
    )


def _middle(ratios: list[float]) -> tuple[float, float]:
    """Between which values SHARE of the ratios lie."""
    cuts = statistics.quantiles(ratios, n=20, method="inclusive")
    return cuts[0], cuts[-1]


if __name__ == "__main__":
    sys.exit(main())
