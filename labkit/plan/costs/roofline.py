"""The roofline: how long work takes at least, given the rates of arithmetic and of memory.

Source: S. Williams, A. Waterman and D. Patterson, Roofline: an insightful visual performance model for multicore
architectures, Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from labkit.core.arguments import as_float
from labkit.core.errors import BadArgument


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (as_float(value) or 0) > 0:
            raise BadArgument(
                f"Expected {name} above zero, got {value!r}. Pass a rate that was measured or printed."
            )


def roofline_s(*, flop: float, n_bytes: float, flop_per_s: float, bytes_per_s: float) -> float:
    """Floor of the time in seconds of `flop` operations that move `n_bytes`: the slower of the two alone.

    Raises BadArgument for a rate that is not above zero.
    """
    _positive(flop_per_s=flop_per_s, bytes_per_s=bytes_per_s)
    return max(flop / flop_per_s, n_bytes / bytes_per_s)


def ridge_flop_per_byte(*, flop_per_s: float, bytes_per_s: float) -> float:
    """FLOP per byte above which arithmetic is the limit, not memory. Raises BadArgument like roofline_s."""
    _positive(flop_per_s=flop_per_s, bytes_per_s=bytes_per_s)
    return flop_per_s / bytes_per_s


def intensity(*, flop: float, n_bytes: float) -> float:
    """Arithmetic intensity in FLOP per byte moved. Raises BadArgument for bytes that are not above zero."""
    _positive(n_bytes=n_bytes)
    return flop / n_bytes


def attainable_flop_per_s(flop_per_byte: float, *, flop_per_s: float, bytes_per_s: float) -> float:
    """Height of the roof in FLOP/s at an intensity in FLOP/byte. Raises BadArgument like roofline_s."""
    _positive(flop_per_s=flop_per_s, bytes_per_s=bytes_per_s)
    return min(flop_per_s, flop_per_byte * bytes_per_s)
