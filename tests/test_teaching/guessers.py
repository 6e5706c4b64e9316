"""Solvers that know nothing of the subject: each gives every option a number, and
chooses the greatest.
"""

import collections
import math
import re

HEDGES = {
    "may",
    "mostly",
    "most",
    "about",
    "some",
    "can",
    "often",
    "probably",
    "usually",
    "depends",
}
ABSOLUTES = {
    "all",
    "always",
    "never",
    "none",
    "every",
    "only",
    "nothing",
    "alone",
    "no",
    "any",
}


def words(text):
    return re.findall(r"[a-z_]+", text.lower())


def number(text):
    found = re.match(r"-?[\d,]+(\.\d+)?", text)
    return float(found[0].replace(",", "")) if found else None


def ranks(values):
    return [sorted(values).index(value) for value in values]


def by_rank(place):
    """The option whose number has this place among the four, from the least on; else
    whose length has it.
    """

    def guess(task, options):
        values = [number(option) for option in options]
        values = [len(option) for option in options] if None in values else values
        return [rank == place for rank in ranks(values)]

    return guess


def hedging(task, options):
    return [
        sum(word in HEDGES for word in words(o))
        - sum(word in ABSOLUTES for word in words(o))
        for o in options
    ]


RULES = {
    **{f"rank {place}": by_rank(place) for place in range(4)},
    "hedging": hedging,
}


def share_right(guess, questions):
    """The share that a guesser gets right of (task, options, place of the right one);
    ties count by their number.
    """
    score = 0.0
    for task, options, right in questions:
        values = list(guess(task, options))
        best = [place for place, value in enumerate(values) if value == max(values)]
        score += (right in best) / len(best)
    return score / len(questions)


def frequencies(questions):
    """A guesser that has counted how often whole options, and their words, are right in
    these questions.
    """
    right = collections.Counter()
    wrong = collections.Counter()
    for _, options, place in questions:
        for i, option in enumerate(options):
            (right if i == place else wrong).update({option, *words(option)})
    n = len(questions)
    m = sum(len(options) - 1 for _, options, _ in questions)

    def guess(task, options):
        return [
            sum(
                math.log((right[w] + 1) / (n + 2)) - math.log((wrong[w] + 1) / (m + 2))
                for w in {o, *words(o)}
            )
            for o in options
        ]

    return guess
