"""Count what the warps of a launch ask of memory, what has to move, and what they compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labkit.core.display import Shown
from labkit.gpu.trace.arithmetic import Operations
from labkit.gpu.trace.events import SECTOR_BYTES, Events, in_order, starts
from labkit.gpu.trace.program import Program
from labkit.gpu.trace.traced_memory import Array
from labkit.gpu.trace.warp_requests import Requests


@dataclass(frozen=True, repr=False)
class Counts(Shown):
    """Sums over requests of warps: counts, not times, and without any cache."""

    reads: int
    """Accesses of single threads that read; an atomic reads and writes."""
    writes: int
    requests: int
    """Instructions of warps, of at most 32 accesses each."""
    bytes_asked: int
    """Bytes that requests ask for in global or constant memory, each byte once a request, however many lanes share it;
    the next three are of such memory, too."""
    memory_requests: int
    sectors: int
    """32-byte sectors moved between global memory (or its caches) and the warps."""
    footprint_bytes: int
    """Bytes of the distinct sectors touched: what has to move if a cache keeps everything."""
    wavefronts: int
    """Passes that shared memory needs: one a request (two for 8-byte accesses, four for 16-byte ones) without bank
    conflicts. A GPU may need fewer for such wide accesses where neighbouring lanes read the same address. Atomics of
    several lanes on one word take a pass each."""
    ways: int
    """The most distinct words, or atomics, that one bank had to serve for a request: 1 is conflict-free."""
    rounds: int
    """Steps that the requests take one after another: the wavefronts of shared memory, and of each other request 1, or
    for atomics the most lanes at one address, or for constant memory its distinct addresses (CUDA C++ Programming
    Guide, "SIMT Architecture" and "Device Memory Accesses": both are serialized)."""
    collisions: int
    """Atomics that find another lane of their request at the same address: all but one at each address."""
    hottest: int
    """The most atomics at one address, whichever warps they come from: these are done one after another, too. In shared
    memory, where each block has addresses of its own, the most in one block."""

    @property
    def bytes_moved(self) -> int:
        """Bytes of the sectors moved."""
        return self.sectors * SECTOR_BYTES

    @property
    def efficiency(self) -> float:
        """Coalescing efficiency: bytes asked for, each once a request, per byte moved. 1 is perfect, and the most.

        NaN where nothing was moved.
        """
        return self.bytes_asked / self.bytes_moved if self.sectors else float("nan")

    @property
    def sectors_per_request(self) -> float:
        """Sectors a request to global memory: 4 is perfect for 4-byte elements and a full warp, 32 is the worst."""
        return self.sectors / self.memory_requests if self.memory_requests else float("nan")

    def __str__(self) -> str:
        parts = [f"{self.reads:,} reads, {self.writes:,} writes in {self.requests:,} requests"]
        if self.sectors:
            parts.append(f"{self.sectors:,} sectors ({self.sectors_per_request:.3g} a request)")
            parts.append(f"{self.efficiency:.0%} of the bytes moved were asked for")
        if self.wavefronts:
            parts.append(f"{self.wavefronts:,} wavefronts, up to {self.ways}-way bank conflicts")
        if self.hottest:
            parts.append(f"{self.collisions:,} collisions of atomics, up to {self.hottest:,} atomics at one address")
        return "; ".join(parts)


def count(accesses: Events, requests: Requests, mask: Array) -> Counts:
    """Counts of the requests that `mask` selects."""
    picked = np.flatnonzero(mask)
    kind = accesses.log.kinds[requests.site[picked]]
    lanes = requests.lanes[picked]
    outer = requests.sectors > 0
    place = accesses.only(requests.order[np.repeat(mask & outer, requests.lanes)]).place
    begin, end = (place >> 3) // SECTOR_BYTES, ((place >> 3) + (1 << (place & 7)) - 1) // SECTOR_BYTES
    changing = mask & (accesses.log.kinds == 3)[requests.site]
    changed = requests.order[np.repeat(changing, requests.lanes)] if changing.any() else slice(0, 0)
    return Counts(
        reads=int(lanes[kind != 2].sum()),
        writes=int(lanes[kind > 1].sum()),
        requests=len(picked),
        bytes_asked=int(requests.asked[picked].sum()),
        memory_requests=int(outer[picked].sum()),
        sectors=int(requests.sectors[picked].sum()),
        footprint_bytes=SECTOR_BYTES * _distinct(begin, end),
        wavefronts=int(requests.wavefronts[picked].sum()),
        ways=int(requests.ways[picked].max(initial=0)),
        rounds=int(requests.rounds[picked].sum()),
        collisions=int(requests.collisions[picked].sum()),
        hottest=int(np.unique(accesses.only(changed).memory, return_counts=True)[1].max(initial=0)),
    )


def _distinct(begin: Array, end: Array) -> int:
    """How many different sectors two arrays of sector numbers name."""
    if not len(begin):
        return 0
    low = int(begin.min())
    touched = np.zeros(int(end.max()) - low + 1, bool)
    touched[begin - low] = touched[end - low] = True
    return int(np.count_nonzero(touched))


@dataclass(frozen=True, repr=False)
class Branches(Shown):
    """Branches of warps: an `if`, a turn of a `while`, or a `for` entered, by at least one lane of a warp."""

    total: int
    divergent: int
    """Branches at which lanes of a warp part: some take it and some do not, or they loop different numbers of times."""

    def __str__(self) -> str:
        return f"{self.divergent:,} of {self.total:,} branches of warps diverge"


def branches(events: Events, wanted: Array) -> Branches:
    """Count branches at the sites that a mask selects."""
    some = events.only(wanted[events.site])
    key, value, warp = some.key, some.value, some.warp
    order = in_order(warp, key)
    value, first = value[order], starts(key[order], warp[order])
    if not len(first):
        return Branches(0, 0)
    part = np.maximum.reduceat(value, first) != np.minimum.reduceat(value, first)
    return Branches(len(first), int(part.sum()))


def operations(events: Events, program: Program) -> Operations:
    """Operations of all threads together."""
    times = np.bincount(events.site, minlength=len(program.sites)).tolist()
    total = Operations()
    for n, site in zip(times, program.sites, strict=True):
        total = total.plus(site.operations, n)
    for n, done in zip(program.counters, program.counted, strict=True):
        total = total.plus(done, n)
    return total
