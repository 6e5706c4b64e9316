"""Checks of notebook 14, how every stage is kept busy; the three schedules that the
reader writes are in schedules.
"""

from __future__ import annotations

import itertools
import random

from exercises.nb14.schedules import by_hand, folded, split
from exercises.stages import best_edges, sums
from labkit.core.units import format_seconds, format_si
from labkit.lesson.answers import mistake, whole_numbers
from labkit.lesson.checks import NotYet, close, over_cases


def bubble(answer: object) -> str:
    """The share of GPipe's time that a rank is idle, transfers included, for drawn
    numbers and at the edges.
    """
    draw = random.Random(1402)
    cases = [
        (1, 4, 1.0, 2.0, 0.0),
        (4, 1, 1.0, 2.0, 0.0),
        (3, 1, 0.02, 0.04, 0.01),
        (8, 64, 0.5, 0.5, 0.0),
    ]
    for _ in range(8):
        counts = draw.randrange(2, 17), draw.randrange(1, 65)
        cases.append(
            (
                *counts,
                draw.uniform(0.01, 1),
                draw.uniform(0.01, 2),
                draw.uniform(0, 0.1),
            )
        )
    over_cases(answer, cases, _bubble, close("(a share)", hint=_bubble_hint))
    return (
        "Right for 1 to 16 ranks, for one micro-batch and for many, with and without"
        " transfers."
    )


def _bubble(
    ranks: int,
    microbatches: int,
    forward_s: float,
    backward_s: float,
    transfer_s: float,
) -> float:
    idle_s = (ranks - 1) * (forward_s + backward_s + 2 * transfer_s)
    return idle_s / (idle_s + microbatches * (forward_s + backward_s))


def _bubble_hint(
    value: float,
    ranks: int,
    m: int,
    forward_s: float,
    backward_s: float,
    transfer_s: float,
) -> str:
    right = _bubble(ranks, m, forward_s, backward_s, transfer_s)
    both_s = forward_s + backward_s
    one_more_s = ranks * (both_s + 2 * transfer_s)
    wrong = {
        right / (1 - right): (
            "That is idle time over working time; a share of all time has both below"
            " the line."
        ),
        100 * right: "That is in percent; 0.25, not 25, is a quarter.",
        1 - right: "That is the share of time that a rank works.",
        _bubble(ranks, m, forward_s, backward_s, 0.0): (
            "That leaves the transfers out: the last rank's first input is "
            "on its way ranks - 1 times."
        ),
        _bubble(
            ranks, m, forward_s, backward_s, transfer_s / 2
        ): "Activations travel down the pipeline, and gradients travel back up.",
        one_more_s / (one_more_s + m * both_s): (
            "The first rank waits for nobody before it: count the ranks in front "
            "of the last one."
        ),
    }
    otherwise = (
        "How long does the last rank wait for its first F, and the first rank for its"
        " last B?"
    )
    return mistake(value, wrong, otherwise)


def balance(answer: object) -> str:
    """Layers cut into stages whose slowest is as quick as can be, for drawn times with
    a heavy end.
    """
    draw = random.Random(1406)
    cases = [
        ([1.0, 1.0, 1.0, 1.0, 1.0, 4.0], 2),
        ([5.0, 1.0, 1.0, 1.0, 1.0], 3),
        ([2.0, 1.0], 2),
        ([3.0, 1.0, 2.0], 1),
        ([1.0, 9.0, 1.0, 1.0], 3),
        ([0.5] * 7, 3),
        ([4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0], 4),
    ]
    for _ in range(12):
        layers = draw.randrange(4, 13)
        times = [
            draw.uniform(0.5, 1.5) * draw.choice([1, 1, 1, 3]) for _ in range(layers)
        ]
        cases.append((times, draw.randrange(2, min(layers, 5) + 1)))
    described = {
        f"layers of {', '.join(f'{t:.3g}' for t in times)} s on {n} ranks": (times, n)
        for times, n in cases
    }
    over_cases(
        answer,
        described,
        lambda seconds, ranks: best_edges(seconds, ranks),
        _judge_balance,
    )
    return (
        "The slowest stage is as quick as any cut allows, with heavy layers first, last"
        " and in between."
    )


def _judge_balance(
    got: object, best: list[int], case: str, times: list[float], ranks: int
) -> None:
    counts = whole_numbers(
        got, "a list with a whole number of layers for each rank", case
    )
    if len(counts) != ranks:
        raise NotYet(
            f"For {case}: {format_si(len(counts), 'numbers')}, but each of the {ranks}"
            f" ranks needs one: {counts}."
        )
    if sum(counts) != len(times):
        raise NotYet(
            f"For {case}: {counts} is {sum(counts)} layers. Each belongs to one stage."
        )
    if min(counts) < 1:
        raise NotYet(f"For {case}: {counts} leaves a rank without a layer.")
    stages = sums(times, [0, *itertools.accumulate(counts)])
    least = max(sums(times, best))
    mine = max(stages)
    if mine > least * (1 + 1e-9):
        fastest = [end - start for start, end in itertools.pairwise(best)]
        raise NotYet(
            f"For {case}: {counts} has a slowest stage of {format_seconds(mine)}, on"
            f" rank {stages.index(mine)}; {fastest} has one of {format_seconds(least)}."
            " The slowest stage sets the pace of all."
        )


CHECKS = {
    "14.2": bubble,
    "14.3": by_hand,
    "14.5": split,
    "14.5b": folded,
    "14.6": balance,
}
