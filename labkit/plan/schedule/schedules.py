"""The published pipeline schedules, each written as a list of steps for every rank.

All raise ScheduleError unless ranks and micro-batches are whole numbers of at least 1, and up to a million in product.
"""

from __future__ import annotations

import itertools

from labkit.core.errors import ScheduleError
from labkit.core.parameters import Count, checked


@checked(error=ScheduleError)
def gpipe(ranks: Count, microbatches: Count) -> list[list[str]]:
    """All forwards, then all backwards (Huang et al. 2019, GPipe). One micro-batch is the naive pipeline."""
    check_steps(ranks, microbatches)
    steps = [f"{kind}{i}" for kind in "FB" for i in range(microbatches)]
    return [list(steps) for _ in range(ranks)]


@checked(error=ScheduleError)
def one_f_one_b(ranks: Count, microbatches: Count) -> list[list[str]]:
    """After one forward for each later rank, a forward and a backward in turn (1F1B, Narayanan et al. 2019).

    PipeDream's schedule with a flush, in which rank r holds at most ranks - r activations.
    """
    check_steps(ranks, microbatches)
    forward, backward = ([f"{kind}{i}" for i in range(microbatches)] for kind in "FB")
    return [_alternating(forward, backward, ranks - 1 - rank) for rank in range(ranks)]


def _alternating(forward: list[str], backward: list[str], ahead: int) -> list[str]:
    """`ahead` forwards, then a forward and a backward in turn, then the backwards that are left."""
    ahead = min(ahead, len(forward))
    pairs = zip(forward[ahead:], backward, strict=False)
    return [*forward[:ahead], *itertools.chain.from_iterable(pairs), *backward[len(forward) - ahead :]]


@checked(error=ScheduleError)
def interleaved(ranks: Count, microbatches: Count, chunks: Count) -> list[list[str]]:
    """1F1B in which each rank has several smaller chunks of the model (Narayanan et al. 2021, section 2.2).

    Chunk c of rank r is stage c * ranks + r. Raises ScheduleError unless the micro-batches divide by the ranks.
    """
    check_steps(ranks, microbatches, chunks)
    if chunks == 1:
        return one_f_one_b(ranks, microbatches)
    if microbatches % ranks:
        below, above = microbatches // ranks * ranks, (microbatches // ranks + 1) * ranks
        near = f"{below} or {above}" if below else f"{above}"
        raise ScheduleError(
            f"Expected a number of micro-batches that divides by the {ranks} ranks, since interleaved schedules send "
            f"them in groups of that size, got {microbatches}. The nearest is {near}."
        )
    forward = [f"F{i}.{chunk}" for i, chunk in _turns(ranks, microbatches, chunks)]
    backward = [f"B{i}.{chunks - 1 - chunk}" for i, chunk in _turns(ranks, microbatches, chunks)]
    aheads = [2 * (ranks - rank - 1) + (chunks - 1) * ranks for rank in range(ranks)]
    return [_alternating(forward, backward, ahead) for ahead in aheads]


def _turns(ranks: int, microbatches: int, chunks: int) -> list[tuple[int, int]]:
    """Micro-batch and chunk in the order in which a rank takes them: `ranks` micro-batches of each chunk in turn."""
    groups = range(0, microbatches, ranks)
    return [(first + i, chunk) for first in groups for chunk in range(chunks) for i in range(ranks)]


@checked(error=ScheduleError)
def zb_h1(ranks: Count, microbatches: Count) -> list[list[str]]:
    """1F1B with W split from B, and delayed by r micro-batches on rank r (ZB-H1, Qi et al. 2024).

    Every rank holds at most as many activations as 1F1B's first rank. With F, B and W of the same length, and `ranks`
    micro-batches or more, it idles for a third of 1F1B's time.
    """
    check_steps(ranks, microbatches)
    return [_split(ranks - rank, rank, microbatches) for rank in range(ranks)]


@checked(error=ScheduleError)
def zb_h2(ranks: Count, microbatches: Count) -> list[list[str]]:
    """Twice as many forwards first as in 1F1B, and W delayed twice as long as in ZB-H1 (ZB-H2, Qi et al. 2024).

    With F, B and W of the same length, and 2 * ranks - 1 micro-batches or more, no rank is idle from its first step to
    its last; each holds up to 2 * ranks - 1 activations.
    """
    check_steps(ranks, microbatches)
    return [_split(2 * (ranks - rank) - 1, 2 * rank, microbatches) for rank in range(ranks)]


def _split(ahead: int, delay: int, microbatches: int) -> list[str]:
    """`ahead` forwards, then in turn B, the W of `delay` micro-batches earlier, and F; at the end what is left."""
    steps = [f"F{i}" for i in range(min(ahead, microbatches))]
    for i in range(microbatches):
        steps.append(f"B{i}")
        if i >= delay:
            steps.append(f"W{i - delay}")
        if i + ahead < microbatches:
            steps.append(f"F{i + ahead}")
    return steps + [f"W{i}" for i in range(max(microbatches - delay, 0), microbatches)]


def check_steps(ranks: int, microbatches: int, chunks: int = 1, most: int = 1_000_000) -> None:
    """Raise ScheduleError for more steps than can be simulated in reasonable time."""
    if ranks * microbatches * chunks > most:
        raise ScheduleError(
            f"Expected ranks x microbatches x chunks to be at most {most:,}, got {ranks:,} x {microbatches:,} x "
            f"{chunks:,}. Take fewer micro-batches: a schedule repeats itself."
        )
