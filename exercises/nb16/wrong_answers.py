"""Plausible wrong answers of notebook 16: number -> (answer, words the check must say, misconception)."""

import itertools
import math
import statistics

# 16.2


def count(below_s, rung_s):
    return sum(rung < below for below, rung in zip(below_s, rung_s, strict=True))


def at_least(n, faster):
    return sum(math.comb(n, k) for k in range(faster, n + 1)) / 2**n


def arrived(rung_s):
    return max(rung_s) < math.inf


def majority(below_s, rung_s):
    return arrived(rung_s) and count(below_s, rung_s) > len(rung_s) / 2


def all_of_them(below_s, rung_s):
    return arrived(rung_s) and count(below_s, rung_s) == len(rung_s)


def both_sides(below_s, rung_s):
    return arrived(rung_s) and 2 * at_least(len(rung_s), count(below_s, rung_s)) < 0.05


def more_than_seen(below_s, rung_s):
    return arrived(rung_s) and at_least(len(rung_s), count(below_s, rung_s) + 1) < 0.05


def exactly_as_many(below_s, rung_s):
    n, faster = len(rung_s), count(below_s, rung_s)
    return arrived(rung_s) and faster > n / 2 and math.comb(n, faster) / 2**n < 0.05


def ignores_inf(below_s, rung_s):
    return at_least(len(rung_s), count(below_s, rung_s)) < 0.05


def by_medians(below_s, rung_s):
    return arrived(rung_s) and statistics.median(rung_s) < statistics.median(below_s)


def sorted_first(below_s, rung_s):
    return (
        arrived(rung_s)
        and at_least(len(rung_s), count([min(below_s)] * len(rung_s), rung_s)) < 0.05
    )


def ties_count(below_s, rung_s):
    faster = sum(rung <= below for below, rung in zip(below_s, rung_s, strict=True))
    return arrived(rung_s) and at_least(len(rung_s), faster) < 0.05


def large_gains_only(below_s, rung_s):
    return arrived(rung_s) and sum(rung_s) < 0.9 * sum(below_s)


# 16.4


def names_of(seconds):
    return sorted(max(seconds, key=len))


def each_alone(seconds):
    return {
        name: seconds[frozenset()] / seconds[frozenset({name})] for name in names_of(seconds)
    }


def each_last(seconds):
    every = frozenset(names_of(seconds))
    return {name: seconds[every - {name}] / seconds[every] for name in every}


def averaged(average, order_of=itertools.permutations):
    def fair_gains(seconds):
        ratios = {name: [] for name in names_of(seconds)}
        for order in order_of(names_of(seconds)):
            for i, name in enumerate(order):
                ratios[name].append(
                    seconds[frozenset(order[:i])] / seconds[frozenset(order[: i + 1])]
                )
        return {name: average(values) for name, values in ratios.items()}

    return fair_gains


def alone_and_last(seconds):
    alone, last = each_alone(seconds), each_last(seconds)
    return {name: math.sqrt(alone[name] * last[name]) for name in alone}


def over_sets(seconds):
    every = frozenset(names_of(seconds))
    gains = {}
    for name in every:
        without = [on for on in seconds if name not in on]
        gains[name] = statistics.geometric_mean(
            seconds[on] / seconds[on | {name}] for on in without
        )
    return gains


def changes_its_input(seconds):
    seconds.clear()
    return {}


# 16.5


def nothing(techniques, seconds, budget_s):
    return []


def everything(techniques, seconds, budget_s):
    seconds(techniques, 0)
    return techniques


def best_alone(techniques, seconds, budget_s):
    tried = {name: seconds([name], 0) for name in techniques}
    return [min((name for name in tried if tried[name][1]), key=lambda name: tried[name][0])]


def those_that_help_alone(techniques, seconds, budget_s):
    base = seconds([], 0)[0]
    tried = {name: seconds([name], 0) for name in techniques}
    return [name for name, (took_s, arrived) in tried.items() if arrived and took_s < base]


def climb(techniques, seconds, budget_s, seeds=(0, 1, 2), heeds=True, fresh=False):
    chosen, counter = [], itertools.count(100)
    before = [seconds(chosen, seed) for seed in seeds]
    for name in techniques:
        after = [seconds([*chosen, name], next(counter) if fresh else seed) for seed in seeds]
        faster = all(new[0] < old[0] for old, new in zip(before, after, strict=True))
        if faster and (not heeds or all(ok for _, ok in after)):
            chosen, before = [*chosen, name], after
    return chosen


def every_set(techniques, seconds, budget_s):
    sets = [
        some
        for n in range(len(techniques) + 1)
        for some in itertools.combinations(techniques, n)
    ]
    tried = {some: seconds(list(some), 0) for some in sets}
    return list(min((some for some in sets if tried[some][1]), key=lambda some: tried[some][0]))


def ignores_arrival(techniques, seconds, budget_s):
    base_s = seconds([], 0)[0]
    return [name for name in techniques if seconds([name], 0)[0] < 2.5 * base_s]


def reads_names(techniques, seconds, budget_s):
    seconds([], 0)
    return [name for name in techniques if name.startswith("helps")]


def one_letter(techniques, seconds, budget_s):
    seconds([], 0)
    return techniques[0][-1]


def over_budget(techniques, seconds, budget_s):
    for seed in range(100):
        seconds([], seed)
    return climb(techniques, seconds, budget_s)


def an_unknown_name(techniques, seconds, budget_s):
    seconds(["torch.compile"], 0)
    return []


def returns_seconds(techniques, seconds, budget_s):
    return seconds([], 0)[0]


