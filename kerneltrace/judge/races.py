"""Find in a log: races, shared memory read before it is written, and output elements
that are never written.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kerneltrace.judge.ordering import Ordering
from kerneltrace.log.address_space import Region
from kerneltrace.log.events import Events, in_order, starts
from kerneltrace.log.program import Site
from kerneltrace.log.traced_memory import Array

MAX_EXAMPLES = 2000
"""Addresses in conflict that are examined one by one for the lines of a race; all of
them are counted.
"""
MAX_QUESTIONS = 1000
"""Accesses in conflict of which is asked what comes after them, where fences may have
put others in order.
"""
MAX_ALIKE = 8
"""Addresses examined that the same lines access, where only barriers order: what is
found at one is found at all.
"""
READ = 0
WRITE = 1
ATOMIC = 2


@dataclass(frozen=True)
class Race:
    """Two accesses to one address that nothing puts in order, and at how many addresses
    their lines conflict.
    """

    accesses: Events
    """Both accesses, the earlier one first."""
    addresses: int


def races(
    accesses: Events, events: Callable[[], Events], sites: list[Site]
) -> list[Race]:
    """Pairs of conflicting accesses by different threads that nothing orders, one for
    each pair of lines.

    Within a block a barrier orders accesses, and within a warp also syncwarp (a shuffle
    or a vote does not: CUDA C++ Programming Guide, "Warp Shuffle Functions"). All else
    is for `Ordering` to say.
    """
    log = accesses.log
    # Pairs (group, owner): owners race within a group. Threads of a warp race between
    # two syncwarps, warps of a block between two barriers, and blocks anywhere in the
    # launch.
    in_step = np.unique(
        _joined(log.phases, _joined(log.warp_epochs, log.warps)), return_inverse=True
    )[1]
    in_a_warp = (in_step.astype("i4"), log.threads)
    in_a_block = (log.phases, log.warps)
    between_blocks = (np.zeros(len(log.threads), "i4"), log.threads // log.block_size)
    search = _Search(sites, Ordering(events, sites), _rechecked(accesses, sites))
    suspects = _suspects(accesses, log.phases, log.threads)
    for group, owner in (in_a_block, in_a_warp):
        search.conflicts(suspects, group, owner)
    search.conflicts(
        _suspects(accesses.only(~accesses.shared), *between_blocks), *between_blocks
    )
    return [
        Race(both, search.addresses(*lines)) for lines, both in search.found.items()
    ]


def _joined(major: Array, minor: Array) -> Array:
    found: Array = major.astype("i8") * (int(minor.max(initial=0)) + 1) + minor
    return found


def _suspects(part: Events, groups: Array, owners: Array) -> Events:
    """The accesses to addresses that one owner writes and another accesses in the same
    group, and perhaps a few others.

    A table of the last writers tells. Its slots may stand for several addresses, since
    it is no larger than it has to.
    """
    if not len(part):
        return part
    owner = owners[part.stretch]
    write = part.write
    place = part.place
    slot = place >> 3 + int((place & 7).min())
    # a large odd number scatters the groups
    slot += groups[part.stretch] * np.int64(0x9E3779B1)
    slot &= (1 << (2 * len(part)).bit_length()) - 1
    last = np.full(int(slot.max()) + 1, -1, "i4")
    several = np.zeros(int(slot.max()) + 1, bool)
    last[slot[write]] = owner[write]
    several[slot[(last[slot] >= 0) & (last[slot] != owner)]] = True
    return part.only(several[slot])


def _rechecked(accesses: Events, sites: list[Site]) -> Array:
    """First words of reads whose thread goes on to compare and swap the same element: a
    stale value does no harm.

    The loop around a compare-and-swap begins with such a read (CUDA C++ Programming
    Guide, "Atomic Functions"). Who doesn't look at what the swap returns does not
    notice that it failed. With them, of compiled code, accesses that are `relaxed`,
    which don't race (PTX ISA, "Memory Consistency Model"), and `volatile` ones to what
    threads poll: a flag.
    """
    swaps, relaxed, volatile, polled = (
        [
            number
            for number, site in enumerate(sites)
            if site.call in calls and site.used
        ]
        for calls in (
            ("atomic.cas",),
            ("relaxed",),
            ("volatile", "polled"),
            ("polled",),
        )
    )
    if not swaps and not relaxed and not volatile:
        return np.zeros(0, "i8")
    memory = accesses.memory
    site = accesses.site
    flags = np.isin(site, volatile) & np.isin(memory, memory[np.isin(site, polled)])
    some = accesses.only(np.isin(memory, memory[np.isin(site, swaps)]))
    some = some.only(np.lexsort((some.at, some.thread, some.memory)))
    same = (some.thread[1:] == some.thread[:-1]) & (some.memory[1:] == some.memory[:-1])
    rechecked = some.at[:-1][same & np.isin(some.site[1:], swaps) & ~some.write[:-1]]
    return np.concatenate(
        [rechecked.astype("i8"), accesses.at[flags | np.isin(site, relaxed)]]
    )


class _Search:
    """Collects races: for each pair of lines the first that is found."""

    def __init__(self, sites: list[Site], order: Ordering, rechecked: Array) -> None:
        self.found: dict[tuple[int, int], Events] = {}
        self._conflicts: list[
            tuple[Array, dict[tuple[int, int], tuple[Array, ...]]]
        ] = []
        self._lines = np.array([site.line for site in sites])
        self._order = order
        self._rechecked = rechecked
        self._questions = 0
        self._alike = Counter[bytes]()

    def conflicts(self, part: Events, groups: Array, owners: Array) -> None:
        """Examine accesses to the same address in the same group by different owners,
        unless all read or are atomic.

        Groups and owners are given for each stretch of the log.
        """
        if not len(part):
            return
        ordered = part.only(
            in_order(groups[part.stretch], part.address - int(part.address.min()))
        )
        address = ordered.address
        group = groups[ordered.stretch]
        owner = owners[ordered.stretch]
        first = starts(address, group)
        kind = np.where(ordered.write, WRITE, READ)
        kind[ordered.atomic | np.isin(ordered.at, self._rechecked)] = ATOMIC
        several = np.maximum.reduceat(owner, first) != np.minimum.reduceat(owner, first)
        writes, reads, atomics = (
            np.logical_or.reduceat(kind == some, first)
            for some in (WRITE, READ, ATOMIC)
        )
        bad = np.flatnonzero(several & (writes | (reads & atomics)))
        ends = np.append(first[1:], len(part))
        self._note(
            np.arange(len(first)).repeat(ends - first),
            bad,
            address[first],
            ordered,
            kind,
            owner,
        )
        for number in bad[:: -(-len(bad) // MAX_EXAMPLES) or 1]:
            span = slice(first[number], ends[number])
            self._examine(ordered.only(span), kind[span], owner[span])

    def _note(
        self,
        group: Array,
        bad: Array,
        address: Array,
        part: Events,
        kind: Array,
        owner: Array,
    ) -> None:
        """Note the `bad` groups, each of one address, and the least and largest owner
        by line and kind in each.
        """
        mine = np.isin(group, bad)
        group = group[mine]
        owner = owner[mine]
        code = 3 * self._lines[part.site[mine]] + kind[mine]
        rows: dict[tuple[int, int], tuple[Array, ...]] = {}
        for one in np.unique(code).tolist():
            mask = code == one
            first = starts(group[mask])
            rows[divmod(one, 3)] = (
                group[mask][first],
                *(f.reduceat(owner[mask], first) for f in (np.minimum, np.maximum)),
            )
        self._conflicts.append((address, rows))

    def addresses(self, line: int, other: int) -> int:
        """At how many addresses different owners access one of two lines each, where
        not both read or are atomic.
        """
        found = []
        for address, rows in self._conflicts:
            for one, another in itertools.product(rows, repeat=2):
                if (one[0], another[0]) == (line, other) and not one[1] == another[
                    1
                ] != WRITE:
                    at, least, most = rows[one]
                    its, its_least, its_most = rows[another]
                    both, i, j = np.intersect1d(
                        at, its, assume_unique=True, return_indices=True
                    )
                    found.append(
                        address[
                            both[(least[i] != its_most[j]) | (most[i] != its_least[j])]
                        ]
                    )
        return len(np.unique(np.concatenate(found)))

    def _examine(self, group: Events, kind: Array, owner: Array) -> None:
        """Look for unordered pairs in the accesses to one address, which are in the
        order of time.

        Reads that follow one another don't conflict, nor do atomics. Where all of such
        a run come after all of the run before, they also come after those further back.
        """
        if self._order.none:
            alike = np.unique(group.site).tobytes()
            self._alike[alike] += 1
            if self._alike[alike] > MAX_ALIKE:
                return
        cuts = np.flatnonzero((kind[1:] != kind[:-1]) | (kind[1:] == WRITE)) + 1
        bounds = [0, *cuts.tolist(), len(kind)][
            : MAX_EXAMPLES if self._order.none else None
        ]
        line = self._lines[group.site]
        thread = group.thread
        for begin, middle, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
            last = (
                middle - 1 - np.unique(thread[begin:middle][::-1], return_index=True)[1]
            )
            then = middle + np.unique(thread[middle:end], return_index=True)[1]
            for one in last.tolist():
                self._pairs(group, one, then[owner[then] != owner[one]], line)

    def _pairs(self, group: Events, one: int, others: Array, line: Array) -> None:
        new = [
            n for n in others.tolist() if _both(line[one], line[n]) not in self.found
        ]
        if not new:
            return
        if not self._order.none:
            self._questions += 1
            if self._questions > MAX_QUESTIONS:
                return
            new = others[
                ~self._order.after(group.only(slice(one, one + 1)), group.only(others))
            ].tolist()
        for other in new:
            self.found.setdefault(
                _both(line[one], line[other]), group.only(np.array([one, other]))
            )


def _both(line: int, other: int) -> tuple[int, int]:
    return (int(line), int(other)) if line < other else (int(other), int(line))


def unset_reads(accesses: Events) -> Events:
    """Accesses that are the first of their block to an address of shared memory, and
    read it.
    """
    shared = accesses.only(accesses.shared)
    shared = shared.only(in_order(shared.block, shared.address))
    first = shared.only(starts(shared.address, shared.block))
    reads = first.only(~first.write | first.atomic)
    return reads.only(np.argsort(reads.at))


def unwritten(accesses: Events, writes: Events, region: Region) -> Array:
    """Flat numbers of the unwritten elements of an array that the kernel writes and
    never reads.
    """
    if region.space != "global" or not region.array.size:
        return np.zeros(0, "i8")
    mine, element = writes.reaching(region)
    if (
        not len(mine)
        or mine.atomic.any()
        or len(mine) < len(accesses.reaching(region)[0])
    ):
        return np.zeros(0, "i8")
    left = np.ones(region.array.size, bool)
    left[element] = False
    return np.flatnonzero(left)


def elements_read(accesses: Events, region: Region) -> Array | None:
    """Flat numbers of the elements of an array of global memory that threads read; None
    for one that they write.
    """
    mine, element = accesses.reaching(region)
    if region.space != "global" or not len(mine) or mine.write.any():
        return None
    found = np.zeros(region.array.size, bool)
    found[element] = True
    return np.flatnonzero(found)
