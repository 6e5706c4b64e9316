"""A device that takes the time of a computation without doing it, so that 8 ranks can be 8 devices on two cores."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from labkit.core.arguments import check_number
from labkit.dist.rank_context import me

if TYPE_CHECKING:
    from torch import nn


@functools.cache
def oversleep_s() -> float:
    """How much longer than asked a sleep takes, in seconds: the least of nine, and no more than the timer is late.

    Linux lets a sleep end 50 µs late so that it can wake several sleepers at once: prctl(2), PR_SET_TIMERSLACK. More
    than twice that is a busy machine.
    """
    late = []
    for _ in range(9):
        start_s = time.monotonic()
        time.sleep(0.001)
        late.append(time.monotonic() - start_s - 0.001)
    return min(max(0.0, min(late)), 1e-4)


class StandIn:
    """A device of `flop_per_s` that sleeps for as long as a computation would take. Its results are "simulated".

    A sleeping process needs no core: 8 ranks compute at the same time on two. What they say to each other is real.
    """

    def __init__(self, flop_per_s: float = 1e12) -> None:
        check_number("flop_per_s", flop_per_s, above=0)
        self.flop_per_s = float(flop_per_s)

    def compute(self, flop: float, label: str = "", kind: str = "compute") -> None:
        """Take the time of `flop` operations: a span of `kind`, unless inside a `lab.dist.span`, whose part it is."""
        check_number("flop", flop, least=0)
        early_s = oversleep_s()
        rank = me()
        start_s = time.monotonic()
        end_s = start_s + float(flop) / self.flop_per_s
        while (left_s := end_s - time.monotonic() - early_s) > 0:
            time.sleep(left_s)
        if rank is not None:
            rank.trail.simulated = True
            if not getattr(rank.spanned, "depth", 0):
                rank.add(start_s - rank.start_s, rank.now_s(), kind, label)

    def layer(self, forward_flop: float, backward_flop: float | None = None, label: str = "") -> nn.Module:
        """A module that passes its input on and takes the time of `forward_flop` forward, `backward_flop` backward.

        Backward takes twice as many as forward unless given.
        """
        from labkit.dist.standin_layers import StandInLayer

        check_number("forward_flop", forward_flop, least=0)
        backward = 2 * forward_flop if backward_flop is None else backward_flop
        check_number("backward_flop", backward, least=0)
        return StandInLayer(self, float(forward_flop), float(backward), label)
