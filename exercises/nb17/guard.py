"""The check of 17.4b: a function that finds ranks which are about to call different collectives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from exercises.nb17 import health
from exercises.nb17.settings import Fault, Job
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, function

_SUM, _WAIT = ("all_reduce", (7019,)), ("barrier", (0,))
_AGREE: list[list[Any]] = [[_SUM] * 4, [_WAIT] * 3, [_SUM]]
_DIFFER: list[tuple[str, list[Any], tuple[int, ...]]] = [
    ("another collective", [_SUM, _SUM, _WAIT, _SUM], (2,)),
    ("another collective, and it is rank 0", [_WAIT, _SUM, _SUM, _SUM], (0,)),
    ("a tensor of another shape", [_SUM, _SUM, _SUM, ("all_reduce", (1,))], (3,)),
    ("another collective, among 16 ranks", [*[_SUM] * 12, _WAIT, *[_SUM] * 3], (12,)),
    ("other collectives", [_SUM, _WAIT, _SUM, ("broadcast", (7019,)), _SUM], (1, 3)),
    ("one of two collectives, and as many call each", [_SUM, _WAIT], ()),
]
_MOST_ROUNDS = 8


class _Waits(BaseException):
    """A rank waits in gather with a value: no Exception, so that an answer's own `except` lets it pass."""


def _together(agree: Callable[..., object], calls: Sequence[object]) -> list[BaseException | None]:
    """What the function raises on each rank; _Waits where it gathers more often than on the other ranks."""
    rounds: list[list[object]] = []
    for _ in range(_MOST_ROUNDS):
        ends: list[BaseException | None] = []
        for call in calls:
            replies = iter(rounds)

            def gather(value: object, replies: Any = replies) -> list[object]:
                for reply in replies:
                    return list(reply)
                raise _Waits(value)

            try:
                agree(call, gather)
                ends.append(None)
            except (Exception, _Waits) as error:
                ends.append(error)
        if not all(isinstance(end, _Waits) for end in ends):
            break
        rounds.append([end.args[0] for end in ends if end])
    return ends


def check(agree: object) -> str:
    """Judge `agree(call, gather)`: on made-up calls, then in the run that stands still."""
    agree = function(agree)
    for what, calls, odd in [*(("", each, ()) for each in _AGREE), *_DIFFER]:
        ends = _together(agree, calls)
        if any(isinstance(end, _Waits) for end in ends):
            raise NotYet(
                "Some ranks call gather more often than others, which is a hang of its own: call it on every rank."
            )
        if other := next((end for end in ends if end and not isinstance(end, RuntimeError)), None):
            raise NotYet(f"Expected a RuntimeError or nothing, got {brief_repr(other)}.")
        if not what and any(ends):
            raise NotYet(
                f"All {len(calls)} ranks call the same, and it raises {brief_repr(str(next(filter(None, ends))))}."
            )
        if what and (quiet := [i for i, end in enumerate(ends) if end is None]):
            raise NotYet(f"One rank or more call {what}: rank {quiet[0]} has to raise too, or it goes on and waits.")
        for end in ends if odd else ():
            if [int(number) for number in re.findall(r"\d+", str(end))][: len(odd)] != [*odd]:
                raise NotYet(
                    f"Rank {odd[0]} of {len(calls)} calls {what}, and the message has to name it first: {brief_repr(str(end))}."
                )
    fault = Fault(side_rank=2)
    launched = health.run(Job(on_all_ranks=("evaluation", "logging")), fault, guard=agree)
    if any(rank.lost_peer or not rank.error for rank in health.of(launched)):
        raise NotYet("In the run that stands still, a rank still waits until its limit.")
    return f"Every rank raises at once, after {health.steps(launched)} steps: {health.of(launched)[0].error}"
