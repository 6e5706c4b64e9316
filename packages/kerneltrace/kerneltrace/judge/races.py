"""Find in a log races, and shared memory that is read before it is written."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kerneltrace.judge.footprints import packed
from kerneltrace.judge.ordering import Ordering
from kerneltrace.machine.events import Events, in_order, starts
from kerneltrace.machine.program import Site
from kerneltrace.machine.traced_memory import Array

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
    lines: tuple[int, int]
    """Of the source, the smaller one first."""


def races(
    accesses: Events,
    events: Callable[[], Events],
    sites: list[Site],
    values: Callable[[Events], Array] | None = None,
) -> list[Race]:
    """Pairs of conflicting accesses by different threads that nothing orders, one for
    each pair of lines.

    Stores of one value don't conflict, where `values(accesses)` gives their numbers:
    equal ones for equal values, negative ones for values that aren't known.

    Within a block a barrier orders accesses, and within a warp also syncwarp (a shuffle
    or a vote does not: CUDA C++ Programming Guide, "Warp Shuffle Functions"). All else
    is for `Ordering` to say.
    """
    log = accesses.log
    # Pairs (group, owner): owners race within a group. Threads of a warp race between
    # two syncwarps, warps of a block between two barriers, and blocks between two
    # barriers of the grid.
    warp_step = packed(log.phases, packed(log.warp_epochs, log.warps))
    _, in_step = np.unique(warp_step, return_inverse=True)
    in_a_warp = (in_step.astype("i4"), log.threads)
    in_a_block = (log.phases, log.warps)
    between_barriers = np.searchsorted(log.grid_barriers, log.phases).astype("i4")
    between_blocks = (between_barriers, log.threads // log.block_size)
    search = _Search(
        sites, Ordering(events, sites), _rechecked(accesses, sites), values
    )
    suspects = _suspects(accesses, log.phases, log.threads)
    for group, owner in (in_a_block, in_a_warp):
        search.conflicts(suspects, group, owner)
    shared = accesses.shared
    outside = accesses.only(~shared) if shared.any() else accesses
    search.conflicts(_suspects(outside, *between_blocks), *between_blocks)
    return [
        Race(both, search.addresses(*lines), lines)
        for lines, both in search.pairs.items()
    ]


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
    slot = part.place
    log2_of_smallest = int(np.bitwise_and(slot, 7).astype("i1").min())
    slot >>= 3 + log2_of_smallest
    # a large odd number scatters the groups
    slot += (groups.astype("i8") * 0x9E3779B1)[part.stretch]
    slot &= (1 << len(part).bit_length()) - 1
    slot = slot.astype("i4")
    last_writer = np.full(int(slot.max()) + 1, -1, "i4")
    several = np.zeros(int(slot.max()) + 1, bool)
    last_writer[slot[write]] = owner[write]
    writer = last_writer[slot]  # (accesses,)
    several[slot[(writer >= 0) & (writer != owner)]] = True
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
    calls = np.array([site.call if site.used else "" for site in sites])
    swaps = np.flatnonzero(calls == "atomic.cas")
    relaxed = np.flatnonzero(calls == "relaxed")
    polled = np.flatnonzero(calls == "polled")
    volatile = np.flatnonzero((calls == "volatile") | (calls == "polled"))
    if not len(swaps) and not len(relaxed) and not len(volatile):
        return np.zeros(0, "i8")
    memory = accesses.memory
    site = accesses.site
    is_flag = np.isin(site, volatile) & np.isin(memory, memory[np.isin(site, polled)])
    flags = accesses.at[is_flag | np.isin(site, relaxed)]
    swapped = accesses.only(np.isin(memory, memory[np.isin(site, swaps)]))
    swapped = swapped.only(np.lexsort((swapped.at, swapped.thread, swapped.memory)))
    thread = swapped.thread
    memory = swapped.memory
    same = (thread[1:] == thread[:-1]) & (memory[1:] == memory[:-1])
    before_swap = same & np.isin(swapped.site[1:], swaps) & ~swapped.write[:-1]
    return np.concatenate([swapped.at[:-1][before_swap].astype("i8"), flags])


class _Owners(NamedTuple):
    """The groups, each of one address, in which a line makes one kind of access, and
    the least and the largest owner that does in each.
    """

    group: Array
    least: Array
    most: Array


class _Search:
    """Collects races: for each pair of lines the first that is found."""

    def __init__(
        self,
        sites: list[Site],
        order: Ordering,
        rechecked: Array,
        values: Callable[[Events], Array] | None,
    ) -> None:
        self.pairs: dict[tuple[int, int], Events] = {}
        """By both lines, the smaller one first."""
        self._conflicts: list[tuple[Array, dict[tuple[int, int], _Owners]]] = []
        """Addresses of groups, and who accesses them, by line and kind of access."""
        self._lines = np.array([site.line for site in sites])
        self._equal = np.array([site.call == "equal" for site in sites])
        """Stores of which those that are executed together bring one value."""
        self._values = values
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
        writes = np.logical_or.reduceat(kind == WRITE, first)  # (groups,)
        reads = np.logical_or.reduceat(kind == READ, first)
        atomics = np.logical_or.reduceat(kind == ATOMIC, first)
        continues = np.append(False, self._is_one(ordered))
        continues[first] = True
        is_one_store = np.logical_and.reduceat(continues, first)
        bad = np.flatnonzero(several & (writes | (reads & atomics)) & ~is_one_store)
        ends = np.append(first[1:], len(part))
        number = np.arange(len(first)).repeat(ends - first)
        conflicting = np.isin(number, bad)
        line = self._lines[ordered.site]
        by_line = _owners(
            number[conflicting],
            line[conflicting],
            kind[conflicting],
            owner[conflicting],
        )
        self._conflicts.append((address[first], by_line))
        step = max(-(-len(bad) // MAX_EXAMPLES), 1)
        for example in bad[::step]:
            span = slice(first[example], ends[example])
            self._examine(ordered.only(span), kind[span], owner[span])

    def addresses(self, line: int, other: int) -> int:
        """At how many addresses different owners access one of two lines each, where
        not both read or are atomic.
        """
        addresses = []
        kinds = (READ, WRITE, ATOMIC)
        for address, owners in self._conflicts:
            for kind, other_kind in itertools.product(kinds, repeat=2):
                if kind == other_kind and kind != WRITE:
                    continue
                a = owners.get((line, kind))
                b = owners.get((other, other_kind))
                if a is None or b is None:
                    continue
                group, i, j = np.intersect1d(
                    a.group, b.group, assume_unique=True, return_indices=True
                )
                differ = (a.least[i] != b.most[j]) | (a.most[i] != b.least[j])
                addresses.append(address[group[differ]])
        return len(np.unique(np.concatenate(addresses)))

    def _examine(self, group: Events, kind: Array, owner: Array) -> None:
        """Look for unordered pairs in the accesses to one address, which are in the
        order of time.

        Reads that follow one another don't conflict, nor do atomics. Where all of such
        a run come after all of the run before, they also come after those further back.
        """
        parted = (kind[1:] != kind[:-1]) | (kind[1:] == WRITE) & ~self._is_one(group)
        cuts = np.flatnonzero(parted) + 1
        bounds = [0, *cuts.tolist(), len(kind)]
        if self._order.none:
            lines = np.unique(group.site).tobytes()
            self._alike[lines] += 1
            if self._alike[lines] > MAX_ALIKE:
                return
            bounds = bounds[:MAX_EXAMPLES]
        line = self._lines[group.site]
        thread = group.thread
        for begin, middle, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
            backwards = thread[begin:middle][::-1]
            last = middle - 1 - np.unique(backwards, return_index=True)[1]
            then = middle + np.unique(thread[middle:end], return_index=True)[1]
            for earlier in last.tolist():
                later = then[owner[then] != owner[earlier]]
                self._add_pairs(group, earlier, later, line)

    def _is_one(self, accesses: Events) -> Array:
        """Which accesses, from the second on, are one store with that before them: both
        bring the same value.

        Warps of a block do that execute an `equal` store together.
        """
        same = np.zeros(len(accesses) - 1, bool)
        if self._equal.any():
            key = accesses.key
            block = accesses.block
            is_equal = self._equal[accesses.site[1:]]
            same = is_equal & (key[1:] == key[:-1]) & (block[1:] == block[:-1])
        if self._values is not None:
            value = self._values(accesses)
            value[accesses.atomic] = -1
            is_equal = (value[1:] >= 0) & (value[1:] == value[:-1])
            if accesses.offset is not None:  # pieces of wider stores
                is_equal &= accesses.offset[1:] == accesses.offset[:-1]
            same |= is_equal
        return same

    def _add_pairs(
        self, group: Events, earlier: int, later: Array, line: Array
    ) -> None:
        """Add those pairs of an access and `later` ones of its group that nothing
        orders, of lines of which there is none.
        """
        new = [
            access
            for access in later.tolist()
            if _both(line[earlier], line[access]) not in self.pairs
        ]
        if not new:
            return
        if not self._order.none:
            self._questions += 1
            if self._questions > MAX_QUESTIONS:
                return
            first = group.only(slice(earlier, earlier + 1))
            new = later[~self._order.after(first, group.only(later))].tolist()
        for access in new:
            self.pairs.setdefault(
                _both(line[earlier], line[access]),
                group.only(np.array([earlier, access])),
            )


def _owners(
    group: Array, line: Array, kind: Array, owner: Array
) -> dict[tuple[int, int], _Owners]:
    """The owners of accesses by line and kind; each column has a value for each access,
    group by group.
    """
    code = 3 * line + kind
    owners: dict[tuple[int, int], _Owners] = {}
    for number in np.unique(code).tolist():
        mask = code == number
        first = starts(group[mask])
        owners[divmod(number, 3)] = _Owners(
            group[mask][first],
            np.minimum.reduceat(owner[mask], first),
            np.maximum.reduceat(owner[mask], first),
        )
    return owners


def _both(line: int, other: int) -> tuple[int, int]:
    return int(min(line, other)), int(max(line, other))


def unset_reads(accesses: Events) -> Events:
    """Accesses that are the first of their block to an address of shared memory, and
    read it.
    """
    shared = accesses.only(accesses.shared)
    shared = shared.only(in_order(shared.block, shared.address))
    first = shared.only(starts(shared.address, shared.block))
    reads = first.only(~first.write | first.atomic)
    return reads.only(np.argsort(reads.at))
