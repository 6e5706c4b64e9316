"""Times of what runs on a GPU, in the seconds of the processor's clock, without making either wait for the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from labkit.dist.rank_context import RankTrace


class GpuClock:
    """Stamps are events in the current stream; they become seconds when all is done.

    The GPU's clock is set to the processor's once, at the start, when the GPU has nothing to do.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        torch.cuda.synchronize()
        self._zero = self.stamp()
        self._zero.synchronize()
        self._zero_s = now_s()

    def stamp(self) -> Any:
        """The moment at which the GPU gets here."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def settle(self, trail: RankTrace) -> None:
        """Turn every stamp of a trail into seconds. Waits for the GPU."""
        torch.cuda.synchronize()
        trail.spans = [(self._seconds(s), self._seconds(e), *rest) for s, e, *rest in trail.spans]  # type: ignore[misc]
        trail.arrivals = [(key, self._seconds(at)) for key, at in trail.arrivals]

    def _seconds(self, stamp: Any) -> float:
        if isinstance(stamp, float):
            return stamp
        return self._zero_s + float(self._zero.elapsed_time(stamp)) / 1e3
