"""Checks of notebook 15, a run on many GPUs; those on links and layouts are in topic15."""

from __future__ import annotations

import math
import random
from typing import Any

from labkit.arguments import shown
from labkit.checks import Exercise, NotYet, as_number, call, function, mapping, number_close
from labkit.costs.failures import checkpoint_interval_s, cluster_mtbf_s
from labkit.costs.money import J_PER_KWH
from labkit.exercises.topic15 import fits, place, two_level
from labkit.units import DAY_S, HOUR_S

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
                raise NotYet(f"For {given}: saving costs nothing, so save all the time: 0 s, got {shown(value)}.")
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


EXERCISES = {
    "15.1": Exercise(
        two_level,
        (
            "Three phases, one after the other: their times add up. Which link does each use, and for how many bytes?",
            "Inside, reduce-scatter and all-gather each make per_node - 1 hops. Between nodes a GPU has only "
            "n_bytes / per_node left to sum, and its ring has as many members as there are nodes.",
            "`2 * (per_node - 1) * (inside.alpha_s + n_bytes / per_node / inside.bytes_per_s)`, and the same with "
            "`nodes`, `between` and `n_bytes / per_node / nodes`.",
        ),
    ),
    "15.2": Exercise(
        place,
        (
            "Six orders are few: try them all and keep the fastest. `itertools.permutations(sent)` gives them.",
            "Go through an order from the inside and multiply the ranks up: as long as the product is at most "
            "per_node, the dimension stays inside the node.",
            "A function `seconds(order)` with a running product, then `min(permutations(sent), key=seconds)`.",
        ),
    ),
    "15.4": Exercise(
        fits,
        (
            "16 bytes a parameter, 69e9 parameters, 64 GPUs: how many ways must the weights' states be split at least?",
            "Tensor ranks stay inside a node of 8 and cost communication; a pipeline costs a bubble, which many "
            "micro-batches make small; ZeRO-1 splits the optimizer state over the data ranks at almost no cost.",
            "Try 4 tensor ranks, 2 to 4 stages, ZeRO-1 over the rest, micro-batch 1, and nothing recomputed.",
        ),
    ),
    "15.5": Exercise(
        run_cost,
        (
            "Seconds first: FLOP of the run over FLOP per second of all GPUs together.",
            "FLOP of the run: 6 a parameter and token. FLOP per second: gpus x flop_per_s x mfu.",
            "`hours = 6 * params * tokens / (gpus * flop_per_s * mfu) / 3600`; then hours / 24, gpus * hours, that "
            "times usd_per_hour, and that times power_w / 1000.",
        ),
    ),
    "15.6": Exercise(
        best_interval,
        (
            "Long intervals lose much at each failure, short ones save all the time: the sum of both shares has a "
            "minimum.",
            "The run fails when any GPU does: between_s = gpu_hours_between * 3600 / gpus. Then differentiate "
            "save_s / interval + interval / (2 between_s) by the interval.",
            "`math.sqrt(2 * save_s * between_s)`",
        ),
    ),
}  # fmt: skip
