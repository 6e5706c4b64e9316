"""Seconds, bytes and rates as text, with three significant digits."""

from __future__ import annotations

import math
from collections.abc import Sequence

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def significant(value: float) -> str:
    """`value` with three significant digits, no exponent, thousands separated: 1234567
    -> '1,230,000'.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def format_seconds(seconds: float) -> str:
    """A duration in seconds as text: 0.00123 -> '1.23 ms'."""
    if not seconds:
        return "0 s"
    return _scaled(seconds, _SECONDS) or f"{significant(seconds / 1e-9)} ns"


def format_bytes(n_bytes: float) -> str:
    """A size in bytes as text, in powers of 1024: 3 * 2**30 -> '3.00 GiB'."""
    return _scaled(n_bytes, _BYTES) or f"{n_bytes:,.0f} B"


def format_si(value: float, unit: str) -> str:
    """A quantity in powers of 1000: (2.1e12, 'FLOP/s') -> '2.10 TFLOP/s'."""
    return (_scaled(value, _SI) or f"{significant(value)} ") + unit


def _scaled(value: float, sizes: Sequence[tuple[float, str]]) -> str:
    for size, unit in sizes:
        if abs(value) >= size:
            return f"{significant(value / size)} {unit}"
    return ""
