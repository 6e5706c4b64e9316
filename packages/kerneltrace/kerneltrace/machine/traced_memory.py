"""Arrays as a traced kernel sees them: every access is bounds-checked, performed, and
logged with its address.

Addresses are like those of a GPU: each separate piece of memory starts on a 256-byte
boundary, as with cudaMalloc, and views of it keep their offsets. Integers are read as
Python integers (numba computes in 64 bits), floating-point numbers as NumPy scalars of
their own type, so that float16 and float32 round as they do on a GPU.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError

Array = np.ndarray[Any, Any]
Load = Callable[[Any, int], Any]
Store = Callable[[Any, Any, int], None]
Add = Callable[[int], None]
"""The append method of a log's words."""


class FromEnd(int):
    """A negative index that the source writes as such, `a[-1]`, which counts from the
    end, as numba does. One that is calculated is taken for a mistake.
    """

    __slots__ = ()


def counted(part: Any, length: int) -> Any:
    """An index along a dimension, counted from the beginning."""
    return part + length if type(part) is FromEnd else part


class TracedTuple(tuple[Any, ...]):
    """A tuple inside a kernel, indexed the way traced arrays are."""

    __slots__ = ()

    def ld(self, index: int, key: int) -> Any:
        """The element at `index`; a tuple lives in registers, so nothing is logged."""
        element = self[index]
        return TracedTuple(element) if type(element) is tuple else element


