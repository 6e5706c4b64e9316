"""Log what threads in lockstep do, in the order in which threads that take turns would
have logged it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kerneltrace.machine.event_log import EventLog, too_large
from kerneltrace.machine.execution import LaunchSettings
from kerneltrace.machine.traced_memory import Array


class LaneLog:
    """The events of the threads of some blocks."""

    active: int
    """How many threads take part in what is executed now."""
    size: int
    _at: Any
    numbers: Array
    """Of the blocks that run now."""
    _blocks: int

    def __init__(self, log: EventLog, settings: LaunchSettings) -> None:
        self._log = log
        self._of_block = settings.block_size
        self._max_events = settings.max_events
        self._logged = 0

    def _begin(self) -> None:
        self._events: list[tuple[Any, Any, Any, Array, int]] = []
        # that each thread has logged, barrier by barrier
        self._words = [np.zeros(self.size, "i4")]
        self._opened: list[int] = []  # the keys of the barriers

    def _next_phase(self, key: int, barriers: int) -> None:
        self._opened.append(key)
        self._words.append(np.zeros(self.size, "i4"))
        self._log.barriers += barriers

    def those(self, value: Any) -> Any:
        """The values of the threads that take part; one for all stays one."""
        return value[self._at] if np.ndim(value) else value

    def log(self, key: Any, value: Any) -> None:
        """Log an event of each thread that takes part: its first word and its second,
        None where it has no second.
        """
        if not self.active:
            return
        self._logged += self.active
        if self._logged > self._max_events:
            raise too_large(f"{self._logged:,} logged accesses need", self._max_events)
        at = self._at
        words = self._words[-1]
        self._events.append((key, value, at, words[at].copy(), len(self._words) - 1))
        words[at] += 1 if value is None else 2

    def _branch(self, test: Array, key: int) -> None:
        self.log(-2 * key - self.those(test), None)

    def finish(self) -> None:
        """Write the log block by block, and between two barriers thread by thread, as
        if they had taken turns.
        """
        by_block = (
            np.stack(self._words)
            .reshape(-1, self._blocks, self._of_block)
            .swapaxes(0, 1)
        )
        begin = (by_block.cumsum() - by_block.ravel()).reshape(by_block.shape)
        words = np.empty(int(by_block.sum()), np.int64)
        begin_by_phase = begin.swapaxes(0, 1).reshape(len(self._words), -1)
        for key, value, at, before, phase in self._events:
            place = begin_by_phase[phase, at] + before
            words[place] = key
            if value is not None:
                words[place + 1] = value
        used = np.flatnonzero(by_block)
        phases, inside = np.divmod(used, self._of_block)
        block = self.numbers[phases // len(self._words)]
        threads = block * self._of_block + inside
        self._log.add_stretches(
            words, begin.ravel()[used], threads, phases, self._opened
        )
        self._events.clear()  # which would take memory as long as the trace is kept
