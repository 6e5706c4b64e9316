"""Arrays of a launch of tiles, and notes on their elements that take memory for the
touched ones only.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.machine.traced_memory import Array
from kerneltrace.ptx.values import narrowed, widened
from kerneltrace.tiles.tensors import DTYPES

SLOT = 40
"""Each array has 2**SLOT addresses of its own and lies in their middle, so that an
address tells its array.
"""
_PAGE_BITS = 12
_PAGE = 1 << _PAGE_BITS
"""Places of a page."""


class Pages:
    """A number for each place of a memory, 0 at first; only the pages that were touched
    take memory.
    """

    def __init__(self, span: int, dtype: Any = np.int32) -> None:
        # by page; 0 for one that was never touched
        self._number = np.zeros((span >> _PAGE_BITS) + 1, np.int32)
        self._numbers = np.zeros(4 * _PAGE, dtype)  # (touched places,)
        self._used = 1

    def read(self, at: Array) -> Array:
        """The numbers of places."""
        slots = self._slots(at)  # may replace the numbers
        numbers: Array = self._numbers[slots]
        return numbers

    def write(self, at: Array, value: int) -> None:
        """Put a number at places."""
        slots = self._slots(at)
        self._numbers[slots] = value

    def fill(self, at: Array, value: int) -> None:
        """Put a number at those places that have none yet."""
        slots = self._slots(at)
        self._numbers[slots[self._numbers[slots] == 0]] = value

    def count(self) -> int:
        """How many places have a number."""
        return int(np.count_nonzero(self._numbers))

    def _slots(self, at: Array) -> Array:
        """Where the numbers of places are."""
        page = at >> _PAGE_BITS
        number = self._number[page]
        if not number.all():
            self._add(np.unique(page[number == 0]))
            number = self._number[page]
        slots: Array = (number.astype("i8") << _PAGE_BITS) + (at & (_PAGE - 1))
        return slots

    def _add(self, pages: Array) -> None:
        self._number[pages] = self._used + np.arange(len(pages))
        self._used += len(pages)
        missing = self._used * _PAGE - len(self._numbers)
        if missing > 0:
            more = max(missing, len(self._numbers))  # doubles
            zeros = np.zeros(more, self._numbers.dtype)
            self._numbers = np.concatenate([self._numbers, zeros])


class TileArray:
    """An array of the launch: its memory from the first element to the last, and who
    touched each element.

    `last` has for each kind of access so far the earliest load, latest store or
    earliest atomic of each element: numbers of accesses, from 1. Loads are in it from
    the first write on. Of bfloat16 `array` has the bits.
    """

    def __init__(
        self, name: str, source: Any, number: int, shared: dict[Any, Any]
    ) -> None:
        kind = str(source.dtype).removeprefix("torch.").replace("bool", "int1")
        if kind not in DTYPES:
            raise KernelError(
                f"{name} has elements of type {kind}, and known are"
                f" {', '.join(DTYPES)}."
            )
        self.name = name
        self.dtype = DTYPES[kind]
        self.base = (number << SLOT) + (1 << SLOT - 1)
        self.array = _as_array(name, source, kind)
        size = self.array.itemsize
        strides = self.array.strides
        if any(stride < 0 or stride % size for stride in strides):
            raise KernelError(
                f"{name} has strides {strides}: pass a copy, which has none below 0."
            )
        axes = enumerate(zip(strides, self.array.shape, strict=True))
        self._axes = sorted(
            (stride // size, extent, axis) for axis, (stride, extent) in axes
        )[::-1]
        """Steps in elements, extents and numbers of the axes, the longest step
        first.
        """
        last = sum((extent - 1) * step for step, extent, _ in self._axes)
        self.span = last + 1 if self.array.size else 0
        self.flat = np.lib.stride_tricks.as_strided(self.array, (self.span,), (size,))
        is_float = self.array.dtype.kind == "f"
        # the first element spares most arrays the search
        self.unset = bool(
            self.span
            and is_float
            and np.isnan(self.flat[0])
            and np.isnan(self.array).all()
        )
        """Whether nothing has written it: all of its elements are NaN."""
        key = self.array.__array_interface__["data"][0], self.span, size
        self.last: dict[str, Pages] = shared.setdefault(key, {})

    def has(self, at: Array) -> Array:
        """Which places are elements: none outside of the memory, and none between the
        rows of a view.
        """
        inside: Array = (at >= 0) & (at < self.span)
        # an axis of step 0 repeats its elements
        if math.prod(extent for step, extent, _ in self._axes if step) < self.span:
            inside &= self._indices(at)[1] == 0
        return inside

    def _indices(self, at: Array) -> tuple[list[Array], Array]:
        """The index of each place along each axis, and how far it lies from that
        element.
        """
        indices = [at] * len(self._axes)
        for step, extent, axis in self._axes:
            index = np.minimum(at // max(step, 1), extent - 1)
            indices[axis] = index
            at = at - index * step
        return indices, at

    def shaped(self, flat: Array) -> Array:
        """Numbers for each place of the memory as a view with the array's shape."""
        steps = [
            stride // self.array.itemsize * flat.itemsize
            for stride in self.array.strides
        ]
        return np.lib.stride_tricks.as_strided(flat, self.array.shape, steps)

    def element(self, at: int) -> str:
        """The element at a place of the memory, as x[3, 4]."""
        indices, _ = self._indices(np.array(at))
        return f"{self.name}[{', '.join(map(str, indices))}]"

    def first_without(self, touched: Pages) -> str:
        """The first element that has no number in `touched`."""
        for first in range(0, self.array.size, _PAGE):
            stop = min(first + _PAGE, self.array.size)
            index = np.unravel_index(np.arange(first, stop), self.array.shape)
            steps = [step * index[axis] for step, _, axis in self._axes]
            at = np.sum(steps, axis=0)
            missing = touched.read(at) == 0
            if missing.any():
                return self.element(int(at[np.argmax(missing)]))
        return ""

    def read(self, at: Array) -> Array:
        """Values at places."""
        values: Array = self.flat[at]
        return np.asarray(widened(values)) if self.dtype.name == "bfloat16" else values

    def write(self, at: Array, values: Array) -> None:
        """Put values at places."""
        self.flat[at] = narrowed(values) if self.dtype.name == "bfloat16" else values


def _as_array(name: str, source: Any, kind: str) -> Array:
    """A tensor's memory, or the array itself; of bfloat16 the bits."""
    if type(source).__module__.partition(".")[0] == "torch":
        if source.device.type != "cpu":
            raise KernelError(
                f"{name} is on {source.device}: pass {name}.cpu(), since a trace runs"
                " on the CPU."
            )
        source = source.detach()
        if kind == "bfloat16":
            source = source.view(sys.modules["torch"].int16)
        source = source.numpy()
    array: Array = source.view(np.uint16) if kind == "bfloat16" else source
    return array
