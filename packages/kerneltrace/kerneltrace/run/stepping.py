"""Run a few threads one access to memory at a time, in any order, and keep what each
did and what memory then held.
"""

from __future__ import annotations

import bisect
import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kerneltrace.machine.address_space import SHARED_END, Region, blank
from kerneltrace.machine.chosen_blocks import ChosenBlocks
from kerneltrace.machine.diagnostics import ENDINGS
from kerneltrace.machine.event_log import SITES, EventLog
from kerneltrace.machine.execution import Execution, LaunchSettings
from kerneltrace.machine.grid import Dim3
from kerneltrace.machine.traced_memory import Array
from kerneltrace.machine.traced_thread import TracedThread
from kerneltrace.run.launch import execute
from kerneltrace.run.launch_arguments import launch_arguments
from kerneltrace.run.thread_block import Stopped
from kerneltrace.source.kernel_scope import python_function

IN_TURN = "in turn"
ONE_BY_ONE = "one after another"
ORDERS = (IN_TURN, ONE_BY_ONE)
MOST_THREADS = 8
MOST_STEPS = 200
# by the kind of the site
_WAITS = {"barrier": "waits at the barrier", "warp": "waits for its warp"}


@dataclass(frozen=True)
class AccessStep:
    """One access to memory by one thread, in words; `writes` is the array that it
    writes to, or "".
    """

    thread: int
    words: str
    writes: str


@dataclass(frozen=True)
class SteppedRun:
    """All steps of a kernel. `memory` and `places` have one entry more: the moments
    before, between and after them.
    """

    source: tuple[str, ...]
    first_line: int
    steps: tuple[AccessStep, ...]
    memory: tuple[dict[str, Array], ...]
    unwritten: tuple[dict[str, Array], ...]
    """As `memory`: which elements hold what no thread has written, in shared memory or
    copied from there.
    """
    places: tuple[tuple[tuple[int, str], ...], ...]
    """For each thread the line of its next access, and why it can't go on, or ""."""
    ended: str
    """Why not all threads came to the end; empty where they did."""


class _Turn(NamedTuple):
    """A step: the thread, the access's key, its first word in the log."""

    thread: int
    key: int
    log_at: int


class _Turns:
    """Chooses the thread whose turn it is, and notes the moment before each access."""

    def __init__(self, order: str, chosen: Sequence[int]) -> None:
        self.order = order
        self.chosen = list(chosen)
        self.threads: list[TracedThread] = []
        self.made: list[_Turn] = []
        self.memory: list[dict[str, Array]] = []
        # by moment and thread: of what it waits for or does next, -1 at its end
        self.keys: list[list[int]] = []
        self._arrays: dict[str, Array] = {}
        # addresses of the elements of shared arrays, as their indices lie
        self.shared: dict[str, Array] = {}

    def watch(self, log: EventLog) -> Any:
        """What the tracer calls for each array that it makes."""

        def keep(traced: Any, ld: Any, st: Any) -> Any:
            if traced.name not in self._arrays:
                self._arrays[traced.name] = traced.array
                if traced.base < SHARED_END:
                    numbers = np.arange(traced.size).reshape(traced.array.shape)
                    addresses = traced.base + traced.itemsize * numbers
                    self.shared[traced.name] = addresses
            return ld, st

        self._log = log
        return keep

    def note(self) -> None:
        """Note what memory holds and where the threads are."""
        self.memory.append({name: array.copy() for name, array in self._arrays.items()})
        self.keys.append([thread.key or thread.brought for thread in self.threads])

    def __call__(self, items: Sequence[Any]) -> list[Any]:
        """The thread that goes on; first all those that have not come to an access
        since the start or a barrier.
        """
        if not isinstance(items[0], TracedThread):
            return list(items)  # blocks, of which there is one
        if not self.threads:
            self.threads = list(items)
            return self.threads
        released = [thread for thread in items if thread.key]
        if released:
            return released
        if len(self.made) == MOST_STEPS:
            raise Stopped
        self.note()
        ready = {thread.in_grid: thread for thread in items}
        number = self._next(sorted(ready))
        self.made.append(_Turn(number, ready[number].brought, len(self._log.words)))
        return [ready[number]]

    def _next(self, ready: list[int]) -> int:
        while self.chosen:
            number = self.chosen.pop(0)
            if number in ready:
                return number
        last = self.made[-1].thread if self.made and self.order == IN_TURN else -1
        return min((number for number in ready if number > last), default=ready[0])


def steps(
    kernel: Any,
    threads: int,
    args: tuple[Any, ...],
    order: str = IN_TURN,
    chosen: Sequence[int] = (),
) -> SteppedRun:
    """Run one block of `threads` threads on copies of the arguments, access by access.

    The first turns go to the threads that `chosen` names, as far as they can go on; the
    others by `order`, one of ORDERS. Refuses what `trace` refuses.
    """
    fn = python_function(kernel)
    grid = Dim3(1, 1, 1)
    block = Dim3(threads, 1, 1)
    blocks = ChosenBlocks(grid, [0])
    settings = LaunchSettings(fn, grid, block, blocks, 0, 10**6, 10**4, pauses=True)
    turns = _Turns(order, chosen)
    run = execute(settings, launch_arguments(fn, args).copy(), turns, turns.watch)
    turns.note()
    lines, first_line = inspect.getsourcelines(fn)
    source = tuple(textwrap.dedent("".join(lines)).splitlines())
    places = tuple(
        tuple(_place(run, key) for key in moment_keys) for moment_keys in turns.keys
    )
    ended = " ".join(
        words
        for (kind, *_), (_, words, _) in run.diagnostics.mistakes.items()
        if kind in ENDINGS
    )
    if len(turns.made) == MOST_STEPS:
        ended = ended or f"These are the first {MOST_STEPS} steps; there are more."
    unwritten = _unwritten(run, turns)
    made = _decoded(run, turns, unwritten)
    return SteppedRun(
        source, first_line, made, tuple(turns.memory), unwritten, places, ended
    )


