"""A CUDA thread: the part of numba's `cuda` that a traced kernel can use."""

# mypy: disable-error-code="no-any-return"
# A thread knows its block as Any: thread_block.py imports this module.

from __future__ import annotations

import operator
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.machine.event_log import SITES
from kerneltrace.machine.grid import WARP, Dim3
from kerneltrace.machine.numba_types import as_dtype, stand_in
from kerneltrace.machine.traced_memory import (
    Record,
    TracedArray,
    TracedTuple,
    is_partial,
    parts_of,
    wrapped,
)

FULL = 0xFFFFFFFF
SWAPS = 8
"""Of a thread, before which the others run; a kernel that gives up does so sooner."""
ANY_LANES = -1
"""The mask of an operation that waits for no lane in particular."""

VALUES = ("threadIdx", "blockIdx", "blockDim", "gridDim", "laneid", "warpsize")
"""Attributes of `cuda` that a kernel reads."""

PLAIN = (
    "grid",
    "gridsize",
    "popc",
    "clz",
    "ffs",
    "brev",
    "fma",
    "selp",
    "cbrt",
    "nanosleep",
    "lanemask_lt",
    "cg.this_grid",
)
"""Functions of `cuda` that leave no trace."""

BITS = ("popc", "clz", "ffs", "brev")
"""Those of them whose result depends on the number of bits of their argument, which
they take last.
"""

ATOMICS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "max": max,
    "min": min,
    "nanmax": lambda old, value: np.fmax(old, value).item(),
    "nanmin": lambda old, value: np.fmin(old, value).item(),
    "exch": lambda old, value: value,
    "cas": lambda old, expected, value: value if old == expected else old,
    "and_": operator.and_,
    "or_": operator.or_,
    "xor": operator.xor,
    "inc": lambda old, value: 0 if old >= value else old + 1,
    "dec": lambda old, value: value if old == 0 or old > value else old - 1,
}
"""What an atomic writes, given the old value and its arguments."""

_SHUFFLES = ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")
_VOTES = (
    "all_sync",
    "any_sync",
    "eq_sync",
    "ballot_sync",
    "match_any_sync",
    "match_all_sync",
)
KEYED = {
    **dict.fromkeys(
        ("syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or"),
        "barrier",
    ),
    **dict.fromkeys(("syncwarp", "activemask", *_SHUFFLES, *_VOTES), "warp"),
    **dict.fromkeys(
        ("threadfence", "threadfence_system", "threadfence_block"), "fence"
    ),
    **dict.fromkeys(("shared.array", "local.array", "const.array_like"), "array"),
    **{f"atomic.{op}": "atomic" for op in (*ATOMICS, "compare_and_swap")},
}
"""Functions of `cuda` that report, and the kind of their sites."""

WAITING = ("barrier", "warp")
"""Kinds of functions at which a thread waits for others: generators, called with `yield
from`.
"""

Wait = Generator[int, None, Any]


def _block_vote(answer: Callable[[list[Any]], int]) -> Callable[..., Wait]:
    def vote(self: TracedThread, key: int, predicate: Any) -> Wait:
        return answer((yield from self.wait("barrier", key, 0, predicate)))

    return vote


def _warp_vote(answer: Callable[[dict[int, Any]], Any]) -> Callable[..., Wait]:
    def vote(self: TracedThread, key: int, mask: int, predicate: Any) -> Wait:
        return answer((yield from self.wait("warp", key, mask & FULL, predicate)))

    return vote


def _shuffle(source: Callable[[int, int], int]) -> Callable[..., Wait]:
    """The value of the lane `source(own lane, argument)`; the thread's own where the
    warp has no such lane.
    """

    def shuffled(
        self: TracedThread, key: int, mask: int, value: Any, argument: int
    ) -> Wait:
        lanes = yield from self.wait("warp", key, mask & FULL, value)
        lane = source(self.laneid, argument)
        if not 0 <= lane < WARP:
            lane = self.laneid
        if lane in lanes:
            return lanes[lane]
        self._block.execution.diagnostics.absent_lane(key, lane)
        return type(value)(self._block.execution.settings.undefined)

    return shuffled


