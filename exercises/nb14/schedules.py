"""Checks of notebook 14's schedules: one that the reader wrote, simulated and judged by
its time and its memory.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from labkit.core.display import brief_repr
from labkit.core.units import format_seconds
from labkit.lesson.answers import about
from labkit.lesson.checks import NotYet, Todo, as_number, call, function, mapping
from trainplan.errors import ScheduleError
from trainplan.schedule import Timetable, one_f_one_b, simulate

_RANKS = 3
_MICROBATCHES = 5
_HELD = 3
_FORWARD_S = 0.02
_BACKWARD_S = 0.04
_WEIGHT_S = 0.02
# a schedule may take 1 % longer than the textbook's, so that others as good as it count
# too
_ROOM = 1.01
_SAVED = 0.5  # of the time that 1F1B is idle with free transfers
_KEYS = {
    "order": "a list of steps for each rank",
    "transfer_s": "the measured seconds of a transfer",
}


def by_hand(answer: object) -> str:
    """14.3: a list for each rank, within the memory of 3 micro-batches and 1F1B's time,
    whatever the times are.
    """
    schedule, transfer_s = _given(answer)
    if schedule is None or (
        isinstance(schedule, Sequence) and any(steps is ... for steps in schedule)
    ):
        raise Todo("Replace the dots with the list of steps of each rank.")
    draw = random.Random(1403)
    cases = [(_FORWARD_S, _BACKWARD_S, transfer_s)]
    for _ in range(3):
        f = draw.uniform(0.01, 0.1)
        cases.append((f, f * draw.uniform(0.8, 3), f * draw.uniform(0, 0.05)))
    for f, b, link_s in cases:
        run = functools.partial(simulate, forward_s=f, backward_s=b, transfer_s=link_s)
        mine = _simulated(run, schedule, _RANKS, _MICROBATCHES, split=False)
        _judge_memory(mine, _HELD)
        base = run(one_f_one_b(_RANKS, _MICROBATCHES))
        _judge_time(
            mine, _ROOM * base.makespan_s, _times(F=f, B=b, transfers=link_s), base
        )
    peak = f"{max(mine.peak_activations):g}"
    return (
        f"No rank ever holds more than {peak}, and at your transfers' cost as at three"
        " drawn ones it is in time."
    )


def split(answer: object) -> str:
    """14.5: a rule whose schedules, with W, save half of 1F1B's idle time within its
    memory, at drawn times.
    """
    rule, transfer_s = _given(answer)
    fn = function(rule)
    draw = random.Random(1405)
    cases = [(4, 8, _FORWARD_S, _BACKWARD_S - _WEIGHT_S, _WEIGHT_S, transfer_s)]
    for ranks, microbatches in ((2, 5), (3, 7), (5, 12), (4, 4), (6, 9), (3, 2)):
        f = draw.uniform(0.01, 0.1)
        b = f * draw.uniform(0.9, 1.15)
        w = f * draw.uniform(0.9, 1.1)
        cases.append((ranks, microbatches, f, b, w, f * draw.uniform(0, 0.03)))
    for ranks, microbatches, f, b, w, link_s in cases:
        run = functools.partial(
            simulate, forward_s=f, backward_s=b + w, weight_s=w, transfer_s=link_s
        )
        with about(f"{ranks} ranks and {microbatches} micro-batches"):
            mine = _simulated(
                run, call(fn, ranks, microbatches), ranks, microbatches, split=True
            )
            _judge_memory(mine, min(ranks, microbatches))
            base = run(one_f_one_b(ranks, microbatches))
            # Waiting for a transfer can't be filled with work, so only what 1F1B idles
            # without transfers counts. With fewer micro-batches than ranks little work
            # can fill a bubble: there, being no slower is enough.
            idle_s = run(one_f_one_b(ranks, microbatches), transfer_s=0.0).bubble_s
            saved_s = _SAVED * idle_s if microbatches >= ranks else 0.0
            _judge_time(
                mine,
                base.makespan_s - saved_s,
                _times(F=f, B=b, W=w, transfers=link_s),
                base,
            )
    return (
        "It saves half of 1F1B's idle time or more, within its memory, for 2 to 6 ranks"
        " and seven sets of times."
    )


def folded(answer: object) -> str:
    """14.5b: a V on 2 ranks, with W, in which no rank idles between its steps, in the
    memory of 2 micro-batches.
    """
    if answer is ... or (
        isinstance(answer, Sequence) and any(steps is ... for steps in answer)
    ):
        raise Todo("Replace the dots with the list of steps of each rank.")
    # a second for each step
    run = functools.partial(simulate, forward_s=2.0, backward_s=4.0, placement="v")
    mine = _simulated(run, answer, 2, 3, split=True, chunks=2)
    _judge_memory(mine, 2)
    for rank, (starts, ends) in enumerate(zip(mine.starts_s, mine.ends_s, strict=True)):
        for code, start_s, free_s in zip(
            mine.schedule.steps[rank][1:], starts[1:], ends, strict=False
        ):
            if start_s > free_s + 1e-9:
                raise NotYet(
                    f"Rank {rank} idles before {mine.schedule.name(code)}, as long as"
                    f" {start_s - free_s:g} of its steps take: what it needs comes from"
                    " the other rank, or from its own other chunk. Put another step in"
                    " front of it, or let the other rank do sooner what is waited for."
                )
    return (
        "No rank idles between its first step and its last, and none ever holds more"
        " than 2 micro-batches."
    )


def _given(answer: object) -> tuple[Any, float]:
    fields = mapping(answer, _KEYS)
    transfer_s = as_number(fields["transfer_s"], "s", "transfer_s")
    if not 0 <= transfer_s < math.inf:
        raise NotYet(
            "Expected the measured seconds of a transfer as transfer_s, got"
            f" {brief_repr(transfer_s)}."
        )
    return fields["order"], transfer_s


def _simulated(
    run: Callable[[Any], Timetable],
    schedule: Any,
    ranks: int,
    microbatches: int,
    *,
    split: bool,
    chunks: int = 1,
) -> Timetable:
    """The schedule as it runs; NotYet says why it can't, or that it is one of another
    size or kind.
    """
    if schedule is None:
        raise NotYet("Your function returns nothing. Is there a return?")
    try:
        mine = run(schedule)
    except ScheduleError as error:
        raise NotYet(str(error)) from error
    order = mine.schedule
    if order.ranks != ranks:
        raise NotYet(
            f"There are lists for {order.ranks} ranks, but {ranks} were asked for."
        )
    if order.microbatches != microbatches:
        raise NotYet(
            f"It handles {order.microbatches} micro-batches, but {microbatches} were"
            " asked for."
        )
    if order.chunks != chunks:
        one_chunk = (
            "one part of the model here: leave out the dot and the chunk after it."
        )
        two_chunks = (
            "two chunks here, written as F0.0 and F0.1; there are steps of"
            f" {order.chunks}."
        )
        raise NotYet(f"Each rank has {one_chunk if chunks == 1 else two_chunks}")
    if order.split and not split:
        raise NotYet(
            "There is a W in it. Here a B is the whole backward; section 5 splits it."
        )
    if split and not order.split:
        raise NotYet(
            "There is no W in it, so each B is the whole backward and nothing fills the"
            " bubble."
        )
    return mine


def _judge_memory(mine: Timetable, limit: int) -> None:
    for rank, held in enumerate(mine.peak_activations):
        if held > limit + 1e-9:
            step = "A W" if mine.schedule.split else "A B"
            freed = "one" if mine.schedule.parts == 1 else "half of one"
            raise NotYet(
                f"Over memory: rank {rank} holds {held:g} micro-batches at once,"
                f" {held - limit:g} more than the {limit} allowed. {step} frees"
                f" {freed}: put one in front of a later F."
            )


def _judge_time(mine: Timetable, limit_s: float, times: str, base: Timetable) -> None:
    if mine.makespan_s > limit_s * (1 + 1e-9):
        idlest = max(range(mine.ranks), key=lambda rank: mine.idle_s[rank])
        over_s = mine.makespan_s - limit_s
        idle_s = mine.idle_s[idlest]
        raise NotYet(
            f"Over time: with {times} it takes {format_seconds(mine.makespan_s)},"
            f" {format_seconds(over_s)} more than the {format_seconds(limit_s)}"
            f" allowed. 1F1B takes {format_seconds(base.makespan_s)}. Rank {idlest} is"
            f" idle longest, {format_seconds(idle_s)}: what could it do, or what does"
            " it wait for?"
        )


def _times(**seconds: float) -> str:
    return ", ".join(
        f"{kind} {format_seconds(value)}" for kind, value in seconds.items()
    )
