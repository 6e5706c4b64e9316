"""Checks of notebook 15, a run on many GPUs; those on links and layouts are in topic15."""

from __future__ import annotations

import math
import random
from typing import Any

from exercises.nb15.topic import fits, place, two_level
from labkit.core.display import brief_repr
from labkit.core.units import DAY_S, HOUR_S
from labkit.lesson.checks import NotYet, as_number, call, function, mapping, number_close
from labkit.plan.costs.failures import checkpoint_interval_s, cluster_mtbf_s
from labkit.plan.costs.money import J_PER_KWH

_COSTS = {
    "days": "time of the run",
    "GPU hours": "hours times GPUs",
    "US$": "rent of all GPUs",
    "kWh": "energy of all GPUs",
}
_COST_HINTS = {
    "days": "6 FLOP a parameter and token, over gpus x flop_per_s x mfu, are seconds; a day has 86,400.",
    "GPU hours": "Every GPU is busy for the whole run: hours times gpus.",
    "US$": "usd_per_hour is the price of one GPU for an hour.",
    "kWh": "power_w is that of one GPU; W x hours / 1,000.",
}


def run_cost(answer: object) -> str:
    """Days, GPU hours, US$ and kWh of a run, from drawn numbers."""
    fn = function(answer, 7e9, 1e12, 64, 3e14, 0.4, 2.0, 400.0)
    draw = random.Random(1505)
    fixed = [(1e12, 2e13, 1, 1e15, 1.0, 0.0, 700.0), (1.0, 1.0, 3, 6.0, 0.5, 1.0, 1000.0)]
    drawn = [
        (
            draw.uniform(1, 500) * 1e9, draw.uniform(0.1, 15) * 1e12, draw.choice([8, 100, 1024, 16_384]),
            draw.uniform(1e14, 1e15), draw.uniform(0.2, 0.6), draw.uniform(0.5, 5), draw.uniform(200, 1000),
        )
        for _ in range(4)
    ]  # fmt: skip
    for params, tokens, gpus, flop_per_s, mfu, usd_per_hour, power_w in fixed + drawn:
        seconds = 6 * params * tokens / (gpus * flop_per_s * mfu)
        expected = {
            "days": seconds / DAY_S,
            "GPU hours": gpus * seconds / HOUR_S,
            "US$": gpus * seconds / HOUR_S * usd_per_hour,
            "kWh": gpus * power_w * seconds / J_PER_KWH,
        }
        numbers = (
            f"{params:.3g}, {tokens:.3g}, {gpus:,}, {flop_per_s:.3g}, {mfu:.2f}, {usd_per_hour:.2f}, {power_w:.0f}"
        )
        given = f"run_cost({numbers})"
        got = mapping(call(fn, params, tokens, gpus, flop_per_s, mfu, usd_per_hour, power_w), _COSTS)
        for name, value in expected.items():
            hint = _cost_hint(name, got[name], value, gpus, mfu)
            number_close(got[name], value, rel=1e-6, unit=name, given=given, hint=hint)
    return "Right for one GPU and for thousands, for drawn prices and powers, and where the rent is 0."


def _cost_hint(name: str, got: Any, expected: float, gpus: int, mfu: float) -> str:
    value = as_number(got, name)
    factors = {
        1 / 3: "2 FLOP a parameter and token are the forward pass alone; backward takes twice that, 6 in all.",
        mfu: "The GPUs reach mfu x flop_per_s: a lower share means a longer run.",
        mfu**2: "The GPUs reach mfu x flop_per_s: divide by mfu.",
        1 / gpus: "That is one GPU's part.",
        float(gpus): "gpus counts twice.",
    }
    for factor, words in factors.items():
        if factor != 1 and expected and math.isclose(value / expected, factor, rel_tol=1e-6):
            return words
    return _COST_HINTS[name]


def best_interval(answer: object) -> str:
    """Young's interval, from drawn times of saving, counts of GPUs and hours between failures."""
    fn = function(answer, 60.0, 1024, 50_000.0)
    draw = random.Random(1506)
    drawn = [(draw.uniform(5, 600), draw.choice([8, 1000, 16_384, 100_000]), draw.uniform(1e4, 1e5)) for _ in range(5)]
    for save_s, gpus, hours in [(60.0, 1, 50_000.0), (0.0, 1024, 50_000.0), *drawn]:
        between_s = cluster_mtbf_s(hours * HOUR_S, gpus)
        expected = checkpoint_interval_s(save_s, between_s, formula="young") if save_s else 0.0
        given = f"save_s={save_s:.3g}, gpus={gpus:,}, gpu_hours_between={hours:,.0f}"
        value = as_number(call(fn, save_s, gpus, hours), "s", given)
        if expected == 0:
            if value != 0:
                raise NotYet(f"For {given}: saving costs nothing, so save all the time: 0 s, got {brief_repr(value)}.")
            continue
        hint = _interval_hint(value, save_s, gpus, hours)
        number_close(value, expected, rel=1e-6, unit="s", given=given, hint=hint)
    return "Right for one GPU and for 100,000, and where saving costs nothing."


def _interval_hint(value: float, save_s: float, gpus: int, hours: float) -> str:
    between_s = cluster_mtbf_s(hours * HOUR_S, gpus)
    near = {
        math.sqrt(2 * save_s * hours * HOUR_S): "Any one GPU ends the run: with more GPUs, failures come more often.",
        math.sqrt(2 * save_s * hours / gpus): "The time between failures is in hours, the rest in seconds.",
        math.sqrt(save_s * between_s): "On average half an interval is lost, and not all of it: where is the 2?",
        2 * save_s * between_s: "The derivative of save_s / interval has the interval squared: take the root.",
        math.sqrt(2 * save_s * hours * HOUR_S * gpus): "With more GPUs failures come more often, and not more rarely.",
        math.sqrt(save_s * between_s / 2): "Set the derivative to 0: save_s / interval^2 = 1 / (2 between_s).",
        checkpoint_interval_s(save_s, between_s): "That is Daly's formula. The sum of both shares is least at Young's.",
        math.sqrt(2 * save_s * between_s) + save_s: "The seconds are those of work; the save itself isn't work.",
        between_s: "That is the time between failures. Saving as rarely would lose half of the run.",
    }
    for wrong, words in near.items():
        if math.isclose(value, wrong, rel_tol=1e-6):
            return words
    return "save_s / interval + interval / 2 / between_s is smallest where its derivative is 0."


CHECKS = {
    "15.1": two_level,
    "15.2": place,
    "15.4": fits,
    "15.5": run_cost,
    "15.6": best_interval,
}
