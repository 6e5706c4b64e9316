"""Arrays as threads in lockstep see them: an index is an array with a place for each
thread, or one for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kerneltrace.machine.traced_memory import (
    Array,
    TracedArray,
    TracedTuple,
    counted,
    flat_view,
    parts_of,
)
from kerneltrace.source.lockstep_source import NotInLockstep, integers


class LaneArray:
    """An array inside a kernel; `ld` and `st` access it for the threads
    that take part.
    """

    def __init__(
        self, lanes: Any, traced: TracedArray, memory: Any = None, offset: Any = None
    ) -> None:
        """`memory` holds copies of the array one after another, and `offset` says where
        that of each thread begins.
        """
        flat = flat_view(traced.array) if memory is None else memory
        if flat is None or flat.dtype == np.uint64:
            raise NotInLockstep
        self.shape = TracedTuple(traced.array.shape)
        self.size = traced.array.size
        self.ndim = traced.array.ndim
        self.dtype = flat.dtype
        self._lanes = lanes
        self._array = traced.array
        self._memory = flat
        self._offset = offset
        self._is_logged = traced.add is not None
        self._steps = [s // flat.itemsize for s in traced.array.strides]
        self._base = 8 * traced.base + flat.itemsize.bit_length() - 1
        self._wide = 8 * flat.itemsize
        # which elements have been written
        self._known = None if memory is None else np.zeros(len(flat), bool)

    def __len__(self) -> int:
        return int(self.shape[0])

    def ld(self, index: Any, key: int) -> Any:
        """The elements at `index`, for all threads; 0 for those that do
        not take part.
        """
        at = self._places(index, key)
        elements = self._memory[self._written(at)]
        return self._lanes.spread(
            elements.astype(np.int64) if elements.dtype.kind in "iu" else elements
        )

    def st(self, index: Any, value: Any, key: int) -> None:
        """Write the elements at `index`."""
        at = self._places(index, key)
        if self._known is not None:
            self._known[at] = True
        self._keep_original()
        self._memory[at] = self._converted(value)

    def change(self, function: np.ufunc, index: Any, value: Any, key: int) -> None:
        """Change elements by a function of the old values and of `value`, thread after
        thread.
        """
        at = self._places(index, key)
        self._keep_original()
        function.at(
            self._memory,
            self._written(at),
            self._converted(value),
        )

    def _converted(self, value: Any) -> Array:
        """The values of the threads that take part, in the array's type."""
        values: Array = self._lanes.those(np.asarray(value))
        is_whole = self.dtype.kind in "iu"
        return integers(values, self.dtype) if is_whole else values.astype(self.dtype)

    def _keep_original(self) -> None:
        """Copy an array of global memory before the first write to it."""
        if self._offset is None and all(
            memory is not self._array for memory, _ in self._lanes.originals
        ):
            self._lanes.originals.append((self._array, self._array.copy()))

    def _written(self, at: Array) -> Array:
        if self._known is not None and not self._known[at].all():
            raise NotInLockstep
        return at

    def _places(self, index: Any, key: int) -> Array:
        """Where in memory the elements are that the threads ask for,
        which is logged.
        """
        parts = parts_of(index)
        if len(parts) != self.ndim:
            raise NotInLockstep  # a part of the array
        at: Any = 0
        for part, n, step in zip(parts, self.shape, self._steps, strict=True):
            part = self._lanes.those(counted(part, n))
            if np.any(part < 0) or np.any(part >= n):
                raise NotInLockstep
            at = at + part * step
        if self._is_logged:
            self._lanes.log(key, self._base + at * self._wide)
        at = at if self._offset is None else at + self._lanes.those(self._offset)
        return np.broadcast_to(at, self._lanes.active)
