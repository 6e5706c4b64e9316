"""Place the arrays of a launch in its address spaces: global, constant, shared and
local.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.machine.event_log import SITES
from kerneltrace.machine.traced_memory import (
    Add,
    Array,
    Load,
    Record,
    Store,
    TracedArray,
    TracedTuple,
    counted,
    parts_of,
)

# Each space has a range of its own, so that an address alone tells the space of an
# access.
SHARED_END = 1 << 30
"""Lower addresses lie in shared memory, and are the same in every block."""
DYNAMIC_SHARED = 1 << 29
"""Address of dynamic shared memory, above all static shared arrays."""
CONSTANT = SHARED_END
GLOBAL = 1 << 31
ALIGNMENT = 256
"""Bytes to which cudaMalloc aligns (CUDA C++ Programming Guide, "Device Memory
Accesses").
"""
MAX_STATIC_SHARED = 48 * 1024
"""Bytes a block of shared memory with a fixed shape (CUDA C++ Programming Guide,
"Shared Memory").
"""


@dataclass(frozen=True)
class Region:
    """An array that a kernel can reach, and where it lies."""

    name: str
    space: str
    base: int
    """Address of the array's element 0."""
    array: Array

    @cached_property
    def span(self) -> tuple[int, int]:
        """Addresses from the first byte of the array to the one after its last."""
        low, high = np.lib.array_utils.byte_bounds(self.array)
        start = self.base - self.array.ctypes.data
        return int(low) + start, int(high) + start

    def element(self, number: int) -> str:
        """The element with a flat number (C order) as its source would name it: `a[3,
        4]`.
        """
        indices = np.unravel_index(number, self.array.shape)
        return f"{self.name}[{', '.join(str(int(i)) for i in indices)}]"

    def elements(self, addresses: Array) -> Array:
        """For each address the flat number (C order) of the element it lies in, -1 for
        none.
        """
        if not self.array.size:
            return np.full(len(addresses), -1)
        shape = self.array.shape
        strides = self.array.strides
        rest = addresses - self.span[0]
        number = np.zeros(len(addresses), "i8")
        inside = rest >= 0
        # Peel off the axes from the largest stride to the smallest, whatever their
        # order and direction.
        several = [axis for axis, n in enumerate(shape) if n > 1 and strides[axis]]
        for axis in sorted(several, key=lambda axis: -abs(strides[axis])):
            stride = abs(strides[axis])
            at = rest // stride
            rest = rest - at * stride
            inside &= at < shape[axis]
            index = at if strides[axis] > 0 else shape[axis] - 1 - at
            number += index * math.prod(shape[axis + 1 :])
        numbers: Array = np.where(inside & (rest < self.array.itemsize), number, -1)
        return numbers


def owner_bounds(array: Array) -> tuple[int, int]:
    """First address, and the one after the last, of the memory that an array is a view
    of.
    """
    owner: Any = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if isinstance(owner.base, memoryview):
        owner = np.frombuffer(owner.base, "u1")
    low, high = np.lib.array_utils.byte_bounds(owner)
    return int(low), int(high)


class AddressSpace:
    """Global and constant memory of a launch, and its local arrays, whose accesses are
    not logged.
    """

    def __init__(
        self,
        add: Add,
        out_of_bounds: Callable[..., Any],
        unset_local: Callable[..., None],
        watch: Any = None,
    ) -> None:
        """`out_of_bounds` and `unset_local` report mistakes; `watch` is told each
        access that is logged.
        """
        self.regions: list[Region] = []
        self._add = add
        self._out_of_bounds = out_of_bounds
        self._watch = watch
        self._unset_local = unset_local
        self._next = {"global": GLOBAL, "constant": CONSTANT}
        self._starts: dict[int, int] = {}
        self._constants: dict[int, TracedArray] = {}
        self.local_bytes: dict[str, int] = {}
        """Bytes a thread of each local array."""

    def argument(self, value: Any, name: str) -> Any:
        """An argument as the kernel takes it: arrays, also those in a tuple, at their
        addresses.
        """
        if isinstance(value, TracedTuple):
            return TracedTuple(
                self.argument(part, f"{name}[{i}]") for i, part in enumerate(value)
            )
        return self.place(value, name) if isinstance(value, np.ndarray) else value

    def place(self, array: Array, name: str, space: str = "global") -> TracedArray:
        """`array` at its address: views of the same memory share it."""
        low, high = owner_bounds(array)
        if low not in self._starts:
            self._starts[low] = self._next[space]
            self._next[space] += -(-max(high - low, 1) // ALIGNMENT) * ALIGNMENT
        base = self._starts[low] + array.ctypes.data - low
        self.regions.append(Region(name, space, base, array))
        return TracedArray(
            array, base, name, self._add, self._out_of_bounds, self._watch
        )

    def constant(self, array: Any, name: str) -> TracedArray:
        """An array compiled into the kernel; writing to it raises."""
        array = array.array if isinstance(array, TracedArray) else np.asarray(array)
        if id(array) not in self._constants:
            copy = array.copy()
            copy.flags.writeable = False
            self._constants[id(array)] = self.place(copy, name, "constant")
        return self._constants[id(array)]

    def local(self, shape: Any, dtype: np.dtype[Any], name: str) -> TracedArray:
        """Memory of one thread: bounds-checked, not logged, and filled with NaN or 0xCD
        before it is written.
        """
        array = blank(shape, dtype)
        self.local_bytes[name] = array.nbytes
        watch = _first_writes(array, self._unset_local)
        return TracedArray(array, 0, name, None, self._out_of_bounds, watch)

    def shared(
        self, array: Array, base: int, name: str, note: Add | None = None
    ) -> TracedArray:
        """A shared array at its offset; `note` is told the key of each access."""
        is_key = itertools.cycle((True, False))

        def add(word: int) -> None:
            if note and next(is_key):
                note(word)
            self._add(word)

        return TracedArray(
            array,
            base,
            name,
            add if note else self._add,
            self._out_of_bounds,
            self._watch,
        )


class View(NamedTuple):
    """What an access takes shared memory for."""

    array: int
    """A number for the array; 0 where it isn't known."""
    kind: str
    """The type of its elements, `f4`, in which unsigned integers are as signed ones;
    empty where it isn't known.
    """


def _first_writes(array: Array, report: Callable[..., None]) -> Any:
    """Watches a local array for reads of elements that nobody has written."""
    step = 1 if array.dtype.names else array.itemsize  # of records any field
    blank = set(range(0, array.nbytes, step))

    def watch(traced: TracedArray, ld: Load, st: Store) -> tuple[Load, Store]:
        """Accessors that look out for them, of the array or of a view of it."""

        def address(index: Any) -> Any:
            places = map(counted, parts_of(index), traced.array.shape)
            return traced.base + sum(map(operator.mul, places, traced.array.strides))

        def load(index: Any, key: int) -> Any:
            value = ld(index, key)
            is_part = isinstance(value, TracedArray | Record)
            if blank and not is_part and address(index) in blank:
                report(traced, index, key)
            return value

        def store(index: Any, value: Any, key: int) -> None:
            st(index, value, key)
            # a slice was stored element by element
            with contextlib.suppress(TypeError):
                blank.discard(address(index))

        return load, store

    return watch


class SharedLayout:
    """The shared arrays of a kernel: their addresses, the same in every block, and the
    bytes they take.
    """

    def __init__(self, dynamic_bytes: int) -> None:
        self.dynamic_bytes = dynamic_bytes
        self.static_bytes = 0
        self.regions: dict[int, Region] = {}
        self.views: dict[int, View] = {}
        """By the sites that access memory which may be taken for several things."""
        self._next = ALIGNMENT

    def note(self, site: int, view: View) -> None:
        """Take down what a site accesses, which may be different things in turn."""
        if self.views.setdefault(site, view) != view:
            self.views[site] = View(0, "")

    def address(self, site: int, name: str, array: Array) -> int:
        """Where the array of `site` starts: at multiples of 256 bytes, so that each
        starts in bank 0.
        """
        if site not in self.regions:
            self.regions[site] = Region(name, "shared", self._next, array)
            self._next += -(-max(array.nbytes, 1) // ALIGNMENT) * ALIGNMENT
            start = -(-self.static_bytes // array.itemsize) * array.itemsize
            self.static_bytes = start + array.nbytes
            if self.static_bytes > MAX_STATIC_SHARED:
                raise KernelError(
                    f"{name} brings a block's shared memory to {self.static_bytes:,}"
                    " bytes, and shared arrays of fixed shape have"
                    f" {MAX_STATIC_SHARED:,} at most. Use smaller ones, or dynamic"
                    " shared memory (shape 0)."
                )
        return self.regions[site].base


class SharedMemory:
    """The shared arrays of one block. Dynamic ones all start at the same address, as in
    numba.
    """

    def __init__(self, layout: SharedLayout, space: AddressSpace) -> None:
        self._layout = layout
        self._space = space
        self._arrays: dict[int, TracedArray] = {}
        self._dynamic: Array | None = None
        self.has_several_dynamic = False
        """Whether dynamic shared memory has several names."""

    def array(
        self, site: int, name: str, shape: Any, dtype: np.dtype[Any]
    ) -> TracedArray:
        """The array allocated at `site`: made by the first thread that comes, shared
        with the others.
        """
        if site not in self._arrays:
            self._arrays[site] = self._new(site, name, shape, dtype)
        return self._arrays[site]

    def _new(
        self, site: int, name: str, shape: Any, dtype: np.dtype[Any]
    ) -> TracedArray:
        if shape not in (0, (0,)):
            array = blank(shape, dtype)
            base = self._layout.address(site, name, array)
            return self._space.shared(array, base, name)
        if not self._layout.dynamic_bytes:
            raise KernelError(
                f"{name} is dynamic shared memory (its shape is 0), but the launch"
                " gives none: pass shared_bytes."
            )
        self.has_several_dynamic = self._dynamic is not None
        if self._dynamic is None:
            self._dynamic = blank(self._layout.dynamic_bytes, np.dtype("u1"))
        whole_items = self._dynamic.nbytes // dtype.itemsize * dtype.itemsize
        array = self._dynamic[:whole_items].view(dtype)
        region = Region(name, "shared", DYNAMIC_SHARED, array)
        self._layout.regions.setdefault(site, region)
        view = View(site, dtype.str[1:].replace("u", "i"))

        def note(key: int) -> None:
            self._layout.note(key & SITES - 1, view)

        return self._space.shared(array, DYNAMIC_SHARED, name, note)


def blank(shape: Any, dtype: np.dtype[Any]) -> Array:
    """Memory that nobody has written: NaN, or 0xCD in every byte, which stand out in
    results.
    """
    array = np.empty(shape, dtype)
    if dtype.kind in "fc":
        array.fill(np.nan)
    elif array.ndim and array.size:
        array.view("u1").fill(0xCD)
    return array
