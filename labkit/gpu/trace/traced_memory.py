"""Arrays as a traced kernel sees them: every access is bounds-checked, logged with its address, and then done.

Addresses are those a GPU would give: each separate piece of memory starts on a 256-byte boundary, as with cudaMalloc,
and views of it lie where they lie. Integers are read as Python integers (numba computes in 64 bits), floating-point
numbers as NumPy scalars of their own type, so that float16 and float32 round as they do on a GPU.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Load = Callable[[Any, int], Any]
Store = Callable[[Any, Any, int], None]
Add = Callable[[int], None]
"""The append method of a log's words."""


class TracedTuple(tuple[Any, ...]):
    """A tuple inside a kernel, indexed the way traced arrays are."""

    __slots__ = ()

    def ld(self, index: int, key: int) -> Any:
        """The element at `index`; a tuple lives in registers, so nothing is logged."""
        found = self[index]
        return TracedTuple(found) if type(found) is tuple else found


class TracedArray:
    """An array inside a kernel. `ld(index, key)` and `st(index, value, key)` are made for its shape, for speed."""

    __slots__ = ("add", "array", "base", "ld", "name", "outside", "space", "st", "watch")

    def __init__(
        self, array: Array, base: int, name: str, space: str, add: Add | None, outside: Any, watch: Any = None
    ) -> None:
        """`base` is the address in bytes of element 0; `outside(array, index, key)` is called for a wrong index."""
        self.array, self.base, self.name, self.space = array, base, name, space
        self.add, self.outside, self.watch = add, outside, watch
        self.ld, self.st = _accessors(self)
        if watch is not None:
            self.ld, self.st = watch(self, self.ld, self.st)

    shape = property(lambda self: TracedTuple(self.array.shape))
    strides = property(lambda self: TracedTuple(self.array.strides))
    size = property(lambda self: self.array.size)
    ndim = property(lambda self: self.array.ndim)
    dtype = property(lambda self: self.array.dtype)
    nbytes = property(lambda self: self.array.nbytes)
    itemsize = property(lambda self: self.array.itemsize)
    T = property(lambda self: self.view(self.array.T))

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Any:
        raise TypeError(
            f"count with `for i in range({self.name}.size)` and index {self.name}, so that each read is seen"
        )

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of the whole array {self.name!r} was asked for; index it")

    def view(self, array: Array) -> TracedArray:
        """A part of this array under the same name, at its true address."""
        here = self.array.__array_interface__["data"][0]
        base = self.base + array.__array_interface__["data"][0] - here
        return TracedArray(array, base, self.name, self.space, self.add, self.outside, self.watch)

    def nowhere(self, array: Array) -> TracedArray:
        """What an access out of bounds gives where it gives an array: memory of its own that is not logged."""
        return TracedArray(array, 0, self.name, "local", None, self.outside)

    def field(self, name: str) -> TracedArray:
        """One field of every record."""
        return self.view(self.array[name])

    def place(self, index: Any) -> tuple[int, ...] | None:
        """`index` as a full tuple of whole numbers, None where it is outside; IndexError for a wrong number of them."""
        parts = index if isinstance(index, tuple) else (index,)
        full = tuple(operator.index(part) for part in parts)
        if len(full) != self.array.ndim:
            raise IndexError(f"{self.name} has {self.array.ndim} dimensions and is indexed with {len(full)} numbers")
        return full if all(0 <= i < n for i, n in zip(full, self.array.shape, strict=True)) else None

    def report(self, place: tuple[int, ...], key: int) -> None:
        """Log an access to the element at `place`."""
        if self.add is not None:
            address = self.base + sum(i * stride for i, stride in zip(place, self.array.strides, strict=True))
            self.add(key)
            self.add(8 * address + self.array.itemsize.bit_length() - 1)

    def exchange(self, place: tuple[int, ...], change: Callable[[Any], Any], key: int) -> Any:
        """Replace the element at `place` by `change(old)`, logged as one access; the old value."""
        old = self.array[place]
        old = old.item() if self.array.dtype.kind in "iub" else old
        self.report(place, key)
        self.array[place] = wrapped(change(old), self.array.dtype)
        return old


class Record:
    """One record of a structured array: reading a field reads memory, holding the record reads nothing."""

    __slots__ = ("of", "place")

    def __init__(self, of: TracedArray, place: tuple[int, ...]) -> None:
        self.of, self.place = of, place

    def ld(self, field: str, key: int) -> Any:
        """Read a field."""
        return self.of.field(field).ld(self._index(), key)

    def st(self, field: str, value: Any, key: int) -> None:
        """Write a field."""
        self.of.field(field).st(self._index(), value, key)

    def _index(self) -> Any:
        return self.place[0] if len(self.place) == 1 else self.place


def wrapped(value: Any, dtype: np.dtype[Any]) -> Any:
    """`value` as a cast in C gives it: integers wrap around, floating-point numbers lose their fraction."""
    if dtype.kind in "iu" and isinstance(value, int | np.integer):
        bits = 8 * dtype.itemsize
        rest = int(value) & ((1 << bits) - 1)
        return rest - (1 << bits) if dtype.kind == "i" and rest >> (bits - 1) else rest
    return value


