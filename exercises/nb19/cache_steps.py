"""The KV cache while a batch writes: which block holds which sequence's keys and
values, step by step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exercises.nb19.engine import Slots

N_BLOCKS = 10
_LAST_STEP = 26
_STEPS_A_FRAME = 2


@dataclass(frozen=True)
class _Stay:
    """A sequence joins at a step, which reads its prompt; each later step writes one of
    its `n_new` tokens.
    """

    joins: int
    prompt: int
    n_new: int

    def tokens_at(self, step: int) -> int:
        """Its tokens in the cache after a step, 0 before it joins and when it has
        ended.
        """
        written = step - self.joins
        return self.prompt + written if 0 <= written <= self.n_new else 0


_STAYS = {
    "A": _Stay(joins=0, prompt=20, n_new=26),
    "B": _Stay(joins=0, prompt=40, n_new=8),
    "C": _Stay(joins=0, prompt=10, n_new=26),
    "D": _Stay(joins=9, prompt=35, n_new=17),
}


@dataclass(frozen=True)
class CacheStep:
    """What the cache has after a step, by sequence: block tables, the slots of all
    tokens, and how many of these came since the frame before.
    """

    number: int
    tables: Mapping[str, list[int]]
    slots: Mapping[str, list[int]]
    newest: Mapping[str, int]

    @property
    def n_blocks(self) -> int:
        """Blocks that some sequence has."""
        return sum(map(len, self.tables.values()))

    @property
    def n_tokens(self) -> int:
        """Tokens whose keys and values the step's call reads."""
        return sum(map(len, self.slots.values()))


def steps(slots: Slots) -> Iterator[CacheStep]:
    """Every second step of a batch; `slots`, exercise 19.6a, gives it its blocks."""
    free = list(range(N_BLOCKS))
    tables: dict[str, list[int]] = {name: [] for name in _STAYS}
    for number in range(_LAST_STEP + 1):
        lengths = {name: stay.tokens_at(number) for name, stay in _STAYS.items()}
        places: dict[str, list[int]] = {}
        # what has ended gives its blocks back before others grow
        for name in sorted(lengths, key=lambda name: lengths[name] > 0):
            places[name] = [
                int(slot) for slot in slots(tables[name], free, lengths[name])
            ]
        if number % _STEPS_A_FRAME == 0:
            yield CacheStep(
                number,
                {name: list(tables[name]) for name in _STAYS},
                {name: places[name] for name in _STAYS},
                _newest(number),
            )


def _newest(number: int) -> dict[str, int]:
    """How many tokens each sequence has more than in the frame before; all of its
    tokens if it wasn't there.
    """
    counts = {}
    for name, stay in _STAYS.items():
        before = stay.tokens_at(number - _STEPS_A_FRAME)
        counts[name] = max(stay.tokens_at(number) - before, 0)
    return counts
