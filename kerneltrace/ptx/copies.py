"""Asynchronous copies to shared memory, which arrive where they are waited for and no
sooner, and barriers there.

Source: NVIDIA, Parallel Thread Execution ISA, "cp.async", "cp.async.commit_group",
"cp.async.wait_group", "mbarrier".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from kerneltrace.log.traced_memory import Array
from kerneltrace.ptx.accesses import Accesses
from kerneltrace.ptx.decode import Decoder, Step
from kerneltrace.ptx.running import Ended
from kerneltrace.ptx.text import Instruction
from kerneltrace.ptx.threads import Threads
from kerneltrace.ptx.values import TYPES


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
    done: list[Copy] = field(default_factory=list)
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

    def step(self, one: Instruction) -> Step | None:
        """The step of an instruction; None where it is not known here."""
        parts = one.parts
        if one.name == "mbarrier" and "expect_tx" not in parts:
            ways = {
                "init": self._init,
                "inval": self._init,
                "test_wait": self._wait,
                "try_wait": self._wait,
                "arrive": self._arrive,
            }
            return ways[parts[0]](one) if parts[0] in ways else None
        if one.name != "cp" or parts[0] != "async" or "bulk" in parts:
            return None
        if parts[1] == "mbarrier":
            return self._arrive(one)
        if "commit_group" in parts:
            return self._close
        if parts[1][:4] == "wait":
            left = 0 if "wait_all" in parts else int(one.operands[0], 0)
            return lambda t: self._wait_for_groups(t, left, close="wait_all" in parts)
        return self._issue(one)

    # -- copies

    def _issue(self, one: Instruction) -> Step:
        size = int(one.operands[2], 0)
        decoder = self._decoder
        memory = self._memory
        (to, to_names), (of, names) = (
            self._accesses.address(word, size) for word in one.operands[:2]
        )
        has_size = len(one.operands) > 3 + ("cache_hint" in one.parts)
        read = decoder.source(one.operands[3] if has_size else str(size), TYPES["u32"])
        arrival = decoder.site("store", one)
        load = decoder.site("load", one)

        issue = decoder.site("store", one, "issue")

        def step(t: Threads) -> None:
            target = to(t)
            with self._accesses.inside(
                t, one, issue, target, to_names, size, "writes to"
            ) as mine:
                n = np.minimum(np.broadcast_to(read(t), t.n), size).astype(int)
                data = np.zeros((t.n, size), "u1")
                with t.only(n > 0) as some:
                    if some:
                        data[n > 0] = self._accesses.load(
                            t, one, load, of(t), names, "u1", size
                        )
                data[np.arange(size) >= n[:, None]] = 0
                place = memory.bytes_at(t, target[mine])[1]
                memory.arriving[place[:, None] + np.arange(size)] = (
                    memory.any_arriving
                ) = True
                self._copies.append(
                    Copy(
                        t.numbers,
                        target[mine],
                        place,
                        data,
                        self._closed[t.at].copy(),
                        arrival,
                    )
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
                t.add(copy.site + t.log.fresh, 8 * copy.address + exponent)
                self._memory.bytes_at(t, copy.address)[0][where] = copy.data
                if event:
                    t.add(event[0] + t.log.fresh, 8 * event[1])
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
        self._arrived(
            t,
            self._taken(
                lambda copy: (
                    np.isin(copy.threads, numbers) & (copy.group < last[copy.threads])
                )
            ),
        )

    # -- barriers

    def _places(self, word: str) -> Callable[[Threads], list[int]]:
        at, _ = self._decoder.address(word)
        return lambda t: self._memory.bytes_at(t, at(t))[1].tolist()

    def _known(self, t: Threads, one: Instruction, places: list[int]) -> list[Barrier]:
        lost = next(
            (i for i, place in enumerate(places) if place not in self._barriers), None
        )
        if lost is not None:
            words = (
                f"{{}} comes to {one.opcode} on a barrier that nobody has initialised."
                " The trace ends here."
            )
            t.report("unset", one.line, words, t.numbers[lost])
            raise Ended
        return [self._barriers[place] for place in places]

    def _init(self, one: Instruction) -> Step:
        places = self._places(one.operands[0])
        count = self._decoder.source((*one.operands, "0")[1], TYPES["u32"])

        def step(t: Threads) -> None:
            for place, many in zip(
                places(t), np.broadcast_to(count(t), t.n).tolist(), strict=True
            ):
                self._barriers[place] = Barrier(many, many, _new_number(t))
                if one.parts[0] == "inval":
                    del self._barriers[place]

        return step

    def _arrive(self, one: Instruction) -> Step:
        """Arrive, or let the thread's own asynchronous copies arrive there."""
        which = next(i for i, word in enumerate(one.operands) if word[0] == "[")
        places = self._places(one.operands[which])
        write = self._decoder.result((*one.operands[:which], "_")[0])
        given = self._decoder.source((*one.operands[which + 1 :], "1")[0], TYPES["u32"])
        of_copies = one.name == "cp"
        site = self._decoder.site("warp", one, "arrive")
        arrives = not of_copies or "noinc" in one.parts

        def step(t: Threads) -> None:
            found = self._known(t, one, places(t))
            tokens = np.zeros(t.n, "u8")
            numbers = np.zeros(t.n, "i8")
            for i, (barrier, value) in enumerate(
                zip(found, np.broadcast_to(given(t), t.n).tolist(), strict=True)
            ):
                tokens[i] = barrier.phase
                numbers[i] = barrier.number
                if of_copies:
                    barrier.copies += self._taken(
                        lambda copy, number=t.numbers[i]: copy.threads == number  # type: ignore[misc]
                    )
                barrier.pending -= value * arrives
                if barrier.pending <= 0:
                    barrier.phase = barrier.phase + 1
                    barrier.pending = barrier.pending + barrier.expected
                    barrier.last, barrier.number = barrier.number, _new_number(t)
                    barrier.done = barrier.done + barrier.copies
                    barrier.copies = []
            t.add(site + t.log.fresh, 8 * numbers)
            write(t, tokens)

        return step

    def _wait(self, one: Instruction) -> Step:
        write = self._decoder.result(one.operands[0])
        places = self._places(one.operands[1])
        by_parity = "parity" in one.parts
        token = self._decoder.source(
            one.operands[2], TYPES["u32" if by_parity else "u64"]
        )
        site = self._decoder.site("warp", one, "wait")
        arrival = self._decoder.site("warp", one, "arrive")

        def step(t: Threads) -> None:
            t.write_log()  # what all did before comes before what any does from here on
            found = self._known(t, one, places(t))
            phases = np.array([barrier.phase for barrier in found])
            tokens = np.broadcast_to(token(t), t.n).astype(int)
            passed = phases % 2 != tokens % 2 if by_parity else phases > tokens
            for barrier in {
                id(found[i]): found[i] for i in np.flatnonzero(passed)
            }.values():
                self._arrived(t, barrier.done, (arrival, barrier.last))
                barrier.done = []
            with t.only(passed) as some:
                if some:
                    t.add(
                        site + t.log.fresh,
                        8 * np.array([barrier.last for barrier in found])[passed],
                    )
            write(t, passed)

        return step


def _new_number(t: Threads) -> int:
    t.log.partial_syncs += 1
    return t.log.partial_syncs
