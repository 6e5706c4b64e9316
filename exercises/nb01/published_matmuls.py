"""The matrix products that others timed, each beside its device's peak."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from labkit.core.display import Shown
from labkit.core.units import TERA, format_si
from labkit.measure.published import table


@dataclass(frozen=True, repr=False)
class PublishedMatmul(Shown):
    """The best matmul rate that somebody found on a device, beside its vendor's dense
    peak; both in FLOP/s.
    """

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
        rate = format_si(self.flop_per_s, "FLOP/s")
        peak = format_si(self.peak_flop_per_s, "FLOP/s")
        return (
            f"{self.device}, {self.dtype}: {rate} of {peak} ({self.share:.0%}),"
            f" {self.source}"
        )


@functools.cache
def matmuls() -> tuple[PublishedMatmul, ...]:
    """Every row of the table "matmul_efficiency", in the file's order. Raises DataError
    for a damaged table.
    """
    return tuple(
        PublishedMatmul(
            device=row["gpu"],
            dtype=row["dtype"],
            flop_per_s=float(row["achieved_tflops"]) * TERA,
            peak_flop_per_s=float(row["peak_tflops"]) * TERA,
            shape=row["shape_mnk"],
            library=row["library"],
            source=row["source"],
        )
        for row in table("matmul_efficiency")
    )


def best(dtype: str) -> dict[str, PublishedMatmul]:
    """Device -> its row of `matmuls` in a format of the table, such as "bf16", made by
    torch.
    """
    return {
        row.device: row
        for row in matmuls()
        if row.dtype == dtype and "torch" in row.library
    }
