"""Rates of a bus that others measured, for simulations to use."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import DataError
from labkit.shown import Shown
from labkit.units import format_si

_PUBLISHED = Path(__file__).parents[2] / "data" / "published" / "memcpy_bandwidth.csv"


@dataclass(frozen=True, repr=False)
class Bus(Shown):
    """A link between main memory and a GPU, and the copy rate that `source` measured on it."""

    link: str
    gpu: str
    bytes_per_s: float
    source: str

    def __str__(self) -> str:
        rate = format_si(self.bytes_per_s, "B/s")
        return f"{self.link} to {self.gpu}: {rate} from host to device (not measured here: {self.source})"


def published_bus(gpu: str, link: str) -> Bus:
    """The host-to-device copy rate published for a GPU on a link (data/published/memcpy_bandwidth.csv).

    Raises DataError, with what there is, for a pair that no published measurement has.
    """
    try:
        with open(_PUBLISHED, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if "host_to_device" in row["test"]]
    except OSError as error:
        raise DataError(f"{_PUBLISHED} can't be read ({error.strerror}). Fetch the repository again.") from error
    for row in rows:
        if (row["gpu"], row["link_or_memory"]) == (gpu, link):
            return Bus(link, gpu, float(row["bandwidth_gbs"]) * 1e9, row["source"])
    known = "; ".join(f"{row['gpu']} on {row['link_or_memory']}" for row in rows)
    raise DataError(f"No published copy rate for {gpu} on {link}. There are: {known}.")
