"""Values and times as messages show them."""

from __future__ import annotations

import math

_UNITS = (("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


def shown(value: object) -> str:
    """A value as messages quote it: on one line of at most 60 characters."""
    words = " ".join(repr(value).split())
    return words if len(words) <= 60 else f"{words[:57]}..."


def format_seconds(seconds: float) -> str:
    """A duration of up to minutes as text of three digits: 0.00123 -> '1.23 ms'."""
    fitting = (pair for pair in _UNITS if seconds >= pair[1])
    unit, size = next(fitting, _UNITS[-1])
    amount = seconds / size
    decimals = 2 - math.floor(math.log10(amount)) if amount > 0 else 0
    return f"{round(amount, decimals):,.{max(decimals, 0)}f} {unit}"
