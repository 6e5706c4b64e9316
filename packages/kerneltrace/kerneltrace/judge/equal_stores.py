"""Find the stores of several threads that bring one value to an address: racecheck
calls them information, and no error ("Compute Sanitizer", "Racecheck Tool").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltrace.machine.events import Events
from kerneltrace.machine.traced_memory import Array, Load, Store

UNKNOWN = -1
"""Number of a value that is not known."""


class StoredValues:
    """Notes in a repeated run the values of its stores and of some other events."""

    def __init__(self, events: set[int]) -> None:
        """`events` are those whose values are wanted, by their first words."""
        self.values: dict[int, Any] = {}
        """What these read or write, by event."""
        self._events = events
        self._numbers: dict[bytes, int] = {}
        """Of values, by their bytes."""
        self._by_event: dict[int, int] = {}

    def __call__(self, log: Any) -> Any:
        """Watch the arrays of a kernel in Python."""

        def accessors(traced: Any, ld: Load, st: Store) -> tuple[Load, Store]:
            def load(index: Any, key: int) -> Any:
                at = len(log.words)
                value = ld(index, key)
                if at in self._events and len(log.words) == at + 2:  # no view
                    self.values[at] = value
                return value

            def store(index: Any, value: Any, key: int) -> None:
                at = len(log.words)
                st(index, value, key)
                if len(log.words) == at + 2:  # a view logs nothing
                    self.values[at] = value
                    self._note(at, _bytes(value, traced.array.dtype))

            return load, store

        return accessors

    def stored(self, at: Array, values: Array) -> None:
        """Note what a kernel in PTX stores: rows of numbers (events, many)."""
        rows = np.ascontiguousarray(values)
        for event, row in zip(at.tolist(), rows, strict=True):
            self._note(event, row.tobytes())

    def _note(self, at: int, contents: bytes) -> None:
        if contents:
            self._by_event[at] = self._numbers.setdefault(contents, len(self._numbers))

    def of(self, events: Events) -> Array:
        """The number of the value that each event stores, equal ones for equal bytes,
        or UNKNOWN.
        """
        at = events.at.tolist()
        return np.array([self._by_event.get(event, UNKNOWN) for event in at], "i8")


def _bytes(value: Any, dtype: np.dtype[Any]) -> bytes:
    """A value as an array keeps it; none where NumPy can't say."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(value).astype(dtype).tobytes()
    except (TypeError, ValueError):
        return b""


def stored_values(events: set[int], again: Callable[[Any], object]) -> StoredValues:
    """The values that a run stores, and that events read, given by their first words in
    the log. Atomics have none.

    `again(watch)` repeats the run from the same inputs.
    """
    values = StoredValues(events)
    if events:
        again(values)
    return values