def _flat(array: Array) -> Array | None:
    """The memory of `array` as one line of elements from its element 0 on; None where elements are not in step."""
    size = array.itemsize
    if array.dtype.kind not in "fiubc" or any(s < 0 or s % size for s in array.strides) or not array.size:
        return None
    span = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // size + 1
    return np.lib.stride_tricks.as_strided(array, (span,), (size,))


def _accessors(traced: TracedArray) -> tuple[Load, Store]:
    """The pair (ld, st) for an array: short for one and two dimensions of plain numbers, general for all else."""
    flat = _flat(traced.array)
    if flat is None or traced.array.ndim not in (1, 2):
        return _general(traced)
    size = traced.array.itemsize
    code = size.bit_length() - 1
    whole = flat.dtype.kind in "iub"
    # A memoryview gives Python integers and is twice as fast; floating-point numbers keep their own type.
    read: Callable[[int], Any] = (memoryview(flat.data) if whole else flat).__getitem__
    write = _writer(flat)
    add = traced.add or _nothing
    steps = tuple(s // size for s in traced.array.strides)
    make: Callable[..., tuple[Load, Store]] = _one if traced.array.ndim == 1 else _two
    return make(traced, read, write, add, steps, 8 * traced.base + code, 8 * size)


def _nothing(_: int) -> None:
    """Local memory is not logged."""


def _writer(flat: Array) -> Callable[[int, Any], None]:
    put = flat.__setitem__
    if flat.dtype.kind not in "iu":
        return put

    def write(k: int, value: Any) -> None:
        try:
            put(k, value)
        except OverflowError:
            put(k, wrapped(value, flat.dtype))

    return write


def _one(traced: TracedArray, read: Any, write: Any, add: Add, steps: Any, base: int, size: int) -> Any:
    n, (step,) = traced.array.shape[0], steps
    ld_any, st_any = _general(traced)
    size *= step

    def ld(i: Any, key: int) -> Any:
        try:
            if 0 <= i < n:
                value = read(i * step)
                add(key)
                add(base + i * size)
                return value
        except (TypeError, ValueError, IndexError):  # a slice, a tuple of one, a field's name, or no index at all
            pass
        return ld_any(i, key)

    def st(i: Any, value: Any, key: int) -> None:
        try:
            if 0 <= i < n:
                write(i * step, value)
                add(key)
                add(base + i * size)
                return
        except (TypeError, ValueError, IndexError):
            pass
        st_any(i, value, key)

    return ld, st


def _two(traced: TracedArray, read: Any, write: Any, add: Add, steps: Any, base: int, size: int) -> Any:
    (n, m), (a, b) = traced.array.shape, steps
    ld_any, st_any = _general(traced)

    def ld(ij: Any, key: int) -> Any:
        try:
            i, j = ij
            if 0 <= i < n and 0 <= j < m:
                k = i * a + j * b
                value = read(k)
                add(key)
                add(base + k * size)
                return value
        except (TypeError, ValueError, IndexError):
            pass
        return ld_any(ij, key)

    def st(ij: Any, value: Any, key: int) -> None:
        try:
            i, j = ij
            if 0 <= i < n and 0 <= j < m:
                k = i * a + j * b
                write(k, value)
                add(key)
                add(base + k * size)
                return
        except (TypeError, ValueError, IndexError):
            pass
        st_any(ij, value, key)

    return ld, st


def _general(traced: TracedArray) -> tuple[Load, Store]:
    """Accessors for any shape, for slices, for records, and for what the short ones gave up on."""
    array, ndim = traced.array, traced.array.ndim

    def ld(index: Any, key: int) -> Any:
        if isinstance(index, str):
            return traced.field(index)
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, slice) for part in parts) or len(parts) < ndim:
            return _slice(traced, parts, key)
        place = traced.place(parts)
        if place is None:
            value = traced.outside(traced, index, key, writing=False)
            return Record(traced.nowhere(np.zeros(1, array.dtype)), (0,)) if array.dtype.names else value
        if array.dtype.names:
            return Record(traced, place)
        traced.report(place, key)
        value = array[place]
        return value.item() if array.dtype.kind in "iub" else value

    def st(index: Any, value: Any, key: int) -> None:
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, slice) for part in parts) or len(parts) < ndim:
            part = _slice(traced, parts, key)
            for place in itertools.product(*map(range, part.shape)):
                part.st(place if len(place) > 1 else place[0], value, key)
            return
        if isinstance(value, Record):
            raise TypeError("a whole record can't be copied at once here: copy it field by field")
        at = traced.place(parts)
        if at is None:
            traced.outside(traced, index, key, writing=True)
        else:
            array[at] = wrapped(value, array.dtype)
            traced.report(at, key)

    return ld, st


def _slice(traced: TracedArray, parts: tuple[Any, ...], key: int) -> TracedArray:
    """The view that a partial index or a slice gives. Whole numbers in it are checked, slices are cut to size."""
    if len(parts) > traced.array.ndim:
        raise IndexError(f"{traced.name} has {traced.array.ndim} dimensions and is indexed with {len(parts)} numbers")
    for part, n in zip(parts, traced.array.shape, strict=False):
        if not isinstance(part, slice) and not 0 <= part < n:
            traced.outside(traced, parts, key, writing=False)
            inside = tuple(p if isinstance(p, slice) else 0 for p in parts)
            return traced.nowhere(
                np.zeros_like(traced.array[inside]) if 0 not in traced.array.shape else traced.array[:0]
            )
    return traced.view(traced.array[parts])
