"""What a pipeline schedule costs beside par, the shortest there is in its memory, and
beside the reader's bests.

Costs are counted in forwards: F takes one, B two, and transfers take nothing, so that
bests of different days and machines can be compared.
"""

from __future__ import annotations

import functools
import itertools

from labkit.core.display import Note
from labkit.core.parameters import Count, checked
from labkit.lesson import bests
from labkit.lesson.bests import Score
from trainplan.errors import ScheduleError
from trainplan.schedule import Schedule, Timetable, one_f_one_b, simulate

TIME = "time, in forwards"
HELD = "micro-batches held"
FORWARD = 1.0
BACKWARD = 2.0
MOST_TRIED = 10_000  # schedules, which take about a second


def in_forwards(schedule: Schedule) -> Timetable:
    """A schedule whose forwards take a second, with free transfers."""
    return simulate(schedule, FORWARD, BACKWARD)


def costs(plan: Timetable) -> dict[str, float]:
    """The counts of a plan in forwards, of which the first decides."""
    return {TIME: plan.makespan_s, HELD: max(plan.peak_activations)}


@checked(error=ScheduleError)
def par(ranks: Count, microbatches: Count, held: Count) -> dict[str, float]:
    """The counts of the shortest schedule in which no rank holds more than `held`
    micro-batches, and of those the one that holds least.

    All orders are tried in which each rank takes micro-batches in turn. From `ranks`
    held on, 1F1B is the shortest: no schedule can be shorter than the last rank's work
    with one micro-batch's way there and back. Raises ScheduleError where there are more
    than 10,000 orders to try.
    """
    return dict(_par(ranks, microbatches, held))


@functools.cache
def _par(ranks: int, microbatches: int, held: int) -> dict[str, float]:
    if held >= min(ranks, microbatches):
        return costs(in_forwards(one_f_one_b(ranks, microbatches)))
    orders = _orders(microbatches, held)
    if len(orders) ** ranks > MOST_TRIED:
        raise ScheduleError(
            f"Expected at most {MOST_TRIED:,} schedules to try, got"
            f" {len(orders) ** ranks:,} for {ranks} ranks and {microbatches}"
            f" micro-batches of which {held} are held. Take fewer."
        )
    tried = []
    for schedule in itertools.product(orders, repeat=ranks):
        try:
            plan = in_forwards(schedule)
        except ScheduleError:  # ranks that wait for each other
            continue
        tried.append(costs(plan))
    return min(tried, key=lambda counts: (counts[TIME], counts[HELD]))


def _orders(microbatches: int, held: int) -> list[list[str]]:
    """All orders of one rank's steps, with micro-batches in turn and at most `held` of
    them held.
    """
    orders: list[list[str]] = [[]]
    for _ in range(2 * microbatches):
        longer = []
        for steps in orders:
            forwards = sum(step[0] == "F" for step in steps)
            backwards = len(steps) - forwards
            if forwards < microbatches and forwards - backwards < held:
                longer.append([*steps, f"F{forwards}"])
            if backwards < forwards:
                longer.append([*steps, f"B{backwards}"])
        orders = longer
    return orders


@checked(error=ScheduleError)
def score(schedule: Schedule, *, held: Count) -> Score | Note:
    """Keep what a schedule costs if it is the reader's best, and show it beside par; a
    sentence where a rank holds too much.

    Raises ScheduleError for a schedule that can't run, and as `par` does.
    """
    plan = in_forwards(schedule)
    peaks = plan.peak_activations
    if max(peaks) > held:
        rank = peaks.index(max(peaks))
        return Note(
            f"Rank {rank} holds {max(peaks):g} micro-batches at once, and {held} are"
            " allowed: put a B in front of a later F."
        )
    order = plan.schedule
    size = f"{order.ranks} ranks, {order.microbatches} micro-batches"
    pars = par(order.ranks, order.microbatches, held)
    return bests.keep(f"14.3 at most {held} held", costs(plan), pars, size=size)


def in_words(scored: Score | Note) -> str:
    """One sentence on a score, for below a picture."""
    if isinstance(scored, Note):
        return str(scored)
    yours = scored.counts[TIME]
    best = scored.best.counts[TIME]
    return (
        f"In forwards, with free transfers: yours {yours:g}, par {scored.par[TIME]:g},"
        f" your best {best:g}."
    )
