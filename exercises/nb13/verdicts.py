"""What notebook 13 says of its claims on splits: that one is faster, and that it makes
training possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from exercises.nb13.training import apart
from labkit.core.display import Note
from labkit.core.parameters import Share, checked
from labkit.lesson.journal import verdict
from labkit.measure.bench import Ratio

_LEAST_SHARE = 0.9  # a rank that holds more than this of the whole isn't relieved
_MOST_APART = 1e-3  # of losses, relative to the largest
_DISTURBED = 1.05  # times what two ranks can gain at most


@dataclass(frozen=True)
class Way:
    """A way to split: bytes that a rank holds, and the losses of its steps; and what
    one process held, with its losses.
    """

    held: int
    losses: Sequence[float] | Tensor
    whole: Mapping[str, object]

    @property
    def share(self) -> float:
        """What a rank holds, over one process."""
        held = self.whole["held"]
        assert isinstance(held, int)
        return self.held / held

    @property
    def apart(self) -> float:
        """The largest difference of losses, relative to the largest loss."""
        losses: Any = self.whole["losses"]
        return apart(self.losses, losses)


@checked
def faster(layer_split: Ratio, tensor_parallel: Ratio, *, busy: Share) -> Note:
    """Judge C25: either way is faster than one process.

    A gain beyond what two ranks can give is the machine's, and doesn't count: `busy` is
    the share of the time in which the layer split's ranks compute.
    """
    counted = []
    for gain, ceiling in ((layer_split, 2 * busy), (tensor_parallel, 2.0)):
        if gain.value <= _DISTURBED * ceiling:
            counted.append(gain)
    return verdict(
        "C25",
        counted,
        section="13.5",
        because=[layer_split, tensor_parallel],
        when="two ranks, this network",
        needs=f"a quieter machine ({layer_split}; {tensor_parallel})",
    )


def possible(ways: Mapping[str, Way], cards: Mapping[str, float]) -> Note:
    """Judge C24: each way relieves a rank, and trains the same. `cards` are the cards
    of 80 GB that each network's states fill.
    """
    shares = {name: round(way.share, 2) for name, way in ways.items()}
    furthest = max(way.apart for way in ways.values())
    is_relieved = max(shares.values()) < _LEAST_SHARE
    return verdict(
        "C24",
        cards["GPT-3"] > 1 and is_relieved and furthest < _MOST_APART,
        section="13.7",
        because={
            "cards of 80 GB for states alone": cards,
            "share of each of two ranks": shares,
            "largest difference of losses": f"{furthest:.1g}",
        },
        when="the model's states exceed one card, as GPT-3's do and BERT's don't",
    )
