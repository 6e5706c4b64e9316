"""A CUDA thread: what `cuda` offers to a kernel, as one lane of a traced launch sees it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np

from labkit.gpu.trace.traced_memory import TracedArray, TracedTuple, wrapped

WARP = 32
FULL = 0xFFFFFFFF
WHOEVER = -1  # the mask of an operation that waits for no lane in particular

VALUES = ("threadIdx", "blockIdx", "blockDim", "gridDim", "laneid", "warpsize")
"""Attributes of `cuda` that a kernel reads."""

PLAIN = ("grid", "gridsize", "popc", "clz", "ffs", "brev", "fma", "selp", "cbrt")
"""Functions of `cuda` that leave no trace."""

ATOMICS: dict[str, Callable[..., Any]] = {
    "add": lambda old, value: old + value,
    "sub": lambda old, value: old - value,
    "max": lambda old, value: max(old, value),
    "min": lambda old, value: min(old, value),
    "exch": lambda old, value: value,
    "cas": lambda old, expected, value: value if old == expected else old,
    "and_": lambda old, value: old & value,
    "or_": lambda old, value: old | value,
    "xor": lambda old, value: old ^ value,
    "inc": lambda old, value: 0 if old >= value else old + 1,
    "dec": lambda old, value: value if old == 0 or old > value else old - 1,
}
"""What an atomic writes, given the old value and its arguments."""

KEYED = {
    "syncthreads": "barrier",
    "syncthreads_count": "barrier",
    "syncthreads_and": "barrier",
    "syncthreads_or": "barrier",
    "syncwarp": "warp",
    "activemask": "warp",
    "shfl_sync": "warp",
    "shfl_up_sync": "warp",
    "shfl_down_sync": "warp",
    "shfl_xor_sync": "warp",
    "all_sync": "warp",
    "any_sync": "warp",
    "eq_sync": "warp",
    "ballot_sync": "warp",
    "threadfence": "fence",
    "threadfence_system": "fence",
    "threadfence_block": "fence",
    "shared.array": "array",
    "local.array": "array",
    "const.array_like": "array",
} | {f"atomic.{op}": "atomic" for op in ATOMICS}
"""Functions of `cuda` that report, and the kind of their sites."""


WAITS = ("barrier", "warp")
"""Kinds of functions at which a thread waits for others: generators, called with `yield from`."""

Wait = Generator[int, None, Any]


class Dim3(NamedTuple):
    """Three numbers, x fastest."""

    x: int
    y: int
    z: int


def place(number: int, shape: Dim3) -> Dim3:
    """The 3-D place of the `number`-th thread or block of a shape, x fastest."""
    return Dim3(number % shape.x, number // shape.x % shape.y, number // (shape.x * shape.y))


def named(at: Dim3, shape: Dim3) -> str:
    """A place in words: a number where the shape is one line, else a tuple (x, y) or (x, y, z)."""
    if shape.y == shape.z == 1:
        return str(at.x)
    return str(tuple(at[:2] if shape.z == 1 else at))


class Thread:
    """One thread. Its methods are `cuda`'s; those in KEYED take the key of their site first."""

    warpsize = WARP
    __slots__ = (
        "_block", "answer", "blockDim", "blockIdx", "brought", "gridDim", "in_grid", "key", "kind", "laneid", "mask",
        "number", "run", "threadIdx", "warp",
    )  # fmt: skip

    def __init__(self, block: Any, index: Dim3, number: int) -> None:
        """`number` counts the threads of the block, x fastest; `block` runs it."""
        self._block, self.threadIdx, self.number = block, index, number
        self.blockIdx, self.blockDim, self.gridDim = block.index, block.dim, block.grid
        self.in_grid = block.first + number
        self.laneid, self.warp = number % WARP, number // WARP
        self.run: Any = None  # the generator that runs it, where its kernel can wait
        # Where it waits (0: it only pauses, -1: it has returned), and for what: "barrier" or "warp"; with which lanes;
        # what it brings there and what it is told.
        self.key, self.kind, self.mask = 0, "barrier", 0
        self.brought: Any = None
        self.answer: Any = None

    def leave(self) -> None:
        """Let go of the block, at its end."""
        self._block = self.run = None

    # -- where am I

    def grid(self, ndim: int) -> Any:
        """The thread's place in the whole grid: a number, or a tuple of 2 or 3."""
        places = [b * d + t for b, d, t in zip(self.blockIdx, self.blockDim, self.threadIdx, strict=True)]
        return places[0] if ndim == 1 else TracedTuple(places[:ndim])

    def gridsize(self, ndim: int) -> Any:
        """Threads of the whole grid along each of `ndim` directions."""
        sizes = [g * d for g, d in zip(self.gridDim, self.blockDim, strict=True)]
        return sizes[0] if ndim == 1 else TracedTuple(sizes[:ndim])

    # -- waiting

    def _wait(self, kind: str, key: int, mask: int, brought: Any) -> Wait:
        self.kind, self.mask, self.brought = kind, mask, brought
        yield key
        self.kind, self.brought = "barrier", None
        return self.answer

    def syncthreads_count(self, key: int, predicate: Any) -> Wait:
        """Wait for the block; how many of its threads brought a true predicate."""
        return sum(map(bool, (yield from self._wait("barrier", key, 0, predicate))))

    def syncthreads_and(self, key: int, predicate: Any) -> Wait:
        """Wait for the block; 1 if every thread's predicate is true."""
        return int(all((yield from self._wait("barrier", key, 0, predicate))))

    def syncthreads_or(self, key: int, predicate: Any) -> Wait:
        """Wait for the block; 1 if any thread's predicate is true."""
        return int(any((yield from self._wait("barrier", key, 0, predicate))))

    def syncwarp(self, key: int, mask: int = FULL) -> Wait:
        """Wait for the lanes of the warp that `mask` names."""
        yield from self._wait("warp", key, mask & FULL, None)

    def activemask(self, key: int) -> Wait:
        """The lanes that are here together: all of the warp that come this way, as the trace keeps them in step."""
        lanes = yield from self._wait("warp", key, WHOEVER, None)
        return sum(1 << lane for lane in lanes)

    def _shuffle(self, key: int, mask: int, value: Any, source: int) -> Wait:
        lanes = yield from self._wait("warp", key, mask & FULL, value)
        if source in lanes:
            return lanes[source]
        self._block.launch.diagnostics.absent_lane(key, source)
        return type(value)(0)

    def shfl_sync(self, key: int, mask: int, value: Any, src_lane: int) -> Wait:
        """The value that lane `src_lane` brings."""
        return self._shuffle(key, mask, value, src_lane % WARP)

    def shfl_up_sync(self, key: int, mask: int, value: Any, delta: int) -> Wait:
        """The value of the lane `delta` below; the own one where there is none."""
        return self._shuffle(key, mask, value, self.laneid - delta if self.laneid >= delta else self.laneid)

    def shfl_down_sync(self, key: int, mask: int, value: Any, delta: int) -> Wait:
        """The value of the lane `delta` above; the own one where there is none."""
        return self._shuffle(key, mask, value, self.laneid + delta if self.laneid + delta < WARP else self.laneid)

    def shfl_xor_sync(self, key: int, mask: int, value: Any, lane_mask: int) -> Wait:
        """The value of the lane whose number differs in the bits of `lane_mask`."""
        return self._shuffle(key, mask, value, self.laneid ^ lane_mask)

    def all_sync(self, key: int, mask: int, predicate: Any) -> Wait:
        """1 if every lane's predicate is true."""
        return int(all((yield from self._wait("warp", key, mask & FULL, predicate)).values()))

    def any_sync(self, key: int, mask: int, predicate: Any) -> Wait:
        """1 if any lane's predicate is true."""
        return int(any((yield from self._wait("warp", key, mask & FULL, predicate)).values()))

    def eq_sync(self, key: int, mask: int, value: Any) -> Wait:
        """1 if all lanes bring the same value."""
        return int(len(set((yield from self._wait("warp", key, mask & FULL, value)).values())) == 1)

    def ballot_sync(self, key: int, mask: int, predicate: Any) -> Wait:
        """A mask of the lanes whose predicate is true."""
        votes = yield from self._wait("warp", key, mask & FULL, predicate)
        return sum(1 << lane for lane, vote in votes.items() if vote)

    # -- memory

    def threadfence(self, key: int) -> None:
        """What this thread wrote is seen by others before what it writes later."""
        self._block.log.add(key)
        self._block.log.add(0)

    threadfence_system = threadfence

    def threadfence_block(self, key: int) -> None:
        """Order within the block, which the trace has always."""

    def shared_array(self, key: int, shape: Any, dtype: Any) -> TracedArray:
        """Memory that the threads of a block share; a shape of 0 is the launch's dynamic shared memory."""
        made: TracedArray = self._block.shared(key, shape, dtype)
        return made

    def local_array(self, key: int, shape: Any, dtype: Any) -> TracedArray:
        """Memory of the thread alone."""
        made: TracedArray = self._block.local(key, shape, dtype)
        return made

    def const_array_like(self, key: int, array: Any) -> TracedArray:
        """An array that numba compiled into constant memory."""
        made: TracedArray = self._block.constant(array)
        return made

    def attribute(self, owner: Any, name: str, key: int) -> Any:
        """A field of a record, or of every record of an array; any other attribute of any other thing."""
        if isinstance(owner, TracedArray) or hasattr(owner, "of"):
            return owner.ld(name, key)
        return getattr(owner, name)

    def atomic(self, op: str, key: int, array: TracedArray, index: Any, *values: Any) -> Any:
        """Read and write an element with no other thread between; the old value. `op` is a key of ATOMICS."""
        place = array.place(index)
        if place is None:
            return array.outside(array, index, key, writing=True)
        cast = [wrapped(value, array.dtype) for value in values]
        return array.exchange(place, lambda old: ATOMICS[op](old, *cast), key)

    # -- bits and numbers

    @staticmethod
    def popc(x: int) -> int:
        """Bits that are 1."""
        return int(x & _mask(x)).bit_count()

    @staticmethod
    def clz(x: int) -> int:
        """Zero bits above the highest 1, in 32 bits (64 for larger numbers)."""
        return _bits(x) - int(x & _mask(x)).bit_length()

    @staticmethod
    def ffs(x: int) -> int:
        """Place of the lowest 1, counted from 1; 0 for none."""
        return int(x & -x).bit_length()

    @staticmethod
    def brev(x: int) -> int:
        """The bits in reverse order."""
        return int(f"{int(x & _mask(x)):0{_bits(x)}b}"[::-1], 2)

    @staticmethod
    def fma(a: Any, b: Any, c: Any) -> Any:
        """Multiply and add, rounded once where all three are float32 or float16."""
        short = [type(x) for x in (a, b, c) if isinstance(x, np.float32 | np.float16)]
        exact = np.float64(a) * np.float64(b) + np.float64(c)
        return short[0](exact) if len(short) == 3 else exact

    @staticmethod
    def selp(choose: Any, a: Any, b: Any) -> Any:
        """`a` if `choose` else `b`, without a branch."""
        return a if choose else b

    @staticmethod
    def cbrt(x: Any) -> Any:
        """Cube root."""
        return np.cbrt(x)


def _bits(x: int) -> int:
    return 32 if -(1 << 31) <= x < 1 << 32 else 64


def _mask(x: int) -> int:
    return (1 << _bits(x)) - 1
