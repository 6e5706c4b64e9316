"""Asynchronous copies to shared memory: the data arrive where their group is waited for, and no sooner.

Source: NVIDIA, Parallel Thread Execution ISA, "cp.async", "cp.async.commit_group", "cp.async.wait_group".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kerneltrace.log.traced_memory import Array
from kerneltrace.ptx.accesses import Accesses
from kerneltrace.ptx.decode import Decoder, Step
from kerneltrace.ptx.memory import Memory
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.threads import Threads
from kerneltrace.ptx.values import TYPES


class Copies:
    """Makes the steps of asynchronous copies, and keeps those that have yet to arrive."""

    def __init__(self, decoder: Decoder, accesses: Accesses) -> None:
        self._decoder, self._accesses, self._memory = decoder, accesses, decoder.memory
        self._copies: list[Copy] = []

    def begin(self, threads: Threads) -> None:
        """Begin with some blocks."""
        self._copies.clear()
        self._closed = np.zeros(threads.size, int)  # groups of each thread

    def step(self, one: Instruction) -> Step | None:
        """The step of an instruction; None where it is not known here."""
        if one.name != "cp" or one.parts[:1] != ("async",) or {"bulk", "mbarrier"} & set(one.parts):
            return None
        if "commit_group" in one.parts:
            return self._close
        if one.parts[1][:4] == "wait":
            left = 0 if "wait_all" in one.parts else int(one.operands[0], 0)
            return lambda t: self._wait(t, left, close="wait_all" in one.parts)
        size, decoder, memory = int(one.operands[2], 0), self._decoder, self._memory
        (to, to_names), (of, names) = (self._accesses.address(word, size) for word in one.operands[:2])
        has_size = len(one.operands) > 3 + ("cache_hint" in one.parts)
        read = decoder.source(one.operands[3] if has_size else str(size), TYPES["u32"])
        arrival, load = decoder.site("store", one), decoder.site("load", one)

        issue = decoder.site("store", one, "issue")

        def step(t: Threads) -> None:
            target = to(t)
            with self._accesses.inside(t, one, issue, target, to_names, size, "writes to") as mine:
                n, data = np.minimum(np.broadcast_to(read(t), t.n), size).astype(int), np.zeros((t.n, size), "u1")
                with t.only(n > 0) as some:
                    if some:
                        data[n > 0] = self._accesses.load(t, one, load, of(t), names, "u1", size)
                data[np.arange(size) >= n[:, None]] = 0
                place = memory.bytes_at(t, target[mine])[1]
                memory.arriving[place[:, None] + np.arange(size)] = memory.any_arriving = True
                self._copies.append(Copy(t.numbers, target[mine], place, data, self._closed[t.at].copy(), arrival))

        return step

    def taken(self, number: int) -> list[Copy]:
        """The copies of a thread that no group's end has waited for, which from now on something else waits for."""
        mine = [copy.only(copy.threads == number) for copy in self._copies]
        self._copies = [rest for copy in self._copies if len((rest := copy.only(copy.threads != number)).threads)]
        return [copy for copy in mine if len(copy.threads)]

    def _close(self, t: Threads) -> None:
        self._closed[t.at] += 1

    def _wait(self, t: Threads, left: int, *, close: bool) -> None:
        """Finish the copies of the threads that take part, but for those of the latest `left` groups."""
        if close:
            self._close(t)
        kept = []
        for copy in self._copies:
            mine = np.isin(copy.threads, t.numbers) & (copy.group < self._closed[copy.threads] - left)
            if mine.any():
                t.begin()
                with t.only(np.isin(t.numbers, copy.threads[mine])):
                    copy.arrive(t, self._memory, mine)
                copy = copy.only(~mine)
            if len(copy.threads):
                kept.append(copy)
        self._copies = kept
        self._memory.any_arriving = bool(self._memory.arriving.any())


@dataclass(frozen=True)
class Copy:
    """An asynchronous copy of some threads that has yet to arrive."""

    threads: Array
    address: Array
    place: Array
    """Where in the shared memory of all blocks it goes."""
    data: Array
    group: Array
    """How many groups each thread had closed before."""
    site: int

    def only(self, mask: Array) -> Copy:
        """That of some of the threads."""
        parts = ("threads", "address", "place", "data", "group")
        return replace(self, **{part: getattr(self, part)[mask] for part in parts})

    def arrive(self, t: Threads, memory: Memory, mask: Array) -> None:
        """Write the data of those threads for which the mask is true, which take part now."""
        mine, size = self.only(mask), self.data.shape[1]
        t.add(self.site + t.log.fresh, 8 * mine.address + size.bit_length() - 1)
        where = mine.place[:, None] + np.arange(size)
        memory.bytes_at(t, mine.address)[0][where] = mine.data
        memory.arriving[where] = False
