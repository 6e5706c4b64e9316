"""The roofline: the highest rate of arithmetic that memory lets through, by FLOP per byte.

Source: S. Williams, A. Waterman and D. Patterson, Roofline: an insightful visual performance model for multicore
architectures, Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from trainplan.arguments import NonNegative, Positive, checked


@checked
def ridge_flop_per_byte(*, flop_per_s: Positive, bytes_per_s: Positive) -> float:
    """FLOP per byte above which arithmetic is the limit, not memory. Raises BadArgument for rates not above zero."""
    return flop_per_s / bytes_per_s


@checked
def intensity(*, flop: NonNegative, n_bytes: Positive) -> float:
    """Arithmetic intensity in FLOP per byte moved. Raises BadArgument for bytes not above zero."""
    return flop / n_bytes


@checked
def attainable_flop_per_s(flop_per_byte: NonNegative, *, flop_per_s: Positive, bytes_per_s: Positive) -> float:
    """Height of the roof in FLOP/s at an intensity in FLOP/byte. Raises BadArgument for rates not above zero."""
    return min(flop_per_s, flop_per_byte * bytes_per_s)
