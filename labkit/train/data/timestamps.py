"""When each batch was begun, ready, asked for and taken: timestamps that travel with
the samples to the trainer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

# Workers and trainer must read one clock: on Linux this is CLOCK_MONOTONIC, elsewhere
# its zero may differ by process.
now_s = time.perf_counter if sys.platform == "linux" else time.time


@dataclass(frozen=True)
class BatchTimes:
    """When a batch was begun and ready (by `worker`; -1: the trainer itself), asked for
    and taken, in seconds.

    All four are read from one clock, whose zero means nothing. The trainer waits from
    `asked_s` to `taken_s`, and works from `taken_s` to the next batch's `asked_s`.
    """

    worker: int
    begun_s: float
    ready_s: float
    asked_s: float
    taken_s: float

    @property
    def waited_s(self) -> float:
        """Seconds that the trainer waited for this batch."""
        return self.taken_s - self.asked_s

    @property
    def starved_s(self) -> float:
        """Seconds of that wait in which the batch was not ready; in the others it was
        on its way to the trainer.
        """
        return min(max(self.ready_s - self.asked_s, 0.0), self.waited_s)


class StampedBatch(NamedTuple):
    """A batch on its way to the trainer, with the worker that made it and the first two
    of its times.
    """

    content: Any
    worker: int
    begun_s: float
    ready_s: float


class Stamped(Dataset[Any]):
    """A dataset whose samples carry the time at which their loading began."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(cast("Sized", self.dataset))

    def __getitem__(self, i: int) -> tuple[float, Any]:
        return now_s(), self.dataset[i]


class StampedStream(IterableDataset[Any]):
    """The same for a dataset that can only be read in order."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[tuple[float, Any]]:
        samples = iter(cast("IterableDataset[Any]", self.dataset))
        nothing = object()
        while True:
            begun_s = now_s()
            if (sample := next(samples, nothing)) is nothing:
                return
            yield begun_s, sample


def stamped_batch(samples: Sequence[tuple[float, Any]]) -> StampedBatch:
    """Collate samples as torch does, and note which worker did so and when."""
    info = get_worker_info()
    content = default_collate([sample for _, sample in samples])
    return StampedBatch(
        content, -1 if info is None else info.id, samples[0][0], now_s()
    )
