"""What fences, atomics, barriers of some lanes and mbarriers put in order, beside the
barriers of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from kerneltrace.machine.events import Events
from kerneltrace.machine.program import Site
from kerneltrace.machine.traced_memory import Array

NEVER = np.iinfo("i8").max


def _letter(site: Site) -> str:
    """What a site orders: f and b are fences of all and of the block, s syncwarps, r
    and a atomics, r if it's used.

    Volatile and relaxed accesses are like atomics; m and w arrive at an mbarrier and
    wait there.
    """
    if site.kind == "atomic" or site.call in ("relaxed", "volatile", "polled"):
        return "r" if site.used and site.kind != "store" else "a"
    return _LETTERS.get(site.call, "")


_LETTERS = {
    "threadfence": "f",
    "threadfence_system": "f",
    "threadfence_block": "b",
    "syncwarp": "s",
    "arrive": "m",
    "wait": "w",
}


def follow(causes: Events, events: Events) -> Array:
    """Which events one of the `causes` precedes in its own thread, or before a barrier
    or a syncwarp of its whole warp; the causes themselves count.
    """
    if not len(causes):
        return np.zeros(len(events), bool)
    return (
        np.isin(events.at, causes.at)
        | _later(causes.thread, causes.at, events.thread, events.at)
        | _later(causes.block, causes.phase, events.block, events.phase)
        | _later(causes.warp, causes.step, events.warp, events.step)
    )


def _later(cause_group: Array, since: Array, group: Array, when: Array) -> Array:
    """Which events come after the first cause of their group."""
    groups, number = np.unique(cause_group, return_inverse=True)
    first = np.full(len(groups), NEVER)
    np.minimum.at(first, number, since)
    place = np.minimum(np.searchsorted(groups, group), len(groups) - 1)
    later: Array = (groups[place] == group) & (when > first[place])
    return later


class Ordering:
    """What fences, atomics and syncwarps of a part of a warp put in order, beside
    barriers and whole syncwarps.

    A thread that fences and then changes an address by an atomic hands on what it knows
    to every thread that later reads that address by an atomic whose result it uses.
    What a thread knows are its own accesses and, after a barrier or a syncwarp, those
    of the others. A fence of `threadfence_block` works within its block. (CUDA C++
    Programming Guide, "Memory Fence Functions"; release and acquire patterns in the PTX
    ISA, "Memory Consistency Model".)
    """

    def __init__(
        self, events: Callable[[], Events], sites: list[Site], *, fenced: bool = False
    ) -> None:
        """`events()` gives all events of the run; if `fenced`, each atomic is taken to
        have a fence before it.
        """
        self._events = events
        self._fenced = fenced
        self._letters = np.array([_letter(site) for site in sites])
        ordering = "fbsmr" if fenced else "fbsm"
        self.none = not np.isin(self._letters, list(ordering)).any()
        """Whether the kernel has nothing but barriers."""

    @cached_property
    def _synced(self) -> Events:
        events = self._events()
        return events.only(self._letters[events.site] != "")

    def after(self, first: Events, later: Events) -> Array:
        """Which of the `later` accesses come after the `first` in every run."""
        comes_after = follow(first, later)
        if self.none or comes_after.all():
            return comes_after
        # The lanes that meet at a syncwarp log it one after another, when they go on.
        end = NEVER if "s" in self._letters else int(later.at.max()) + 1
        span = slice(*np.searchsorted(self._synced.at, [first.at[0], end]))
        events = self._synced.only(span)
        letter = self._letters[events.site]
        at = events.at
        memory = events.memory
        # a number for each address, or partial syncwarp
        _, everywhere = np.unique(memory, return_inverse=True)
        _, in_block = np.unique(
            np.stack([memory, events.block]), axis=1, return_inverse=True
        )
        know = follow(first, events)
        # who later changes the same element by an atomic comes after it
        if first.atomic[0]:
            changes = (
                (letter == "r")
                & events.atomic
                & (memory == first.memory[0])
                & (at > first.at[0])
            )
            know |= follow(events.only(changes), events)
            comes_after |= follow(events.only(changes), later)
        while True:
            syncwarps = everywhere[know & (letter == "s")]
            new = (letter == "s") & np.isin(everywhere, syncwarps)
            arrivals = everywhere[know & (letter == "m")]
            new |= (letter == "w") & np.isin(everywhere, arrivals)
            for fences, place in (["f"], everywhere), (["f", "b"], in_block):
                fenced = events.only(know & np.isin(letter, fences))
                released = know if self._fenced else follow(fenced, events)
                released = np.isin(letter, ["r", "a"]) & released
                handed_on = np.full(len(events), NEVER)  # by place
                np.minimum.at(handed_on, place[released], at[released])
                new |= (letter == "r") & (at > handed_on[place])
            new &= ~know
            if not new.any():
                return comes_after
            know |= follow(events.only(new), events)
            comes_after |= follow(events.only(new), later)
            if comes_after.all():
                return comes_after
