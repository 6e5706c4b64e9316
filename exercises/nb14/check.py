"""Checks of notebook 14, how every stage is kept busy; the two schedule puzzles are in orders14."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

from exercises.nb14.orders import by_hand, split
from labkit.core.arguments import is_whole
from labkit.core.display import brief_repr
from labkit.core.units import format_seconds
from labkit.lesson.checks import NotYet, as_number, call, function, number_close


def bubble(answer: object) -> str:
    """The share of GPipe's time that a rank is idle, transfers included, for drawn numbers and at the edges."""
    fn = function(answer, 4, 8, 1.0, 2.0, 0.1)
    draw = random.Random(1402)
    edges = [(1, 4, 1.0, 2.0, 0.0), (4, 1, 1.0, 2.0, 0.0), (2, 1, 0.02, 0.04, 0.01), (8, 64, 0.5, 0.5, 0.0)]
    drawn = [
        (
            draw.randrange(2, 17),
            draw.randrange(1, 65),
            draw.uniform(0.01, 1),
            draw.uniform(0.01, 2),
            draw.uniform(0, 0.1),
        )
        for _ in range(8)
    ]
    for ranks, m, forward_s, backward_s, transfer_s in edges + drawn:
        idle_s = (ranks - 1) * (forward_s + backward_s + 2 * transfer_s)
        work_s = m * (forward_s + backward_s)
        given = (
            f"ranks={ranks}, microbatches={m}, forward_s={forward_s:.3g}, backward_s={backward_s:.3g}, "
            f"transfer_s={transfer_s:.3g}"
        )
        value = as_number(call(fn, ranks, m, forward_s, backward_s, transfer_s), "(a share)", given)
        hint = _bubble_hint(value, ranks, m, forward_s, backward_s, transfer_s)
        number_close(value, idle_s / (idle_s + work_s), rel=1e-6, unit="(a share)", given=given, hint=hint)
    return "Right for 1 to 16 ranks, for one micro-batch and for many, with and without transfers."


def _bubble_hint(value: float, ranks: int, m: int, forward_s: float, backward_s: float, transfer_s: float) -> str:
    both = forward_s + backward_s
    idle_s, work_s = (ranks - 1) * (both + 2 * transfer_s), m * both

    def near(other: float) -> bool:
        return math.isclose(value, other, rel_tol=1e-6, abs_tol=1e-12)

    if near(idle_s / work_s):
        return "That is idle time over working time; a share of all time has both below the line."
    if near(100 * idle_s / (idle_s + work_s)):
        return "That is in percent; 0.25, not 25, is a quarter."
    if near(work_s / (idle_s + work_s)):
        return "That is the share of time that a rank works."
    if near((ranks - 1) / (m + ranks - 1)):
        return "That leaves the transfers out: the last rank's first input is on its way ranks - 1 times."
    if near((ranks - 1) * (both + transfer_s) / ((ranks - 1) * (both + transfer_s) + work_s)):
        return "Activations travel down the pipeline, and gradients travel back up."
    if near(ranks * (both + 2 * transfer_s) / (ranks * (both + 2 * transfer_s) + work_s)):
        return "The first rank waits for nobody before it: count the ranks in front of the last one."
    return "How long does the last rank wait for its first F, and how long is it done before the first rank's last B?"


def fewest(answer: object) -> str:
    """The smallest number of micro-batches within a bubble and a memory, for drawn sizes; None where there is none."""
    fn = function(answer, 24, 4, 0.4, 24)
    draw = random.Random(1404)
    cases = [(24, 4, 0.4, 24), (24, 4, 0.0, 24), (7, 2, 0.2, 7), (12, 1, 0.0, 12), (16, 4, 0.9, 7), (6, 8, 0.6, 6)]
    cases += [(64, 8, 0.25, 16), (64, 8, 0.01, 64), (60, 6, 0.2, 5), (37, 3, 0.5, 36)]
    # On the limit only where halves and quarters are exact, however the inequality is solved.
    cases += [(24, 4, 0.5, 24), (24, 5, 0.25, 10)]
    for _ in range(20):
        batch, ranks = draw.choice([24, 36, 60, 64, 96, 97, 128]), draw.randrange(1, 9)
        cases.append((batch, ranks, draw.choice([0.11, 0.22, 0.33, 0.5]), draw.randrange(2, batch + 1)))
    for batch, ranks, target, rows in cases:
        fits = [m for m in range(1, batch + 1) if not _unfit(m, batch, ranks, target, rows)]
        expected = min(fits, default=None)
        value = call(fn, batch, ranks, target, rows)
        if value is expected or (expected is not None and is_whole(value) and int(value) == expected):
            continue
        given = f"batch={batch}, ranks={ranks}, target={target:g}, rows={rows}"
        raise NotYet(f"For {given}: {_fewest_hint(value, expected, batch, ranks, target, rows)}")
    return "Right for 32 sizes, also where the batch doesn't divide and where no number will do."


