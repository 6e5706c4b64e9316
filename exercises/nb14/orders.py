"""The schedule puzzles of notebook 14: an order that the reader wrote, played and judged by time and by memory."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from labkit.core.display import brief_repr
from labkit.core.errors import ScheduleError
from labkit.core.units import format_seconds
from labkit.lesson.checks import NotYet, Todo, as_number, call, function, mapping
from labkit.plan import schedule
from labkit.plan.schedule import Timetable

RANKS, MICROBATCHES, HELD = 3, 5, 3
FORWARD_S, BACKWARD_S, WEIGHT_S = 0.02, 0.04, 0.02
_ROOM = 1.01  # an order may take 1 % longer than the textbook's, so that others as good as it count too
_SAVED = 0.5  # of the time that 1F1B is idle with free transfers
_KEYS = {"order": "a list of steps for each rank", "transfer_s": "the measured seconds of a transfer"}


def by_hand(answer: object) -> str:
    """14.3: a list for each rank, within the memory of 3 micro-batches and 1F1B's time, whatever the times are."""
    given = mapping(answer, _KEYS)
    order, transfer_s = given["order"], _transfer(given["transfer_s"])
    if order is None or (isinstance(order, Sequence) and any(steps is ... for steps in order)):
        raise Todo("Write the list of each rank in place of its dots.")
    draw = random.Random(1403)
    cases = [(FORWARD_S, BACKWARD_S, transfer_s)]
    for _ in range(3):
        forward_s = draw.uniform(0.01, 0.1)
        cases.append((forward_s, forward_s * draw.uniform(0.8, 3), forward_s * draw.uniform(0, 0.05)))
    for forward_s, backward_s, link_s in cases:
        play = functools.partial(schedule.simulate, forward_s=forward_s, backward_s=backward_s, transfer_s=link_s)
        played = _played(play, order, RANKS, MICROBATCHES, split=False)
        _judge_memory(played, HELD)
        best = play(schedule.one_f_one_b(RANKS, MICROBATCHES))
        _judge_time(
            played, _ROOM * best.makespan_s, f"F {_ms(forward_s)}, B {_ms(backward_s)}, transfers {_ms(link_s)}"
        )
    peak = f"{max(played.peak_activations):g}"
    return f"No rank ever holds more than {peak}, and at your transfers' cost as at three drawn ones it is in time."


def split(answer: object) -> str:
    """14.5: a rule that writes orders with W, which save half of 1F1B's idle time within its memory, at drawn times."""
    given = mapping(answer, _KEYS)
    rule, transfer_s = function(given["order"], 2, 4), _transfer(given["transfer_s"])
    draw = random.Random(1405)
    cases = [(4, 8, FORWARD_S, BACKWARD_S - WEIGHT_S, WEIGHT_S, transfer_s)]
    for ranks, microbatches in ((2, 5), (3, 7), (5, 12), (4, 4), (6, 9), (3, 2)):
        f = draw.uniform(0.01, 0.1)
        b, w = f * draw.uniform(0.9, 1.15), f * draw.uniform(0.9, 1.1)
        cases.append((ranks, microbatches, f, b, w, f * draw.uniform(0, 0.03)))
    for ranks, microbatches, f, b, w, link_s in cases:
        play = functools.partial(schedule.simulate, forward_s=f, backward_s=b + w, weight_s=w, transfer_s=link_s)
        where = f"With {ranks} ranks and {microbatches} micro-batches: "
        order = call(rule, ranks, microbatches)
        played = _played(play, order, ranks, microbatches, split=True, where=where)
        _judge_memory(played, min(ranks, microbatches), where)
        base = play(schedule.one_f_one_b(ranks, microbatches))
        # Time on the way can't be filled, so what 1F1B idles without it counts; and fewer micro-batches than ranks have
        # little to fill a bubble with: there, not slower is enough.
        idle_s = play(schedule.one_f_one_b(ranks, microbatches), transfer_s=0.0).bubble_s
        saved_s = _SAVED * idle_s if microbatches >= ranks else 0.0
        _judge_time(
            played,
            base.makespan_s - saved_s,
            f"F {_ms(f)}, B {_ms(b)}, W {_ms(w)}, transfers {_ms(link_s)}",
            where,
            base,
        )
    return "It saves half of 1F1B's idle time or more, within its memory, for 2 to 6 ranks and seven sets of times."


def _transfer(value: object) -> float:
    seconds = as_number(value, "s", "transfer_s")
    if not 0 <= seconds < math.inf:
        raise NotYet(f"Expected the measured seconds of a transfer as transfer_s, got {brief_repr(value)}.")
    return seconds


def _played(
    play: Callable[[Any], Timetable], order: Any, ranks: int, microbatches: int, *, split: bool, where: str = ""
) -> Timetable:
    """The order as it runs; NotYet says why it can't, or that it is one of another size or kind."""
    if order is None:
        raise _wrong(where, "your function returns nothing. Is there a return?")
    try:
        played = play(order)
    except ScheduleError as error:
        raise _wrong(where, str(error)) from error
    if played.ranks != ranks:
        raise _wrong(where, f"there are lists for {played.ranks} ranks, where {ranks} were asked for.")
    found = played.schedule.microbatches
    if found != microbatches:
        raise _wrong(where, f"it handles {found} micro-batches, where {microbatches} were asked for.")
    if played.schedule.chunks != 1:
        raise _wrong(where, "each rank has one part of the model here: leave the chunk behind the dot out.")
    if played.schedule.split and not split:
        raise _wrong(where, "there is a W in it. Here a B is the whole backward; section 5 splits it.")
    if split and not played.schedule.split:
        raise _wrong(where, "there is no W in it, so each B is the whole backward and nothing fills the bubble.")
    return played


def _judge_memory(played: Timetable, limit: int, where: str = "") -> None:
    for rank, held in enumerate(played.peak_activations):
        if held > limit + 1e-9:
            raise _wrong(
                where,
                f"over memory: rank {rank} holds {held:g} micro-batches at once, "
                f"{held - limit:g} more than the {limit} allowed. "
                f"{'A W' if played.schedule.split else 'A B'} frees one: put one in front of a later F.",
            )


def _judge_time(played: Timetable, limit_s: float, times: str, where: str = "", base: Timetable | None = None) -> None:
    if played.makespan_s <= limit_s * (1 + 1e-9):
        return
    over_s = played.makespan_s - limit_s
    idlest = max(range(played.ranks), key=lambda rank: played.idle_s[rank])
    beaten = "" if base is None else f" 1F1B takes {_ms(base.makespan_s)}."
    raise _wrong(
        where,
        f"over time: with {times} it takes {_ms(played.makespan_s)}, {_ms(over_s)} more than the "
        f"{_ms(limit_s)} allowed.{beaten} Rank {idlest} is idle longest, {_ms(played.idle_s[idlest])}: "
        "what could it do, or what does it wait for?",
    )


def _wrong(where: str, text: str) -> NotYet:
    return NotYet(f"{where}{text}" if where else text[:1].upper() + text[1:])


def _ms(seconds: float) -> str:
    return format_seconds(seconds)
