"""What the measurements of section 6 say of C15, that mixed precision is faster and
smaller without loss, and of C16, that 16 bits alone lose accuracy.

An answer is True, False, or None where the measurements don't settle it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from labkit.measure.bench import Ratio
from labkit.train.training.tuned import PAIRS

Evidence = bool | Literal["not shown"] | None
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
