"""The check of exercise 12.3: all-reduce as a ring, on two to four real ranks, with every message counted."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from exercises.several_ranks import body, on_ranks
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, Todo

_LENGTHS = (12, 1001, 7, 5, 2, 1)  # divisible, not divisible, and shorter than the number of ranks
_SENDS, _RECEIVES = ("send",), ("recv_", "recv_any_source_")
_FLOAT64 = 8


@dataclass
class Seen:
    """One call on one rank: what went in and came out, which operators ran, and to whom how many bytes went."""

    given: list[float]
    result: list[float] | None
    others: list[str] = field(default_factory=list)
    sent: list[tuple[int, int]] = field(default_factory=list)


def ring(answer: object) -> str:
    """Sums on every rank, by messages between neighbours that carry 2 (n - 1) / n of the bytes."""
    fn = body(answer)
    for ranks in (2, 3, 4):
        seen = on_ranks(_observe, ranks, fn, time.time_ns())
        for i, length in enumerate(_LENGTHS):
            _judge([seen[rank][i] for rank in range(ranks)], f"{length} number{'s' * (length > 1)} on {ranks} ranks")
    return (
        "The sum is on every rank, for 1 to 1,001 numbers on 2, 3 and 4 ranks, by messages to one neighbour of "
        "2 (n - 1) / n of the bytes."
    )


def _observe(fn: Any, seed: int) -> list[Seen]:
    """Runs on each rank."""
    import torch
    import torch.distributed as dist
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Notes what torch.distributed is asked to do, however it was called."""

        def __init__(self, seen: Seen) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.seen = seen

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            space, _, name = func._schema.name.partition("::")
            if space == "c10d" and name in _SENDS:
                self.seen.sent.append((int(args[2]), sum(t.numel() * t.element_size() for t in args[0])))
            elif "c10d" in space and name not in _RECEIVES:
                self.seen.others.append(name.strip("_"))
            return func(*args, **(kwargs or {}))

    dist.init_process_group("gloo")
    all_seen = []
    for length in _LENGTHS:
        draw = torch.Generator().manual_seed((seed + 1000 * dist.get_rank() + length) % 2**63)
        x = torch.randn(length, generator=draw, dtype=torch.float64)
        seen = Seen(x.tolist(), None)
        with Watch(seen):
            result = fn(x)
        if isinstance(result, torch.Tensor):
            seen.result = result.detach().double().ravel().tolist()
        elif result is not None:
            raise TypeError(f"expected a tensor to come back, got {brief_repr(result)}")
        all_seen.append(seen)
        dist.barrier()  # no message of this tensor is taken for one of the next
    return all_seen


def _judge(seen: Sequence[Seen], given: str) -> None:
    ranks, length = len(seen), len(seen[0].given)
    if all(one.result is None for one in seen):
        raise Todo("ring_all_reduce returns nothing yet: return x, with the sum in it.")
    if others := [name for one in seen for name in one.others]:
        raise NotYet(f"It calls {others[0]}. Here only messages from one rank to another are allowed: isend and recv.")
    expected = [math.fsum(values) for values in zip(*(one.given for one in seen), strict=True)]
    right = [_close(one.result, expected) for one in seen]
    if not all(right):
        raise NotYet(f"For {given}: {_why(seen, expected, right)}")
    for rank, one in enumerate(seen):
        peers = {peer for peer, _ in one.sent}
        if len(peers) > 1 or (peers and peers.pop() not in ((rank + 1) % ranks, (rank - 1) % ranks)):
            raise NotYet(
                f"For {given}: rank {rank} sends to {sorted({peer for peer, _ in one.sent})}. In a ring each rank "
                "sends to one neighbour and receives from the other."
            )
    _judge_bytes(seen, ranks, length, given)


def _judge_bytes(seen: Sequence[Seen], ranks: int, length: int, given: str) -> None:
    most = max(sum(n for _, n in one.sent) for one in seen)
    allowed = 2 * (ranks - 1) * math.ceil(length / ranks) * _FLOAT64
    if most > allowed:
        whole = length * _FLOAT64
        raise NotYet(
            f"For {given}: the sum is right, but a rank sends {most} bytes, where a ring needs {allowed}, 2 (n - 1) "
            f"parts of {math.ceil(length / ranks)}. {_words_for_bytes(most, whole, ranks)}"
        )


def _words_for_bytes(most: int, whole: int, ranks: int) -> str:
    if most >= (ranks - 1) * whole:
        return "Whole tensors travel: send a part at a time, and add up on the way."
    return "Is a part sent twice, or padded?"


def _close(found: Sequence[float] | None, expected: Sequence[float]) -> bool:
    return (
        found is not None
        and len(found) == len(expected)
        and all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) for a, b in zip(found, expected, strict=True))
    )


def _why(seen: Sequence[Seen], expected: Sequence[float], right: Sequence[bool]) -> str:
    ranks, wrong = len(seen), right.index(False)
    found = seen[wrong].result
    if any(right):
        return f"rank {right.index(True)} has the sum, but rank {wrong} has not. Every rank needs it."
    if found is None or len(found) != len(expected):
        return f"rank {wrong} returned {0 if found is None else len(found)} numbers."
    if _close([ranks * value for value in found], expected):
        return "that is the average. All-reduce gives the sum here; who wants the mean divides afterwards."
    if _close(found, seen[wrong].given):
        return f"rank {wrong} returned what it was given."
    places = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if not math.isclose(a, b, rel_tol=1e-9)]
    return _why_some(seen, wrong, places, expected)


def _why_some(seen: Sequence[Seen], wrong: int, places: list[int], expected: Sequence[float]) -> str:
    """The result is right in part: which places are wrong, and how."""
    found = seen[wrong].result or []
    where = f"of rank {wrong}'s {len(expected)} numbers {len(places)} are wrong, the first at place {places[0]}"
    if all(math.isclose(found[i], 0.0, abs_tol=1e-300) for i in places):
        return f"{where}, where it has 0. Is a part never sent?"
    own = seen[wrong].given
    if all(math.isclose(found[i], own[i], rel_tol=1e-9) for i in places):
        parts = "the numbers left over where the length can't be divided" if places[0] >= len(own) // 2 else "a part"
        return f"{where}: they are what it was given, so {parts} never went round."
    return f"{where}: a part is added twice or to another part. Which one goes out in which step?"
