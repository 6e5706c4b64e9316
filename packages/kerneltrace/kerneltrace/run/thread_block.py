"""Run one block of threads: they take turns, and wait for each other at barriers and
warp operations.
"""

from __future__ import annotations

import functools
import inspect
import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kerneltrace.errors import KernelError, TraceTooLarge
from kerneltrace.machine.address_space import SharedMemory
from kerneltrace.machine.diagnostics import NOT_MET, OUTSIDER
from kerneltrace.machine.event_log import SITES, EndlessLoop
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.grid import WARP, place
from kerneltrace.machine.traced_thread import ANY_LANES, TracedThread

Order = Callable[[Sequence[Any]], list[Any]]
"""Puts blocks or threads in the order in which they run."""
RETURNED = "returned"
"""Kind of the place where a thread waits that has left the kernel by a `return`."""


class Stopped(Exception):
    """The launch can't go on; its findings say why."""


class ThreadBlock:
    """A block of threads: what they ask for, and whose turn it is."""

    def __init__(self, execution: Execution, number: int) -> None:
        self.execution = execution
        self.log = execution.log
        self.program = execution.program
        self.dim = execution.settings.block
        self.grid = execution.settings.grid
        self.index = place(number, self.grid)
        # its first thread, counted over the whole grid
        self.first = number * len(execution.thread_places)
        self.threads = [
            TracedThread(self, index, i)
            for i, index in enumerate(execution.thread_places)
        ]
        self.alive = self.threads
        self.warp_epochs = [0] * -(-len(self.threads) // WARP)
        self.phase = self.log.new_phase()
        self.is_reordered = False
        """Whether the threads run in an order other than that of their numbers."""
        self.shared = SharedMemory(execution.layout, execution.memory)

    def run(
        self, kernel: Callable[..., Any], args: tuple[Any, ...], order: Order | None
    ) -> Iterator[int]:
        """Run until every thread has returned; Stopped where that can't happen.

        Gives the key of a barrier of the grid where the block waits at one, and 0 where
        it can only go on with loops that have gone round many times: they may wait for
        another block.
        """
        self.is_reordered = order is not None and not self.program.pauses
        if inspect.isgeneratorfunction(kernel):
            for thread in self.threads:
                thread.generator = kernel(thread, 0, *args)
            turn = _resume
        else:  # the kernel waits nowhere: a plain call is faster
            turn = functools.partial(_run_to_end, kernel, args)
        ready = self.threads
        try:
            while ready:
                if order:
                    ready = order(ready)
                self._turns(ready, turn)
                if any(thread.key < 0 for thread in ready):
                    self.alive = [thread for thread in self.alive if thread.key >= 0]
                ready = self._released()
                if ready and not any(thread.key for thread in ready):
                    yield 0
                elif ready and ready[0].kind == "grid":
                    yield ready[0].key
                    self._enter_phase()
            if self.alive:
                self._deadlock()
        finally:
            self.program.count_block([thread.times for thread in self.threads])
        for thread in self.threads:
            thread.detach()

    def _turns(
        self, ready: list[TracedThread], turn: Callable[[TracedThread], int]
    ) -> None:
        starts = self.log.starts.append
        words = self.log.words
        self.log.check()
        self._log_turns(ready)
        thread = ready[0]
        try:
            for thread in ready:
                starts(len(words))
                thread.key = turn(thread)
        except (KernelError, TraceTooLarge):
            raise
        except Exception as error:
            self._failed(thread, error)

    def _log_turns(self, ready: list[TracedThread]) -> None:
        """Tell the log whose turns come next."""
        self.log.threads.extend([thread.in_grid for thread in ready])
        self.log.warp_epochs.extend([self.warp_epochs[thread.warp] for thread in ready])
        self.log.phases.extend([self.phase] * len(ready))

    def _failed(self, thread: TracedThread, error: Exception) -> None:
        who = self.execution.diagnostics.where(thread.in_grid)
        if isinstance(error, EndlessLoop):
            key, steps = error.args
            site = self.program.sites[key % SITES]
            words = (
                f"{who} is still in this loop after {steps:,} turns, and the trace ends"
                " here."
            )
            if site.kind == "while":
                words += (
                    f" Does {site.text} ever become false? Or does it wait for a thread"
                    " that can't go on?"
                )
                if math.prod(self.grid) > 1:
                    words += (
                        " For a later block? CUDA promises neither their order nor that"
                        " they run side by side."
                    )
            else:
                words += " Trace a smaller problem, or raise max_steps."
            self.execution.diagnostics.add("endless", site.line, words)
        else:
            files = self.program.files
            lines = [
                frame.lineno or 0
                for frame in traceback.extract_tb(error.__traceback__)
                if frame.filename in files
            ]
            line = lines[-1] if lines else 0
            words = f"{who} raised {type(error).__name__}: {error}"
            self.execution.diagnostics.add("raised", line, words)
        raise Stopped

    def _released(self) -> list[TracedThread]:
        """The threads that can go on: all at a barrier together, else complete warps
        and paused threads.
        """
        kinds = {thread.kind for thread in self.alive}
        keys = {thread.key for thread in self.alive}
        if kinds in ({"barrier"}, {"grid"}) and 0 not in keys:
            return self._open_barrier(keys)
        paused = [thread for thread in self.alive if not thread.key]
        return paused + self._complete_warps() if "warp" in kinds else paused

    def _open_barrier(self, keys: set[int]) -> list[TracedThread]:
        # A barrier waits for the threads that have not returned (CUDA C++ Programming
        # Guide, "Independent Thread Scheduling", for compute capability 7.0 and later).
        # One that a thread passed by, in the other branch of an `if`, is a mistake: all
        # threads have to come to it or none ("Synchronization Functions").
        passed_by = []
        if len(self.alive) < len(self.threads):
            passed_by = [
                thread
                for thread in self.threads
                if thread.key < 0 and thread.kind != RETURNED
            ]
        if passed_by or (len(keys) > 1 and len(self._places(keys)) > 1):
            self._partial_barrier(passed_by)
        if self.program.votes:
            votes = [thread.brought for thread in self.alive]
            for thread in self.alive:
                thread.answer = votes
        if self.alive[0].kind == "barrier":
            self._enter_phase()
        self.log.barriers += 1
        return self.alive

    def _enter_phase(self) -> None:
        before, self.phase = self.phase, self.log.new_phase()
        self.log.opened_by[self.phase] = before, self.alive[0].key

    def _complete_warps(self) -> list[TracedThread]:
        ready: list[TracedThread] = []
        waiting: dict[tuple[int, int, int], list[TracedThread]] = {}
        for thread in self.alive:
            if thread.kind == "warp" and thread.key:
                here = thread.key if thread.mask == ANY_LANES else 0
                waiting.setdefault((thread.warp, thread.mask, here), []).append(thread)
        for (warp, mask, _), lanes in waiting.items():
            present = sum(1 << t.laneid for t in lanes)
            alive = sum(1 << t.laneid for t in self.alive if t.warp == warp)
            if mask == ANY_LANES or mask & alive & ~present == 0:
                self._check_warp(mask, lanes)
                if mask != ANY_LANES and mask & ~present:
                    self._check_mask(mask & ~present, lanes)
                answer = self._synced(mask, lanes) or {
                    t.laneid: t.brought for t in lanes
                }
                for thread in lanes:
                    thread.answer = answer
                ready += lanes
        return ready

    def _check_warp(self, mask: int, lanes: list[TracedThread]) -> None:
        """Report lanes that disagree about a warp operation, and count shuffles.

        Lanes may be at different lines with it (PTX ISA, "bar.warp.sync", "shfl.sync").
        """
        diagnostics = self.execution.diagnostics
        sites = [self.program.sites[thread.key % SITES] for thread in lanes]
        first = sites[0]
        number = lanes[0].in_grid
        for thread, site in zip(lanes, sites, strict=True):
            if site.call != first.call:
                places = [
                    f"{diagnostics.where(lane.in_grid)} at line {at.line} ({at.text})"
                    for lane, at in ((lanes[0], first), (thread, site))
                ]
                words = (
                    "lanes of a warp wait for each other at different warp operations:"
                    f" {', '.join(places)}."
                )
                diagnostics.add("lane", first.line, words, thread=number)
                break
        for thread in lanes:
            if mask != ANY_LANES and not mask >> thread.laneid & 1:
                where = diagnostics.where(thread.in_grid)
                words = OUTSIDER.format(where, thread.laneid)
                diagnostics.add("lane", first.line, words, thread=thread.in_grid)
                break
        if first.call.startswith("shfl"):
            n_bytes = getattr(lanes[0].brought, "itemsize", 4)
            self.log.shuffles += 2 if n_bytes > 4 else 1  # of 4 bytes each

    def _check_mask(self, absent: int, lanes: list[TracedThread]) -> None:
        """Report a mask that names lanes which come to the kernel's end without the
        operation, and by no `return`.

        All lanes in a mask that have not returned execute the same operation (CUDA C++
        Programming Guide, "Warp Shuffle Functions").
        """
        warp = self.threads[lanes[0].warp * WARP :][:WARP]
        passed_by = [
            thread
            for thread in warp
            if absent >> thread.laneid & 1 and thread.kind != RETURNED
        ]
        if passed_by:
            site = self.program.sites[lanes[0].key % SITES]
            present = sum(1 << thread.laneid for thread in lanes)
            words = NOT_MET.format(
                lanes[0].mask, len(passed_by), passed_by[0].laneid, present
            )
            self.execution.diagnostics.add(
                "lane", site.line, words, thread=lanes[0].in_grid
            )

    def _synced(self, mask: int, lanes: list[TracedThread]) -> int:
        """A number where lanes meet at a syncwarp that names only a part of their warp,
        else 0.

        Only syncwarp orders memory accesses (CUDA C++ Programming Guide, "Warp Shuffle
        Functions"). That of a whole warp starts an epoch, which the search for races
        sorts by; that of some lanes is rare, and logged by them.
        """
        if self.program.sites[lanes[0].key % SITES].call != "syncwarp":
            return 0
        warp = lanes[0].warp
        # fewer than 32 lanes only in the last warp
        whole = (1 << min(WARP, len(self.threads) - warp * WARP)) - 1
        if mask & whole == whole:
            self.warp_epochs[warp] += 1
            return 0
        self.log.partial_syncs += 1
        return self.log.partial_syncs

    def _places(self, keys: Iterable[int]) -> set[tuple[int, ...]]:
        """The sites of keys; of those in a device function, with the sites of the calls
        that led there.
        """
        sites = self.program.sites
        places: set[tuple[int, ...]] = {(key % SITES,) for key in keys}
        if not any(sites[site].function.endswith("()") for (site,) in places):
            return places
        owners = self.log.owners()
        return {tuple(self._way_to(key, owners)) for key in keys}

    def _way_to(self, key: int, owners: Mapping[int, int]) -> Iterator[int]:
        """The site of a key, and those of the calls that led there, innermost first."""
        yield key % SITES
        while context := key // SITES * SITES:
            key = owners[context]
            if self.program.sites[key % SITES].kind == "call":
                yield key % SITES

    def _waiting(self) -> dict[tuple[int, str], list[TracedThread]]:
        """The threads that wait, by the line and text of the place."""
        waiting: dict[tuple[int, str], list[TracedThread]] = {}
        for thread in self.alive:
            site = self.program.sites[thread.key % SITES]
            waiting.setdefault((site.line, site.text), []).append(thread)
        return waiting

    def _called_from(self) -> str:
        """The lines of the calls from which threads wait at one barrier."""
        lines = {
            self.program.sites[site].line
            for place in self._places({thread.key for thread in self.alive})
            for site in place[1:]
        }
        return ", ".join(map(str, sorted(lines)))

    def _partial_barrier(self, passed_by: list[TracedThread]) -> None:
        """Report a barrier that some threads of the block pass by: a GPU may hang, or
        go on with wrong data.
        """
        diagnostics = self.execution.diagnostics
        ((line, _), here), *elsewhere = self._waiting().items()
        words = diagnostics.where(here[0].in_grid)
        if len(here) > 1:
            words += f" and {len(here) - 1:,} others wait here"
        else:
            words += " waits here"
        for (other_line, _), threads in elsewhere:
            words += f", {len(threads):,} threads wait at line {other_line} instead"
        if not elsewhere and not passed_by:
            words += f", in different calls (line {self._called_from()})"
        if passed_by:
            have = "has" if len(passed_by) == 1 else "have"
            where = diagnostics.where(passed_by[0].in_grid)
            words += (
                f", but {len(passed_by):,} of the block's {len(self.threads):,} threads"
                f" {have} come to the kernel's end without it (the first: {where})"
            )
        words += (
            ". All threads of a block that have not returned have to reach the same"
            " syncthreads()."
        )
        diagnostics.add("barrier", line, words, thread=here[0].in_grid)

    def _deadlock(self) -> None:
        diagnostics = self.execution.diagnostics
        waiting = self._waiting()
        groups = [
            f"{len(threads):,} at line {line} ({text}; the first:"
            f" {diagnostics.where(threads[0].in_grid)})"
            for (line, text), threads in waiting.items()
        ]
        words = (
            "no thread of the block can go on. They wait for each other:"
            f" {'; '.join(groups)}."
        )
        diagnostics.add(
            "deadlock", min(waiting)[0], words, thread=self.alive[0].in_grid
        )
        raise Stopped


def _resume(thread: TracedThread) -> int:
    """Run a thread to the next place where it waits; the key of that place, -1 for the
    end.
    """
    try:
        key: int = next(thread.generator)
    except StopIteration as end:
        if end.value:
            thread.kind = RETURNED
        return -1
    return key


def _run_to_end(
    kernel: Callable[..., Any], args: tuple[Any, ...], thread: TracedThread
) -> int:
    kernel(thread, 0, *args)
    return -1
