"""Seconds of calls on a CUDA GPU by its own events, and rows that hold a rate against
its target.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

ROUNDS = 9
# of one way in one round: long against the events' resolution and the gaps between
# launches
READING_S = 0.02


@dataclass(frozen=True)
class Share:
    """One row: a rate or speed-up over its peer's, the least it should be, and both in
    words.
    """

    name: str
    target: float
    value: float
    detail: str

    def row(self) -> tuple[str, str, str, str, str]:
        """The cells of the table."""
        verdict = "pass" if self.value >= self.target else "SHORT"
        return (
            self.name,
            f">= {self.target:.2f}",
            f"{self.value:.3f}",
            verdict,
            self.detail,
        )


def seconds(ways: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of a call of each way by CUDA events, the ways taken in turn,
    forwards and backwards.
    """
    repeats = {name: _repeats(way) for name, way in ways.items()}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS):
        for name in list(ways)[:: 1 if turn % 2 == 0 else -1]:
            taken[name].append(_reading_s(ways[name], repeats[name]))
    return {name: statistics.median(readings) for name, readings in taken.items()}


def _reading_s(way: Callable[[], object], repeats: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        way()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / repeats


def _repeats(way: Callable[[], object]) -> int:
    for _ in range(3):  # compilation, allocation, and clocks that rise under load
        way()
    torch.cuda.synchronize()
    return max(1, round(READING_S / _reading_s(way, 3)))
