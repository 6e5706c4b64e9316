"""Find in a log: races, shared memory read before it is written, and output elements that are never written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from labkit.gpu.trace.address_space import Region
from labkit.gpu.trace.events import Events, in_order, starts
from labkit.gpu.trace.program import Site
from labkit.gpu.trace.traced_memory import Array

MAX_EXAMPLES = 2000
"""Addresses in conflict that are examined one by one for the lines of a race; all of them are counted."""


@dataclass(frozen=True)
class Race:
    """Two accesses to one address that nothing puts in order, and at how many addresses that happens."""

    accesses: Events
    """Both accesses, the earlier one first."""
    addresses: int


def races(accesses: Events, events: Callable[[], Events], sites: list[Site]) -> list[Race]:
    """Pairs of conflicting accesses by different threads, one for each pair of lines.

    Within a block a barrier orders accesses, and within a warp also syncwarp (a shuffle or a vote does not: CUDA C++
    Programming Guide, "Warp Shuffle Functions"). Between blocks only a threadfence does, with an atomic after the first
    access and one before the second.
    """
    log = accesses.log
    # Pairs (group, owner): owners race within a group. Threads of a warp race between two syncwarps, warps of a block
    # between two barriers, and blocks anywhere in the launch.
    in_step = np.unique(_joined(log.phases, _joined(log.warp_epochs, log.warps)), return_inverse=True)[1]
    in_a_warp, in_a_block = (in_step.astype("i4"), log.threads), (log.phases, log.warps)
    between_blocks = (np.zeros(len(log.threads), "i4"), log.threads // log.block_size)
    found: dict[tuple[int, int], Race] = {}
    order = _Order(events, sites)
    for piece in accesses.pieces():
        for touched in _to_written_addresses(piece, shared=True), _to_written_addresses(piece, shared=False):
            for group, owner in (in_a_block, in_a_warp):
                _collect(found, touched, group, owner, order)
    _collect(found, _to_written_addresses(accesses, shared=False), *between_blocks, order)
    return list(found.values())


def _joined(major: Array, minor: Array) -> Array:
    found: Array = major.astype("i8") * (int(minor.max(initial=0)) + 1) + minor
    return found


def _to_written_addresses(accesses: Events, *, shared: bool) -> Events:
    """Accesses to those addresses of shared or global memory that any thread writes."""
    some = accesses.only(accesses.shared if shared else ~accesses.shared & ~accesses.constant)
    written = np.unique(some.only(some.write).address)
    if not len(written):
        return some.only(slice(0, 0))
    address = some.address
    at = np.minimum(np.searchsorted(written, address), len(written) - 1)
    return some.only(written[at] == address)


def _collect(found: dict[tuple[int, int], Race], touched: Events, group: Array, owner: Array, order: _Order) -> None:
    conflicts, addresses = _conflicts(touched, group, owner)
    for pair in conflicts:
        lines = tuple(sorted(order.sites[site].line for site in pair.site))
        if (lines[0], lines[1]) not in found and not order.has(pair):
            found[lines[0], lines[1]] = Race(pair, addresses)


def _conflicts(part: Events, groups: Array, owners: Array) -> tuple[Iterator[Events], int]:
    """Pairs of accesses in conflict, at up to MAX_EXAMPLES addresses, and the number of addresses in conflict.

    Two accesses to the same address conflict if they are in the same group, have different owners, at least one writes
    and not both are atomic. Groups and owners are given for each stretch of the log.
    """
    n = len(part)
    if not n:
        return iter(()), 0
    ordered = part.only(in_order(groups[part.stretch], part.address - int(part.address.min())))
    address, group, owner = ordered.address, groups[ordered.stretch], owners[ordered.stretch]
    first = starts(address, group)
    atomic = ordered.atomic
    plain_write, plain_read = ordered.write & ~atomic, ~ordered.write
    several = np.maximum.reduceat(owner, first) != np.minimum.reduceat(owner, first)
    writes, reads, atomics = (np.logical_or.reduceat(mask, first) for mask in (plain_write, plain_read, atomic))
    bad = np.flatnonzero(several & (writes | (reads & atomics)))
    ends = np.append(first[1:], n)
    spans = (slice(first[number], ends[number]) for number in bad[:MAX_EXAMPLES])
    pairs = (ordered.only(span).only(_pair(plain_write[span], atomic[span], owner[span])) for span in spans)
    return pairs, len(np.unique(address[first[bad]]))


def _pair(plain_write: Array, atomic: Array, owner: Array) -> Array:
    """Indices of two accesses in conflict, the earlier one first: a write, or else an atomic."""
    if plain_write.any():
        one = int(np.argmax(plain_write))
        other = int(np.argmax(owner != owner[one]))
    else:
        one = int(np.argmax(atomic))
        others = ~atomic & (owner != owner[one])
        if not others.any():  # the plain reads and this atomic have one owner: take a read and another owner's atomic
            one = int(np.argmax(~atomic))
            others = atomic & (owner != owner[one])
        other = int(np.argmax(others))
    return np.array(sorted((one, other)))


class _Order:
    """Tells whether two accesses are in order for a rare reason: a fence, or a syncwarp of a part of a warp."""

    def __init__(self, events: Callable[[], Events], sites: list[Site]) -> None:
        self.sites = sites
        self._events = events if any(site.kind == "fence" for site in sites) else None

    def has(self, pair: Events) -> bool:
        """Whether the first access of the pair is ordered before the second."""
        return self._by_syncwarp(pair) or (self._events is not None and self._by_fence(pair, self._events()))

    def _by_syncwarp(self, pair: Events) -> bool:
        warp, lane, at = pair.warp, pair.lane, pair.at
        if warp[0] != warp[1]:
            return False
        both = 1 << int(lane[0]) | 1 << int(lane[1])
        return any(w == warp[0] and m & both == both and at[0] < a <= at[1] for w, m, a in pair.log.partial_syncs)

    def _by_fence(self, pair: Events, every: Events) -> bool:
        """Whether one thread's fence and atomic, and then another thread's atomic, lie between the two accesses.

        The first thread made the first access, or belongs to its block and comes a barrier later; the other thread made
        the second access, or belongs to its block and comes a barrier earlier.
        """
        first, last = np.searchsorted(every.at, pair.at)
        between = every.only(slice(first, last))
        kinds = np.array([site.kind for site in self.sites])[between.site]
        thread, block, phase = between.thread, between.block, between.phase
        after = (thread == pair.thread[0]) | ((block == pair.block[0]) & (phase > pair.phase[0]))
        before = (thread == pair.thread[1]) | ((block == pair.block[1]) & (phase < pair.phase[1]))
        for fence in np.flatnonzero(after & (kinds == "fence"))[:16]:
            released = np.flatnonzero((thread == thread[fence]) & (kinds == "atomic"))
            released = released[released > fence]
            if len(released) and (before & (kinds == "atomic"))[released[0] + 1 :].any():
                return True
        return False


def unset_reads(accesses: Events) -> Events:
    """Accesses that are the first of their block to an address of shared memory, and read it."""
    found = [_unset_reads(piece.only(piece.shared)) for piece in accesses.pieces()] or [accesses]
    at, stretch = (np.concatenate([getattr(part, name) for part in found]) for name in ("at", "stretch"))
    return Events(accesses.log, at, stretch)


def _unset_reads(shared: Events) -> Events:
    if not len(shared):
        return shared
    shared = shared.only(in_order(shared.block, shared.address))
    first = shared.only(starts(shared.address, shared.block))
    reads = first.only(~first.write | first.atomic)
    return reads.only(np.argsort(reads.at))


def unwritten(accesses: Events, region: Region) -> Array:
    """Flat numbers of the unwritten elements of an array that the kernel writes and never reads."""
    if region.space != "global" or not region.array.size:
        return np.zeros(0, "i8")
    mine, element = accesses.reaching(region)
    if not len(mine) or not mine.write.all() or mine.atomic.any():
        return np.zeros(0, "i8")
    return np.setdiff1d(np.arange(region.array.size), element)