def _place(run: Execution, key: int) -> tuple[int, str]:
    """The line of a thread's next access, and why it can't go on, or ""."""
    if key <= 0:
        return 0, "is done"
    site = run.sites[key % SITES]
    return site.line, _WAITS.get(site.kind, "")


def _unwritten(run: Execution, turns: _Turns) -> tuple[dict[str, Array], ...]:
    """For each moment which elements hold what no thread has written."""
    # what integers in shared memory are before that; of floats NaN says enough
    blanks = {
        int(blank(1, turns.memory[-1][name].dtype)[0])
        for name in turns.shared
        if turns.memory[-1][name].dtype.kind in "iu"
    }
    written: set[int] = set()  # addresses of bytes, as arrays may share them
    moments = []
    for memory, turn in zip(turns.memory, (None, *turns.made), strict=True):
        if turn is not None and run.sites[turn.key % SITES].kind != "load":
            address, size = _bytes(run, turn)
            written.update(range(address, address + size))
        bytes_written = np.array(sorted(written), "i8")
        masks = {name: _holds(array, blanks) for name, array in memory.items()}
        for name in masks.keys() & turns.shared.keys():
            masks[name] |= ~np.isin(turns.shared[name], bytes_written)
        moments.append(masks)
    return tuple(moments)


def _holds(array: Array, numbers: set[int]) -> Array:
    """Which elements are one of some numbers, after a conversion to their type."""
    mask = np.zeros(array.shape, bool)
    if array.dtype.kind in "iuf":
        for number in numbers:
            mask |= array == np.array(number).astype(array.dtype)
    return mask


def _decoded(
    run: Execution, turns: _Turns, unwritten: Sequence[dict[str, Array]]
) -> tuple[AccessStep, ...]:
    access_steps: list[AccessStep] = []
    log = run.log
    # by thread and element: the step in which it last read it
    last_read: dict[tuple[int, str], int] = {}
    last_write: dict[str, int] = {}
    # of the steps, between two barriers
    phases = [
        log.phases[bisect.bisect_right(log.starts, turn.log_at) - 1]
        for turn in turns.made
    ]
    for number, turn in enumerate(turns.made):
        thread = turn.thread
        site = run.sites[turn.key % SITES]
        region, name, address = _accessed(run, turn)
        if region is None:
            verb = "reads" if site.kind == "load" else "writes"
            words = f"{verb} outside of an array: {site.text}"
        else:
            element = int(region.elements(np.array([address]))[0])
            before = turns.memory[number].get(region.name, region.array)
            after = turns.memory[number + 1].get(region.name, region.array)
            was_unwritten = unwritten[number].get(region.name)
            is_unwritten = unwritten[number + 1].get(region.name)
            old = before.flat[element]
            new = after.flat[element]
            if is_unwritten is not None and is_unwritten.flat[element]:
                new = "?"
            words = {
                "load": f"reads {new} from {name}",
                "store": f"writes {new} to {name}",
                "atomic": f"changes {name} from {old} to {new} in one step",
            }[site.kind]
            is_blank = was_unwritten is not None and was_unwritten.flat[element]
            if is_blank and site.kind != "store" and region.space == "shared":
                verb = "reads" if site.kind == "load" else "changes"
                words = f"{verb} {name}, which is not written yet"
            last = last_write.get(name)
            is_unseen = (
                last is not None
                and last_read.get((thread, name), number) < last
                and phases[last] == phases[number]
            )
            if site.kind == "store" and is_unseen:
                loser = access_steps[last_write[name]].thread
                if loser != thread:
                    words += f": thread {loser}'s {old} is lost"
            if site.kind == "load":
                last_read[thread, name] = number
            else:
                last_write[name] = number
        writes = region.name if region and site.kind != "load" else ""
        access_steps.append(AccessStep(thread, words, writes))
    return tuple(access_steps)


def _accessed(run: Execution, turn: _Turn) -> tuple[Region | None, str, int]:
    """The region, the element's name and the address of a turn's access, which is
    logged where it is in bounds.
    """
    address, _ = _bytes(run, turn)
    return *run.region_of(address), address


def _bytes(run: Execution, turn: _Turn) -> tuple[int, int]:
    """The address of a turn's access and its bytes; -1 and 0 where it isn't logged."""
    words = run.log.words
    if turn.log_at + 1 >= len(words) or words[turn.log_at] != turn.key:
        return -1, 0
    word = words[turn.log_at + 1]
    return word >> 3, 1 << (word & 7)
