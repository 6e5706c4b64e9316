"""Log what the threads of a traced kernel do, in the order in which they do it: one or
two 64-bit words an event.

An event is a *key* and a *value*. The key names a place in the kernel's source (a site,
the low 12 bits) and the loop iterations and calls that led there (a context, the other
bits): two lanes of a warp that log the same key execute the same instruction together.
The value of a memory access is eight times its address plus the base-2 logarithm of its
size in bytes; the value of a loop is its number of iterations. A branch is one negative
word, -2 * key for "not taken" and one less for "taken".
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable, Iterator, Sized
from itertools import chain
from typing import Any

import numpy as np

from kerneltrace._units import format_bytes
from kerneltrace.errors import TraceTooLarge

Array = np.ndarray[Any, Any]
SITES = 1 << 12  # a power of 2, so that a key is a context plus a site
# 16 for the event itself; the rest is what counting it needs for a moment
BYTES_PER_EVENT = 100
# iterations; shorter loops get all their contexts before they run, for speed
EAGER = 1 << 16


class EndlessLoop(Exception):
    """A loop exceeded `max_steps`; its arguments are the loop's key and the iterations
    done.
    """


def too_large(words: str, max_events: int) -> TraceTooLarge:
    """The error for a trace that would outgrow its budget; `words` say what needs too
    much.
    """
    budget = format_bytes(max_events * BYTES_PER_EVENT)
    return TraceTooLarge(
        f"{words} more than the trace's budget of {budget}. Trace a smaller problem,"
        " or leave out blocks=, so that a part of the grid runs. Or raise memory_bytes"
        " if this machine has the memory."
    )


class EventLog:
    """Events, the stretches of them that each belong to one thread, and the contexts of
    loops and calls.
    """

    def __init__(self, max_events: int, max_steps: int) -> None:
        self.words = array("q")
        self.add = self.words.append
        # Stretches of words by one thread: where they start, whose they are, and
        # earlier syncwarps of its warp.
        self.starts = array("q")
        self.threads = array("i")
        self.warp_epochs = array("i")
        # of stretches: a block enters a new phase when it starts and at each barrier
        self.phases = array("i")
        self.shuffles = 0  # of warps
        self.barriers = 0  # of blocks
        self.partial_syncs = 0  # of some lanes of a warp
        self.on_store: Any = None
        """Called with the events and values of stores in PTX, where it is set."""
        self.max_events = max_events
        self.max_steps = max_steps
        self.contexts_by_key: dict[int, list[int]] = {}
        """The contexts of each loop's turns, or of a call: outer loops come before
        those inside.
        """
        self.opened_by: dict[int, tuple[int, int]] = {}
        """For each phase that a barrier began, the phase of its block before, and the
        barrier's key.
        """
        self.grid_barriers = array("i")
        """A phase for each barrier of the grid, larger than those before it."""
        self.fresh = 0  # the largest context so far
        self._phase = 0  # the newest one

    def current_thread(self) -> int:
        """The thread that runs now, counted over the whole grid."""
        return self.threads[len(self.starts) - 1]

    def new_phase(self) -> int:
        """The number of a phase that a block enters: larger than all before, and no
        other block's.
        """
        self._phase += 1
        return self._phase

    def check(self) -> None:
        """Raise TraceTooLarge when the events would need more memory
        than the budget.
        """
        if self.n_events > self.max_events:
            raise too_large(
                f"{len(self.words) // 2:,} logged accesses need", self.max_events
            )

    @property
    def n_events(self) -> int:
        """Events so far, by what they take: two words, or a stretch."""
        return len(self.words) // 2 + len(self.starts)

    def expect(self, ran: int, blocks: int) -> None:
        """Raise TraceTooLarge when so many blocks like those that ran would need more
        memory than the budget.
        """
        expected = self.n_events * blocks // ran
        if expected > self.max_events:
            raise too_large(
                f"The first {ran:,} of {blocks:,} blocks log {self.n_events:,}"
                f" accesses, all of them about {expected:,}, which need",
                self.max_events,
            )

    def owners(self) -> dict[int, int]:
        """By context, the key of the loop or call that has it."""
        return {
            context: key
            for key, contexts in self.contexts_by_key.items()
            for context in contexts
        }

    def inside(self, key: int) -> int:
        """The context of a call made at `key`."""
        return next(self.contexts(key))

    def loop(self, key: int, over: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Pairs (context, item) of a `for` loop."""
        self.check()
        ids = self.contexts_by_key.setdefault(key, [])
        n = len(over) if isinstance(over, Sized) else EAGER + 1
        self.add(key)
        self.add(n)
        if n <= EAGER and n <= self.max_steps:
            if len(ids) < n:
                self._grow_to(ids, n)
            return zip(ids, over, strict=False)
        return zip(self.contexts(key), over, strict=False)

    def contexts(self, key: int, *, pauses: bool = False) -> Iterator[int]:
        """Contexts of the turns of a loop, endless; one that `pauses` has now and then
        a 0, for a pause in which other threads can go on.
        """
        self.check()
        ids = self.contexts_by_key.setdefault(key, [])
        return chain(ids, self._grower(key, ids, pauses))

    def add_stretches(
        self,
        words: Array,
        begin: Array,
        threads: Array,
        phases: Array,
        barriers: list[int],
    ) -> None:
        """Add words and the stretches they consist of, with their phases, which count
        from 0.

        Each block has a phase more than `barriers`, the keys of those that it came to.
        """
        self.starts.frombytes((begin + len(self.words)).tobytes())
        self.words.frombytes(words.data.cast("B"))
        self.threads.frombytes(threads.astype("i4").tobytes())
        self.phases.frombytes((phases + self._phase + 1).astype("i4").tobytes())
        self.warp_epochs.frombytes(bytes(4 * len(begin)))
        for number in range(int(phases.max(initial=-1)) + 1):
            self._phase += 1
            of_block = number % (len(barriers) + 1)
            if of_block:
                self.opened_by[self._phase] = self._phase - 1, barriers[of_block - 1]

    def _grow_to(self, ids: list[int], n: int) -> None:
        first = self.fresh + SITES
        self.fresh += SITES * (n - len(ids))
        ids.extend(range(first, self.fresh + 1, SITES))

    def _grower(
        self, key: int, ids: list[int], pauses: bool
    ) -> Generator[int, None, None]:
        n = len(ids)
        while True:
            n += 1
            if n > self.max_steps:
                raise EndlessLoop(key, n - 1)
            if not n % 256:
                self.check()
                if pauses:
                    yield 0
            if len(ids) < n:  # another thread may have added some while this one paused
                self._grow_to(ids, n)
            yield ids[n - 1]
