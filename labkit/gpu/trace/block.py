"""One block of a launch: its threads take turns, and wait for each other at barriers and warp operations."""

from __future__ import annotations

import functools
import inspect
import random
import traceback
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.core.errors import LabError
from labkit.gpu.trace.log import SITES, EndlessLoop
from labkit.gpu.trace.numbers import as_dtype
from labkit.gpu.trace.space import SharedMemory
from labkit.gpu.trace.thread import WARP, WHOEVER, Thread, place
from labkit.gpu.trace.traced_memory import TracedArray

if TYPE_CHECKING:
    from labkit.gpu.trace.grid import Launch


class Stopped(Exception):
    """The launch can't go on; why stands among its findings."""


class Block:
    """The block that runs; what its threads ask for, and whose turn it is."""

    def __init__(self, launch: Launch, number: int) -> None:
        self.launch, self.log = launch, launch.program.log
        self.dim, self.grid, self.index = launch.block, launch.grid, place(number, launch.grid)
        self.first = number * len(launch.places)
        self.threads = [Thread(self, index, i) for i, index in enumerate(launch.places)]
        self.alive = self.threads
        self.warp_epochs = [0] * -(-len(self.threads) // WARP)
        self._memory = SharedMemory(launch.layout, launch.space)

    def shared(self, key: int, shape: Any, dtype: Any) -> TracedArray:
        """A shared array of the block."""
        site = key % SITES
        return self._memory.array(site, self.launch.program.sites[site].text, shape, as_dtype(dtype))

    def local(self, key: int, shape: Any, dtype: Any) -> TracedArray:
        """A local array of one thread."""
        return self.launch.space.local(shape, as_dtype(dtype), self.launch.program.sites[key % SITES].text)

    def constant(self, array: Any) -> TracedArray:
        """An array in constant memory."""
        return self.launch.space.constant(array, "constant")

    def alive_mask(self, warp: int) -> int:
        """Lanes of a warp that have not returned."""
        return sum(1 << t.laneid for t in self.alive if t.warp == warp)

    def run(self, kernel: Callable[..., Any], args: tuple[Any, ...], order: random.Random | None) -> None:
        """Until every thread has returned; Stopped where that can't be."""
        self.log.phase()
        if inspect.isgeneratorfunction(kernel):
            for thread in self.threads:
                thread.run = kernel(thread, 0, *args)
            turn = _go_on
        else:
            turn = functools.partial(_run_through, kernel, args)
        ready = self.threads
        while ready:
            if order:
                ready = order.sample(ready, len(ready))
            self._turns(ready, turn)
            if any(thread.key < 0 for thread in ready):
                self.alive = [thread for thread in self.alive if thread.key >= 0]
            ready = self._released()
        if self.alive:
            self._deadlock()
        for thread in self.threads:  # threads and their block know each other, and nobody collects cycles now
            thread.leave()

    def _turns(self, ready: list[Thread], turn: Callable[[Thread], int]) -> None:
        starts, words = self.log.starts.append, self.log.words
        self.log.check()
        self._sign(ready)
        thread = ready[0]
        try:
            for thread in ready:
                starts(len(words))
                thread.key = turn(thread)
        except LabError:
            raise
        except Exception as error:
            self._failed(thread, error)

    def _sign(self, ready: list[Thread]) -> None:
        """Tell the log whose turns come next."""
        if ready is self.threads and not any(self.warp_epochs):
            numbers = array("i", range(self.first, self.first + len(ready)))  # the usual case, and three times as fast
            self.log.threads.extend(numbers)
            self.log.warp_epochs.frombytes(bytes(4 * len(ready)))
        else:
            self.log.threads.extend([thread.in_grid for thread in ready])
            self.log.warp_epochs.extend([self.warp_epochs[thread.warp] for thread in ready])

    def _failed(self, thread: Thread, error: Exception) -> None:
        who = self.launch.diagnostics.where(thread.in_grid)
        if isinstance(error, EndlessLoop):
            key, steps = error.args
            site = self.launch.program.sites[key % SITES]
            words = f"{who} is still in this loop after {steps:,} turns, and the trace ends here."
            if site.kind == "while":
                words += f" Does {site.text} ever become false? Or does it wait for a thread that can't go on?"
            else:
                words += " Trace a smaller problem, or raise max_steps."
            self.launch.diagnostics.add("endless", site.line, words)
        else:
            files = self.launch.program.files
            lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
            words = f"{who} raised {type(error).__name__}: {_plain(error)}"
            self.launch.diagnostics.add("raised", (lines[-1] if lines else 0) or 0, words)
        raise Stopped

    def _released(self) -> list[Thread]:
        """The threads that can go on: all at a barrier together, else warps that are complete, and the impatient."""
        kinds, keys = {thread.kind for thread in self.alive}, {thread.key for thread in self.alive}
        if kinds == {"barrier"} and 0 not in keys:
            return self._open_barrier(keys)
        paused = [thread for thread in self.alive if not thread.key]
        return paused + self._complete_warps() if "warp" in kinds else paused

    def _open_barrier(self, keys: set[int]) -> list[Thread]:
        if len(self.alive) < len(self.threads) or len({key % SITES for key in keys}) > 1:
            self._partial_barrier()
        if self.launch.program.votes:
            brought = [thread.brought for thread in self.alive]
            for thread in self.alive:
                thread.answer = brought
        self.log.phase()
        return self.alive

    def _complete_warps(self) -> list[Thread]:
        ready: list[Thread] = []
        waiting: dict[tuple[int, int, int], list[Thread]] = {}
        for thread in self.alive:
            if thread.kind == "warp" and thread.key:
                here = thread.key if thread.mask == WHOEVER else 0
                waiting.setdefault((thread.warp, thread.mask, here), []).append(thread)
        for (warp, mask, _), lanes in waiting.items():
            present = sum(1 << t.laneid for t in lanes)
            if mask == WHOEVER or mask & self.alive_mask(warp) & ~present == 0:
                self._judge_warp(mask, lanes)
                brought = {t.laneid: t.brought for t in lanes}
                for thread in lanes:
                    thread.answer = brought
                ready += lanes
        return ready

    def _judge_warp(self, mask: int, lanes: list[Thread]) -> None:
        """What a warp operation orders, and whether its lanes agree on it."""
        sites, diagnostics = self.launch.program.sites, self.launch.diagnostics
        met = [sites[thread.key % SITES] for thread in lanes]
        apart = next((i for i, site in enumerate(met) if site != met[0]), 0)
        if apart:
            who = [f"{diagnostics.where(lanes[i].in_grid)} at line {met[i].line} ({met[i].text})" for i in (0, apart)]
            words = f"lanes of a warp wait for each other at different warp operations: {who[0]}, {who[1]}."
            diagnostics.add("lane", met[0].line, words, thread=lanes[0].in_grid)
        outsider = next((thread for thread in lanes if mask != WHOEVER and not mask >> thread.laneid & 1), None)
        if outsider is not None:
            where = diagnostics.where(outsider.in_grid)
            words = f"{where}, lane {outsider.laneid}, is not in the mask that it passes itself."
            diagnostics.add("lane", met[0].line, words, thread=outsider.in_grid)
        if any(".syncwarp" in site.text or site.text.startswith("syncwarp") for site in met):
            if mask & self.full_mask(lanes[0].warp) == self.full_mask(lanes[0].warp):
                self.warp_epochs[lanes[0].warp] += 1
            else:
                self.log.partial_syncs.append((self.first // WARP + lanes[0].warp, mask, len(self.log.words)))

    def full_mask(self, warp: int) -> int:
        """Lanes that a warp has: fewer than 32 only in the last one."""
        return (1 << min(WARP, len(self.threads) - warp * WARP)) - 1

    def _partial_barrier(self) -> None:
        """Some threads have returned, or wait at another barrier. A GPU may hang, or go on with wrong data."""
        diagnostics, sites = self.launch.diagnostics, self.launch.program.sites
        at: dict[int, list[Thread]] = {}
        for thread in self.alive:
            at.setdefault(sites[thread.key % SITES].line, []).append(thread)
        line, here = next(iter(at.items()))
        who = diagnostics.where(here[0].in_grid)
        words = f"{who} and {len(here) - 1:,} others wait here" if len(here) > 1 else f"{who} waits here"
        for other, threads in list(at.items())[1:]:
            words += f", {len(threads):,} threads wait at line {other} instead"
        gone = [thread for thread in self.threads if thread.key < 0]
        if gone:
            have = "has" if len(gone) == 1 else "have"
            words += f", but {len(gone):,} of the block's {len(self.threads):,} threads {have} returned"
            words += f" (the first: {diagnostics.where(gone[0].in_grid)})"
        words += ". Every thread of a block has to reach the same syncthreads()."
        diagnostics.add("barrier", line, words, thread=here[0].in_grid)

    def _deadlock(self) -> None:
        sites, diagnostics = self.launch.program.sites, self.launch.diagnostics
        at: dict[tuple[int, str], list[Thread]] = {}
        for thread in self.alive:
            site = sites[thread.key % SITES]
            at.setdefault((site.line, site.text), []).append(thread)
        groups = [
            f"{len(threads):,} at line {line} ({text}; the first: {diagnostics.where(threads[0].in_grid)})"
            for (line, text), threads in at.items()
        ]
        words = f"no thread of the block can go on. They wait for each other: {'; '.join(groups)}."
        diagnostics.add("deadlock", min(at)[0], words, thread=self.alive[0].in_grid)
        raise Stopped


_IN_WORDS = {
    "cannot be interpreted as an integer": "An index has to be a whole number: / gives a fraction, // does not.",
    "TracedArray": "A kernel works on single elements: index the array.",
    "'Dim3'": "threadIdx, blockIdx and the like have three parts: take .x of it.",
    "has no attribute 'place'": "Atomics take the array, the index, and the value: cuda.atomic.add(array, i, value).",
    "'method'": "Is a function of cuda named without calling it? cuda.grid(1).",
}
"""What an error means, by a part of its own words."""


def _plain(error: Exception) -> str:
    """The error's own words, without the names of the rewriting, and what they mean where that is known."""
    if isinstance(error, AttributeError) and error.name in ("ld", "st"):
        return f"something that is no array was indexed (a {type(error.obj).__name__})."
    known = next((words for part, words in _IN_WORDS.items() if part in str(error)), "")
    return f"{error}. {known}" if known else str(error)


def _go_on(thread: Thread) -> int:
    key: int = next(thread.run, -1)
    return key


def _run_through(kernel: Callable[..., Any], args: tuple[Any, ...], thread: Thread) -> int:
    kernel(thread, 0, *args)
    return -1
