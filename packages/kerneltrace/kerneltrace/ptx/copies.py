"""Asynchronous copies to shared memory, which arrive where they are waited for and no
sooner, and barriers there.

Source: NVIDIA, Parallel Thread Execution ISA, "cp.async", "cp.async.commit_group",
"cp.async.wait_group", "mbarrier".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kerneltrace.machine.traced_memory import Array
from kerneltrace.ptx.accesses import Accesses
from kerneltrace.ptx.decode import Decoder, Step
from kerneltrace.ptx.running import Ended
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.threads import Threads


class Copy(NamedTuple):
    """An asynchronous copy of some threads that has yet to arrive."""

    site: int
    threads: Array
    address: Array
    place: Array
    """Where in the shared memory of all blocks it goes."""
    data: Array
    group: Array
    """How many groups each thread had closed before."""

    def only(self, mask: Array) -> Copy:
        """That of some of the threads."""
        site, *columns = self
        return Copy(site, *(column[mask] for column in columns))


@dataclass
class Barrier:
    """An mbarrier: how many arrivals its phase waits for, and the copies that arrive
    with it.
    """

    expected: int
    pending: int
    number: int
    """Of this phase, in the log."""
    last: int = 0
    """Of the phase before."""
    phase: int = 0
    copies: list[Copy] = field(default_factory=list)
    completed: list[Copy] = field(default_factory=list)
    """Those of earlier phases, which arrive as soon as anybody finds the phase
    complete, and no sooner.
    """


class Copies:
    """Makes the steps of asynchronous copies and of mbarriers, and keeps what has yet
    to arrive.
    """

    def __init__(self, decoder: Decoder, accesses: Accesses) -> None:
        self._decoder = decoder
        self._accesses = accesses
        self._memory = decoder.memory

    def begin(self, threads: Threads) -> None:
        """Begin with some blocks."""
        self._copies: list[Copy] = []
        # by their places in the shared memory of all blocks
        self._barriers: dict[int, Barrier] = {}
        self._closed = np.zeros(threads.size, int)  # groups of each thread

    def step(self, instruction: Instruction) -> Step | None:
        """The step of an instruction; None where it is not known here."""
        parts = instruction.parts
        if instruction.name == "mbarrier" and "expect_tx" not in parts:
            makers = {
                "init": self._init,
                "inval": self._init,
                "test_wait": self._wait,
                "try_wait": self._wait,
                "arrive": self._arrive,
            }
            make = makers.get(parts[0])
            return make and make(instruction)
        if instruction.name != "cp" or parts[0] != "async" or "bulk" in parts:
            return None
        if parts[1] == "mbarrier":
            return self._arrive(instruction)
        if "commit_group" in parts:
            return self._close
        if "wait_all" in parts:
            return lambda t: self._wait_for_groups(t, 0, close=True)
        if parts[1].startswith("wait"):
            left = int(instruction.operands[0], 0)
            return lambda t: self._wait_for_groups(t, left, close=False)
        return self._issue(instruction)

    # -- copies

    def _issue(self, instruction: Instruction) -> Step:
        target_word, source_word, size_word, *rest = instruction.operands
        size = int(size_word, 0)
        if "cache_hint" in instruction.parts:
            rest = rest[:-1]
        n_bytes = self._decoder.source(rest[0] if rest else str(size), "u32")
        arrival = self._decoder.site("store", instruction)
        source = self._accesses.target("load", instruction, source_word, size)
        target = self._accesses.target("store", instruction, target_word, size, "issue")

        def step(t: Threads) -> None:
            to = target.at(t)
            with self._accesses.inside(t, target, to, size) as valid:
                n = np.minimum(t.each(n_bytes), size).astype(int)
                data = np.zeros((t.n, size), "u1")
                with t.only(n > 0) as any_copied:
                    if any_copied:
                        data[n > 0] = self._accesses.load(
                            t, source, source.at(t), "u1", size
                        )
                data[np.arange(size) >= n[:, None]] = 0
                place = self._memory.bytes_at(t, to[valid])[1]
                self._memory.arriving[place[:, None] + np.arange(size)] = True
                self._memory.any_arriving = True
                group = self._closed[t.at].copy()
                self._copies.append(
                    Copy(arrival, t.numbers, to[valid], place, data, group)
                )

        return step

    def _taken(self, chosen: Callable[[Copy], Array]) -> list[Copy]:
        """The copies of chosen threads, which are kept no longer."""
        masks = [(copy, chosen(copy)) for copy in self._copies]
        self._copies = [copy.only(~mask) for copy, mask in masks if not mask.all()]
        return [copy.only(mask) for copy, mask in masks if mask.any()]

    def _arrived(
        self, t: Threads, copies: list[Copy], event: tuple[int, int] | None = None
    ) -> None:
        """Write the data of copies, and log an event after each: a site, and the number
        that it is for.
        """
        for copy in copies:
            t.begin()
            where = copy.place[:, None] + np.arange(copy.data.shape[1])
            exponent = copy.data.shape[1].bit_length() - 1
            with t.these(copy.threads):
                t.add(copy.site, 8 * copy.address + exponent)
                self._memory.bytes_at(t, copy.address)[0][where] = copy.data
                if event:
                    t.add(event[0], 8 * event[1])
            self._memory.arriving[where] = False
        self._memory.any_arriving = bool(self._memory.arriving.any())

    def _close(self, t: Threads) -> None:
        self._closed[t.at] += 1

    def _wait_for_groups(self, t: Threads, left: int, *, close: bool) -> None:
        """Finish the copies of the threads that take part, but for those of the latest
        `left` groups.
        """
        if close:
            self._close(t)
        last = self._closed - left
        numbers = t.numbers

        def has_to_arrive(copy: Copy) -> Array:
            return np.isin(copy.threads, numbers) & (copy.group < last[copy.threads])

        self._arrived(t, self._taken(has_to_arrive))

    # -- barriers

    def _places(self, word: str) -> Callable[[Threads], list[int]]:
        at, _ = self._decoder.address(word)
        return lambda t: self._memory.bytes_at(t, at(t))[1].tolist()

    def _known(
        self, t: Threads, instruction: Instruction, places: list[int]
    ) -> list[Barrier]:
        for i, place in enumerate(places):
            if place not in self._barriers:
                words = (
                    f"{{}} comes to {instruction.opcode} on a barrier that nobody has"
                    " initialized. The trace ends here."
                )
                t.report("unset", instruction.line, words, t.numbers[i])
                raise Ended
        return [self._barriers[place] for place in places]

    def _init(self, instruction: Instruction) -> Step:
        places = self._places(instruction.operands[0])
        if instruction.parts[0] == "inval":

            def forget(t: Threads) -> None:
                for place in places(t):
                    self._barriers.pop(place, None)

            return forget
        count = self._decoder.source(instruction.operands[1], "u32")

        def step(t: Threads) -> None:
            counts = t.each(count).tolist()
            for place, arrivals in zip(places(t), counts, strict=True):
                self._barriers[place] = Barrier(arrivals, arrivals, _new_number(t))

        return step

    def _arrive(self, instruction: Instruction) -> Step:
        """Arrive, or let the thread's own asynchronous copies arrive there."""
        operands = instruction.operands
        is_place = [word.startswith("[") for word in operands]
        at = is_place.index(True)
        places = self._places(operands[at])
        write = self._decoder.result(operands[0] if at else "_")
        count_word = operands[at + 1] if at + 1 < len(operands) else "1"
        count = self._decoder.source(count_word, "u32")
        of_copies = instruction.name == "cp"
        site = self._decoder.site("warp", instruction, "arrive")
        arrives = not of_copies or "noinc" in instruction.parts

        def step(t: Threads) -> None:
            barriers = self._known(t, instruction, places(t))
            counts = t.each(count).tolist()
            tokens = np.zeros(t.n, "u8")
            phases = np.zeros(t.n, "i8")  # by their numbers in the log
            for i, barrier in enumerate(barriers):
                tokens[i] = barrier.phase
                phases[i] = barrier.number
                if of_copies:
                    barrier.copies += self._copies_of(t.numbers[i])
                if arrives:
                    barrier.pending -= counts[i]
                if barrier.pending <= 0:
                    barrier.phase += 1
                    barrier.pending += barrier.expected
                    barrier.last = barrier.number
                    barrier.number = _new_number(t)
                    barrier.completed += barrier.copies
                    barrier.copies = []
            t.add(site, 8 * phases)
            write(t, tokens)

        return step

    def _copies_of(self, thread: int) -> list[Copy]:
        """One thread's copies, which are kept no longer."""
        return self._taken(lambda copy: copy.threads == thread)

    def _wait(self, instruction: Instruction) -> Step:
        write = self._decoder.result(instruction.operands[0])
        places = self._places(instruction.operands[1])
        by_parity = "parity" in instruction.parts
        kind = "u32" if by_parity else "u64"
        token = self._decoder.source(instruction.operands[2], kind)
        site = self._decoder.site("warp", instruction, "wait")
        arrival = self._decoder.site("warp", instruction, "arrive")

        def step(t: Threads) -> None:
            t.write_log()  # what all did before comes before what any does from here on
            barriers = self._known(t, instruction, places(t))
            phases = np.array([barrier.phase for barrier in barriers])
            tokens = t.each(token).astype(int)
            passed = phases % 2 != tokens % 2 if by_parity else phases > tokens
            for i in np.flatnonzero(passed):
                barrier = barriers[i]
                if barrier.completed:
                    self._arrived(t, barrier.completed, (arrival, barrier.last))
                    barrier.completed = []
            last = np.array([barrier.last for barrier in barriers])
            with t.only(passed) as any_passed:
                if any_passed:
                    t.add(site, 8 * last[passed])
            write(t, passed)

        return step


def _new_number(t: Threads) -> int:
    t.log.partial_syncs += 1
    return t.log.partial_syncs
