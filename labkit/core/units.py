"""SI constants, and the formatting of seconds, bytes and rates. SI units inside the
package, formatting at the edge.
"""

from __future__ import annotations

import math
import re
from typing import Annotated

from labkit.core.parameters import AnyNumber, Number, checked

KILO = 1e3
MEGA = 1e6
GIGA = 1e9
TERA = 1e12
PETA = 1e15
KIB = 2**10
MIB = 2**20
GIB = 2**30
HOUR_S = 3600.0
DAY_S = 86_400.0
YEAR_S = 365.25 * 86_400.0

_PREFIXES = (
    (1e18, "E"),
    (PETA, "P"),
    (TERA, "T"),
    (GIGA, "G"),
    (MEGA, "M"),
    (KILO, "k"),
    (1.0, ""),
)
_LONG_TIMES = ((YEAR_S, "years"), (DAY_S, "days"), (HOUR_S, "h"), (60.0, "min"))
_SHORT_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_SIZES = ((2.0**40, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
# plurals of what has parts
_MEASURES = (
    "bytes",
    "days",
    "hours",
    "minutes",
    "nats",
    "points",
    "seconds",
    "times",
    "years",
)


@checked
def significant(
    value: AnyNumber, digits: Annotated[int, Number(least=1, most=17)] = 3
) -> str:
    """`value` with `digits` significant digits, no exponent, thousands separated:
    1234567 -> '1,230,000'.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


@checked
def format_seconds(seconds: AnyNumber) -> str:
    """A duration in seconds as text: 0.00123 -> '1.23 ms'. From two minutes on as
    minutes, hours, days or years.
    """
    for size, unit in _LONG_TIMES:
        if abs(seconds) >= 2 * size:
            return f"{significant(seconds / size)} {unit}"
    for size, unit in _SHORT_TIMES:
        if abs(seconds) >= size:
            return f"{significant(seconds / size)} {unit}"
    return "0 s" if seconds == 0 else f"{significant(seconds / 1e-9)} ns"


@checked
def format_bytes(n_bytes: AnyNumber) -> str:
    """A size in bytes as text, in powers of 1024: 3 * 2**30 -> '3.00 GiB'."""
    for size, unit in _SIZES:
        if abs(n_bytes) >= size:
            return f"{significant(n_bytes / size)} {unit}"
    return f"{n_bytes:,.0f} B"


@checked
def is_count(unit: str) -> bool:
    """Whether a unit names things that are counted, such as threads: neither a measure
    nor a rate nor a ratio.
    """
    return re.fullmatch(r"[a-z-]{3,}s", unit) is not None and unit not in _MEASURES


@checked
def format_si(value: AnyNumber, unit: str) -> str:
    """A quantity in powers of 1000: (2.1e12, 'FLOP/s') -> '2.10 TFLOP/s'; 4210 images/s
    as '4,210 images/s'.

    Counted things keep all digits up to a million: (16384, 'devices') -> '16,384
    devices'.
    """
    # "images/s" takes no prefix, "FLOP/s" does
    takes_prefix = unit and not unit[0].islower() and not unit.startswith("%")
    if takes_prefix:
        for size, prefix in _PREFIXES:
            if abs(value) >= size:
                return f"{significant(value / size)} {prefix}{unit}"
        return f"{significant(value)} {unit}"
    # a rate is measured, and has no more than three digits to give
    most = 1e3 if "/" in unit else 1e6
    is_thing = unit[:1].isalpha() and unit != "x"
    if is_thing and float(value).is_integer() and abs(value) < most:
        if value == 1 and (is_count(unit) or unit in _MEASURES):
            unit = re.sub("(?<=ch)es$|s$", "", unit)  # 1 sample, 1 branch, 1 point
        return f"{int(value):,} {unit}"  # 2 threads, not 2.00
    return f"{significant(value)} {unit}".strip()


@checked
def format_quantity(value: AnyNumber, unit: str) -> str:
    """A value with its unit, as a reader wants it: seconds, bytes, and everything else
    in powers of 1000.
    """
    if unit == "s":
        return format_seconds(value)
    if unit in ("B", "bytes"):
        return format_bytes(value)
    return format_si(value, unit)