def _unfit(m: int, batch: int, ranks: int, target: float, rows: int) -> str:
    """Why this number of micro-batches won't do; "" if it will."""
    if not 1 <= m <= batch or batch % m:
        return f"{batch} rows don't divide into {m} micro-batches of the same size"
    share = (ranks - 1) / (m + ranks - 1)
    if share > target + 1e-12:
        return f"its bubble is {share:.3g}, above the target of {target:g}"
    held = min(m, ranks) * batch // m
    return f"the first rank holds {held} rows, over the limit of {rows}" if held > rows else ""


def _fewest_hint(value: Any, expected: int | None, batch: int, ranks: int, target: float, rows: int) -> str:
    if value is None:
        return f"your function returned None, and {expected} micro-batches will do."
    if not is_whole(value):
        return f"expected a whole number or None, got {brief_repr(value)}."
    if why := _unfit(int(value), batch, ranks, target, rows):
        where = "None was expected: no number will do" if expected is None else f"{expected} will do"
        return f"{value} micro-batches won't do: {why}. {where}."
    return f"{value} micro-batches will do, and so will {expected}, which is fewer."


def balance(answer: object) -> str:
    """Layers cut into stages whose slowest is as quick as can be, for drawn times with a heavy end."""
    fn = function(answer, [1.0, 2.0, 3.0], 2)
    draw = random.Random(1406)
    cases: list[tuple[list[float], int]] = [
        ([1.0, 1.0, 1.0, 1.0, 1.0, 4.0], 2), ([5.0, 1.0, 1.0, 1.0, 1.0], 3), ([2.0, 1.0], 2), ([3.0, 1.0, 2.0], 1),
        ([1.0, 9.0, 1.0, 1.0], 3), ([0.5] * 7, 3), ([4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0], 4),
    ]  # fmt: skip
    for _ in range(12):
        layers = draw.randrange(4, 13)
        times = [draw.uniform(0.5, 1.5) * draw.choice([1, 1, 1, 3]) for _ in range(layers)]
        cases.append((times, draw.randrange(2, min(layers, 5) + 1)))
    for times, ranks in cases:
        given = f"{len(times)} layers on {ranks} ranks"
        counts = _counts(call(fn, list(times), ranks), len(times), ranks, given)
        _judge_balance(times, ranks, counts, given)
    return "The slowest stage is as quick as any cut allows, with heavy layers first, last and in between."


def _counts(value: Any, layers: int, ranks: int, given: str) -> list[int]:
    listed = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not all(is_whole(n) for n in listed):
        raise NotYet(
            f"For {given}: expected a list with a whole number of layers for each rank, got {brief_repr(value)}."
        )
    counts = [int(n) for n in listed]
    if len(counts) != ranks:
        raise NotYet(f"For {given}: {len(counts)} numbers, where each of the {ranks} ranks needs one: {counts}.")
    if sum(counts) != layers:
        raise NotYet(f"For {given}: {counts} is {sum(counts)} layers. Each belongs to one stage.")
    if min(counts) < 1:
        raise NotYet(f"For {given}: {counts} leaves a rank without a layer.")
    return counts


def _stages(times: Sequence[float], counts: Sequence[int]) -> list[float]:
    edges = [0, *itertools.accumulate(counts)]
    return [sum(times[a:b]) for a, b in itertools.pairwise(edges)]


def _judge_balance(times: list[float], ranks: int, counts: list[int], given: str) -> None:
    cuts = itertools.combinations(range(1, len(times)), ranks - 1)
    all_counts = ([b - a for a, b in itertools.pairwise((0, *cut, len(times)))] for cut in cuts)
    best = min(all_counts, key=lambda found: max(_stages(times, found)))
    least, mine = max(_stages(times, best)), max(stages := _stages(times, counts))
    if mine > least * (1 + 1e-9):
        raise NotYet(
            f"For {given}, of {', '.join(f'{t:.3g}' for t in times)} s: {counts} has a slowest stage of "
            f"{format_seconds(mine)}, on rank {stages.index(mine)}; {best} has one of {format_seconds(least)}. The "
            "slowest stage sets the pace of all."
        )


CHECKS = {
    "14.2": bubble,
    "14.3": by_hand,
    "14.4": fewest,
    "14.5": split,
    "14.6": balance,
}
