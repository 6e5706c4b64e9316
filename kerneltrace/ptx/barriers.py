"""Barriers in shared memory (mbarrier), and the asynchronous copies that they wait for.

Source: NVIDIA, Parallel Thread Execution ISA, "mbarrier", "cp.async.mbarrier.arrive".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kerneltrace.ptx.accesses import Accesses
from kerneltrace.ptx.copies import Copies, Copy
from kerneltrace.ptx.decode import Decoder, Step
from kerneltrace.ptx.running import Ended
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.threads import Threads
from kerneltrace.ptx.values import TYPES


@dataclass
class Barrier:
    """An mbarrier: how many arrivals its phase waits for, and the copies that arrive with it."""

    expected: int
    pending: int
    number: int
    """Of this phase, in the log."""
    last: int = 0
    """Of the phase before."""
    phase: int = 0
    copies: list[Copy] = field(default_factory=list)
    done: list[Copy] = field(default_factory=list)
    """Those of earlier phases, which arrive as soon as anybody finds the phase complete, and no sooner."""


class Barriers:
    """Makes the steps of mbarriers and of bulk copies, and keeps their state."""

    def __init__(self, decoder: Decoder, accesses: Accesses, copies: Copies) -> None:
        self._decoder, self._accesses, self._copies, self._memory = decoder, accesses, copies, decoder.memory
        self._at: dict[int, Barrier] = {}  # by their places in the shared memory of all blocks

    def begin(self) -> None:
        """Begin with some blocks."""
        self._at.clear()

    def step(self, one: Instruction) -> Step | None:
        """The step of an instruction; None where it is not known here."""
        if one.name == "cp" and one.parts[:3] == ("async", "mbarrier", "arrive"):
            return self._arrive(one)
        if one.name != "mbarrier" or "expect_tx" in one.parts:
            return None
        ways = {"init": self._init, "inval": self._init, "test_wait": self._wait, "try_wait": self._wait,
                "arrive": self._arrive}  # fmt: skip
        return ways[one.parts[0]](one) if one.parts[0] in ways else None

    def _new_number(self, t: Threads) -> int:
        t.log.partial_syncs += 1
        return t.log.partial_syncs

    def _places(self, word: str) -> Callable[[Threads], list[int]]:
        at, _ = self._decoder.address(word)
        return lambda t: self._memory.bytes_at(t, at(t))[1].tolist()

    def _known(self, t: Threads, one: Instruction, places: list[int]) -> list[Barrier]:
        lost = next((i for i, place in enumerate(places) if place not in self._at), None)
        if lost is not None:
            words = f"{{}} comes to {one.opcode} on a barrier that nobody has initialised. The trace ends here."
            t.report("unset", one.line, words, t.numbers[lost])
            raise Ended
        return [self._at[place] for place in places]

    def _init(self, one: Instruction) -> Step:
        places = self._places(one.operands[0])
        count = self._decoder.source((*one.operands, "0")[1], TYPES["u32"])

        def step(t: Threads) -> None:
            for place, many in zip(places(t), np.broadcast_to(count(t), t.n).tolist(), strict=True):
                self._at[place] = Barrier(many, many, self._new_number(t))
                if one.parts[0] == "inval":
                    del self._at[place]

        return step

    def _arrive(self, one: Instruction) -> Step:
        """Arrive, or let the thread's own asynchronous copies arrive there."""
        which = next(i for i, word in enumerate(one.operands) if word[0] == "[")
        places, write = self._places(one.operands[which]), self._decoder.result((*one.operands[:which], "_")[0])
        given = self._decoder.source((*one.operands[which + 1 :], "1")[0], TYPES["u32"])
        of_copies, site = one.name == "cp", self._decoder.site("warp", one, "arrive")
        arrives = not of_copies or "noinc" in one.parts

        def step(t: Threads) -> None:
            found = self._known(t, one, places(t))
            tokens, numbers = np.zeros(t.n, "u8"), np.zeros(t.n, "i8")
            for i, (barrier, value) in enumerate(zip(found, np.broadcast_to(given(t), t.n).tolist(), strict=True)):
                tokens[i], numbers[i] = barrier.phase, barrier.number
                barrier.copies += self._copies.taken(int(t.numbers[i])) if of_copies else []
                barrier.pending -= value * arrives
                if barrier.pending <= 0:
                    barrier.phase, barrier.pending = barrier.phase + 1, barrier.pending + barrier.expected
                    barrier.last, barrier.number = barrier.number, self._new_number(t)
                    barrier.done, barrier.copies = barrier.done + barrier.copies, []
            t.add(site + t.log.fresh, 8 * numbers)
            write(t, tokens)

        return step

    def _wait(self, one: Instruction) -> Step:
        write, places = self._decoder.result(one.operands[0]), self._places(one.operands[1])
        by_parity = "parity" in one.parts
        token = self._decoder.source(one.operands[2], TYPES["u32" if by_parity else "u64"])
        site, arrival = self._decoder.site("warp", one, "wait"), self._decoder.site("warp", one, "arrive")

        def step(t: Threads) -> None:
            t.write_log()  # what all did before comes before what any does from here on
            found = self._known(t, one, places(t))
            phases, tokens = np.array([barrier.phase for barrier in found]), np.broadcast_to(token(t), t.n).astype(int)
            passed = phases % 2 != tokens % 2 if by_parity else phases > tokens
            for barrier in {id(found[i]): found[i] for i in np.flatnonzero(passed)}.values():
                for copy in barrier.done:
                    t.begin()
                    with t.these(copy.threads):
                        copy.arrive(t, self._memory, np.ones(len(copy.threads), bool))
                        t.add(arrival + t.log.fresh, 8 * np.full(t.n, barrier.last))
                barrier.done = []
            self._memory.any_arriving = bool(self._memory.arriving.any())
            with t.only(passed) as some:
                if some:
                    t.add(site + t.log.fresh, 8 * np.array([barrier.last for barrier in found])[passed])
            write(t, passed)

        return step
