"""The words of the verdict on claim C32, whether clusters and strong GPUs are essential for the largest models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_LONG = 10  # years


def because(years_on_one: float, device: str, years: Mapping[str, Sequence[float]]) -> str:
    """What was calculated: years on one device at its peak, and of each cluster (estimate, least, most) in years."""
    spans = ", ".join(f"{mid:.1f} ({least:.1f} to {most:.1f})" for mid, least, most in years.values())
    return f"calculated: {years_on_one:,.0f} years on one {device} at its peak; on {', '.join(years)}: {spans}"


def condition(weak: Sequence[float]) -> str:
    """What of the claim holds, by the years (estimate, least, most) that four times as many weak GPUs would take."""
    _, least, most = weak
    if least > _LONG:
        half = "and so are strong GPUs"
    elif most >= _LONG:
        half = "the interval doesn't tell whether strong GPUs are"
    else:
        half = "strong GPUs are not: more will do"
    return f"a trillion parameters, 20 tokens each: a cluster is essential, {half}"
