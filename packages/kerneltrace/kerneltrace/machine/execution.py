"""One run of a kernel: what its blocks share while they run, and what they leave
behind.
"""

from __future__ import annotations

import math
import types
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from kerneltrace.machine.address_space import AddressSpace, Region, SharedLayout
from kerneltrace.machine.chosen_blocks import ChosenBlocks
from kerneltrace.machine.diagnostics import Diagnostics
from kerneltrace.machine.event_log import SITES, EventLog
from kerneltrace.machine.events import Access, Events
from kerneltrace.machine.grid import Dim3, place, place_name
from kerneltrace.machine.program import Program, Site


@dataclass(frozen=True)
class LaunchSettings:
    """What stays the same from run to run: the kernel, the launch, the limits."""

    fn: types.FunctionType
    grid: Dim3
    block: Dim3
    blocks: ChosenBlocks
    shared_bytes: int
    max_events: int
    max_steps: int
    pauses: bool = False
    """Whether a thread pauses before each access to memory, so that others can come in
    between.
    """
    undefined: int = 0
    """What a shuffle gives from a lane that does not take part."""
    divide: Literal["ignore", "raise"] = "ignore"
    """What a division of floats by zero does."""

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    def where(self, thread: int) -> str:
        """Name a thread, counted over the whole grid, as messages do: `thread 3 of
        block (0, 1)`.
        """
        block, inside = divmod(thread, self.block_size)
        thread_name = place_name(place(inside, self.block), self.block)
        if math.prod(self.grid) == 1:
            return f"thread {thread_name}"
        block_name = place_name(place(block, self.grid), self.grid)
        return f"thread {thread_name} of block {block_name}"


@dataclass(frozen=True)
class Execution:
    """One run of a kernel, from its blocks' shared state to its log and the addresses
    in it.
    """

    settings: LaunchSettings
    log: EventLog
    program: Program
    diagnostics: Diagnostics
    memory: AddressSpace
    layout: SharedLayout

    @cached_property
    def thread_places(self) -> list[Dim3]:
        """The place of each thread in its block, made once for all blocks."""
        return [place(i, self.settings.block) for i in range(self.settings.block_size)]

    @property
    def sites(self) -> list[Site]:
        """Places in the source that report."""
        return self.program.sites

    @property
    def events(self) -> Events:
        """All events, looked up anew."""
        return Events.of(self.log, self.sites, self.settings.block_size)

    @cached_property
    def _parts(self) -> tuple[Events, Events, Events]:
        """Accesses but for issued copies, other events, and all accesses."""
        events = self.events
        site = events.site
        is_issue = np.array([site.call == "issue" for site in self.sites])
        accessing = events.log.kinds[site] != Access.NONE
        all_accesses = events.only(accessing)
        accesses = all_accesses
        if is_issue.any():
            accesses = events.only(accessing & ~is_issue[site])
        return accesses, events.only(~accessing), all_accesses

    accesses = property(
        lambda self: self._parts[0], doc="The events that access memory."
    )
    others = property(
        lambda self: self._parts[1], doc="All other events: branches, loops, fences."
    )

    @cached_property
    def pieces(self) -> Events:
        """The accesses, those of several sizes to one array in pieces of one size, so
        that they can be compared.

        With them the beginnings of asynchronous copies, which may write from then on.
        """
        pieces: Events = self._parts[2].in_pieces(self.regions)
        return pieces

    @property
    def regions(self) -> list[Region]:
        """Every array the kernel could reach."""
        return [*self.memory.regions, *self.layout.regions.values()]

    def region_of(self, address: int) -> tuple[Region | None, str]:
        """The array that an address lies in, and the element as its source would name
        it: `a[3, 4]`.
        """
        for region in self.regions:
            number = int(region.elements(np.array([address]))[0])
            if number >= 0:
                return region, region.element(number)
        return None, "memory"


def prepared(settings: LaunchSettings, watch: Any = None) -> Execution:
    """The log and the memory of a run, and what it reports to; `watch` is told each
    access.
    """
    log = EventLog(settings.max_events, settings.max_steps)
    diagnostics = Diagnostics(
        settings.where, lambda key: program.sites[key % SITES].line, log.current_thread
    )
    watching = None if watch is None else watch(log)
    memory = AddressSpace(
        log.add, diagnostics.out_of_bounds, diagnostics.unset_local, watching
    )
    program = Program(log, memory.constant, diagnostics.divided_by_zero)
    program.pauses = settings.pauses
    return Execution(
        settings, log, program, diagnostics, memory, SharedLayout(settings.shared_bytes)
    )
