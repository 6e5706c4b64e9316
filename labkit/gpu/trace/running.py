"""One run of a kernel with everything it leaves behind."""

from __future__ import annotations

import math
import random
import types
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from labkit.gpu.trace.diagnostics import Diagnostics
from labkit.gpu.trace.events import Events, Requests
from labkit.gpu.trace.given import Arguments
from labkit.gpu.trace.grid import Launch
from labkit.gpu.trace.log import SITES, Log
from labkit.gpu.trace.program import Program, Site
from labkit.gpu.trace.space import Region, Space
from labkit.gpu.trace.thread import Dim3, named, place


@dataclass(frozen=True)
class Setting:
    """What stays the same from run to run: the kernel, the launch, the limits."""

    fn: types.FunctionType
    grid: Dim3
    block: Dim3
    shared_bytes: int
    max_events: int
    max_steps: int

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    def where(self, thread: int) -> str:
        """A thread of the grid in words."""
        block, inside = divmod(thread, self.block_size)
        own = f"thread {named(place(inside, self.block), self.block)}"
        if math.prod(self.grid) == 1:
            return own
        return f"{own} of block {named(place(block, self.grid), self.grid)}"


@dataclass(frozen=True)
class Run:
    """The log of a run and where its addresses lie."""

    setting: Setting
    log: Log
    program: Program
    launch: Launch
    space: Space

    @property
    def sites(self) -> list[Site]:
        """Places in the source that report."""
        return self.program.sites

    @property
    def diagnostics(self) -> Diagnostics:
        """Mistakes found while it ran."""
        return self.launch.diagnostics

    @property
    def events(self) -> Events:
        """All events, looked up anew: most of them are accesses, which are kept."""
        return Events.of(self.log, self.sites, self.setting.block_size)

    @cached_property
    def accesses(self) -> Events:
        """Those that go to memory."""
        return self.events.accesses

    @cached_property
    def requests(self) -> Requests:
        """Accesses by warps."""
        return Requests.of(self.accesses)

    @property
    def regions(self) -> list[Region]:
        """Every array the kernel could reach."""
        return [*self.space.regions, *self.launch.layout.regions.values()]

    def region_of(self, address: int) -> tuple[Region | None, str]:
        """The array that an address lies in, and the element as its source would name it: `a[3, 4]`."""
        for region in self.regions:
            number = int(region.elements(np.array([address]))[0])
            if number >= 0:
                return region, region.element(number)
        return None, "memory"


def run(setting: Setting, given: Arguments, order: random.Random | None = None, watch: Any = None) -> Run:
    """Run the kernel of `setting` on `given`; threads in order, or shuffled by `order`; each access told to `watch`."""
    log = Log(setting.max_events, setting.max_steps)
    diagnostics = Diagnostics(setting.where, lambda key: program.sites[key % SITES].line, log.running)
    watching = None if watch is None else watch(log)
    space = Space(log.add, diagnostics.outside, watching)
    program = Program(log, space.constant)
    kernel = program.function(setting.fn, given.whole, given.whole_arrays)
    launch = Launch(program, space, diagnostics, setting.grid, setting.block, setting.shared_bytes)
    args = tuple(space.argument(value, name) for name, value in given.values.items())
    launch.run(kernel, args, order)
    return Run(setting, log, program, launch, space)
