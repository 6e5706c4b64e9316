"""SI constants, and the formatting of seconds, bytes and rates. SI units inside the
package, formatting at the edge.
"""

from __future__ import annotations

import re
from typing import Annotated

from kerneltrace import units
from labkit.core.kinds import Number
from labkit.core.parameters import AnyNumber, checked
from trainplan.units import format_si as with_prefix

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

# plurals of what has parts
_MEASURES = ("bytes", "days", "minutes", "nats", "points", "times", "years")


@checked
def significant(
    value: AnyNumber, digits: Annotated[int, Number(least=1, most=17)] = 3
) -> str:
    """`value` with `digits` significant digits, no exponent, thousands separated:
    1234567 -> '1,230,000'.
    """
    return units.significant(value, digits)


@checked
def format_seconds(seconds: AnyNumber) -> str:
    """A duration in seconds as text: 0.00123 -> '1.23 ms'. From two minutes on as
    minutes, hours, days or years.
    """
    return units.format_seconds(seconds)


@checked
def format_bytes(n_bytes: AnyNumber) -> str:
    """A size in bytes as text, in powers of 1024: 3 * 2**30 -> '3.00 GiB'."""
    return units.format_bytes(n_bytes)


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
        return with_prefix(value, unit)
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
