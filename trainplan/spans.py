"""Who does what when: one interval of one rank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Span:
    """`rank` does `kind` from `start_s` to `end_s`, in seconds on one clock.

    `kind` is "F" (forward), "B" (backward), "W" (backward of the weights alone) or "communication"; `label` is what a
    picture writes on it, such as the micro-batch.
    """

    rank: int
    start_s: float
    end_s: float
    kind: str
    label: str = ""

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self.end_s - self.start_s
