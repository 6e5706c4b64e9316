"""What the measurements of section 6 say of C15, that mixed precision is faster and
smaller without loss, and of C16, that 16 bits alone lose accuracy.

An answer is True, False, or None where the measurements don't settle it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from labkit.measure.bench import Ratio
from labkit.train.training import TunedComparison
from labkit.train.training.tuned import PAIRS

Evidence = bool | Literal["not shown"] | None
_MIXED = ("bfloat16, mixed", "float16, mixed, scaled")
_ALONE = "bfloat16 only"
_BY_CHANCE = "bfloat16 only, stochastic"
_WORTH_IT = 1.02  # a speed-up of less isn't worth a change


def pays(gain: Ratio, memory: float, keeps: bool | None) -> bool | None:
    """Whether a way to train is faster, needs less memory (its share of the baseline's,
    below 1) and keeps the accuracy.
    """
    faster = None
    if gain.low > _WORTH_IT:
        faster = True
    elif gain.high <= _WORTH_IT:
        faster = False
    parts = (faster, memory < 1, keeps)
    if False in parts:
        return False
    return None if None in parts else True


def one_pays(ways: Sequence[bool | None], seeds: int) -> Evidence:
    """The evidence on C15 from what `pays` says of each way that could be timed; None
    without any, and with too few seeds.
    """
    if not ways or seeds < PAIRS:
        return None
    if True in ways:
        return True
    return "not shown" if None in ways else False


def masters_matter(alone: bool | None, mixed: bool | None, seeds: int) -> Evidence:
    """The evidence on C16 from whether 16 bits alone and mixed precision keep the
    accuracy; None with too few seeds.
    """
    if seeds < PAIRS:
        return None
    if alone is True or mixed is False:
        return False
    return "not shown" if None in (alone, mixed) else True


class Judged(NamedTuple):
    """The evidence on a claim, and what it rests on."""

    evidence: Evidence
    reasons: Any


def keeps(way: str, comparisons: Sequence[TunedComparison]) -> bool | None:
    """Whether a way keeps the accuracy in all comparisons; False where it loses in one,
    None where it isn't shown.
    """
    kept = [comparison.keeps(way) for comparison in comparisons]
    if False in kept:
        return False
    return None if None in kept else True


def mixed_pays(
    gains: Mapping[str, Ratio],
    peaks: Mapping[str, float],
    comparisons: Sequence[TunedComparison],
) -> Judged:
    """C15 by the ways that were timed: speed against float32, peak memory in bytes, and
    accuracy. Without gains, as where no GPU is, nothing is judged.
    """
    verdicts = []
    reasons = []
    for way in [way for way in _MIXED if way in gains]:
        memory = peaks[way] / peaks["float32"]
        kept = keeps(way, comparisons)
        verdicts.append(pays(gains[way], memory, kept))
        reasons.append(f"{gains[way]}, {memory:.0%} of the memory, keeps it: {kept}")
    return Judged(one_pays(verdicts, _seeds(comparisons)), reasons)


def masters_are_needed(comparisons: Sequence[TunedComparison]) -> Judged:
    """C16 by bfloat16 alone and by mixed precision; the reasons are of the last
    comparison, whose steps are small.
    """
    alone = keeps(_ALONE, comparisons)
    mixed = keeps(_MIXED[0], comparisons)
    last = comparisons[-1]
    reasons = [last.gain(way) for way in (_ALONE, _MIXED[0], _BY_CHANCE)]
    return Judged(masters_matter(alone, mixed, _seeds(comparisons)), reasons)


def _seeds(comparisons: Sequence[TunedComparison]) -> int:
    """The fewest seeds of a comparison."""
    return min(
        len(accuracies)
        for comparison in comparisons
        for accuracies in comparison.accuracies.values()
    )
