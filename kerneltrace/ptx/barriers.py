"""Barriers in shared memory (mbarrier), and the bulk copies that they wait for.

Source: NVIDIA, Parallel Thread Execution ISA, "mbarrier", "cp.async.bulk", "cp.async.mbarrier.arrive".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kerneltrace.log.traced_memory import Array
from kerneltrace.ptx.accesses import Accesses
from kerneltrace.ptx.copies import Copies, Copy
from kerneltrace.ptx.decode import Decoder, Step
from kerneltrace.ptx.running import Ended
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.threads import Threads
from kerneltrace.ptx.values import TYPES

_PIECE = 128
"""Bytes of a bulk copy that count as one access."""


@dataclass
class Barrier:
    """An mbarrier: how many arrivals and bytes its phase waits for, and the copies that arrive with it."""

    expected: int
    pending: int
    number: int
    """Of this phase, in the log."""
    last: int = 0
    """Of the phase before."""
    phase: int = 0
    n_bytes: int = 0
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
        if one.name == "mbarrier":
            ways = {"init": self._init, "inval": self._init, "test_wait": self._wait, "try_wait": self._wait}
            ways |= dict.fromkeys(("arrive", "expect_tx", "complete_tx"), self._arrive)
            return ways[one.parts[0]](one) if one.parts[0] in ways else None
        if one.name != "cp" or "async" not in one.parts:
            return None
        if "mbarrier" in one.parts and "arrive" in one.parts:
            return self._arrive(one)
        if one.parts[:2] != ("async", "bulk") or {"tensor", "reduce", "prefetch", "multicast"} & set(one.parts):
            return None
        if {"commit_group", "wait_group"} & set(one.parts):
            return lambda t: None  # a copy from shared memory is done at once
        return self._bulk(one)

    def _new_number(self, t: Threads) -> int:
        t.log.partial_syncs += 1
        return t.log.partial_syncs

    def _places(self, word: str) -> Callable[[Threads], list[int]]:
        at, _ = self._decoder.address(word)
        return lambda t: self._memory.bytes_at(t, at(t))[1].tolist()  # type: ignore[no-any-return]

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
        """Arrive, with a number of bytes to come, or once the thread's own asynchronous copies have arrived."""
        parts, which = set(one.parts), next(i for i, word in enumerate(one.operands) if word[0] == "[")
        places, write = self._places(one.operands[which]), self._decoder.result((*one.operands[:which], "_")[0])
        given = self._decoder.source((*one.operands[which + 1 :], "1")[0], TYPES["u32"])
        of_copies, has_bytes = one.name == "cp", bool({"expect_tx", "complete_tx"} & parts)
        sign, arrives = -1 if "complete_tx" in parts else 1, "arrive" in parts and (not of_copies or "noinc" in parts)
        site = self._decoder.site("warp", one, "arrive")

        def step(t: Threads) -> None:
            found = self._known(t, one, places(t))
            tokens, numbers = np.zeros(t.n, "u8"), np.zeros(t.n, "i8")
            for i, (barrier, value) in enumerate(zip(found, np.broadcast_to(given(t), t.n).tolist(), strict=True)):
                tokens[i], numbers[i] = barrier.phase, barrier.number
                barrier.copies += self._copies.taken(int(t.numbers[i])) if of_copies else []
                barrier.n_bytes += sign * value if has_bytes else 0
                barrier.pending -= (1 if has_bytes else value) if arrives else 0
                self._complete(t, barrier)
            t.add(site + t.log.fresh, 8 * numbers)
            write(t, tokens)

        return step

    def _complete(self, t: Threads, barrier: Barrier) -> None:
        """Begin the next phase if this one waits for nothing more."""
        if barrier.pending <= 0 and not barrier.n_bytes:
            barrier.phase, barrier.pending = barrier.phase + 1, barrier.pending + barrier.expected
            barrier.last, barrier.number = barrier.number, self._new_number(t)
            barrier.done, barrier.copies = barrier.done + barrier.copies, []

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
            self._memory.any_arriving = bool(self._memory.any_arriving and self._memory.arriving.any())
            with t.only(passed) as some:
                if some:
                    t.add(site + t.log.fresh, 8 * np.array([barrier.last for barrier in found])[passed])
            write(t, passed)

        return step

    def _bulk(self, one: Instruction) -> Step:
        """A copy of any number of bytes by one thread, to shared memory or from there: pieces of at most 128 bytes."""
        decoder, memory, accesses = self._decoder, self._memory, self._accesses
        (to, to_names), (of, names) = (accesses.address(word, 1) for word in one.operands[:2])
        size, inward = decoder.source(one.operands[2], TYPES["u32"]), "mbarrier" in one.parts
        places = self._places(one.operands[3]) if inward else None
        load, store = decoder.site("load", one), decoder.site("store", one)

        def piece(t: Threads, at: int, n: int, start: Array, target: Array, barriers: list[Barrier]) -> None:
            data = np.zeros((1, n), "u1")

            def fetch(u: Threads, address: Array) -> None:
                buffer, place = memory.bytes_at(u, address)
                data[:] = buffer[place[:, None] + np.arange(n)]

            def put(u: Threads, address: Array) -> None:
                copy = self._copies.issued(u, address, data, store)
                if barriers:
                    barriers[0].copies.append(copy)
                else:
                    copy.arrive(u, memory, np.ones(1, bool))

            accesses.checked(one, load, lambda _: start + at, names, n, fetch, lambda _: None)(t)
            accesses.checked(one, 0, lambda _: target + at, to_names, n, put)(t)

        def step(t: Threads) -> None:
            found = self._known(t, one, places(t)) if places else []
            rows = zip(t.numbers.tolist(), of(t), to(t), np.broadcast_to(size(t), t.n).tolist(), strict=True)
            for i, (number, start, target, n_bytes) in enumerate(list(rows)):
                with t.these(np.array([number])):
                    at = 0
                    while at < n_bytes:
                        n = min(_PIECE, 1 << (n_bytes - at).bit_length() - 1)
                        t.begin()
                        piece(t, at, n, start[None], target[None], found[i : i + 1])
                        at += n
                if found:
                    found[i].n_bytes -= n_bytes
                    self._complete(t, found[i])

        return step
