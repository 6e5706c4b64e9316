"""Tell which accesses come after another one in every run: by barriers, by syncwarps, by flags with fences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from labkit.gpu.trace.events import Events
from labkit.gpu.trace.program import Site
from labkit.gpu.trace.traced_memory import Array
from labkit.gpu.trace.traced_thread import WARP

NEVER = np.iinfo("i8").max


@dataclass(frozen=True)
class Moments:
    """When and where something happened: in the log, in a thread, and between which barriers and syncwarps."""

    at: Array
    thread: Array
    phase: Array
    epoch: Array
    block_size: int

    @classmethod
    def of(cls, events: Events) -> Moments:
        """Those of events."""
        epoch = events.log.warp_epochs[events.stretch]
        return cls(events.at.astype("i8"), events.thread, events.phase, epoch, events.log.block_size)

    def only(self, which: Array | slice) -> Moments:
        """Some of them."""
        return Moments(self.at[which], self.thread[which], self.phase[which], self.epoch[which], self.block_size)

    @property
    def block(self) -> Array:
        """Block, counted over the whole grid."""
        return self.thread // self.block_size

    @property
    def warp(self) -> Array:
        """A number of the warp that no other warp has."""
        return self.block.astype("i8") << 16 | self.thread % self.block_size // WARP

    @property
    def step(self) -> Array:
        """Rises for the lanes of a warp at each barrier and at each syncwarp of the whole warp."""
        return self.phase.astype("i8") << 32 | self.epoch

    def follow(self, one: Moments) -> Array:
        """Which of these a thread's own order, a barrier or a syncwarp of its warp puts after `one` (a single one)."""
        own = (self.thread == one.thread) & (self.at >= one.at)
        barrier = (self.block == one.block) & (self.phase > one.phase)
        found: Array = own | barrier | ((self.warp == one.warp) & (self.step > one.step))
        return found


class _Known:
    """Which threads have learned of something, and since when."""

    def __init__(self, groups: tuple[Array, ...]) -> None:
        """`groups` are the threads, blocks and warps that may learn, each sorted."""
        self._groups = groups
        self._since = [np.full(len(group) + 1, NEVER) for group in groups]  # the last one is for all others

    def learn(self, those: Moments) -> None:
        """At these moments their threads learn of it."""
        for group, since, mine, when in zip(self._groups, self._since, *_columns(those), strict=True):
            np.minimum.at(since, np.searchsorted(group, mine), when)

    def have(self, those: Moments) -> Array:
        """Which of these moments come after their thread, block or warp has learned of it."""
        found = np.zeros(len(those.at), bool)
        for n, (group, since, mine, when) in enumerate(zip(self._groups, self._since, *_columns(those), strict=True)):
            place = np.searchsorted(group, mine)
            place[group[np.minimum(place, len(group) - 1)] != mine] = len(group)
            found |= when > since[place] - (n == 0)  # in its own thread from that moment on
        return found


def _columns(those: Moments) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    return (those.thread, those.block, those.warp), (those.at, those.phase, those.step)


class Ordering:
    """What fences, atomics and syncwarps of a part of a warp put in order, beside barriers and whole syncwarps.

    A thread that fences and then changes an address by an atomic hands on what it knows to every thread that later
    reads that address by an atomic whose result it uses. What a thread knows are its own accesses and, after a barrier
    or a syncwarp, those of the others. A fence of `threadfence_block` works within its block. (CUDA C++ Programming
    Guide, "Memory Fence Functions"; release and acquire patterns in the PTX ISA, "Memory Consistency Model".)
    """

    def __init__(self, events: Callable[[], Events], sites: list[Site], partial_syncs: list[tuple[int, ...]]) -> None:
        """`events()` gives all events of the run; `partial_syncs` are those of its log."""
        self._events, self._sites, self._partial_syncs = events, sites, partial_syncs
        self.none = not partial_syncs and not any(site.kind == "fence" for site in sites)
        """Whether there is nothing but barriers and syncwarps of whole warps."""

    @cached_property
    def _moments(self) -> tuple[Moments, Array, Array, Array]:
        """Fences, atomics and lanes of partial syncwarps in the order of time.

        With the kind of each (f and b for fences of all and of the block, r and a for atomics whose result is read or
        not, s for a syncwarp), and two numbers of its address, or of its syncwarp: for all threads, and in the block.
        """
        kinds = np.array([_letter(site) for site in self._sites])
        events = self._events()
        events = events.only(kinds[events.site] != "")
        lanes = [
            (word, first + lane, phase, epoch, -1 - number)
            for number, (first, mask, word, phase, epoch) in enumerate(self._partial_syncs)
            for lane in range(WARP)
            if mask >> lane & 1
        ]
        columns = np.array(lanes, "i8").reshape(-1, 5).T
        of_log = Moments.of(events)
        parts = (of_log.at, of_log.thread, of_log.phase, of_log.epoch, events.memory)
        joined = [np.concatenate(pair) for pair in zip(parts, columns, strict=True)]
        letter = np.concatenate([kinds[events.site], np.full(len(lanes), "s")])
        inside = np.concatenate([events.address + (events.block.astype("i8") + 1 << 40), columns[4]])
        order = np.argsort(joined[0], kind="stable")
        moments = Moments(*(column[order] for column in joined[:4]), of_log.block_size)
        places = [np.unique(column[order], return_inverse=True)[1] for column in (joined[4], inside)]
        return moments, letter[order], *places

    def after(self, first: Events, later: Events) -> Array:
        """Which of the `later` accesses come after the `first` in every run."""
        one, those = Moments.of(first), Moments.of(later)
        found = those.follow(one)
        if self.none or found.all():
            return found
        moments, letter, place, inside = self._moments
        begin, end = np.searchsorted(moments.at, [one.at[0], those.at.max() + 1])
        part = slice(begin, end)
        moments, letter, place, inside = moments.only(part), letter[part], place[part], inside[part]
        groups = np.unique(moments.thread), np.unique(moments.block), np.unique(moments.warp)
        if not len(letter):
            return found
        known, at_first = _Known(groups), moments.follow(one)
        while True:
            have = at_first | known.have(moments)
            new = np.isin(place, place[have & (letter == "s")]) & (letter == "s") & ~have
            for fences, where in (("f", place), ("fb", inside)):
                fenced = _Known(groups)
                fenced.learn(moments.only(have & np.isin(letter, list(fences))))
                handed = np.full(int(where.max()) + 1, NEVER)
                releases = np.isin(letter, ["r", "a"]) & fenced.have(moments)
                np.minimum.at(handed, where[releases], moments.at[releases])
                new |= (letter == "r") & (moments.at > handed[where]) & ~have
            if not new.any():
                return found
            known.learn(moments.only(new))
            found |= known.have(those)
            if found.all():
                return found


def _letter(site: Site) -> str:
    if site.kind == "fence":
        return "b" if site.call == "threadfence_block" else "f"
    if site.kind == "atomic":
        return "r" if site.used else "a"
    return ""