def stops_at_the_first(techniques, seconds, budget_s):
    base = seconds([], 0)[0]
    for name in techniques:
        took_s, ok = seconds([name], 0)
        if ok and took_s < 0.9 * base:
            return [name]
    return []


# 16.6


def calibration(within, middle):
    def calibrated(pairs):
        return sum(within(guess, measured) for guess, measured in pairs) / len(pairs), middle(
            pairs
        )

    return calibrated


def half_to_twice(guess, measured):
    return guess / 2 <= measured <= 2 * guess


def ratios(pairs):
    return [measured / guess for guess, measured in pairs]


def median_ratio(pairs):
    return statistics.median(ratios(pairs))


STAYS, GOES = "so the rung stays", "so the rung goes"
WRONG = {
    "16.2": [
        (majority, GOES, "few-readings-decide"),
        (all_of_them, GOES, "few-readings-decide"),
        (both_sides, STAYS, "other-formula"),
        (more_than_seen, GOES, "off-by-one"),
        (exactly_as_many, GOES, "other-formula"),
        (
            ignores_inf,
            "a rung with which a seed misses the accuracy can't stay",
            "missed-target-is-fast",
        ),
        (by_medians, GOES, "pairs-mixed-up"),
        (sorted_first, STAYS, "pairs-mixed-up"),
        (ties_count, GOES, "off-by-one"),
        (large_gains_only, STAYS, "other-formula"),
        (lambda below_s, rung_s: True, "so the rung goes", "hard-coded"),
        (lambda below_s, rung_s: 0.03, "expected True or False", "result-of-another-kind"),
        (lambda below_s, rung_s: None, "expected True or False", "result-of-another-kind"),
    ],
    "16.4": [
        (each_alone, "That is its gain alone", "gain-has-no-order"),
        (each_last, "the last in every order", "gain-has-no-order"),
        (averaged(statistics.fmean), "geometric mean", "averaged-at-the-wrong-place"),
        (averaged(math.prod), "product over all orders", "other-formula"),
        (
            averaged(lambda values: 1 / statistics.geometric_mean(values)),
            "its inverse",
            "upside-down",
        ),
        (
            averaged(statistics.geometric_mean, lambda names: [names]),
            "That is its gain alone",
            "gain-has-no-order",
        ),
        (averaged(statistics.median), "geometric mean", "averaged-at-the-wrong-place"),
        (alone_and_last, "geometric mean", "gain-has-no-order"),
        (over_sets, "geometric mean", "mean-of-unequal-parts"),
        (changes_its_input, "missing", "input-is-mine"),
        (lambda seconds: None, "Expected a dict", "result-of-another-kind"),
        (lambda seconds: dict.fromkeys(names_of(seconds), 1.0), "geometric mean", "hard-coded"),
    ],
    "16.5": [
        (nothing, "nothing was tried", "does-less-work"),
        (
            lambda techniques, seconds, budget_s: seconds.__self__.names,
            "AttributeError",
            "goes-round-the-tool",
        ),
        (everything, "is in the result, and with it no training", "missed-target-is-fast"),
        (best_alone, "is missing", "gain-has-no-order"),
        (
            those_that_help_alone,
            "try each technique on top of what you keep",
            "gain-has-no-order",
        ),
        (climb, "try each technique on top of what you keep", "gain-has-no-order"),
        (lambda *given: climb(*given, fresh=True), "times as long as with", "pairs-mixed-up"),
        (every_set, "with a budget of", "other-formula"),
        (ignores_arrival, "is in the result, and with it no training", "missed-target-is-fast"),
        (reads_names, "is missing", "hard-coded"),
        (one_letter, "Expected a list of techniques out of", "result-of-another-kind"),
        (over_budget, "with a budget of", "other-formula"),
        (an_unknown_name, "Expected a list of techniques out of", "result-of-another-kind"),
        (returns_seconds, "Expected a list of techniques out of", "result-of-another-kind"),
        (stops_at_the_first, "is missing", "other-formula"),
    ],
    "16.6": [
        (
            calibration(lambda g, m: m <= 2 * g, median_ratio),
            "from half the guess to twice the guess",
            "other-formula",
        ),
        (
            calibration(lambda g, m: g <= m <= 2 * g, median_ratio),
            "A guess that is twice the measurement",
            "other-formula",
        ),
        (
            calibration(lambda g, m: g / 2 < m < 2 * g, median_ratio),
            "both included",
            "off-by-one",
        ),
        (
            calibration(lambda g, m: abs(m - g) <= g, median_ratio),
            "from half the guess",
            "other-formula",
        ),
        (
            lambda pairs: (100 * calibration(half_to_twice, median_ratio)(pairs)[0], 1.0),
            "A share is from 0 to 1",
            "wrong-unit",
        ),
        (
            calibration(half_to_twice, lambda pairs: 1 / median_ratio(pairs)),
            "turn it round",
            "upside-down",
        ),
        (
            calibration(half_to_twice, lambda pairs: statistics.fmean(ratios(pairs))),
            "take the median",
            "averaged-at-the-wrong-place",
        ),
        (
            calibration(half_to_twice, lambda pairs: statistics.geometric_mean(ratios(pairs))),
            "The median of the ratios",
            "averaged-at-the-wrong-place",
        ),
        (
            calibration(
                half_to_twice,
                lambda p: (
                    statistics.median(m for _, m in p) / statistics.median(g for g, _ in p)
                ),
            ),
            "own ratio",
            "pairs-mixed-up",
        ),
        (lambda pairs: 0.5, "expected (share, middle ratio)", "result-of-another-kind"),
        (lambda pairs: (0.5, 1.0), "from half the guess", "hard-coded"),
        (lambda pairs: None, "expected (share, middle ratio)", "result-of-another-kind"),
    ],
}
