"""In how many checks of exercise 11.7 the plain training passes against itself, from
trainings that ran.

The plain training runs once from each of many seeds, on a split of its own. Two groups
of these are drawn, as many as a check has, and judged as if one of them were an answer:
again and again, without training anew. Target: below 1 %. Seconds are judged as they
were measured, and as images read at one rate, which no other program disturbs.

usage: python -m benchmarks.acceptance [TRAININGS]    40 by default, of a second or two
each
"""

from __future__ import annotations

import random
import statistics
import sys
from dataclasses import replace

from exercises.nb11 import time_to_accuracy
from exercises.nb11.time_to_accuracy import _judge, _renamed, _train
from labkit.lesson.checks import NotYet
from labkit.measure.contention import Contention
from labkit.measure.machine import threads
from labkit.train.training import Run

CHECKS = 10_000
SEEDS = 6, 8  # of a check: on a small profile, and else
TARGET = 0.01


def trainings(n: int, draw: random.Random) -> list[Run]:
    """The plain training from n seeds."""
    seeds = [draw.randrange(10**6) for _ in range(n)]
    with threads(1):
        return [
            _train(time_to_accuracy.baseline, seed, *_renamed(draw)) for seed in seeds
        ]


def accepted(runs: list[Run], seeds: int, draw: random.Random) -> float:
    """The share of checks that accept some of these runs against others of them."""
    count = 0
    for _ in range(CHECKS):
        both = draw.sample(runs, 2 * seeds)
        try:
            _judge(both[:seeds], both[seeds:])
        except NotYet:
            continue
        count += 1
    return count / CHECKS


def main() -> int:
    """Train, judge, and print the shares; the exit status is 1 if one
    is 1 % or more.
    """
    draw = random.Random(11)
    n = int(sys.argv[1]) if sys.argv[1:] else 40
    # a busy machine accepts nothing
    measured = [replace(run, contention=Contention()) for run in trainings(n, draw)]
    rate = statistics.median(run.rate for run in measured)
    by_images = [
        replace(run, seconds=tuple(images / rate for images in run.images))
        for run in measured
    ]
    ends_s = sorted(run.seconds[-1] for run in measured)
    print(
        f"{n} plain trainings took {ends_s[0]:.2f} to {ends_s[-1]:.2f} s, median"
        f" {statistics.median(ends_s):.2f} s"
    )
    shares = []
    for name, runs in (("as measured", measured), ("by images read", by_images)):
        for seeds in SEEDS:
            shares.append(accepted(runs, seeds, draw))
            print(
                f"{name}, {seeds} seeds: {100 * shares[-1]:.2f} % of {CHECKS:,} checks"
                " accept the plain training"
            )
    print(
        "The target is missed."
        if (missed := max(shares) >= TARGET)
        else "The target is met."
    )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
