"""Measurements that others published, read from data/published/ with their sources."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import DataError
from labkit.shown import Shown
from labkit.units import TERA, format_si

MATMULS = Path(__file__).parents[1] / "data" / "published" / "matmul_efficiency.csv"


@dataclass(frozen=True, repr=False)
class PublishedMatmul(Shown):
    """The best matmul rate that somebody found on a device, beside its vendor's dense peak; both in FLOP/s."""

    device: str
    dtype: str
    flop_per_s: float
    peak_flop_per_s: float
    shape: str
    library: str
    source: str

    @property
    def share(self) -> float:
        """Rate over peak, 0 to 1."""
        return self.flop_per_s / self.peak_flop_per_s

    def __str__(self) -> str:
        rate, peak = format_si(self.flop_per_s, "FLOP/s"), format_si(self.peak_flop_per_s, "FLOP/s")
        return f"{self.device}, {self.dtype}: {rate} of {peak} ({self.share:.0%}), {self.source}"


@functools.cache
def matmuls() -> tuple[PublishedMatmul, ...]:
    """Every row of data/published/matmul_efficiency.csv that was read from its source, in the file's order.

    Rows that were only recalled are left out. Raises DataError for a missing or damaged file.
    """
    try:
        with MATMULS.open(newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.DictReader(lines) if row["confidence"] == "read from source text"]
            return tuple(_matmul(row) for row in rows)
    except (OSError, KeyError, ValueError) as error:
        raise DataError(
            f"Expected published matmul rates at {MATMULS}, got {error!r}. Fetch the file from the repository again."
        ) from error


def _matmul(row: dict[str, str]) -> PublishedMatmul:
    return PublishedMatmul(
        device=row["gpu"],
        dtype=row["dtype"],
        flop_per_s=float(row["achieved_tflops"]) * TERA,
        peak_flop_per_s=float(row["peak_tflops"]) * TERA,
        shape=row["shape_mnk"],
        library=row["library"],
        source=row["source"],
    )
