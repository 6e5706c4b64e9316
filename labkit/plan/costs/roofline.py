"""The roofline: the highest rate of arithmetic that memory lets through, by FLOP per byte.

Source: S. Williams, A. Waterman and D. Patterson, Roofline: an insightful visual performance model for multicore
architectures, Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from labkit.core.arguments import check_number


def ridge_flop_per_byte(*, flop_per_s: float, bytes_per_s: float) -> float:
    """FLOP per byte above which arithmetic is the limit, not memory. Raises BadArgument for rates not above zero."""
    check_number("flop_per_s", flop_per_s, above=0)
    check_number("bytes_per_s", bytes_per_s, above=0)
    return flop_per_s / bytes_per_s


def intensity(*, flop: float, n_bytes: float) -> float:
    """Arithmetic intensity in FLOP per byte moved. Raises BadArgument for bytes not above zero."""
    check_number("n_bytes", n_bytes, above=0)
    return flop / n_bytes


def attainable_flop_per_s(flop_per_byte: float, *, flop_per_s: float, bytes_per_s: float) -> float:
    """Height of the roof in FLOP/s at an intensity in FLOP/byte. Raises BadArgument for rates not above zero."""
    check_number("flop_per_s", flop_per_s, above=0)
    check_number("bytes_per_s", bytes_per_s, above=0)
    return min(flop_per_s, flop_per_byte * bytes_per_s)
