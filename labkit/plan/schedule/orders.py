"""The published pipeline schedules, as the lists that `simulate` plays: one list of steps for each rank."""

from __future__ import annotations

from labkit.core.arguments import check_number
from labkit.core.errors import ScheduleError

Lists = list[list[str]]


def gpipe(ranks: int, microbatches: int) -> Lists:
    """All forwards, then all backwards (Huang et al. 2019, GPipe). One micro-batch is the naive pipeline.

    Raises ScheduleError unless both are whole numbers of at least 1.
    """
    check_sizes(ranks, microbatches)
    steps = [f"{kind}{i}" for kind in "FB" for i in range(microbatches)]
    return [list(steps) for _ in range(ranks)]


def one_f_one_b(ranks: int, microbatches: int) -> Lists:
    """One forward, one backward in turn, after as many forwards as there are later ranks (1F1B, Narayanan et al. 2019).

    The flushed form of PipeDream's schedule, of which rank r holds at most ranks - r activations. Raises
    ScheduleError unless both are whole numbers of at least 1.
    """
    check_sizes(ranks, microbatches)
    return [_woven(min(ranks - 1 - rank, microbatches), microbatches) for rank in range(ranks)]


def _woven(ahead: int, microbatches: int) -> list[str]:
    """`ahead` forwards, then a forward and a backward in turn, then the backwards that are left."""
    steps = [f"F{i}" for i in range(ahead)]
    for i in range(microbatches - ahead):
        steps += [f"F{ahead + i}", f"B{i}"]
    return steps + [f"B{i}" for i in range(microbatches - ahead, microbatches)]


def interleaved(ranks: int, microbatches: int, chunks: int) -> Lists:
    """1F1B in which each rank has several smaller parts of the model (Narayanan et al. 2021, Megatron-LM, section 2.2).

    Chunk c of rank r is stage c * ranks + r. Raises ScheduleError unless micro-batches divide by ranks.
    """
    check_sizes(ranks, microbatches)
    check_number("chunks", chunks, least=1, whole=True, error=ScheduleError)
    if chunks == 1:
        return one_f_one_b(ranks, microbatches)
    if microbatches % ranks:
        below, above = microbatches // ranks * ranks, (microbatches // ranks + 1) * ranks
        near = f"{below} or {above}" if below else f"{above}"
        raise ScheduleError(
            f"Expected a number of micro-batches that divides by the {ranks} ranks, as the interleaved schedule sends "
            f"them in groups of that size, got {microbatches}. The nearest is {near}."
        )
    forward = [f"F{i}.{chunk}" for i, chunk in _turns(ranks, microbatches, chunks)]
    backward = [f"B{i}.{chunks - 1 - chunk}" for i, chunk in _turns(ranks, microbatches, chunks)]
    found = []
    for rank in range(ranks):
        ahead = min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, len(forward))
        steps = forward[:ahead]
        for f, b in zip(forward[ahead:], backward, strict=False):
            steps += [f, b]
        found.append(steps + backward[len(forward) - ahead :])
    return found


def _turns(ranks: int, microbatches: int, chunks: int) -> list[tuple[int, int]]:
    """Micro-batch and chunk in the order in which a rank takes them: a group of `ranks` micro-batches a chunk."""
    groups = range(0, microbatches, ranks)
    return [(first + i, chunk) for first in groups for chunk in range(chunks) for i in range(ranks)]


def zb_h1(ranks: int, microbatches: int) -> Lists:
    """1F1B with the weights' backward split off and put off by r micro-batches on rank r (ZB-H1, Qi et al. 2024).

    Every rank holds at most as many activations as 1F1B's first rank. With F, B and W of the same length, and `ranks`
    micro-batches or more, it idles for a third of 1F1B's time. Raises ScheduleError unless both are whole numbers of
    at least 1.
    """
    check_sizes(ranks, microbatches)
    return [_split(ranks - rank, rank, microbatches) for rank in range(ranks)]


def zb_h2(ranks: int, microbatches: int) -> Lists:
    """Twice as many forwards ahead as 1F1B, and W put off twice as far as in ZB-H1 (ZB-H2, Qi et al. 2024).

    With F, B and W of the same length, and 2 * ranks - 1 micro-batches or more, no rank is idle from its first step to
    its last; each holds up to 2 * ranks - 1 activations. Raises ScheduleError unless both are whole numbers of at
    least 1.
    """
    check_sizes(ranks, microbatches)
    return [_split(2 * (ranks - rank) - 1, 2 * rank, microbatches) for rank in range(ranks)]


def _split(ahead: int, delay: int, microbatches: int) -> list[str]:
    """`ahead` forwards, then B, the W of `delay` micro-batches before, and F in turn; what is left at the end."""
    steps = [f"F{i}" for i in range(min(ahead, microbatches))]
    for i in range(microbatches):
        steps.append(f"B{i}")
        if i >= delay:
            steps.append(f"W{i - delay}")
        if i + ahead < microbatches:
            steps.append(f"F{i + ahead}")
    return steps + [f"W{i}" for i in range(max(microbatches - delay, 0), microbatches)]


def check_sizes(ranks: int, microbatches: int) -> None:
    """ScheduleError unless both are whole numbers of at least 1."""
    check_number("ranks", ranks, least=1, whole=True, error=ScheduleError)
    check_number("microbatches", microbatches, least=1, whole=True, error=ScheduleError)
