"""Run a few threads one access to memory at a time, in any order, and keep what each
did and what memory then held.
"""

from __future__ import annotations

import bisect
import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltrace.log.diagnostics import ENDINGS
from kerneltrace.log.event_log import SITES, EventLog
from kerneltrace.log.execution import Execution, LaunchSettings
from kerneltrace.log.grid import Dim3
from kerneltrace.log.traced_memory import Array
from kerneltrace.log.traced_thread import TracedThread
from kerneltrace.run.launch import execute
from kerneltrace.run.launch_arguments import launch_arguments
from kerneltrace.run.thread_block import Stopped
from kerneltrace.source.kernel_scope import python_function

IN_TURN, ONE_BY_ONE = ORDERS = ("in turn", "one after another")
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
    places: tuple[tuple[tuple[int, str], ...], ...]
    """For each thread the line of its next access, and why it can't go on, or ""."""
    ended: str
    """Why not all threads came to the end; empty where they did."""


class _Turns:
    """Chooses the thread whose turn it is, and notes the moment before each access."""

    def __init__(self, order: str, chosen: Sequence[int]) -> None:
        self.order = order
        self.chosen = list(chosen)
        self.threads: list[TracedThread] = []
        # by step: the thread, the access's key, its first word in the log
        self.made: list[tuple[int, int, int]] = []
        self.memory: list[dict[str, Array]] = []
        # by moment and thread: of what it waits for or does next, -1 at its end
        self.keys: list[list[int]] = []
        self._arrays: dict[str, Array] = {}

    def watch(self, log: EventLog) -> Any:
        """What the tracer calls for each array that it makes."""

        def made(traced: Any, ld: Any, st: Any) -> Any:
            self._arrays.setdefault(traced.name, traced.array)
            return ld, st

        self._log = log
        return made

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
        if released := [thread for thread in items if thread.key]:
            return released
        if len(self.made) == MOST_STEPS:
            raise Stopped
        self.note()
        ready = {thread.in_grid: thread for thread in items}
        number = self._next(sorted(ready))
        self.made.append((number, ready[number].brought, len(self._log.words)))
        return [ready[number]]

    def _next(self, ready: list[int]) -> int:
        while self.chosen:
            if (number := self.chosen.pop(0)) in ready:
                return number
        last = self.made[-1][0] if self.made and self.order == IN_TURN else -1
        return next((number for number in ready if number > last), ready[0])


def steps(
    kernel: Any,
    threads: int,
    args: tuple[Any, ...],
    order: str = IN_TURN,
    chosen: Sequence[int] = (),
) -> SteppedRun:
    """Run one block of `threads` threads on copies of the arguments, access by access.

    The first turns go to the threads that `chosen` names, as far as they can go on; the
    others by `order`, one of ORDERS. Raises KernelError as `trace` does.
    """
    fn = python_function(kernel)
    settings = LaunchSettings(
        fn, Dim3(1, 1, 1), Dim3(threads, 1, 1), 0, 10**6, 10**4, pauses=True
    )
    turns = _Turns(order, chosen)
    run = execute(settings, launch_arguments(fn, args).copy(), turns, turns.watch)
    turns.note()
    lines, first_line = inspect.getsourcelines(fn)
    source = tuple(textwrap.dedent("".join(lines)).splitlines())
    at = [
        [run.sites[key % SITES] if key > 0 else None for key in keys]
        for keys in turns.keys
    ]
    places = (
        ((s.line, _WAITS.get(s.kind, "")) if s else (0, "is done") for s in moment)
        for moment in at
    )
    ended = " ".join(
        words
        for (kind, *_), (_, words, _) in run.diagnostics.found.items()
        if kind in ENDINGS
    )
    if len(turns.made) == MOST_STEPS:
        ended = ended or f"These are the first {MOST_STEPS} steps; there are more."
    return SteppedRun(
        source,
        first_line,
        _decoded(run, turns),
        tuple(turns.memory),
        tuple(map(tuple, places)),
        ended,
    )


def _decoded(run: Execution, turns: _Turns) -> tuple[AccessStep, ...]:
    found: list[AccessStep] = []
    log = run.log.words
    # by thread and element: the step in which it last read it
    read: dict[tuple[int, str], int] = {}
    written: dict[str, int] = {}
    stretches = (bisect.bisect_right(run.log.starts, at) - 1 for _, _, at in turns.made)
    # of the steps, between two barriers
    phases = [run.log.phases[stretch] for stretch in stretches]
    for number, (thread, key, at) in enumerate(turns.made):
        site = run.sites[key % SITES]
        # no access out of bounds is logged
        address = log[at + 1] >> 3 if at + 1 < len(log) and log[at] == key else -1
        region, name = run.region_of(address)
        words = (
            f"{'reads' if site.kind == 'load' else 'writes'} outside of an array:"
            f" {site.text}"
        )
        if region is not None:
            element = int(region.elements(np.array([address]))[0])
            before, after = (
                moment.get(region.name, region.array)
                for moment in turns.memory[number : number + 2]
            )
            old = before.flat[element]
            new = after.flat[element]
            words = (
                f"reads {new} from {name}"
                if site.kind == "load"
                else f"writes {new} to {name}"
            )
            if site.kind == "atomic":
                words = f"changes {name} from {old} to {new} in one step"
            last = written.get(name)
            unseen = (
                last is not None
                and read.get((thread, name), number) < last
                and phases[last] == phases[number]
            )
            if (
                site.kind == "store"
                and unseen
                and (other := found[written[name]].thread) != thread
            ):
                words += f": thread {other}'s {old} is lost"
            if site.kind == "load":
                read[thread, name] = number
            else:
                written[name] = number
        found.append(
            AccessStep(
                thread, words, region.name if region and site.kind != "load" else ""
            )
        )
    return tuple(found)