def leaves(value: Any) -> Iterator[Any]:
    """The values in a tuple and in the tuples in it; of any other value, itself."""
    if isinstance(value, tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


class TracedArray:
    """An array inside a kernel. `ld(index, key)` and `st(index, value, key)` are made
    for its shape, for speed.
    """

    def __init__(
        self,
        array: Array,
        base: int,
        name: str,
        add: Add | None,
        out_of_bounds: Any,
        watch: Any = None,
    ) -> None:
        """`base` is the address in bytes of element 0; `out_of_bounds(array, index,
        key)` handles a wrong index.
        """
        self.array = array
        self.size = array.size
        self.ndim = array.ndim
        self.dtype = array.dtype
        self.nbytes = array.nbytes
        self.itemsize = array.itemsize
        self.base = base
        self.name = name
        self.add = add
        self.out_of_bounds = out_of_bounds
        self.watch = watch
        self.ld, self.st = _accessors(self)
        if watch is not None:
            self.ld, self.st = watch(self, self.ld, self.st)

    shape = property(lambda self: TracedTuple(self.array.shape))
    strides = property(lambda self: TracedTuple(self.array.strides))
    T = property(lambda self: self.view(self.array.T))

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Any:
        raise TypeError(
            f"count with `for i in range({self.name}.size)` and index {self.name}, so"
            " that each read is seen"
        )

    def view(self, array: Array) -> TracedArray:
        """A part of this array, under the same name and at its own address."""
        base = self.base + array.ctypes.data - self.array.ctypes.data
        return TracedArray(
            array, base, self.name, self.add, self.out_of_bounds, self.watch
        )

    def unlogged(self, array: Array) -> TracedArray:
        """The array that an access out of bounds gives: memory of its own, whose
        accesses are not logged.
        """
        return TracedArray(array, 0, self.name, None, self.out_of_bounds)

    def field(self, name: str) -> TracedArray:
        """One field of all records."""
        return self.view(self.array[name])

    def element(
        self, index: Any, key: int, *, writing: bool = False
    ) -> tuple[int, ...] | None:
        """`index` as a full tuple of integers, None if out of bounds, which is
        reported; IndexError for a wrong number of them.

        One that is calculated and counts from the end, as numba takes it, is reported,
        too.
        """
        parts = parts_of(index)
        lengths = self.array.shape
        if len(parts) != len(lengths):
            raise self.misindexed(parts)
        pairs = [*zip(parts, lengths, strict=True)]
        place = tuple(operator.index(counted(part, n)) for part, n in pairs)
        if _is_inside(place, lengths):
            return place
        from_end = tuple(int(part) + n if part < 0 else int(part) for part, n in pairs)
        is_inside = _is_inside(from_end, lengths)
        self.out_of_bounds(self, index, key, writing=writing, counted=is_inside)
        return from_end if is_inside else None

    def misindexed(self, parts: tuple[Any, ...]) -> IndexError:
        """The error for a wrong number of indices."""
        return IndexError(
            f"{self.name} has {self.array.ndim} dimensions and is indexed with"
            f" {len(parts)} numbers"
        )

    @property
    def absent(self) -> Any:
        """What a read out of bounds gives: NaN, or 0 for integers."""
        dtype = self.array.dtype
        return dtype.type("nan" if dtype.kind in "fc" else 0)

    def report(self, place: tuple[int, ...], key: int) -> None:
        """Log an access to the element at `place`."""
        if self.add is not None:
            address = self.base + sum(map(operator.mul, place, self.array.strides))
            self.add(key)
            self.add(8 * address + self.array.itemsize.bit_length() - 1)

    def exchange(
        self, place: tuple[int, ...], change: Callable[[Any], Any], key: int
    ) -> Any:
        """Replace the element at `place` by `change(old)`, log one access, and return
        the old value.
        """
        old = self.array[place]
        old = old.item() if self.array.dtype.kind in "iub" else old
        self.report(place, key)
        self.array[place] = wrapped(change(old), self.array.dtype)
        return old


class Record:
    """One record of a structured array: taking the record reads nothing, taking a field
    reads memory.
    """

    def __init__(self, array: TracedArray, place: tuple[int, ...]) -> None:
        self.array = array
        self.place = place

    def ld(self, field: str, key: int) -> Any:
        """Read a field of the record."""
        return self.array.field(field).ld(self.place, key)

    def st(self, field: str, value: Any, key: int) -> None:
        """Write a field of the record."""
        self.array.field(field).st(self.place, value, key)


def wrapped(value: Any, dtype: np.dtype[Any]) -> Any:
    """`value` wrapped into the range of an integer type, as a cast in C does, and a
    fraction cut to it; other types are left as they are.
    """
    if dtype.kind in "iu" and isinstance(value, float | np.floating):
        value = _cut(value, dtype)
    if dtype.kind not in "iu" or not isinstance(value, int | np.integer):
        return value
    bits = 8 * dtype.itemsize
    rest = int(value) & ((1 << bits) - 1)
    is_negative = dtype.kind == "i" and rest >> (bits - 1)
    return rest - (1 << bits) if is_negative else rest


def of_nan(source: np.dtype[Any], target: np.dtype[Any]) -> int:
    """What a GPU makes of a NaN of one floating-point type in a type of integers: 0, or
    the highest bit alone if either of them has 64 bits.

    Source: PTX ISA 9.0, "cvt".
    """
    if source.itemsize < 8 and target.itemsize < 8:
        return 0
    info = np.iinfo(target)
    return int(info.min if info.min else info.max // 2 + 1)


def cut_by(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The integer type to whose range compiled code cuts a float: 8 bits are the lower
    ones of 16.
    """
    return np.dtype(f"{dtype.kind}{max(dtype.itemsize, 2)}")


def _cut(value: Any, dtype: np.dtype[Any]) -> int:
    """A float without its fraction, cut to the range that an integer type is cut by.

    So does PTX's cvt (PTX ISA, "cvt"); what a CPU makes of a fraction beyond the range
    isn't defined.
    """
    target = cut_by(dtype)
    if np.isnan(value):
        return of_nan(np.asarray(value).dtype, target)
    info = np.iinfo(target)
    return int(min(max(float(value), info.min), info.max))


def flat_view(array: Array) -> Array | None:
    """The memory of `array` from its element 0 on, as one dimension; None where its
    strides do not allow it.
    """
    if array.dtype.kind not in "fiubc" or not array.size:
        return None
    size = array.itemsize
    if any(stride < 0 or stride % size for stride in array.strides):
        return None
    pairs = zip(array.shape, array.strides, strict=True)
    last = sum((n - 1) * stride for n, stride in pairs) // size
    return np.lib.stride_tricks.as_strided(array, (last + 1,), (size,))


def _accessors(traced: TracedArray) -> tuple[Load, Store]:
    """The pair (ld, st) for an array: fast for up to three dimensions of plain numbers,
    general for all else.
    """
    flat = flat_view(traced.array)
    general = _general_load(traced), _general_store(traced)
    if flat is None or not 1 <= traced.array.ndim <= 3:
        return general
    size = traced.array.itemsize
    # A memoryview gives Python integers and is twice as fast; floating-point numbers
    # keep their own type.
    items: Any = memoryview(flat.data) if flat.dtype.kind in "iub" else flat
    read: Callable[[int], Any] = items.__getitem__
    add = traced.add or (lambda _: None)  # local memory is not logged
    steps = tuple(stride // size for stride in traced.array.strides)
    base = 8 * traced.base + size.bit_length() - 1
    return _makers(traced.array.ndim)(
        *traced.array.shape, *steps, read, _writer(flat), add, base, 8 * size, *general
    )


def _writer(flat: Array) -> Callable[[int, Any], None]:
    put = flat.__setitem__
    if flat.dtype.kind not in "iu":
        return put

    def write(k: int, value: Any) -> None:
        try:
            put(k, value if isinstance(value, int) else wrapped(value, flat.dtype))
        except OverflowError:
            put(k, wrapped(value, flat.dtype))

    return write


# Both access before they log, so that an access that fails leaves no event. What is no
# plain index is left to the general accessors: a slice, a field's name, too few
# numbers.
_MAKER = """
def make({sizes}, {steps}, read, write, add, base, size, ld_any, st_any):
    def ld(index, key):
        try:
            {parts} = index
            if {inside}:
                at = {place}
                value = read(at)
                add(key)
                add(base + at * size)
                return value
        except (TypeError, ValueError, IndexError):
            pass
        return ld_any(index, key)

    def st(index, value, key):
        try:
            {parts} = index
            if {inside}:
                at = {place}
                write(at, value)
                add(key)
                add(base + at * size)
                return
        except (TypeError, ValueError, IndexError):
            pass
        st_any(index, value, key)

    return ld, st
"""


@functools.cache
def _makers(ndim: int) -> Callable[..., tuple[Load, Store]]:
    """The function that makes accessors for arrays of so many dimensions."""
    axes = range(ndim)
    source = _MAKER.format(
        sizes=", ".join(f"n{axis}" for axis in axes),
        steps=", ".join(f"s{axis}" for axis in axes),
        parts=", ".join(f"i{axis}" for axis in axes),
        inside=" and ".join(f"0 <= i{axis} < n{axis}" for axis in axes),
        place=" + ".join(f"i{axis} * s{axis}" for axis in axes),
    )
    names: dict[str, Any] = {}
    exec(source, names)
    make: Callable[..., tuple[Load, Store]] = names["make"]
    return make


def parts_of(index: Any) -> tuple[Any, ...]:
    """An index as a tuple."""
    return index if isinstance(index, tuple) else (index,)


def _is_inside(place: tuple[int, ...], lengths: tuple[int, ...]) -> bool:
    return all(0 <= i < n for i, n in zip(place, lengths, strict=True))


def is_partial(parts: tuple[Any, ...], ndim: int) -> bool:
    """Whether an index gives a view in place of an element."""
    return len(parts) < ndim or any(isinstance(part, slice) for part in parts)


def _general_load(traced: TracedArray) -> Load:
    """Reads of any shape, of slices, of records, and of what the fast accessors can't
    handle.
    """
    array = traced.array

    def ld(index: Any, key: int) -> Any:
        if isinstance(index, str):
            return traced.field(index)
        parts = parts_of(index)
        if is_partial(parts, array.ndim):
            return _slice(traced, parts, key)
        place = traced.element(parts, key)
        if array.dtype.names:
            if place is None:
                return Record(traced.unlogged(np.zeros(1, array.dtype)), (0,))
            return Record(traced, place)
        if place is None:
            return traced.absent
        traced.report(place, key)
        value = array[place]
        return value.item() if array.dtype.kind in "iub" else value

    return ld


def _general_store(traced: TracedArray) -> Store:
    array = traced.array

    def st(index: Any, value: Any, key: int) -> None:
        parts = parts_of(index)
        if is_partial(parts, array.ndim):
            view = _slice(traced, parts, key)
            for place in itertools.product(*map(range, view.shape)):
                view.st(place if len(place) > 1 else place[0], value, key)
            return
        if isinstance(value, Record):
            raise KernelError(
                f"{traced.name} is given a whole record of {value.array.name}, which"
                " can't be copied at once here. Copy it field by field."
            )
        element = traced.element(parts, key, writing=True)
        if element is not None:
            array[element] = wrapped(value, array.dtype)
            traced.report(element, key)

    return st


def _slice(traced: TracedArray, parts: tuple[Any, ...], key: int) -> TracedArray:
    """The view that a partial index or a slice gives. Integers in it are
    bounds-checked, slices are clipped.
    """
    if len(parts) > traced.array.ndim:
        raise traced.misindexed(parts)
    parts = tuple(map(counted, parts, traced.array.shape))
    for part, n in zip(parts, traced.array.shape, strict=False):
        if not isinstance(part, slice) and not 0 <= part < n:
            traced.out_of_bounds(traced, parts, key, writing=False)
            if 0 in traced.array.shape:
                return traced.unlogged(traced.array[:0])
            inside = tuple(part if isinstance(part, slice) else 0 for part in parts)
            return traced.unlogged(np.zeros_like(traced.array[inside]))
    return traced.view(traced.array[parts])
