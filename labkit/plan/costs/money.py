"""Money of a run, and what pays for itself. Definitions of units: 1 kWh = 3.6 MJ, a price a unit times units."""

from __future__ import annotations

import math

from labkit.core.arguments import check_number
from labkit.core.units import HOUR_S, KILO, YEAR_S

J_PER_KWH = KILO * HOUR_S


def electricity_usd(joules: float, *, usd_per_kwh: float) -> float:
    """Price in US$ of an amount of energy in joules. Raises BadArgument for negative amounts."""
    check_number("joules", joules, least=0)
    check_number("usd_per_kwh", usd_per_kwh, least=0)
    return joules / J_PER_KWH * usd_per_kwh


def run_cost_usd(seconds: float, *, usd_per_hour: float, devices: int = 1) -> float:
    """Rent in US$ of `devices` for `seconds` at a price per device and hour. Raises BadArgument for amounts below 0."""
    for name, amount in (("seconds", seconds), ("usd_per_hour", usd_per_hour), ("devices", devices)):
        check_number(name, amount, least=0)
    return seconds / HOUR_S * usd_per_hour * devices


def amortised_usd(price_usd: float, seconds: float, *, lifetime_years: float) -> float:
    """Share in US$ of a bought device's price that a run of `seconds` carries: straight-line depreciation.

    The device works all through its `lifetime_years`; electricity comes on top. Raises BadArgument for amounts below 0.
    """
    check_number("price_usd", price_usd, least=0)
    check_number("seconds", seconds, least=0)
    check_number("lifetime_years", lifetime_years, above=0)
    return price_usd * seconds / (lifetime_years * YEAR_S)


def break_even_steps(compile_s: float, eager_s: float, compiled_s: float) -> float:
    """The least whole number of steps after which compiling costs no more time than not compiling.

    `compile_s` are spent once, `eager_s` and `compiled_s` a step, all in seconds. inf where a compiled step is no
    faster and compiling costs time; 0 where compiling costs none and the step is at least as fast.
    From n * eager_s >= compile_s + n * compiled_s. Raises BadArgument for negative numbers, and steps of no time.
    """
    check_number("compile_s", compile_s, least=0)
    check_number("eager_s", eager_s, above=0)
    check_number("compiled_s", compiled_s, above=0)
    if compile_s == 0 and compiled_s <= eager_s:
        return 0
    if compiled_s >= eager_s:
        return math.inf
    return math.ceil(compile_s / (eager_s - compiled_s))
