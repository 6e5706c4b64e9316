"""The check of exercise 12.3: all-reduce as a ring, on two to four real ranks, with
every message counted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from exercises.several_ranks import on_ranks
from labkit.core.display import brief_repr
from labkit.lesson.answers import about
from labkit.lesson.checks import NotYet, function
from steptime import EachOperator

# divisible, not divisible, and shorter than the number of ranks
_LENGTHS = (12, 1001, 7, 5, 2, 1)
_RECEIVES = ("recv_", "recv_any_source_")
_FLOAT64 = 8


@dataclass
class Reduction:
    """One call on one rank: what went in and came out, which other operators ran, and
    (peer, bytes) of each message.
    """

    given: list[float]
    result: list[float] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    sent: list[tuple[int, int]] = field(default_factory=list)


def ring_all_reduce(answer: object) -> str:
    """Sums on every rank, by messages between neighbors that carry 2 (n - 1) / n of
    the bytes.
    """
    for length, calls in on_ranks(
        function(answer), _observe, _LENGTHS, ranks=(2, 3, 4)
    ):
        with about(f"{length} number{'s' * (length > 1)} on {len(calls)} ranks"):
            _judge(calls)
    return (
        "The sum is on every rank, for 1 to 1,001 numbers on 2, 3 and 4 ranks: each"
        " sends at most 2 (n - 1) messages, all to one neighbor, with 2 (n - 1) / n of"
        " the bytes."
    )


def _noted(
    call: Reduction, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run an operator, and note it if it is one of torch.distributed, whichever
    function of Python calls it.
    """
    space, _, name = func._schema.name.partition("::")
    if space == "c10d" and name == "send":
        call.sent.append(
            (int(args[2]), sum(t.numel() * t.element_size() for t in args[0]))
        )
    elif "c10d" in space and name not in _RECEIVES:
        call.others.append(name.strip("_"))
    return func(*args, **kwargs)


def _observe(answer: Callable[..., object], length: int, seed: int) -> Reduction:
    draw = torch.Generator().manual_seed(seed + 2000 * dist.get_rank())
    x = torch.randn(length, generator=draw, dtype=torch.float64)
    call = Reduction(x.tolist())
    with EachOperator(functools.partial(_noted, call)):
        result = answer(x)
    if not isinstance(result, torch.Tensor):
        raise TypeError(f"expected a tensor to be returned, got {brief_repr(result)}")
    call.result = result.detach().double().ravel().tolist()
    return call


def _judge(calls: Sequence[Reduction]) -> None:
    ranks = len(calls)
    length = len(calls[0].given)
    if others := [name for call in calls for name in call.others]:
        raise NotYet(
            f"It calls {others[0]}. Here only messages from one rank to another are"
            " allowed: isend and recv."
        )
    expected = [
        math.fsum(values)
        for values in zip(*(call.given for call in calls), strict=True)
    ]
    right = [_close(call.result, expected) for call in calls]
    if not all(right):
        raise NotYet(f"{_wrong_sum(calls, expected, right)}")
    for rank, call in enumerate(calls):
        peers = sorted({peer for peer, _ in call.sent})
        if len(peers) > 1 or not set(peers) <= {(rank + 1) % ranks, (rank - 1) % ranks}:
            raise NotYet(
                f"rank {rank} sends to {peers}. In a ring each rank sends to one"
                " neighbor and receives from the other."
            )
    in_all = sum(n_bytes for call in calls for _, n_bytes in call.sent)
    # each number is added n - 1 times, and spread n - 1 times
    if in_all < 2 * (ranks - 1) * length * _FLOAT64:
        raise NotYet(
            f"the sum is right, but the messages carry {in_all} bytes in all, fewer"
            " than it takes to add and to spread every number. What else did the ranks"
            " exchange numbers through?"
        )
    messages = max(len(call.sent) for call in calls)
    if messages > 2 * (ranks - 1):
        raise NotYet(
            f"the sum is right, but a rank sends {messages} messages; a ring needs"
            f" {2 * (ranks - 1)}: n - 1 in each trip, and no part cut into smaller"
            " ones."
        )
    most = max(sum(n_bytes for _, n_bytes in call.sent) for call in calls)
    largest = math.ceil(length / ranks)
    allowed = 2 * (ranks - 1) * largest * _FLOAT64
    if most > allowed:
        whole = most >= (ranks - 1) * length * _FLOAT64
        raise NotYet(
            f"the sum is right, but a rank sends {most} bytes; a ring needs only"
            f" {allowed}, 2 (n - 1) parts of {largest}. "
            + (
                "Whole tensors travel: send one part at a time."
                if whole
                else "Is a part sent twice, or padded?"
            )
        )


def _close(got: Sequence[float], expected: Sequence[float]) -> bool:
    return len(got) == len(expected) and all(map(_same, got, expected))


def _same(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-9)


def _wrong_sum(
    calls: Sequence[Reduction], expected: Sequence[float], right: Sequence[bool]
) -> str:
    """What is wrong on the first rank with a wrong result."""
    wrong = right.index(False)
    result = calls[wrong].result
    own = calls[wrong].given
    if any(right):
        return (
            f"rank {right.index(True)} has the sum, but rank {wrong} doesn't. Every"
            " rank needs it."
        )
    if len(result) != len(expected):
        return f"rank {wrong} returned {len(result)} numbers."
    if _close([len(calls) * value for value in result], expected):
        return (
            "that is the average. All-reduce gives the sum here; divide afterwards if"
            " you want the mean."
        )
    if _close(result, own):
        return f"rank {wrong} returned what it was given."
    if all(
        math.isclose(*pair, rel_tol=1e-4, abs_tol=1e-4)
        for pair in zip(result, expected, strict=True)
    ):
        return (
            "it is right to some digits only. Keep x's dtype, float64 here, on the way."
        )
    places = [
        i
        for i, pair in enumerate(zip(result, expected, strict=True))
        if not _same(*pair)
    ]
    where = (
        f"of rank {wrong}'s {len(expected)} numbers {len(places)} are wrong, the first"
        f" at place {places[0]}"
    )
    if not any(result[i] for i in places):
        return f"{where}, where it has 0. Is a part never sent?"
    if all(_same(result[i], own[i]) for i in places):
        parts = (
            "the numbers left over because the length can't be divided evenly"
            if places[0] >= len(own) // 2
            else "a part"
        )
        return f"{where}: they are what it was given, so {parts} never went round."
    return (
        f"{where}: a part is added twice or to another part. Which one is sent in which"
        " step?"
    )
