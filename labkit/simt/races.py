"""Mistakes that the log of a launch shows: races, shared memory read before it was written, outputs left unwritten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from labkit.simt.events import Accesses, Events
from labkit.simt.memory import Array
from labkit.simt.program import Site
from labkit.simt.space import Region

MOST_EXAMPLES = 2000
"""Places in memory that are looked at one by one for the lines of a race; all of them are counted."""


@dataclass(frozen=True)
class Race:
    """Two accesses to one place that nothing puts in order, by their numbers, and how many places it happens at."""

    first: int
    second: int
    places: int


def races(accesses: Accesses, events: Events, sites: list[Site], block_size: int) -> list[Race]:
    """Pairs of conflicting accesses by different threads, once a pair of lines.

    Within a block a barrier orders accesses, and within a warp also a warp operation (syncwarp, a shuffle). Between
    blocks nothing does, but for a threadfence and an atomic of the one before an atomic of the other.
    """
    written = accesses.write & ~accesses.constant
    cells = np.unique(accesses.address[written])
    touched = accesses.only(np.isin(accesses.address, cells) & ~accesses.constant)
    where = touched.event
    found: dict[tuple[int, int], Race] = {}
    inside = touched.phase.astype("i8")
    alone = inside * (int(touched.warp_epoch.max(initial=0)) + 1) + touched.warp_epoch
    block = touched.thread // block_size
    for mask, group, owner in (
        (slice(None), inside, touched.warp),
        (slice(None), alone * (int(touched.warp.max(initial=0)) + 1) + touched.warp, touched.thread),
        (~touched.shared, np.zeros(len(block), "i8"), block),
    ):
        part = touched.only(np.arange(len(where))[mask])
        between_blocks = owner is block
        for pair, places in _conflicts(part, group[mask], owner[mask]):
            a, b = (int(part.event[i]) for i in pair)
            if between_blocks and _ordered_by_fence(events, sites, a, b, block_size):
                continue
            lines = tuple(sorted(sites[events.site[at]].line for at in (a, b)))
            found.setdefault((lines[0], lines[1]), Race(a, b, places))
    return list(found.values())


def _conflicts(part: Accesses, group: Array, owner: Array) -> Iterator[tuple[tuple[int, int], int]]:
    """Pairs of accesses in conflict, one for every pair of sites seen, and the number of places in conflict.

    In conflict are accesses to the same address in the same group, by different owners, of which one writes and not
    both are atomic.
    """
    n = len(group)
    if not n:
        return
    order = np.lexsort((part.event, part.address, group))
    address, groups, owners = part.address[order], group[order], owner[order]
    new = np.ones(n, bool)
    new[1:] = (address[1:] != address[:-1]) | (groups[1:] != groups[:-1])
    first = np.flatnonzero(new)
    atomic = part.atomic[order]
    plain_write, plain_read = part.write[order] & ~atomic, ~part.write[order]
    several = np.maximum.reduceat(owners, first) != np.minimum.reduceat(owners, first)
    writes, reads, atomics = (np.logical_or.reduceat(mask, first) for mask in (plain_write, plain_read, atomic))
    bad = np.flatnonzero(several & (writes | (reads & atomics)))
    ends = np.append(first[1:], n)
    seen: set[tuple[int, int]] = set()
    for number in bad[:MOST_EXAMPLES]:
        members = order[first[number] : ends[number]]
        pair = _pair(part, members, owner)
        kinds = (int(part.site[pair[0]]), int(part.site[pair[1]]))
        if kinds not in seen:
            seen.add(kinds)
            yield pair, len(bad)


def _pair(part: Accesses, members: Array, owner: Array) -> tuple[int, int]:
    """The first two accesses of a conflict, in the order of time."""
    for x in range(len(members)):
        for y in range(x + 1, min(len(members), x + 200)):
            a, b = int(members[x]), int(members[y])
            write = part.write[a] or part.write[b]
            if owner[a] != owner[b] and write and not (part.atomic[a] and part.atomic[b]):
                return a, b
    return int(members[0]), int(members[-1])


def _ordered_by_fence(events: Events, sites: list[Site], a: int, b: int, block_size: int) -> bool:
    """Whether a threadfence and then an atomic in the first one's block, and an atomic in the other's, lie between."""
    fences = np.array([site.kind == "fence" for site in sites])[events.site[a:b]]
    if not fences.any():
        return False
    atomics = np.array([site.kind == "atomic" for site in sites])[events.site[a:b]]
    block = events.thread[a:b] // block_size
    mine, other = block[0], events.thread[b] // block_size
    fence = int(np.argmax(fences & (block == mine)))
    release = atomics & (block == mine)
    release[:fence] = False
    if not release.any():
        return False
    acquire = atomics & (block == other)
    acquire[: int(np.argmax(release))] = False
    return bool(acquire.any())


def unset_reads(accesses: Accesses, block_size: int) -> Array:
    """Accesses that are the first to a place of shared memory in their block and read it (numbers among the events)."""
    shared = accesses.only(accesses.shared)
    if not len(shared.event):
        return shared.event
    block = shared.thread // block_size
    order = np.lexsort((shared.event, shared.address, block))
    address, blocks = shared.address[order], block[order]
    new = np.ones(len(order), bool)
    new[1:] = (address[1:] != address[:-1]) | (blocks[1:] != blocks[:-1])
    first = order[new]
    reads = first[~shared.write[first] | shared.atomic[first]]
    return np.sort(shared.event[reads])


def unwritten(accesses: Accesses, region: Region) -> Array:
    """Numbers of the elements of an array that is written and never read, of which no thread wrote these."""
    if region.space != "global" or not region.array.size:
        return np.zeros(0, "i8")
    owner = region.array.nbytes
    mine = (accesses.address >= region.base) & (accesses.address < region.base + owner)
    if not accesses.write[mine].any() or (~accesses.write[mine] | accesses.atomic[mine]).any():
        return np.zeros(0, "i8")
    touched = region.elements(accesses.address[mine])
    return np.setdiff1d(np.arange(region.array.size), touched)
