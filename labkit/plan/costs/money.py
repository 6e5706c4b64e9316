"""Money of a run, and what pays for itself. Definitions of units: 1 kWh = 3.6 MJ, a price a unit times units."""

from __future__ import annotations

import math

from labkit.core.parameters import NonNegative, Positive, Size, checked
from labkit.core.units import HOUR_S, KILO, YEAR_S

J_PER_KWH = KILO * HOUR_S


@checked
def electricity_usd(joules: NonNegative, *, usd_per_kwh: NonNegative) -> float:
    """Price in US$ of an amount of energy in joules. Raises BadArgument for negative amounts."""
    return joules / J_PER_KWH * usd_per_kwh


@checked
def run_cost_usd(seconds: NonNegative, *, usd_per_hour: NonNegative, devices: Size = 1) -> float:
    """Rent in US$ of `devices` for `seconds` at a price per device and hour. Raises BadArgument for amounts below 0."""
    return seconds / HOUR_S * usd_per_hour * devices


@checked
def amortised_usd(price_usd: NonNegative, seconds: NonNegative, *, lifetime_years: Positive) -> float:
    """Share in US$ of a bought device's price that a run of `seconds` carries: straight-line depreciation.

    The device works all through its `lifetime_years`; electricity comes on top. Raises BadArgument for amounts below 0.
    """
    return price_usd * seconds / (lifetime_years * YEAR_S)


@checked
def break_even_steps(compile_s: NonNegative, eager_s: Positive, compiled_s: Positive) -> float:
    """The least whole number of steps after which compiling costs no more time than not compiling.

    `compile_s` are spent once, `eager_s` and `compiled_s` a step, all in seconds. inf where a compiled step is no
    faster and compiling costs time; 0 where compiling costs none and the step is at least as fast.
    From n * eager_s >= compile_s + n * compiled_s. Raises BadArgument for negative numbers, and steps of no time.
    """
    if compile_s == 0 and compiled_s <= eager_s:
        return 0
    if compiled_s >= eager_s:
        return math.inf
    return math.ceil(compile_s / (eager_s - compiled_s))
