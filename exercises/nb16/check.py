"""Checks of notebook 16, the ladder of techniques. That of the search within a budget
is in search_budget.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from exercises.nb16.search_budget import search
from labkit.core.display import brief_repr
from labkit.core.units import format_si
from labkit.lesson.answers import judge_pair, mistake
from labkit.lesson.checks import NotYet, close, mapping, over_cases

Pair = tuple[Sequence[float], Sequence[float]]
Subset = frozenset[str]
Guesses = Sequence[tuple[float, float]]
_MEAN = (
    "It is the geometric mean, over all orders, of the seconds before it over those"
    " after it."
)


def kept(answer: object) -> str:
    """The sign test on pairs of seconds: 4 to 20 seeds, ties, and seeds that never
    reached the accuracy.
    """
    draw = random.Random(1602)
    cases = {
        "5 seeds, all a little faster": _pairs([0.99] * 5),
        "4 seeds, all much faster": _pairs([0.3] * 4),
        "5 seeds, one of them a little slower": _pairs([0.5, 0.4, 1.01, 0.5, 0.4]),
        "10 seeds, 9 faster": _pairs([0.97] * 9 + [1.5]),
        "10 seeds, 8 faster": _pairs([0.2] * 8 + [1.01] * 2),
        "8 seeds, one as fast as before": _pairs([0.9] * 7 + [1.0]),
        "8 seeds, all as fast as before": _pairs([1.0] * 8),
        "6 seeds, one of which never arrived with the rung": _pairs(
            [0.5] * 5 + [math.inf]
        ),
        "20 seeds, one of which never arrived with the rung": _pairs(
            [0.5] * 19 + [math.inf]
        ),
        "6 seeds, one of which never arrived without the rung": (
            [5.0, 6.0, 7.0, 8.0, 9.0, math.inf],
            [4.0] * 6,
        ),
        "8 seeds, each of which is faster, though most are slower than others were": (
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
            [0.9, 1.9, 2.9, 3.9, 4.9, 5.9, 6.9, 7.9],
        ),
    }
    for _ in range(12):
        n = draw.randrange(4, 21)
        faster = draw.randrange(n // 2, n + 1)
        cases[f"{n} seeds, {faster} faster"] = _pairs(
            [0.8] * faster + [1.2] * (n - faster), draw
        )
    over_cases(answer, cases, _kept, _judge_kept)
    return (
        "Right for 4 to 20 seeds, for ties, and for seeds that never reached the"
        " accuracy."
    )


def _pairs(ratios: Sequence[float], draw: random.Random | None = None) -> Pair:
    """Seconds without and with a rung, whose ratios are those given, for seeds that
    differ widely.
    """
    draw = draw or random.Random(len(ratios))
    ratios = draw.sample(ratios, len(ratios))
    before = [draw.uniform(1, 10) for _ in ratios]
    after = [seconds * ratio for seconds, ratio in zip(before, ratios, strict=True)]
    return before, after


def _by_chance(n: int, faster: int) -> float:
    return float(sum(math.comb(n, k) for k in range(faster, n + 1)) / 2**n)


def _kept(below_s: Sequence[float], rung_s: Sequence[float]) -> bool:
    faster = sum(rung < below for below, rung in zip(below_s, rung_s, strict=True))
    return all(map(math.isfinite, rung_s)) and _by_chance(len(rung_s), faster) < 0.05


def _judge_kept(
    got: Any, right: bool, case: str, below_s: Sequence[float], rung_s: Sequence[float]
) -> None:
    if getattr(got, "item", lambda: got)() not in (True, False):
        raise NotYet(f"For {case}: expected True or False, got {brief_repr(got)}.")
    if bool(got) == right:
        return
    if not all(map(math.isfinite, rung_s)):
        raise NotYet(
            f"For {case}: a rung with which a seed misses the accuracy can't stay,"
            " however fast it is."
        )
    n = len(rung_s)
    faster = sum(rung < below for below, rung in zip(below_s, rung_s, strict=True))
    word = "stays" if right else "goes"
    raise NotYet(
        f"For {case}: {faster} of {n} seeds are faster than the same seed without the"
        f" rung. Of the 2**{n} equally likely patterns of faster and slower,"
        f" {100 * _by_chance(n, faster):.1f} % have as many or more, so the rung"
        f" {word}."
    )


def fair_gains(answer: object) -> str:
    """Geometric means over all orders, for one to four techniques with and without
    interplay.
    """
    draw = random.Random(1604)
    cases = {}
    for names in ("a", "ab", "abc", "abcd", "abc", "xyz"):
        seconds = {on: draw.uniform(1, 10) for on in _subsets(names)}
        techniques = format_si(len(names), "techniques")
        cases[f"{techniques} and seconds of {len(seconds)} sets"] = (seconds,)
    factors = {"cache": 4.0, "batch": 2.0, "threads": 0.8}
    apart = {
        on: 12 / math.prod(factors[name] for name in on) for on in _subsets(factors)
    }
    replaced = {
        frozenset(): 8.0,
        frozenset({"workers"}): 4.0,
        frozenset({"cache"}): 2.0,
        frozenset({"workers", "cache"}): 2.0,
    }
    cases |= {
        "techniques that don't affect each other": (apart,),
        "a cache that replaces workers": (replaced,),
    }
    over_cases(answer, cases, _fair, _judge_fair)
    return (
        "Right for one to four techniques, also where one replaces another; the factors"
        " multiply to the whole."
    )


def _subsets(names: Any) -> list[Subset]:
    return [
        frozenset(some)
        for n in range(len(names) + 1)
        for some in itertools.combinations(sorted(names), n)
    ]


def _fair(seconds: Mapping[Subset, float]) -> dict[str, float]:
    names = sorted(frozenset().union(*seconds))
    orders = list(itertools.permutations(names))
    return {
        name: statistics.geometric_mean(
            seconds[frozenset(order[: order.index(name)])]
            / seconds[frozenset(order[: order.index(name) + 1])]
            for order in orders
        )
        for name in names
    }


def _judge_fair(
    got: object, right: dict[str, float], case: str, seconds: Mapping[Subset, float]
) -> None:
    gains = mapping(got, dict.fromkeys(right, "its gain"))
    every = frozenset(right)
    for name, gain in right.items():
        alone = seconds[frozenset()] / seconds[frozenset({name})]
        last = seconds[every - {name}] / seconds[every]
        mistakes = {
            1 / gain: "That is its inverse: seconds before over seconds after.",
            alone: "That is its gain alone, on top of nothing.",
            last: "That is its gain on top of all others, the last in every order.",
            gain
            ** math.factorial(
                len(right)
            ): "That is the product over all orders: take the root.",
        }
        where = f"{case}: technique {name!r}"
        hint = functools.partial(mistake, wrong=mistakes, otherwise=_MEAN)
        close("x", hint=hint)(gains[name], gain, where)


def calibrated(answer: object) -> str:
    """Share within a factor of 2 and the median ratio, for one guess, an even and an
    odd number of them.
    """
    draw = random.Random(1606)
    cases = {
        "guesses off by exactly 2": ([(10.0, 20.0), (10.0, 5.0), (10.0, 21.0)],),
        "one guess": ([(3.0, 12.0)],),
        "guesses in seconds and in FLOP": (
            [(1e-6, 2.5e-6), (4e12, 1e12), (2.0, 2.0), (1.0, 30.0)],
        ),
    }
    for n in (4, 5, 12, 31):
        guesses = [10 ** draw.uniform(-3, 6) for _ in range(n)]
        cases[f"{n} drawn guesses"] = (
            [(guess, guess * 10 ** draw.gauss(0.2, 0.4)) for guess in guesses],
        )
    over_cases(answer, cases, _calibrated, _judge_calibrated)
    return "Right for one guess and for many, of very different sizes."


def _calibrated(pairs: Guesses) -> tuple[float, float]:
    ratios = [measured / guess for guess, measured in pairs]
    return sum(0.5 <= ratio <= 2 for ratio in ratios) / len(ratios), statistics.median(
        ratios
    )


def _judge_calibrated(
    got: object,
    right: tuple[float, float],
    case: str,
    pairs: Sequence[tuple[float, float]],
) -> None:
    ratios = [measured / guess for guess, measured in pairs]
    below = sum(guess <= measured <= 2 * guess for guess, measured in pairs) / len(
        pairs
    )
    shares = {
        100 * right[0]: "A share is from 0 to 1.",
        below: "A guess that is twice the measurement counts as well.",
    }
    middles = {
        statistics.median(
            1 / ratio for ratio in ratios
        ): "That is guess / measured: turn it round.",
        statistics.fmean(
            ratios
        ): "That is the mean, which one wild guess decides: take the median.",
        statistics.median(m for _, m in pairs)
        / statistics.median(g for g, _ in pairs): "Take each guess's own ratio.",
    }
    factor = (
        "Within a factor of 2 is from half the guess to twice the guess, both included."
    )
    hints = (
        ("(no unit)", shares, factor),
        ("(no unit)", middles, "The median of the ratios measured / guess."),
    )
    judge_pair(got, right, case, "(share, middle ratio)", hints)


CHECKS = {"16.2": kept, "16.4": fair_gains, "16.5": search, "16.6": calibrated}
