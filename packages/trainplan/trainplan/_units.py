"""Seconds, bytes and rates as text. Numbers are in SI units inside the package and
formatted at its edge.
"""

from __future__ import annotations

import math

KILO = 1e3
MEGA = 1e6
GIGA = 1e9
TERA = 1e12
MIB = 2**20

_SI = [
    (1e18, "E"),
    (1e15, "P"),
    (TERA, "T"),
    (GIGA, "G"),
    (MEGA, "M"),
    (KILO, "k"),
    (1.0, ""),
]
_IEC = [
    (2.0**50, "PiB"),
    (2.0**40, "TiB"),
    (2.0**30, "GiB"),
    (2.0**20, "MiB"),
    (2.0**10, "KiB"),
]
_LONG = [
    (365.25 * 86_400.0, "years"),
    (86_400.0, "days"),
    (3600.0, "h"),
    (60.0, "min"),
]
_SECONDS = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")]


def significant(value: float) -> str:
    """`value` with three significant digits, no exponent, thousands separated: 1234567
    -> '1,230,000'.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def format_seconds(seconds: float) -> str:
    """A duration in seconds as text: 0.00123 -> '1.23 ms'. From two minutes on as
    minutes, hours, days or years.
    """
    for size, unit in _LONG:
        if abs(seconds) >= 2 * size:
            return f"{significant(seconds / size)} {unit}"
    for size, unit in _SECONDS:
        if abs(seconds) >= size:
            return f"{significant(seconds / size)} {unit}"
    return "0 s" if seconds == 0 else f"{significant(seconds / 1e-9)} ns"


def format_bytes(n_bytes: float) -> str:
    """A size in bytes as text, in powers of 1024: 3 * 2**30 -> '3.00 GiB'."""
    for size, unit in _IEC:
        if abs(n_bytes) >= size:
            return f"{significant(n_bytes / size)} {unit}"
    return f"{n_bytes:,.0f} B"


def format_si(value: float, unit: str) -> str:
    """A quantity in powers of 1000, (2.1e12, 'FLOP/s') -> '2.10 TFLOP/s'; tokens and
    other words get no prefix.
    """
    if unit[0].islower():
        return f"{significant(value)} {unit}"
    for size, prefix in _SI:
        if abs(value) >= size:
            return f"{significant(value / size)} {prefix}{unit}"
    return f"{significant(value)} {unit}"
