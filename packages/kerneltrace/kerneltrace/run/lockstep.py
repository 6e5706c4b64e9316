"""Run the threads of many blocks in lockstep, each statement for all of them at once,
where their order can't matter.

Single threads in Python need a microsecond for an access; NumPy does a thousand in a
few. What this can't follow, or what may be a mistake, is left to the threads of
thread_block.py, which take turns: an access out of bounds, a race, an atomic whose old
value is used, a shuffle. So a kernel runs here first, on a copy of its arguments, and
what it leaves counts only if nothing was found.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kerneltrace.machine.address_space import SharedMemory
from kerneltrace.machine.event_log import SITES
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.grid import WARP, place
from kerneltrace.machine.numba_types import as_dtype, stand_in
from kerneltrace.machine.traced_memory import Array, TracedArray
from kerneltrace.machine.traced_thread import TracedThread
from kerneltrace.run.lockstep_log import LaneLog
from kerneltrace.run.lockstep_memory import LaneArray
from kerneltrace.source.lockstep_source import LaneRange, NotInLockstep, of_lanes

LANES = 4096
"""Threads that run together, in whole blocks: enough that NumPy is fast, few enough
that their events need little.
"""
FEW = 32
"""With fewer threads than this to each operation on average, single
threads are faster.
"""
_CHANGES = {
    "add": np.add,
    "sub": np.subtract,
    "max": np.maximum,
    "min": np.minimum,
    "and_": np.bitwise_and,
    "or_": np.bitwise_or,
    "xor": np.bitwise_xor,
}


class Lanes(LaneLog):
    """The threads of some blocks, of which those in `mask` take part in what is
    executed now.
    """

    warpsize = WARP
    _away: Array
    """Who has left this turn of the loop, or the function."""
    _broken: Array
    """Who has left the loop, or the function."""
    _returned: Array
    _given: Any
    """What the function returns to those."""

    def __init__(self, execution: Execution) -> None:
        settings = execution.settings
        super().__init__(execution.log, settings)
        self._run = execution
        self.numbers = np.zeros(0, "i8")
        self.originals: list[tuple[Array, Array]] = []
        """Arrays of global memory that were written, and what was in them before."""
        self.blockDim = settings.block
        self.gridDim = settings.grid
        self._operations = self._depth = 0

    def restore(self) -> None:
        """Put back what was in the arrays before, which may overlap."""
        for array, original in reversed(self.originals):
            array[...] = original

    def start(self, numbers: Array) -> None:
        """Begin with the blocks of these numbers."""
        self.numbers = numbers
        self._blocks = blocks = len(numbers)
        self.size = blocks * self._of_block
        inside = np.tile(np.arange(self._of_block), blocks)
        self._block = np.repeat(np.arange(blocks), self._of_block)
        self.threadIdx = place(inside, self.blockDim)
        self.blockIdx = place(numbers[self._block], self.gridDim)
        self.laneid = inside % WARP
        # blocks and warps
        self.places = (
            self._block,
            self._block * -(-self._of_block // WARP) + inside // WARP,
        )
        self._begin()
        self._memory = SharedMemory(self._run.layout, self._run.memory)
        self._shared: dict[int, LaneArray] = {}
        self._open: list[tuple[Array, Array]] = []
        # names that only some threads have assigned, and which
        self._partly: dict[str, Array] = {}
        self._forget_who_left()
        self._only(np.ones(self.size, bool))

    # -- who takes part

    def _only(self, mask: Array) -> None:
        self.mask = mask
        at = np.flatnonzero(mask)
        self.active = len(at)
        self._all = self.active == self.size
        # the numbers of the threads that take part, to index with
        self._at = slice(None) if self._all else at
        self._operations += 1
        if self._operations > 2000 and self._logged < FEW * self._operations:
            raise NotInLockstep

    def spread(self, values: Array) -> Array:
        """The other way round: values of the threads that take part, with zeros for the
        others.
        """
        if self._all:
            return values
        whole = np.zeros(self.size, values.dtype)
        whole[self._at] = values
        return whole

    def put(self, name: str, value: Any, old: Any) -> Any:
        """The value of a name after an assignment by the threads that take part."""
        if old is None:
            self._partly.pop(name, None)
            if not self._all:
                self._partly[name] = self.mask | self._returned
            return value
        if name in self._partly:
            self._partly[name] = self._partly[name] | self.mask
        if self._all or isinstance(value, LaneArray):
            return value
        if isinstance(value, tuple):
            raise NotInLockstep
        return np.where(self.mask, value, old)

    def get(self, name: str, value: Any) -> Any:
        """The value of a name, which all threads that take part must have assigned."""
        if value is None or (
            name in self._partly and (self.mask & ~self._partly[name]).any()
        ):
            raise NotInLockstep
        return value

    def _true(self, test: Any) -> Array:
        return np.broadcast_to(np.asarray(test).astype(bool), self.size)

    def begins(self, test: Any, key: int) -> bool:
        """Begin an `if`: those threads go on for which the test is true; whether there
        are any.
        """
        test = self._true(test)
        self._open.append((self.mask, test))
        self._branch(test, key)
        self._only(self.mask & test)
        return self.active > 0

    def others(self) -> bool:
        """Go on with the threads for which it is false."""
        mask, test = self._open[-1]
        self._only(mask & ~test)
        return self.active > 0

    def ends(self) -> None:
        """End an `if`: all threads that began it go on, but for those that left its
        surroundings meanwhile.
        """
        self._only(self._open.pop()[0] & ~self._away)

    def _turns(self, key: int, counts: Any) -> Generator[tuple[int, int]]:
        """The context and number of each turn of a loop, in which those threads take
        part that have not left it.
        """
        outer = self.mask
        away = self._away
        broken = self._broken
        self._broken = self._returned.copy()
        for number, context in enumerate(self._log.contexts(key)):
            self._away = self._broken | self._returned
            going = outer & ~self._away & (number < counts)
            if not going.any():
                break
            self._only(going)
            yield context, number
        self._away = away | self._returned
        self._broken = broken
        self._only(outer & ~self._returned)

    def turns(self, key: int) -> Iterator[int]:
        """The contexts of a `while` loop."""
        return (context for context, _ in self._turns(key, math.inf))

    def goes_on(self, test: Any, key: int) -> bool:
        """Go on with the threads for which the condition of a `while` loop is true;
        whether there are any.
        """
        test = self._true(test)
        self._branch(test, key)
        self._broken |= self.mask & ~test
        self._only(self.mask & test)
        return self.active > 0

    def loop(self, key: int, over: Any) -> Iterator[tuple[int, Any]]:
        """Pairs (context, item) of a `for` loop."""
        counts = over.counts if isinstance(over, LaneRange) else len(over)
        self.log(key, self.those(counts))
        for context, number in self._turns(key, counts):
            if isinstance(over, LaneRange):
                item = over.start + number * over.step
            else:
                item = over[number]
            yield context, item

    def breaks(self) -> None:
        """Leave the loop."""
        self._broken |= self.mask
        self.continues()

    def continues(self) -> None:
        """Leave this turn of the loop."""
        self._away |= self.mask
        self._only(np.zeros(self.size, bool))

    def returns(self, value: Any) -> None:
        """Leave the function."""
        if isinstance(value, tuple | LaneArray) and self._given is not None:
            raise NotInLockstep
        if self._given is None:
            self._given = value
        elif value is not None:
            self._given = np.where(self.mask, value, self._given)
        self._returned |= self.mask
        self.continues()

    @contextmanager
    def calls(self) -> Iterator[None]:
        """Call a function: who leaves it comes back to its caller."""
        mask = self.mask
        caller = self._away, self._broken, self._returned, self._given
        self._forget_who_left()
        self._depth += 1
        yield
        self._away, self._broken, self._returned, self._given = caller
        self._depth -= 1
        self._only(mask)

    def _forget_who_left(self) -> None:
        self._away = np.zeros(self.size, bool)
        self._broken = np.zeros(self.size, bool)
        self._returned = np.zeros(self.size, bool)
        self._given = None

    def given(self) -> Any:
        """What the function returns."""
        return self._given

    def choose(self, test: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        """One of two values for each thread, each evaluated for those that need it."""
        mask = self.mask
        test = self._true(test)
        values = []
        for side, value in ((mask & test, yes), (mask & ~test, no)):
            self._only(side)
            values.append(value() if self.active else 0)
        self._only(mask)
        return np.where(test, *values)

    def both(self, first: Any, second: Callable[[], Any]) -> Any:
        """`first and second()`."""
        return self.choose(first, second, lambda: first)

    def either(self, first: Any, second: Callable[[], Any]) -> Any:
        """`first or second()`."""
        return self.choose(first, lambda: first, second)

    # -- where they are: arrays of places, by the same sums

    grid = TracedThread.grid
    gridsize = TracedThread.gridsize

    # -- memory

    def array(self, value: Any) -> Any:
        """An argument as the kernel takes it."""
        if isinstance(value, TracedArray):
            return LaneArray(self, value)
        if isinstance(value, tuple) and any(
            isinstance(part, tuple | TracedArray) for part in value
        ):
            raise NotInLockstep
        return np.int64(value) if type(value) is int else value

    def shared_array(
        self, key: int, shape: Any, dtype: Any, alignment: int | None = None
    ) -> LaneArray:
        """Memory that the threads of a block share: a copy for each block."""
        name = self._run.sites[key % SITES].text
        traced = self._memory.array(key % SITES, name, shape, as_dtype(dtype))
        if self._memory.has_several_dynamic:
            raise NotInLockstep  # where overlaps are not looked for
        if traced.base not in self._shared:
            copies = np.tile(traced.array.reshape(-1), self._blocks)
            self._shared[traced.base] = LaneArray(
                self, traced, copies, self._block * traced.size
            )
        return self._shared[traced.base]

    def const_array_like(self, key: int, array: LaneArray) -> LaneArray:
        """An array that numba compiled into constant memory, as it did those that are
        named.
        """
        return array

    def attribute(self, owner: Any, name: str, key: int) -> Any:
        """A member of a module."""
        if not isinstance(owner, types.ModuleType):
            raise NotInLockstep
        return of_lanes(stand_in(getattr(owner, name)))

    def local_array(
        self, key: int, shape: Any, dtype: Any, alignment: int | None = None
    ) -> LaneArray:
        """Memory of each thread alone."""
        name = self._run.sites[key % SITES].text
        traced = self._run.memory.local(shape, as_dtype(dtype), name)
        copies = np.tile(traced.array.reshape(-1), self.size)
        return LaneArray(self, traced, copies, np.arange(self.size) * traced.size)

    def atomic(
        self, op: str, key: int, array: LaneArray, index: Any, *values: Any
    ) -> None:
        """Change elements without anybody using their old values."""
        floats = array.dtype.kind not in "iu"
        if op not in _CHANGES or (floats and op not in ("add", "sub")):
            raise NotInLockstep
        array.change(_CHANGES[op], index, values[0], key)

    def barrier(self, key: int) -> None:
        """A barrier, to which all threads come that have not returned."""
        if self._depth > 1 or (self.mask == self._returned).any():
            raise NotInLockstep
        is_there = self.mask.reshape(self._blocks, -1).any(axis=1)  # (blocks,)
        self._next_phase(key, int(np.count_nonzero(is_there)))

    def threadfence(self, key: int) -> None:
        """Log a fence."""
        self.log(key, 0)

    threadfence_system = threadfence_block = threadfence


def run_in_lockstep(
    execution: Execution,
    kernel: Callable[..., Any],
    lanes: Lanes,
    args: tuple[Any, ...],
) -> None:
    """Run the blocks of a launch; NotInLockstep, or any error of Python, where they
    have to run thread by thread.
    """
    settings = execution.settings
    at_once = max(1, LANES // settings.block_size)
    batches = settings.blocks.batches(
        execution.log, execution.program.counters, at_once
    )
    with np.errstate(all="ignore", divide=settings.divide):
        for numbers in batches:
            lanes.start(numbers)
            kernel(lanes, 0, *map(lanes.array, args))
            lanes.finish()
