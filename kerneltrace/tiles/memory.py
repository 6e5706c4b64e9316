"""The arrays that a kernel of tiles reaches, and the log of what its programs ask of them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from kerneltrace.arguments import brief_repr
from kerneltrace.errors import KernelError
from kerneltrace.log.traced_memory import Array
from kerneltrace.ptx.values import narrowed, widened
from kerneltrace.tiles.tensors import DTYPES, DType

SLOT = 40
"""Each array has 2**SLOT addresses of its own and lies in their middle, so that an address tells its array."""
KINDS = ("load", "store", "atomic")


class TileArray:
    """An array of the launch: its memory from the first element to the last, and who touched each element.

    `last` has three rows, the latest store and the earliest load and atomic of each element: numbers of accesses, from
    1, and 0 for none. `seen` are the kinds of access so far.
    """

    def __init__(self, name: str, given: Any, number: int, shared: dict[Any, Any]) -> None:
        self.name, self.base = name, (number << SLOT) + (1 << SLOT - 1)
        self.array, self.dtype = _viewed(name, given)
        size = self.array.itemsize
        if any(stride < 0 or stride % size for stride in self.array.strides):
            raise KernelError(f"{name} has strides {self.array.strides}: pass a copy, which has none below 0.")
        self.steps = tuple(stride // size for stride in self.array.strides)
        span = 1 + sum((n - 1) * step for n, step in zip(self.array.shape, self.steps, strict=True))
        self.span = span if self.array.size else 0
        self.flat = np.lib.stride_tricks.as_strided(self.array, (self.span,), (size,))
        self.inside = np.zeros(self.span, bool)
        self.shaped(self.inside)[...] = True
        self.unset = bool(self.array.size) and self.array.dtype.kind == "f" and bool(np.isnan(self.array).all())
        """Whether nothing has written it: all of its elements are NaN."""
        key = self.array.__array_interface__["data"][0], self.span, size
        self.last, self.seen = shared.setdefault(key, (np.zeros((3, self.span), np.int32), set()))

    def shaped(self, flat: Array) -> Array:
        """Numbers for each place of the memory as a view with the array's shape."""
        return np.lib.stride_tricks.as_strided(flat, self.array.shape, [step * flat.itemsize for step in self.steps])

    def element(self, at: int) -> str:
        """The element at a place of the memory, as x[3, 4]."""
        index = []
        for axis in sorted(range(self.array.ndim), key=lambda axis: -self.steps[axis]):
            step = max(self.steps[axis], 1)
            index.append((axis, at // step if self.array.shape[axis] > 1 else 0))
            at %= step
        return f"{self.name}[{', '.join(str(number) for _, number in sorted(index))}]"

    def read(self, at: Array) -> Array:
        """Values at places."""
        values: Array = self.flat[at]
        return np.asarray(widened(values)) if self.dtype.name == "bfloat16" else values

    def write(self, at: Array, values: Array) -> None:
        """Put values at places."""
        self.flat[at] = narrowed(values) if self.dtype.name == "bfloat16" else values


def _viewed(name: str, given: Any) -> tuple[Array, DType]:
    """An array's memory as NumPy sees it, and the type of its elements; of bfloat16 the bits."""
    kind = str(given.dtype).removeprefix("torch.")
    if type(given).__module__.partition(".")[0] == "torch":
        if given.device.type != "cpu":
            raise KernelError(f"{name} is on {given.device}: pass {name}.cpu(), since a trace runs on the CPU.")
        given = given.detach()
        given = (given.view(sys.modules["torch"].int16) if kind == "bfloat16" else given).numpy()
    kind = {"bool": "int1"}.get(kind, kind)
    if kind not in DTYPES:
        raise KernelError(f"{name} has elements of type {kind}; known are {', '.join(DTYPES)}: {brief_repr(given)}.")
    return given.view(np.uint16) if kind == "bfloat16" else given, DTYPES[kind]


class Log:
    """What all programs asked of memory, access by access.

    An access is one tl.load, tl.store or atomic of a program: program, line, kind, array, and the runs of neighbouring
    elements that it touches, each with its first place and its length. An element that several lanes touch is in
    several runs.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []
        self.starts: list[Array] = []
        self.lengths: list[Array] = []

    def add(self, program: int, line: int, kind: str, array: int, at: Array) -> None:
        """Log an access to places `at` of an array."""
        if len(at) > 1 and (np.diff(at) < 0).any():
            at = np.sort(at)
        first = np.flatnonzero(np.diff(at, prepend=-2) != 1)
        self.rows.append((program, line, KINDS.index(kind), array))
        self.starts.append(at[first])
        self.lengths.append(np.diff(first, append=len(at)).astype(np.int32))
