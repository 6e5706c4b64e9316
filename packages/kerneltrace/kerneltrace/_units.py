"""Durations in seconds and sizes in bytes as text."""

from __future__ import annotations

import math

_SECONDS = (
    (365.25 * 86_400, "years"),
    (86_400.0, "days"),
    (3600.0, "h"),
    (60.0, "min"),
)
_PARTS_OF_A_SECOND = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))


def significant(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, no exponent, thousands separated:
    1234567 -> '1,230,000'.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def format_seconds(seconds: float) -> str:
    """A duration in seconds as text: 0.00123 -> '1.23 ms'. From two minutes on as
    minutes, hours, days or years.
    """
    for size, unit in _SECONDS:
        if abs(seconds) >= 2 * size:
            return f"{significant(seconds / size)} {unit}"
    for size, unit in _PARTS_OF_A_SECOND:
        if abs(seconds) >= size:
            return f"{significant(seconds / size)} {unit}"
    return "0 s" if seconds == 0 else f"{significant(seconds / 1e-9)} ns"


def format_bytes(n_bytes: float) -> str:
    """A size in bytes as text, in powers of 1024: 3 * 2**30 -> '3.00 GiB'."""
    for size, unit in _BYTES:
        if abs(n_bytes) >= size:
            return f"{significant(n_bytes / size)} {unit}"
    return f"{n_bytes:,.0f} B"
