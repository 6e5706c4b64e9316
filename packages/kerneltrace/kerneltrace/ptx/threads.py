"""The threads of some blocks: their registers, which of them take part in what is
executed now, and what they log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kerneltrace.machine.event_log import SITES, too_large
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.grid import WARP, place
from kerneltrace.machine.traced_memory import Array

Order = Callable[[Array], Array]
"""Puts the numbers of threads in the order in which they change memory by atomics."""


class Threads:
    """The threads of some blocks; those in `at` take part in what is executed now."""

    at: Any
    """Their numbers, to index with: a slice for all."""
    n: int
    _drawn: Array | None

    def __init__(
        self, execution: Execution, numbers: Array, order: Order | None
    ) -> None:
        settings = execution.settings
        self.execution = execution
        self.log = execution.log
        self.diagnostics = execution.diagnostics
        self.of_block = settings.block_size
        self.blocks = blocks = len(numbers)
        self.order = order
        self.size = blocks * self.of_block
        inside = np.tile(np.arange(self.of_block), blocks)
        self.block = np.repeat(np.arange(blocks), self.of_block)
        """The block of each, counted among those of `numbers`."""
        self.in_grid = numbers[self.block] * self.of_block + inside
        """The number of each, counted over the whole grid."""
        self.lane = inside % WARP
        self.warp = self.block * -(-self.of_block // WARP) + inside // WARP
        """The warp of each, counted in the same way."""
        # syncwarps of whole warps, warp by warp
        self.epoch = np.zeros(int(self.warp[-1]) + 1, "i4")
        self.alive = np.ones(self.size, bool)
        # has come to the kernel's end without a `return`
        self.passed_by = np.zeros(self.size, bool)
        self.phase = np.array([self.log.new_phase() for _ in range(blocks)], "i4")
        self.registers: dict[str, Any] = _kept_by_gpu(
            settings, inside, numbers[self.block], self.lane
        )
        self.loop: list[int] | None = None
        """The contexts of the loop that is executed now."""
        # the words that all that take part log
        self._columns: list[Any] = []
        self._stored: list[tuple[int, Array]] = []
        """Numbers of such columns, and the values that are stored there."""
        self.take(slice(None), self.size)

    def take(self, at: Any, n: int) -> None:
        """Let these threads take part."""
        self.at = at
        self.n = n
        self.all = n == self.size
        self._drawn = None

    def drawn(self) -> Array:
        """Those that take part, counted from 0, in the order in which they change
        memory by atomics, and log it.
        """
        if self._drawn is None:
            numbers = np.arange(self.n)
            self._drawn = self.order(numbers) if self.order else numbers
        return self._drawn

    @contextmanager
    def only(self, mask: Array) -> Iterator[bool]:
        """Let those go on for which the mask is true, of those that take part; whether
        there are any.
        """
        chosen = int(np.count_nonzero(mask))
        if chosen == self.n:
            yield True
            return
        with self.these(self.numbers[mask]):
            yield chosen > 0

    @contextmanager
    def these(self, numbers: Array) -> Iterator[None]:
        """Let the threads of some numbers take part instead."""
        before = self.at, self.n
        self.write_log()
        self.take(numbers, len(numbers))
        yield
        self.write_log()
        self.take(*before)

    @property
    def numbers(self) -> Array:
        """The numbers of the threads that take part."""
        return np.arange(self.size) if self.all else self.at

    # -- registers

    def get(self, name: str) -> Any:
        """A register of the threads that take part, or one value for all of them; 0
        where nobody wrote it, as in %clock.
        """
        value = self.registers.get(name)
        if value is None:
            return np.zeros((), "u8")
        return value if self.all or not value.ndim else value[self.at]

    def put(self, name: str, value: Any) -> None:
        """Write a register, in its type."""
        value = np.asarray(value)
        if self.all:
            # what is written for some threads later must not reach another one
            self.registers[name] = value.copy()
            return
        old = self.registers.get(name)
        if old is None or not old.ndim or old.dtype != value.dtype:
            whole = np.zeros(self.size, value.dtype)
            if old is not None:
                whole[:] = old
            self.registers[name] = old = whole
        old[self.at] = value

    def each(self, source: Callable[[Threads], Any]) -> Array:
        """What a source gives, for each thread that takes part."""
        return np.broadcast_to(source(self), self.n)

    def those(self, values: Array) -> Array:
        """The values of the threads that take part."""
        return values if self.all else values[self.at]

    # -- the log

    def add(self, site: int, value: Any) -> None:
        """Log an event of each thread that takes part: a site, and a second word."""
        self._columns += site + self.log.fresh, value

    def add_branch(self, site: int, test: Array) -> None:
        """Log which way each thread goes."""
        self._columns.append(-2 * (site + self.log.fresh) - test)

    def stores(self, site: int, values: Array) -> None:
        """Tell the log which values (threads, many) the event just added stores, if it
        was one of that site.
        """
        if self.log.on_store and self._columns[-2:-1] == [site + self.log.fresh]:
            self._stored.append((len(self._columns) - 2, values))

    def begin(self) -> None:
        """Begin a block of code, with a context of its own."""
        self.log.fresh += SITES
        if self.loop is not None:
            self.loop.append(self.log.fresh)

    def write_log(self) -> None:
        """Write what was logged: a stretch for each thread."""
        columns, self._columns = self._columns, []
        stored, self._stored = self._stored, []
        if not columns or not self.n:
            return
        width = len(columns)
        words = np.empty((self.n, width), "i8")
        for i, column in enumerate(columns):
            words[:, i] = column
        order = self.drawn() if self.order else slice(None)
        log = self.log
        starts = len(log.words) + width * np.arange(self.n)
        for number, values in stored:
            log.on_store(starts + number, values[order])
        threads = self.in_grid[self.numbers[order]].astype("i4")
        log.starts.frombytes(starts.tobytes())
        log.words.frombytes(words[order].tobytes())
        log.threads.frombytes(threads.tobytes())
        log.phases.frombytes(self.phase[self.those(self.block)][order].tobytes())
        log.warp_epochs.frombytes(self.epoch[self.those(self.warp)][order].tobytes())
        if len(log.words) > 2 * log.max_events:
            raise too_large(
                f"{len(log.words) // 2:,} logged accesses need", log.max_events
            )

    def report(
        self,
        kind: str,
        line: int,
        words: str,
        thread: int,
        array: str = "",
        times: int = 1,
    ) -> None:
        """Report a mistake; `thread` is the number of the first that makes it, whom
        "{}" stands for.
        """
        number = int(self.in_grid[thread])
        words = words.replace("{}", self.execution.settings.where(number), 1)
        self.diagnostics.add(kind, line, words, array=array, thread=number)
        self.diagnostics.mistakes[kind, line, array][0] += times - 1

    def report_those(
        self, mask: Array, kind: str, line: int, words: str, array: str = ""
    ) -> None:
        """Report a mistake of those for which the mask is true, of those that take
        part.
        """
        first = self.numbers[int(np.argmax(mask))]
        self.report(kind, line, words, first, array, int(np.count_nonzero(mask)))


def _kept_by_gpu(
    settings: Any, inside: Array, block: Array, lane: Array
) -> dict[str, Any]:
    """The registers that say where a thread is, such as %tid.x."""
    places = {
        "tid": place(inside, settings.block),
        "ctaid": place(block, settings.grid),
        "ntid": settings.block,
        "nctaid": settings.grid,
    }
    registers = {
        f"%{name}.{axis}": np.asarray(part).astype("u4")
        for name, parts in places.items()
        for axis, part in zip("xyz", parts, strict=True)
    }
    own_bit = np.uint32(1) << lane.astype("u4")
    below = own_bit - np.uint32(1)
    registers |= {
        "%lanemask_eq": own_bit,
        "%lanemask_lt": below,
        "%lanemask_le": own_bit | below,
        "%lanemask_ge": ~below,
        "%lanemask_gt": ~(own_bit | below),
    }
    return registers | {
        "%laneid": lane.astype("u4"),
        "%warpid": (inside // WARP).astype("u4"),
        "%nsmid": np.ones((), "u4"),
        "%dynamic_smem_size": np.array(settings.shared_bytes, "u4"),
        "WARP_SZ": np.array(WARP, "u4"),
    }
