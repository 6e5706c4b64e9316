"""The published pipeline schedules, each written as a list of steps for every rank.

All raise ValueError unless ranks and micro-batches are whole numbers of at least 1,
and up to a million in product.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from typing import Annotated

from trainplan.arguments import Bounds, Count, checked


@checked
def gpipe(ranks: Count, microbatches: Count) -> list[list[str]]:
    """All forwards, then all backwards (Huang et al. 2019, GPipe). One micro-batch is
    the naive pipeline.
    """
    check_steps(ranks, microbatches)
    steps = [f"{kind}{i}" for kind in "FB" for i in range(microbatches)]
    return [list(steps) for _ in range(ranks)]


@checked
def one_f_one_b(ranks: Count, microbatches: Count) -> list[list[str]]:
    """After one forward for each later rank, a forward and a backward in turn (1F1B,
    Narayanan et al. 2019).

    PipeDream's schedule with a flush, in which rank r holds at most ranks - r
    activations.
    """
    check_steps(ranks, microbatches)
    forward = [f"F{i}" for i in range(microbatches)]
    backward = [f"B{i}" for i in range(microbatches)]
    return [_alternating(forward, backward, ranks - 1 - rank) for rank in range(ranks)]


def _alternating(forward: list[str], backward: list[str], ahead: int) -> list[str]:
    """`ahead` forwards, then a forward and a backward in turn, then the backwards that
    are left.
    """
    ahead = min(ahead, len(forward))
    pairs = zip(forward[ahead:], backward, strict=False)
    return [
        *forward[:ahead],
        *itertools.chain.from_iterable(pairs),
        *backward[len(forward) - ahead :],
    ]


@checked
def interleaved(ranks: Count, microbatches: Count, chunks: Count) -> list[list[str]]:
    """1F1B in which each rank has several smaller chunks of the model (Narayanan et al.
    2021, section 2.2).

    Chunk c of rank r is stage c * ranks + r. Raises ValueError unless the
    micro-batches divide by the ranks.
    """
    check_steps(ranks, microbatches, chunks)
    if chunks == 1:
        return one_f_one_b(ranks, microbatches)
    if microbatches % ranks:
        below = microbatches // ranks * ranks
        above = below + ranks
        near = f"{below} or {above}" if below else f"{above}"
        raise ValueError(
            f"Expected a number of micro-batches that divides by the {ranks} ranks,"
            " since interleaved schedules send them in groups of that size, got"
            f" {microbatches}. The nearest is {near}."
        )
    turns = _turns(ranks, microbatches, chunks)
    forward = [f"F{i}.{chunk}" for i, chunk in turns]
    backward = [f"B{i}.{chunks - 1 - chunk}" for i, chunk in turns]
    aheads = [2 * (ranks - rank - 1) + (chunks - 1) * ranks for rank in range(ranks)]
    return [_alternating(forward, backward, ahead) for ahead in aheads]


def _turns(ranks: int, microbatches: int, chunks: int) -> list[tuple[int, int]]:
    """Micro-batch and chunk in the order in which a rank takes them: `ranks`
    micro-batches of each chunk in turn.
    """
    groups = range(0, microbatches, ranks)
    return [
        (first + i, chunk)
        for first in groups
        for chunk in range(chunks)
        for i in range(ranks)
    ]


@checked
def zb_h1(ranks: Count, microbatches: Count) -> list[list[str]]:
    """1F1B with W split from B, and delayed by r micro-batches on rank r (ZB-H1, Qi et
    al. 2024).

    Every rank holds at most as many activations as 1F1B's first rank. With F, B and W
    of the same length, and `ranks` micro-batches or more, it idles for a third of
    1F1B's time.
    """
    check_steps(ranks, microbatches)
    return [_split(ranks - rank, rank, microbatches) for rank in range(ranks)]


@checked
def zb_h2(ranks: Count, microbatches: Count) -> list[list[str]]:
    """Twice as many forwards first as in 1F1B, and W delayed twice as long as in ZB-H1
    (ZB-H2, Qi et al. 2024).

    With F, B and W of the same length, and 2 * ranks - 1 micro-batches or more, no rank
    is idle from its first step to its last; each holds up to 2 * ranks - 1 activations.
    """
    check_steps(ranks, microbatches)
    return [
        _split(2 * (ranks - rank) - 1, 2 * rank, microbatches) for rank in range(ranks)
    ]


@checked
def zb_v(ranks: Count, microbatches: Count) -> list[list[str]]:
    """Two chunks a rank in a V, W split from B (ZB-V, Qi et al. 2024, section 6):
    simulate with placement="v".

    With F, B and W of the same length, and 2 * ranks - 1 micro-batches or more, no rank
    is idle from its first step to its last, and each holds `ranks` activations at most,
    as 1F1B's first rank does.
    """
    check_steps(ranks, microbatches, 2)
    return [_zb_v(rank, ranks, microbatches) for rank in range(ranks)]


def _zb_v(rank: int, ranks: int, microbatches: int) -> list[str]:
    """One rank's steps: those of `full` micro-batches, without the ones that are too
    many.
    """
    left = ranks - rank
    full = max(microbatches, 2 * ranks - 1)
    order = [
        *["F.0"] * (2 * left - 1),
        *["F.1", "F.0"] * rank,
        *["F.1", "B.1", "W.1"] * left,
        *["F.0", "B.0", "W.0", "F.1", "B.1", "W.1"] * (full - 2 * ranks + rank + 1),
        *["B.0", "W.0", "F.1", "B.1", "W.1"] * (left - 1),
        *["B.0", "B.1"] * rank,
        *["B.0", "W.0"] * left,
        *["W.1"] * rank,
        *["W.0"] * rank,
    ]
    counts: Counter[str] = Counter()  # micro-batches so far, by kind and chunk
    steps = []
    for step in order:
        kind, chunk = step.split(".")
        i = counts[step]
        counts[step] += 1
        if i < microbatches:
            steps.append(f"{kind}{i}.{chunk}")
    return steps


@checked
def dualpipe(
    ranks: Annotated[int, Bounds(least=2)], microbatches: Count
) -> list[list[str]]:
    """Two pipelines in opposite directions through two copies of the model: simulate
    with placement="both ways".

    Each takes `microbatches` of its own. Raises ValueError unless there are as many
    as ranks, and an even number of ranks. Source: DeepSeek-AI 2024, DeepSeek-V3
    technical report, section 3.2.1, figure 5; its F and B that run together stand one
    after the other here.
    """
    check_steps(ranks, microbatches, 2)
    if ranks % 2 or microbatches < ranks:
        raise ValueError(
            "Expected an even number of ranks and at least as many micro-batches in"
            f" each direction, got {ranks} ranks and {microbatches} micro-batches."
        )
    return [_dualpipe(rank, ranks, microbatches) for rank in range(ranks)]


def _dualpipe(rank: int, ranks: int, microbatches: int) -> list[str]:
    """One rank's steps. In `order`, 0 is the direction whose first rank is nearer; D is
    B with its W after it.
    """
    near = min(rank, ranks - 1 - rank)
    far = ranks // 2 - 1 - near
    # the backwards at the end: in turn of both directions, the first half with their W
    last = ["D1", "D0"] * (near + 1)
    last = [*last[: near + 1], *["B" + step[1] for step in last[near + 1 :]]]
    order = [
        *["F0"] * (2 * far),
        *["F0", "F1"] * (near + 1),
        *["B1", "W", "F1"] * far,
        *["F0", "D1", "F1", "D0"] * (microbatches - ranks + near + 1),
        *["D1", "F1", "D0"] * far,
        *last,
        *["W", "B0"] * far,
        *["W"] * (near + 1),
    ]
    chunks = {"0": 0, "1": 1} if rank < ranks // 2 else {"0": 1, "1": 0}
    forwards: Counter[str] = Counter()  # so far, by direction
    backwards: Counter[str] = Counter()
    waiting: deque[str] = deque()
    steps = []
    for step in order:
        if step == "W":
            steps.append(waiting.popleft())
            continue
        kind = step[0]
        direction = step[1]
        chunk = chunks[direction]
        if kind == "F":
            steps.append(f"F{forwards[direction]}.{chunk}")
            forwards[direction] += 1
            continue
        i = backwards[direction]
        backwards[direction] += 1
        steps.append(f"B{i}.{chunk}")
        weights = f"W{i}.{chunk}"
        if kind == "D":
            steps.append(weights)
        else:
            waiting.append(weights)
    return steps


def _split(ahead: int, delay: int, microbatches: int) -> list[str]:
    """`ahead` forwards, then in turn B, the W of `delay` micro-batches earlier, and F;
    at the end what is left.
    """
    steps = [f"F{i}" for i in range(min(ahead, microbatches))]
    for i in range(microbatches):
        steps.append(f"B{i}")
        if i >= delay:
            steps.append(f"W{i - delay}")
        if i + ahead < microbatches:
            steps.append(f"F{i + ahead}")
    left = range(max(microbatches - delay, 0), microbatches)
    return [*steps, *(f"W{i}" for i in left)]


def check_steps(
    ranks: int, microbatches: int, chunks: int = 1, most: int = 1_000_000
) -> None:
    """Raise ValueError for more steps than can be simulated in reasonable time."""
    if ranks * microbatches * chunks > most:
        raise ValueError(
            f"Expected ranks x microbatches x chunks to be at most {most:,}, got"
            f" {ranks:,} x {microbatches:,} x {chunks:,}. Take fewer micro-batches: a"
            " schedule repeats itself."
        )
