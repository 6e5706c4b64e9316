"""The catalog of GPUs, TPUs and FPGAs: find a device in it, and show it as a table.

In a table, an asterisk marks a number that was not read from a source.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from gpufacts import DTYPES, Device, devices, find, peak
from labkit.core.arguments import lookup
from labkit.core.display import Table
from labkit.core.errors import LabError
from labkit.core.parameters import checked
from labkit.core.units import format_si

__all__ = ["DTYPES", "Device", "devices", "find", "peak", "table"]

COLUMNS = (
    "name",
    "year",
    "memory_bytes",
    "bandwidth_bytes_per_s",
    "float32",
    "float16",
    "tdp_w",
    "launch_price_usd",
)

_UNITS = {
    "boost_hz": "Hz",
    "memory_bytes": "B",
    "l2_bytes": "B",
    "bandwidth_bytes_per_s": "B/s",
    "interconnect_bytes_per_s": "B/s",
    "tdp_w": "W",
    "launch_price_usd": "US$",
} | dict.fromkeys(DTYPES, "FLOP/s")
_HEADINGS = {
    "memory_bytes": "memory",
    "bandwidth_bytes_per_s": "bandwidth",
    "tdp_w": "power",
    "boost_hz": "boost",
}
_HEADINGS |= {
    "launch_price_usd": "launch price",
    "interconnect_bytes_per_s": "interconnect",
    "l2_bytes": "L2",
}


def _cell(device: Device, column: str) -> str:
    value = peak(device, column) if column in DTYPES else getattr(device, column)
    if value is None:
        return "unknown"
    unit = "Op/s" if column == "int8" else _UNITS.get(column, "")
    star = "*" * (column in device.unread)
    if unit in ("US$", "W"):  # 1,500 US$, not 1.50 kUS$
        return f"{value:,.0f} {unit}{star}"
    return (format_si(value, unit) if unit else str(value)) + star


@checked
def table(
    among: Iterable[Device | str] | None = None, columns: Sequence[str] = COLUMNS
) -> Table:
    """Table of devices, given as such or by name (by default all), with fields of
    Device or dtypes as `columns`.

    A dtype's column has the device's `peak`. Raises LabError for other columns.
    """
    taken = dict.fromkeys(
        [*(field.name for field in dataclasses.fields(Device)), *DTYPES]
    )
    for column in columns:
        lookup(column, taken, "a column", LabError)
    chosen = devices() if among is None else tuple(map(find, among))
    rows = tuple(
        tuple(_cell(device, column) for column in columns) for device in chosen
    )
    starred = any(cell.endswith("*") for row in rows for cell in row)
    note = (
        "* recalled or derived, not read from a source. Peaks are dense."
        if starred
        else "Peaks are dense."
    )
    return Table(
        rows, tuple(_HEADINGS.get(column, column) for column in columns), notes=(note,)
    )
