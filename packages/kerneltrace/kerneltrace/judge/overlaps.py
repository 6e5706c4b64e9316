"""Find shared memory that a kernel takes for two things at once: arrays in the same
bytes, of which one was meant to begin behind the other.

Source: CUDA C++ Programming Guide, "__shared__": arrays in dynamic shared memory all
begin at the same address, and their offsets have to be given.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kerneltrace.machine.address_space import View
from kerneltrace.machine.events import Events, in_order, starts
from kerneltrace.machine.execution import Execution
from kerneltrace.machine.traced_memory import Array

Overlap = tuple[int, str, Events, int]
"""A line, what is wrong there, the access of the first time, and how often."""


def overlaps(run: Execution) -> Iterator[Overlap]:
    """Where a kernel, of shared memory, reads as one type what was last written as
    another, reads what another array overwrote, or writes by two arrays without a
    barrier or a read between them.
    """
    views = run.layout.views
    if not views or run.program.lanes:  # in lockstep there are none
        return
    shared = run.pieces.only(run.pieces.shared)
    events = shared.only(in_order(shared.block, shared.address))
    if not len(events):
        return
    number = np.arange(len(events))
    begins = np.zeros(len(events), int)  # (accesses,), of those to the same address
    first = starts(events.address, events.block)
    begins[first] = first
    begins = np.maximum.accumulate(begins)
    before = _last_before(events.write)
    names = _Names(run)
    kind = names.kinds[events.site]
    array = names.arrays[events.site]
    has_write = before >= begins
    is_read = has_write & (~events.write | events.atomic)
    is_known = (kind > 0) & (kind[before] > 0)
    is_other = (array > 0) & (array[before] > 0) & (array != array[before])
    as_other_type = is_read & is_known & (kind != kind[before])
    # device functions may share an array by a name of their own
    is_other &= names.functions[array] == names.functions[array[before]]
    is_next = has_write & (before == number - 1) & events.write & ~events.atomic
    lost = is_next & is_other & (events.phase == events.phase[before])
    overwritten = is_read & is_other & ~as_other_type
    for own in np.unique(array[overwritten]):
        last_own = _last_before(events.write & (array == own))
        overwritten &= (array != own) | (last_own >= begins)
    for is_wrong, verb in (
        (as_other_type, "reads"),
        (overwritten, "reads"),
        (lost, "writes"),
    ):
        yield from names.worded(events, np.flatnonzero(is_wrong), before, verb)


def _last_before(mask: Array) -> Array:
    """For each place the last one before it where the mask is true; -1 for none."""
    number = np.where(mask, np.arange(len(mask)), -1)
    last: Array = np.append(-1, np.maximum.accumulate(number)[:-1])
    return last


class _Names:
    """What each site takes shared memory for, in numbers and in words."""

    def __init__(self, run: Execution) -> None:
        self._run = run
        views = run.layout.views
        unknown = View(0, "")
        self._views = [views.get(site, unknown) for site in range(len(run.sites))]
        texts = ["", *sorted({view.kind for view in self._views} - {""})]
        self.kinds = np.array([texts.index(view.kind) for view in self._views])
        """By site: a number for the type; 0 where it isn't known."""
        self.arrays = np.array([view.array for view in self._views])
        """By site."""
        self.functions = np.array([site.function for site in run.sites])
        """By site."""

    def worded(
        self, events: Events, wrong: Array, before: Array, verb: str
    ) -> Iterator[Overlap]:
        """The accesses that go wrong after the write before them, once for each pair of
        sites.
        """
        sites = events.site.astype(int)
        pairs = sites[wrong] * len(self._views) + sites[before[wrong]]
        _, firsts, counts = np.unique(pairs, return_index=True, return_counts=True)
        where = self._run.settings.where
        for place, count in zip(wrong[firsts], counts.tolist(), strict=True):
            access = events.only(slice(place, place + 1))
            write = events.only(slice(before[place], before[place] + 1))
            line = self._run.sites[sites[place]].line
            line_before = self._run.sites[sites[before[place]]].line
            words = (
                f"{where(int(access.thread[0]))} {verb} {self._element(access)}, where"
                f" {where(int(write.thread[0]))} last wrote {self._element(write)}"
                f" (line {line_before}): they are the same bytes. Let one array begin"
                " behind the other."
            )
            yield line, words, access, count

    def _element(self, access: Events) -> str:
        view = self._views[int(access.site[0])]
        address = int(access.address[0])
        region = self._run.layout.regions.get(view.array)
        element = self._run.region_of(address)[1]
        if region is not None:
            number = int(region.elements(np.array([address]))[0])
            element = region.element(number)
        if not view.kind:
            return element
        name = {"f": "a float", "i": "an integer"}.get(view.kind)
        return f"{element} as {name or np.dtype(view.kind).name}"
