"""Solvers that know nothing of the subject: each gives every option a number, and
chooses the greatest.
"""

import collections
import itertools
import math
import re
import statistics

HEDGES = {
    "may",
    "might",
    "mostly",
    "most",
    "about",
    "some",
    "can",
    "could",
    "often",
    "probably",
    "sometimes",
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
NEGATIONS = {"not", "no", "never", "none", "nothing", "nobody", "nowhere", "without"}
WHOLE = {"all", "none", "nothing", "both", "neither", "every", "each"}


def words(text):
    return re.findall(r"[a-z_]+", text.lower())


def number(text):
    found = re.match(r"-?\d[\d,]*(\.\d+)?", text)
    return float(found[0].replace(",", "")) if found else None


def numbers(text):
    return [float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def ranks(values):
    return [sorted(values).index(value) for value in values]


def sizes(options):
    """The options' numbers, or their lengths where one of them has none."""
    values = [number(option) for option in options]
    return [len(option) for option in options] if None in values else values


def by_rank(*places):
    """The option whose number, or else length, has one of these places among the four,
    from the least on.
    """

    def guess(task, options):
        return [rank in places for rank in ranks(sizes(options))]

    return guess


def by(count):
    """The option for which this is greatest, of its text alone."""
    return lambda task, options: [count(option) for option in options]


def opposite(guess):
    return lambda task, options: [-value for value in guess(task, options)]


def count_of(group):
    return lambda text: sum(
        word in group or word.endswith("n't") for word in text.lower().split()
    )


def hedging(task, options):
    return [
        sum(word in HEDGES for word in words(o))
        - sum(word in ABSOLUTES for word in words(o))
        for o in options
    ]


def odd_length(task, options):
    middle = statistics.median(map(len, options))
    return [abs(len(option) - middle) for option in options]


def overlap(task, options):
    """The share of an option's words that the task has."""
    asked = {word for word in words(task) if len(word) > 3}
    return [len(asked & set(words(o))) / (1 + len(set(words(o)))) for o in options]


def alike(task, options):
    """How many words an option shares with the other ones: wrong options are often
    made from the right one.
    """
    sets = [set(words(option)) for option in options]
    return [sum(len(own & other) for other in sets if other is not own) for own in sets]


SIMPLE = {1 / 4, 1 / 3, 1 / 2, 2, 3, 4, 8, 1 / 8, 10, 1 / 10}


def hub(task, options):
    """How many other options are a simple multiple or fraction of an option."""
    values = sizes(options)
    return [
        sum(
            any(math.isclose(a, b * ratio, rel_tol=0.01) for ratio in SIMPLE)
            for b in values
            if b is not a
        )
        for a in values
    ]


def between(task, options):
    """How near an option's number is to the others' geometric middle."""
    values = [math.log(abs(size) + 1e-3) for size in sizes(options)]
    return [-abs(value - statistics.mean(values)) for value in values]


def reached(task, options):
    """Whether a product or quotient of two or three of the task's numbers, up to a
    power of ten, is the option's number.
    """
    given = list(dict.fromkeys(n for n in numbers(task) if n))[:6]
    reach = set()
    for count in (2, 3):
        for group in itertools.combinations(given, min(count, len(given))):
            for signs in itertools.product((1, -1), repeat=len(group)):
                product = math.prod(n**s for n, s in zip(group, signs, strict=True))
                reach.add(math.log10(product) % 1)
    shown = [number(option) for option in options]
    return [bool(n) and _near(math.log10(abs(n)) % 1, reach) for n in shown]


def _near(part, reach):
    return any(min(abs(part - r), 1 - abs(part - r)) < 0.002 for r in reach)


def in_task(task, options):
    """Whether a number of the option stands in the task."""
    return [bool(set(numbers(o)) & set(numbers(task))) for o in options]


def digits(text):
    return len(re.sub(r"[^1-9]", "", text))


RULES = {
    **{f"rank {place}": by_rank(place) for place in range(4)},
    "a middle rank": by_rank(1, 2),
    "longest": by(len),
    "shortest": opposite(by(len)),
    "odd length": odd_length,
    "usual length": opposite(odd_length),
    "most words": by(lambda text: len(words(text))),
    "fewest words": opposite(by(lambda text: len(words(text)))),
    "hedging": hedging,
    "absolute": opposite(hedging),
    "negations": by(count_of(NEGATIONS)),
    "no negations": opposite(by(count_of(NEGATIONS))),
    "all or none": by(count_of(WHOLE)),
    "neither all nor none": opposite(by(count_of(WHOLE))),
    "commas": by(lambda text: text.count(",")),
    "no commas": opposite(by(lambda text: text.count(","))),
    "many digits": by(digits),
    "round": opposite(by(digits)),
    "overlap": overlap,
    "no overlap": opposite(overlap),
    "alike": alike,
    "unlike": opposite(alike),
    "hub": hub,
    "no hub": opposite(hub),
    "between": between,
    "apart": opposite(between),
    "reached": reached,
    "not reached": opposite(reached),
    "in the task": in_task,
    "not in the task": opposite(in_task),
    "called true": by(lambda text: text.startswith("True:")),
    "called not true": by(lambda text: text.startswith("Not true:")),
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


def verdicts(questions):
    """A guesser that has counted with which words a statement is true in these
    questions, and chooses among the options with the likelier verdict.
    """
    counts = {"True": collections.Counter(), "Not true": collections.Counter()}
    for task, options, place in questions:
        counts[options[place].split(":")[0]].update(set(words(task)))

    def guess(task, options):
        surplus = sum(
            math.log((counts["True"][w] + 1) / (counts["Not true"][w] + 1))
            for w in set(words(task))
        )
        return [surplus if o.startswith("True:") else -surplus for o in options]

    return guess
