"""Run a rewritten kernel: blocks one after the other, the threads of a block as generators that take turns.

A thread runs until it waits: at a barrier for its block, at a warp operation for the lanes in its mask. When nobody in
the block can go on, the block is deadlocked.
"""

from __future__ import annotations

import functools
import gc
import inspect
import math
import random
import traceback
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from labkit.errors import LabError
from labkit.simt.log import SITES, EndlessLoop
from labkit.simt.memory import TracedArray
from labkit.simt.numbers import as_dtype
from labkit.simt.program import Program
from labkit.simt.space import SharedLayout, SharedMemory, Space
from labkit.simt.thread import WARP, Dim3, Thread
from labkit.simt.trouble import Trouble


class Stopped(Exception):
    """The launch can't go on; why stands among its findings."""


def place(number: int, shape: Dim3) -> Dim3:
    """The 3-D place of the `number`-th thread or block of a shape, x fastest."""
    return Dim3(number % shape.x, number // shape.x % shape.y, number // (shape.x * shape.y))


def named(place_: Dim3, shape: Dim3) -> str:
    """A place in words: a number where the shape is one line, else a tuple (x, y) or (x, y, z)."""
    if shape.y == shape.z == 1:
        return str(place_.x)
    return str(tuple(place_[:2] if shape.z == 1 else place_))


class Launch:
    """A grid of blocks of threads that run one kernel."""

    def __init__(self, program: Program, space: Space, trouble: Trouble, grid: Dim3, block: Dim3, shared: int) -> None:
        self.program, self.space, self.trouble, self.grid, self.block = program, space, trouble, grid, block
        self.layout = SharedLayout(shared)
        self.votes = any("syncthreads_" in site.text for site in program.sites)
        self.places = [place(i, block) for i in range(math.prod(block))]

    def run(self, kernel: Callable[..., Any], args: tuple[Any, ...], order: random.Random | None = None) -> None:
        """Run every block, in order or shuffled by `order`, and the threads of each likewise."""
        numbers = list(range(self.grid.x * self.grid.y * self.grid.z))
        if order:
            order.shuffle(numbers)
        collecting = gc.isenabled()
        gc.disable()  # a trace makes millions of objects and no cycles
        try:
            with np.errstate(all="ignore"):
                for number in numbers:
                    _Block(self, number).run(kernel, args, order)
        except Stopped:
            pass
        finally:
            if collecting:
                gc.enable()


class _Block:
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
        site = key % SITES
        return self._memory.array(site, self.launch.program.sites[site].text, shape, as_dtype(dtype))

    def local(self, key: int, shape: Any, dtype: Any) -> TracedArray:
        return self.launch.space.local(shape, as_dtype(dtype), self.launch.program.sites[key % SITES].text)

    def constant(self, array: Any) -> TracedArray:
        return self.launch.space.constant(array, "constant")

    def alive_mask(self, warp: int) -> int:
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
        who = self.launch.trouble.where(thread.in_grid)
        if isinstance(error, EndlessLoop):
            key, steps = error.args
            site = self.launch.program.sites[key % SITES]
            words = f"{who} is still in this loop after {steps:,} turns, and the trace ends here."
            if site.kind == "while":
                words += f" Does {site.text} ever become false? Or does it wait for a thread that can't go on?"
            else:
                words += " Trace a smaller problem, or raise max_steps."
            self.launch.trouble.add("endless", site.line, words)
        else:
            files = self.launch.program.files
            lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
            words = f"{who} raised {type(error).__name__}: {_plain(error)}"
            self.launch.trouble.add("raised", (lines[-1] if lines else 0) or 0, words)
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
        if self.launch.votes:
            brought = [thread.brought for thread in self.alive]
            for thread in self.alive:
                thread.answer = brought
        self.log.phase()
        return self.alive

    def _complete_warps(self) -> list[Thread]:
        ready: list[Thread] = []
        waiting: dict[tuple[int, int], list[Thread]] = {}
        for thread in self.alive:
            if thread.kind == "warp":
                waiting.setdefault((thread.warp, thread.mask), []).append(thread)
        for (warp, mask), lanes in waiting.items():
            if mask & self.alive_mask(warp) & ~sum(1 << t.laneid for t in lanes) == 0:
                brought = {t.laneid: t.brought for t in lanes}
                self.warp_epochs[warp] += 1
                for thread in lanes:
                    thread.answer = brought
                ready += lanes
        return ready

    def _partial_barrier(self) -> None:
        """Some threads have returned, or wait at another barrier. A GPU may hang, or go on with wrong data."""
        trouble, sites = self.launch.trouble, self.launch.program.sites
        at: dict[int, list[Thread]] = {}
        for thread in self.alive:
            at.setdefault(sites[thread.key % SITES].line, []).append(thread)
        line, here = next(iter(at.items()))
        who = trouble.where(here[0].in_grid)
        words = f"{who} and {len(here) - 1:,} others wait here" if len(here) > 1 else f"{who} waits here"
        for other, threads in list(at.items())[1:]:
            words += f", {len(threads):,} threads wait at line {other} instead"
        gone = [thread for thread in self.threads if thread.key < 0]
        if gone:
            words += f", but {len(gone):,} of the block's {len(self.threads):,} threads have returned"
            words += f" (the first: {trouble.where(gone[0].in_grid)})"
        words += ". Every thread of a block has to reach the same syncthreads()."
        trouble.add("barrier", line, words, thread=here[0].in_grid)

    def _deadlock(self) -> None:
        sites, trouble = self.launch.program.sites, self.launch.trouble
        at: dict[tuple[int, str], list[Thread]] = {}
        for thread in self.alive:
            site = sites[thread.key % SITES]
            at.setdefault((site.line, site.text), []).append(thread)
        groups = [
            f"{len(threads):,} at line {line} ({text}; the first: {trouble.where(threads[0].in_grid)})"
            for (line, text), threads in at.items()
        ]
        words = f"no thread of the block can go on. They wait for each other: {'; '.join(groups)}."
        trouble.add("deadlock", min(at)[0], words, thread=self.alive[0].in_grid)
        raise Stopped


def _plain(error: Exception) -> str:
    """The error's own words, without the names of the rewriting."""
    if isinstance(error, AttributeError) and error.name in ("ld", "st"):
        return f"something that is no array was indexed (a {type(error.obj).__name__})."
    return str(error)


def _go_on(thread: Thread) -> int:
    key: int = next(thread.run, -1)
    return key


def _run_through(kernel: Callable[..., Any], args: tuple[Any, ...], thread: Thread) -> int:
    kernel(thread, 0, *args)
    return -1
