"""Times of what runs on a GPU, in the seconds of the processor's clock, without making
either wait for the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class GpuClock:
    """Stamps are events in the current stream, which become seconds once the GPU has
    reached them.

    The GPU's clock is set to the processor's once, at the start, when the GPU has
    nothing to do.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.synchronize()
        self._zero = self.stamp()
        self._zero.synchronize()
        self._zero_s = now_s()

    def synchronize(self) -> None:
        """Wait until the GPU has reached all stamps."""
        torch.cuda.synchronize()

    def stamp(self) -> Any:
        """The moment at which the GPU reaches this place in its work."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, stamp: Any) -> float:
        """A stamp on the processor's clock; a float is in its seconds already, as a
        stand-in device's times are.
        """
        if isinstance(stamp, float):
            return stamp
        # elapsed_time is in milliseconds
        return self._zero_s + float(self._zero.elapsed_time(stamp)) / 1e3
