"""Tokens travel to experts on other ranks: the check of exercise 13.9b, and the
exchange itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.core.display import Table, brief_repr
from labkit.core.units import format_bytes
from labkit.lesson.answers import about
from labkit.lesson.checks import NotYet, call, function

TOKENS = 256
EXPERTS = 64
TOP_K = 8
_WIDTH = 64
# chosen (tokens, k), experts on a rank, ranks
_BY_HAND: tuple[tuple[list[list[int]], int, int], ...] = (
    ([[0, 1], [0, 1], [0, 2]], 2, 4),
    ([[0, 1], [2, 3]], 2, 2),
    ([[5], [5], [0]], 3, 2),
    ([[3, 0, 1]], 1, 5),
    ([[1, 0], [0, 1]], 4, 1),
)


def rows_to_ranks(answer: object) -> str:
    """How many rows a rank sends to each rank, for drawn choices: tokens of several
    experts on a rank, ranks without any, the rank itself, and one rank alone.
    """
    fn = function(answer)
    draw = random.Random()
    cases = [(torch.tensor(rows), each, ranks) for rows, each, ranks in _BY_HAND]
    for _ in range(20):
        per_rank = draw.choice((1, 2, 3, 16))
        ranks = draw.choice((2, 3, 4, 8))
        experts = per_rank * ranks
        k = draw.randint(1, min(experts, 8))
        rows = [draw.sample(range(experts), k) for _ in range(draw.randint(1, 30))]
        cases.append((torch.tensor(rows), per_rank, ranks))
    for chosen, per_rank, ranks in cases:
        before = chosen.clone()
        with about(
            f"tokens that chose {brief_repr(chosen.tolist())}, {per_rank} experts a"
            f" rank and {ranks} ranks"
        ):
            _judge_rows(call(fn, chosen, per_rank, ranks), before, per_rank, ranks)
        if not torch.equal(chosen, before):
            raise NotYet("It has changed the tensor that it was given. Work on a copy.")
    return "One row for each rank that a token needs, for uneven choices and any k."


def _reached(chosen: Tensor, per_rank: int, ranks: int) -> Tensor:
    """Whether each token, (tokens, 1), has an expert on each rank: (tokens, ranks)."""
    places = chosen // per_rank  # (tokens, k)
    return (places[..., None] == torch.arange(ranks)).any(1)


def _judge_rows(got: Any, chosen: Tensor, per_rank: int, ranks: int) -> None:
    is_counts = isinstance(got, Tensor) and got.shape == (ranks,)
    if not is_counts or got.is_floating_point() or got.dtype == torch.bool:
        what = (
            f"{got.dtype} of shape {tuple(got.shape)}"
            if isinstance(got, Tensor)
            else brief_repr(got)
        )
        raise NotYet(f"expected a tensor of {ranks} integers, got {what}.")
    right = _reached(chosen, per_rank, ranks).sum(0)
    if torch.equal(got.long(), right):
        return
    copies = (chosen // per_rank).flatten().bincount(minlength=ranks)
    first = (chosen[:, 0] // per_rank).bincount(minlength=ranks)
    dealt = torch.stack([(chosen % ranks == rank).any(1) for rank in range(ranks)])
    wrong = [
        (copies, "A token goes to a rank once, however many of its experts are there."),
        (first, "A token's other experts need it too."),
        (dealt.sum(1), "Expert e is on rank e // per_rank; e % ranks deals them out."),
    ]
    for rank in range(ranks):
        others = right.clone()
        others[rank] = 0
        wrong.append((others, "The rows that stay on a rank count, too."))
    why = next((words for counts, words in wrong if torch.equal(got, counts)), "")
    raise NotYet(f"expected {right.tolist()} rows, got {got.tolist()}. {why}".rstrip())


class Dispatch(NamedTuple):
    """Bytes of tokens that a rank sent to others: a copy for each expert, and one for
    each rank.
    """

    copies_bytes: int
    once_bytes: int


def dispatch(rows_to: Callable[[Tensor, int, int], Tensor]) -> Dispatch:
    """Runs on each rank: send its tokens to drawn experts, in both ways.

    RuntimeError where `rows_to` doesn't say how many rows leave.
    """
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ranks = dist.get_world_size()
    draw = torch.Generator().manual_seed(rank)
    x = torch.randn(TOKENS, _WIDTH, generator=draw)
    scores = torch.rand(TOKENS, EXPERTS, generator=draw)
    chosen = scores.topk(TOP_K).indices  # (tokens, k)
    per_rank = EXPERTS // ranks
    places = chosen // per_rank  # (tokens, k)
    copies = [x[(places == place).nonzero()[:, 0]] for place in range(ranks)]
    reached = _reached(chosen, per_rank, ranks)
    once = [x[reached[:, place]] for place in range(ranks)]
    sent_rows = [len(rows) for rows in once]
    expected = rows_to(chosen, per_rank, ranks).tolist()
    if expected != sent_rows:
        raise RuntimeError(f"Expected {sent_rows} rows to leave, got {expected}.")
    return Dispatch(_sent_bytes(copies, rank), _sent_bytes(once, rank))


def _sent_bytes(parts: list[Tensor], rank: int) -> int:
    """Send a part to each rank, and count the bytes that leave this one."""
    sent = torch.tensor([len(part) for part in parts])
    arriving = torch.empty_like(sent)
    dist.all_to_all_single(arriving, sent)
    arrived = torch.empty(int(arriving.sum()), _WIDTH)
    dist.all_to_all_single(arrived, torch.cat(parts), arriving.tolist(), sent.tolist())
    return sum(part.nbytes for place, part in enumerate(parts) if place != rank)


def table(sent: tuple[Dispatch, ...]) -> Table:
    """The bytes that each rank sent, and what drawn experts make one expect."""
    ranks = len(sent)
    row_bytes = 4 * _WIDTH
    others = (ranks - 1) / ranks
    reached = ranks * (1 - (1 - 1 / ranks) ** TOP_K)
    leaving_bytes = TOKENS * others * row_bytes  # of one copy of each token
    copies, once = (format_bytes(n * leaving_bytes) for n in (TOP_K, reached))
    rows = [
        (f"rank {i}", format_bytes(each.copies_bytes), format_bytes(each.once_bytes))
        for i, each in enumerate(sent)
    ]
    rows.append(("expected", copies, once))
    return Table(
        tuple(rows),
        ("sent to others", "a copy for each expert", "one for each rank"),
        f"{TOKENS} tokens a rank, {TOP_K} of {EXPERTS} experts each",
    )
