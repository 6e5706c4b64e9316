"""Mistakes that the log of a launch shows: races, shared memory read before it was written, outputs left unwritten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from labkit.simt.events import Events, in_order
from labkit.simt.memory import Array
from labkit.simt.program import Site
from labkit.simt.space import Region

MOST_EXAMPLES = 2000
"""Places in memory that are looked at one by one for the lines of a race; all of them are counted."""


@dataclass(frozen=True)
class Race:
    """Two accesses to one place that nothing puts in order, and at how many addresses such a thing happens."""

    accesses: Events
    """Both, the earlier one first."""
    places: int


def races(accesses: Events, events: Callable[[], Events], sites: list[Site]) -> list[Race]:
    """Pairs of conflicting accesses by different threads, once a pair of lines.

    Within a block a barrier orders accesses, and within a warp also a warp operation (syncwarp, a shuffle). Between
    blocks nothing does, but for a threadfence and an atomic of the one before an atomic of the other.
    """
    view = accesses.view
    in_step = np.unique(_joined(view.phases, _joined(view.warp_epochs, view.warps)), return_inverse=True)[1]
    found: dict[tuple[int, int], Race] = {}
    for touched in _written_places(accesses):
        for group, owner in (
            (view.phases, view.warps),
            (in_step.astype("i4"), view.threads),
            (np.zeros(len(view.threads), "i4"), view.threads // view.block_size),
        ):
            if owner is not view.threads and group is not view.phases and touched.shared.any():
                continue  # blocks share no shared memory
            for pair, places in _conflicts(touched, group, owner):
                both = touched.only(np.array(pair))
                blocks = both.block
                if blocks[0] != blocks[1] and _ordered_by_fence(events, sites, both):
                    continue
                lines = tuple(sorted(sites[site].line for site in both.site))
                found.setdefault((lines[0], lines[1]), Race(both, places))
    return list(found.values())


def _joined(major: Array, minor: Array) -> Array:
    found: Array = major.astype("i8") * (int(minor.max(initial=0)) + 1) + minor
    return found


def _written_places(accesses: Events) -> Iterator[Events]:
    """Accesses to places that somebody writes: those in shared memory, then those in global memory."""
    shared = accesses.shared
    for mask in (shared, ~shared & ~accesses.constant):
        some = accesses.only(mask)
        written = np.unique(some.only(some.write).address)
        address = some.address
        at = np.minimum(np.searchsorted(written, address), max(len(written) - 1, 0))
        if len(written):
            yield some.only(written[at] == address)


def _conflicts(part: Events, groups: Array, owners: Array) -> Iterator[tuple[tuple[int, int], int]]:
    """Pairs of accesses in conflict, one for every pair of sites seen, and the number of addresses in conflict.

    In conflict are accesses to the same address in the same group, by different owners, of which one writes and not
    both are atomic. Groups and owners are given for each stretch of the log.
    """
    n = len(part)
    if not n:
        return
    low = int(part.address.min())
    order = in_order(groups[part.stretch], part.address - low)
    ordered = part.only(order)
    address, group, owner = ordered.address, groups[ordered.stretch], owners[ordered.stretch]
    new = np.ones(n, bool)
    new[1:] = (address[1:] != address[:-1]) | (group[1:] != group[:-1])
    first = np.flatnonzero(new)
    atomic = ordered.atomic
    plain_write, plain_read = ordered.write & ~atomic, ~ordered.write
    several = np.maximum.reduceat(owner, first) != np.minimum.reduceat(owner, first)
    writes, reads, atomics = (np.logical_or.reduceat(mask, first) for mask in (plain_write, plain_read, atomic))
    bad = np.flatnonzero(several & (writes | (reads & atomics)))
    places = len(np.unique(address[first[bad]]))
    ends = np.append(first[1:], n)
    seen: set[tuple[int, ...]] = set()
    for number in bad[:MOST_EXAMPLES]:
        members = slice(first[number], ends[number])
        pair = _pair(ordered.only(members), order[members], owner[members])
        kinds = tuple(part.only(np.array(pair)).site.tolist())
        if kinds not in seen:
            seen.add(kinds)
            yield pair, places


def _pair(some: Events, members: Array, owner: Array) -> tuple[int, int]:
    """The first two accesses of a conflict, in the order of time."""
    write, atomic = some.write, some.atomic
    for x in range(len(members)):
        for y in range(x + 1, min(len(members), x + 200)):
            if owner[x] != owner[y] and (write[x] or write[y]) and not (atomic[x] and atomic[y]):
                return int(members[x]), int(members[y])
    return int(members[0]), int(members[-1])


def _ordered_by_fence(events: Callable[[], Events], sites: list[Site], both: Events) -> bool:
    """Whether a threadfence and then an atomic in the first one's block, and an atomic in the other's, lie between."""
    if not any(site.kind == "fence" for site in sites):
        return False
    every = events()
    first, last = np.searchsorted(every.at, both.at)
    between = every.only(slice(first, last))
    site, block = between.site, between.block
    mine, other = both.block
    fences = np.array([site.kind == "fence" for site in sites])[site] & (block == mine)
    atomics = np.array([site.kind == "atomic" for site in sites])[site]
    if not fences.any():
        return False
    released = atomics & (block == mine)
    released[: int(np.argmax(fences))] = False
    acquired = atomics & (block == other)
    acquired[: int(np.argmax(released))] = False
    return bool(released.any() and acquired.any())


def unset_reads(accesses: Events) -> Events:
    """Accesses that are the first to a place of shared memory in their block and read it."""
    shared = accesses.only(accesses.shared)
    if not len(shared):
        return shared
    shared = shared.only(in_order(shared.block, shared.address))
    address, block = shared.address, shared.block
    new = np.ones(len(shared), bool)
    new[1:] = (address[1:] != address[:-1]) | (block[1:] != block[:-1])
    first = shared.only(new)
    reads = first.only(~first.write | first.atomic)
    return reads.only(np.argsort(reads.at))


def unwritten(accesses: Events, region: Region) -> Array:
    """Numbers of the elements of an array that is written and never read, of which no thread wrote these."""
    if region.space != "global" or not region.array.size:
        return np.zeros(0, "i8")
    low, high = region.span
    address = accesses.address
    mine = accesses.only((address >= low) & (address < high))
    if not len(mine) or not mine.write.all() or mine.atomic.any():
        return np.zeros(0, "i8")
    touched = region.elements(mine.address)
    return np.setdiff1d(np.arange(region.array.size), touched)
