"""The check of 17.4b: a function that finds ranks which are about to call different
collectives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from exercises.nb17 import health
from exercises.nb17.settings import Fault, Job
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, function

_SUM = ("all_reduce", (7019,))
_WAIT = ("barrier", ())
_OTHER = ("all_reduce", (1,))
_PART = 10  # steps after which rank 2 is alone with a checkpoint
# what differs, the calls by rank, the ranks to name
_CALLS: list[tuple[str, list[Any], tuple[int, ...]]] = [
    ("", [_SUM] * 4, ()),
    ("", [_WAIT] * 3, ()),
    ("", [_SUM], ()),
    ("another collective", [_SUM, _SUM, _WAIT, _SUM], (2,)),
    ("another collective", [_WAIT, _SUM, _SUM, _SUM], (0,)),
    ("it with a tensor of another shape", [_SUM, _SUM, _SUM, _OTHER], (3,)),
    ("another collective", [*[_SUM] * 12, _WAIT, *[_SUM] * 3], (12,)),
    ("another collective", [_SUM, _WAIT, _SUM, ("broadcast", (7019,)), _SUM], (1, 3)),
    ("another collective than the other half", [_SUM, _WAIT], ()),
]


class _Waits(BaseException):
    """A rank waits in gather with a value: no Exception, so that an answer's own
    `except` lets it pass.
    """


def _together(
    agree: Callable[..., object], calls: Sequence[object]
) -> list[BaseException | None]:
    """What the function raises on each rank; _Waits where it gathers more often than on
    the other ranks.
    """
    rounds: list[list[object]] = []
    for _ in range(8):
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
    """Judge `agree(call, gather)`: on made-up calls, then in the run
    that stands still.
    """
    agree = function(agree)
    for what, calls, odd in _CALLS:
        ends = _together(agree, calls)
        words = brief_repr(str(next(filter(None, ends), "")))
        if any(isinstance(end, _Waits) for end in ends):
            raise NotYet(
                "Some ranks call gather more often than others, a hang of its own: call"
                " it on every rank."
            )
        if other := next(
            (end for end in ends if end and not isinstance(end, RuntimeError)), None
        ):
            raise NotYet(
                f"Expected a RuntimeError or nothing, got {brief_repr(other)}."
            )
        if not what and any(ends):
            raise NotYet(
                f"All {len(calls)} ranks call the same, and it raises {words}."
            )
        if what and None in ends:
            raise NotYet(
                f"A rank calls {what}: rank {ends.index(None)} has to raise too, or it"
                " goes on and waits."
            )
        if odd and any(
            [*map(int, re.findall(r"\d+", str(end)))][: len(odd)] != [*odd]
            for end in ends
        ):
            raise NotYet(
                f"Rank {odd[0]} of {len(calls)} calls {what}: the message has to name"
                f" it first, got {words}."
            )
    launched = health.run(
        Job(on_all_ranks=("evaluation", "logging")), Fault(side_rank=2), guard=agree
    )
    if any(rank.lost_peer or not rank.error for rank in health.of(launched)):
        raise NotYet(
            "In the run that stands still, a rank still waits until its limit."
        )
    if (steps := health.steps(launched)) < _PART:
        raise NotYet(
            f"In the run that stands still, it raises after {steps} steps, where all"
            " ranks call the same."
        )
    error = health.of(launched)[0].error
    return f"Every rank raises at once, after {steps} steps: {error}"
