"""Energy and money of a run. Each formula is the definition of its unit: 1 kWh = 3.6 MJ, a price a unit times units."""

from __future__ import annotations

from labkit.core.arguments import as_float, check_number
from labkit.core.errors import BadArgument
from labkit.core.units import HOUR_S, KILO, YEAR_S

J_PER_KWH = KILO * HOUR_S


def _share(utilisation: float) -> float:
    if not 0 < (as_float(utilisation) or 0) <= 1:
        raise BadArgument(f"Expected a utilisation above 0 and up to 1, got {utilisation!r}. Write 60 % as 0.6.")
    return utilisation


def _not_negative(**amounts: float) -> None:
    for name, amount in amounts.items():
        check_number(name, amount, least=0)


def energy_j(power_w: float, seconds: float, *, utilisation: float = 1.0) -> float:
    """Energy in joules of `seconds` at `utilisation` (share of `power_w` drawn on average). Raises BadArgument."""
    _not_negative(power_w=power_w, seconds=seconds)
    return power_w * _share(utilisation) * seconds


def electricity_usd(joules: float, *, usd_per_kwh: float) -> float:
    """Price in US$ of an amount of energy in joules. Raises BadArgument for negative amounts."""
    _not_negative(joules=joules, usd_per_kwh=usd_per_kwh)
    return joules / J_PER_KWH * usd_per_kwh


def run_cost_usd(seconds: float, *, usd_per_hour: float, devices: int = 1) -> float:
    """Rent in US$ of `devices` devices for `seconds` at a price per device and hour. Raises BadArgument below 0."""
    _not_negative(seconds=seconds, usd_per_hour=usd_per_hour, devices=devices)
    return seconds / HOUR_S * usd_per_hour * devices


def amortised_usd(price_usd: float, seconds: float, *, lifetime_years: float, utilisation: float = 1.0) -> float:
    """Share in US$ of a bought device's price that a run of `seconds` carries: straight-line depreciation.

    `utilisation` is the share of its `lifetime_years` in which the device works at all. Electricity comes on top:
    electricity_usd(energy_j(...)). Raises BadArgument for a utilisation outside 0 to 1, and negative amounts.
    """
    _not_negative(price_usd=price_usd, seconds=seconds)
    check_number("lifetime_years", lifetime_years, above=0)
    return price_usd * seconds / (lifetime_years * YEAR_S * _share(utilisation))
