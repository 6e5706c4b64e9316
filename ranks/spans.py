"""Who did what when: one interval of one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SpanKind = Literal["F", "B", "W", "compute", "communication", "idle", "optimizer"]


@dataclass(frozen=True, order=True)
class Span:
    """`rank` did `kind` from `start_s` to `end_s`, in seconds on the one clock that all ranks share.

    `kind` is "F" (forward), "B" (backward), "W" (backward of the weights alone), "compute", "communication", "idle"
    or "optimizer"; `label` is what a picture writes on it, such as the micro-batch.
    """

    rank: int
    start_s: float
    end_s: float
    kind: str
    label: str = ""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end_s - self.start_s