class TracedThread:
    """One thread. Its methods are those of `cuda`; those in KEYED take the key of their
    site first.
    """

    warpsize = WARP

    def __init__(self, block: Any, index: Dim3, number: int) -> None:
        """`number` counts the threads of the block, x fastest; `block` is its
        ThreadBlock.
        """
        self._block = block
        self.threadIdx = index
        self.blockIdx = block.index
        self.blockDim = block.dim
        self.gridDim = block.grid
        self.in_grid = block.first + number
        self.laneid = number % WARP
        self.warp = number // WARP
        self.generator: Any = None  # runs the thread, where its kernel can wait
        self.key = 0
        self.kind = "barrier"
        self.mask = 0
        """Where it waits (0: it only pauses, -1: it has returned), at what kind of
        site, and with which lanes.
        """
        self.brought: Any = None
        """What it brings to a barrier, a warp operation or a pause (an access's key);
        `answer` is what it gets back.
        """
        self.answer: Any = None
        self.times = [0] * len(block.program.counters)
        """How often it has executed what each counter of the program counts."""
        self.swaps = 0
        """How often it has come to a compare-and-swap whose result is used."""

    def detach(self) -> None:
        """Drop the references that form a cycle with the block, which nobody collects
        during a trace.
        """
        self._block = self.generator = None

    # -- position

    def grid(self, ndim: int) -> Any:
        """The thread's place in the whole grid: an integer, or a tuple of 2 or 3."""
        axes = zip(self.blockIdx, self.blockDim, self.threadIdx, strict=True)
        places = [block * size + thread for block, size, thread in axes]
        return places[0] if ndim == 1 else TracedTuple(places[:ndim])

    def gridsize(self, ndim: int) -> Any:
        """Threads of the whole grid along each of `ndim` directions."""
        extents = zip(self.gridDim, self.blockDim, strict=True)
        sizes = [blocks * threads for blocks, threads in extents]
        return sizes[0] if ndim == 1 else TracedTuple(sizes[:ndim])

    # -- waiting

    def wait(self, kind: str, key: int, mask: int, brought: Any) -> Wait:
        """Wait for the block or for the lanes in `mask`; what the waiting threads
        bring.
        """
        self.kind = kind
        self.mask = mask
        self.brought = brought
        yield key
        self.kind = "barrier"
        self.brought = None
        return self.answer

    def pause(self, key: int) -> int:
        """Note the access that comes next, and return the 0 of a thread that only
        pauses.
        """
        self.brought = key
        return 0

    @staticmethod
    def is_reachable(owner: Any, index: Any) -> bool:
        """Whether `owner[index]` is an element that other threads can reach: none of a
        tuple or of a local array, and no part of an array.
        """
        if isinstance(owner, Record):
            return owner.array.add is not None
        if not isinstance(owner, TracedArray) or owner.add is None:
            return False
        return not isinstance(index, str) and not is_partial(
            parts_of(index), owner.ndim
        )

    # What a vote answers, given the predicates of the block, or of the lanes by their
    # numbers.
    syncthreads_count = _block_vote(lambda votes: sum(map(bool, votes)))
    syncthreads_and = _block_vote(lambda votes: int(all(votes)))
    syncthreads_or = _block_vote(lambda votes: int(any(votes)))
    all_sync = _warp_vote(lambda votes: int(all(votes.values())))
    any_sync = _warp_vote(lambda votes: int(any(votes.values())))
    eq_sync = _warp_vote(lambda values: int(len(set(values.values())) == 1))
    ballot_sync = _warp_vote(
        lambda votes: sum(1 << lane for lane, vote in votes.items() if vote)
    )

    def syncwarp(self, key: int, mask: int = FULL) -> Wait:
        """Wait for the lanes of the warp that `mask` names."""
        number = yield from self.wait("warp", key, mask & FULL, None)
        if isinstance(number, int):  # the warp's other lanes did not take part
            self._block.log.add(key)
            self._block.log.add(8 * number)

    def activemask(self, key: int) -> Wait:
        """The lanes of the warp that are here together: all that come this way, since
        the trace keeps them in step.
        """
        lanes = yield from self.wait("warp", key, ANY_LANES, None)
        return sum(1 << lane for lane in lanes)

    def match_any_sync(self, key: int, mask: int, value: Any) -> Wait:
        """The lanes that bring the same value."""
        lanes = yield from self.wait("warp", key, mask & FULL, value)
        return sum(1 << lane for lane, brought in lanes.items() if brought == value)

    def match_all_sync(self, key: int, mask: int, value: Any) -> Wait:
        """The mask and True if all lanes bring the same value, else 0 and False."""
        lanes = yield from self.wait("warp", key, mask & FULL, value)
        same = len(set(lanes.values())) == 1
        return TracedTuple((mask if same else 0, same))

    cg_this_grid = staticmethod(lambda: None)  # all that it is for is sync()

    def grid_sync(self, key: int) -> Wait:
        """Wait for all threads of the grid."""
        yield from self.wait("grid", key, 0, None)

    def lanemask_lt(self) -> int:
        """The lanes below this one."""
        return (1 << self.laneid) - 1

    shfl_sync = _shuffle(lambda lane, source: source % WARP)
    shfl_up_sync = _shuffle(lambda lane, delta: lane - delta)
    shfl_down_sync = _shuffle(lambda lane, delta: lane + delta)
    shfl_xor_sync = _shuffle(lambda lane, bits: lane ^ bits % WARP)

    # -- memory

    def threadfence(self, key: int) -> None:
        """Make what this thread wrote visible to others before what it writes later."""
        self._block.log.add(key)
        self._block.log.add(0)

    threadfence_system = threadfence_block = threadfence

    def shared_array(
        self, key: int, shape: Any, dtype: Any, alignment: int | None = None
    ) -> TracedArray:
        """Memory that the threads of a block share; a shape of 0 is the launch's
        dynamic shared memory.
        """
        site = key % SITES
        name = self._block.program.sites[site].text
        return self._block.shared.array(site, name, shape, as_dtype(dtype))

    def local_array(
        self, key: int, shape: Any, dtype: Any, alignment: int | None = None
    ) -> TracedArray:
        """Memory of the thread alone."""
        name = self._block.program.sites[key % SITES].text
        return self._block.execution.memory.local(shape, as_dtype(dtype), name)

    def const_array_like(self, key: int, array: Any) -> TracedArray:
        """An array that numba compiled into constant memory."""
        return self._block.execution.memory.constant(array, "constant")

    def attribute(self, owner: Any, name: str, key: int) -> Any:
        """A field of a record, or of every record of an array; of anything else the
        plain attribute.
        """
        if isinstance(owner, TracedArray):
            fields = owner.array.dtype.names or ()
            if name not in fields:
                raise KernelError(
                    f"{owner.name}.{name} is not supported by kerneltrace. Write a loop"
                    f" over the elements of {owner.name}."
                )
        if isinstance(owner, TracedArray | Record):
            return owner.ld(name, key)
        return stand_in(getattr(owner, name))

    def atomic(
        self, op: str, key: int, array: TracedArray, index: Any, *values: Any
    ) -> Any:
        """Change an element in one indivisible step and return its old value; `op` is a
        key of ATOMICS.
        """
        place = array.element(index, key, writing=True)
        if place is None:
            return array.absent
        cast = [wrapped(value, array.dtype) for value in values]
        return array.exchange(place, lambda old: ATOMICS[op](old, *cast), key)

    def swap(self, key: int, *args: Any) -> Wait:
        """A compare-and-swap whose result is used.

        In a changed order the other threads run between a thread's arguments and its
        first swaps, which then meet what they have written: so the kernel shows what it
        does after swaps that fail.
        """
        self.swaps += 1
        if self._block.is_reordered and self.swaps <= SWAPS:
            yield 0
        return self.atomic("cas", key, *args)

    # -- bits and numbers

    popc = staticmethod(lambda x, bits=32: (int(x) & (1 << bits) - 1).bit_count())
    clz = staticmethod(
        lambda x, bits=32: bits - (int(x) & (1 << bits) - 1).bit_length()
    )
    # the place of the lowest 1 from 1 on, or 0
    ffs = staticmethod(lambda x, bits=32: int(x & -x).bit_length())
    brev = staticmethod(
        lambda x, bits=32: int(f"{int(x) & (1 << bits) - 1:0{bits}b}"[::-1], 2)
    )

    @staticmethod
    def fma(a: Any, b: Any, c: Any) -> Any:
        """Multiply and add, rounded once where all three are float32 or float16."""
        exact = np.float64(a) * np.float64(b) + np.float64(c)
        if all(isinstance(x, np.float32 | np.float16) for x in (a, b, c)):
            return type(a)(exact)
        return exact

    selp = staticmethod(lambda choose, a, b: a if choose else b)  # without a branch
    cbrt = staticmethod(np.cbrt)
    nanosleep = staticmethod(lambda nanoseconds: None)
