"""Group the accesses of a run into the requests of warps, and count what they ask of
memory and compute.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from kerneltrace._tables import Shown
from kerneltrace.machine.chosen_blocks import ChosenBlocks
from kerneltrace.machine.event_log import SITES
from kerneltrace.machine.events import (
    BANK_BYTES,
    BANKS,
    LINE_BYTES,
    SECTOR_BYTES,
    Access,
    Events,
    in_order,
    starts,
)
from kerneltrace.machine.grid import WARP
from kerneltrace.machine.program import Operations, Program
from kerneltrace.machine.traced_memory import Array

HEADINGS = (
    "reads",
    "writes",
    "requests",
    "sectors",
    "a request",
    "asked/moved",
    "bank ways",
    "rounds",
    "collisions",
    "at one address",
)


PART = 1 << 17
"""Accesses that are grouped into requests at a time."""


@dataclass(frozen=True, repr=False)
class Counts(Shown):
    """Sums over requests of warps: counts, not times, and without any cache.

    Where a sample of the blocks ran, each counts for the blocks that it stands for.
    Only `footprint_bytes` and `ways` are of those that ran.
    """

    reads: int
    """Accesses of single threads that read; an atomic reads and writes."""
    writes: int
    requests: int
    """Instructions of warps, of at most 32 accesses each."""
    bytes_asked: int
    """Bytes that requests ask for in global or constant memory, each byte once a
    request, however many lanes share it; the next three are of such memory, too.
    """
    memory_requests: int
    sectors: int
    """32-byte sectors moved between global memory (or its caches) and the warps."""
    changed: int
    """Of the sectors, those that atomics touch: they are read, and written back."""
    footprint_bytes: int
    """Bytes of the distinct sectors touched: what has to move if a cache keeps
    everything.
    """
    wavefronts: int
    """Passes that shared memory needs: one a request (two for 8-byte accesses, four for
    16-byte ones) without bank conflicts. A GPU may need fewer for such wide accesses
    where neighboring lanes read the same address. Atomics of several lanes on one word
    take a pass each.
    """
    ways: int
    """The most distinct words, or atomics, that one bank had to serve for a request: 1
    is conflict-free.
    """
    rounds: int
    """Steps that the requests take one after another: the wavefronts of shared memory,
    and of each other request 1, or for atomics the most lanes at one address, or for
    constant memory its distinct addresses (CUDA C++ Programming Guide, "SIMT
    Architecture" and "Device Memory Accesses": both are serialized).
    """
    collisions: int
    """Atomics that find another lane of their request at the same address: all but one
    at each address.
    """
    hottest: int
    """The most atomics at one address, whichever warps they come from: these are done
    one after another, too. In shared memory, where each block has addresses of its own,
    the most in one block.
    """

    @property
    def bytes_moved(self) -> int:
        """Bytes of the sectors moved, twice where an atomic reads and writes them."""
        return (self.sectors + self.changed) * SECTOR_BYTES

    @property
    def efficiency(self) -> float:
        """Coalescing efficiency: bytes asked for, each once a request, per byte of the
        sectors.

        1 is perfect, and the most. NaN where nothing was moved.
        """
        if not self.sectors:
            return float("nan")
        return self.bytes_asked / (self.sectors * SECTOR_BYTES)

    @property
    def sectors_per_request(self) -> float:
        """Sectors a request to global memory: 4 is perfect for 4-byte elements and a
        full warp, 32 is the worst.
        """
        if not self.memory_requests:
            return float("nan")
        return self.sectors / self.memory_requests

    def cells(self) -> tuple[str, ...]:
        """The counts as the cells of a row under HEADINGS, empty where one says nothing
        here.
        """
        moves = self.sectors > 0
        serial = self.wavefronts or self.rounds > self.requests or self.hottest
        return (
            f"{self.reads:,}",
            f"{self.writes:,}",
            f"{self.requests:,}",
            f"{self.sectors:,}" if moves else "",
            f"{self.sectors_per_request:.3g}" if moves else "",
            f"{self.efficiency:.0%}" if moves else "",
            f"{self.ways}" if self.wavefronts else "",
            f"{self.rounds:,}" if serial else "",
            f"{self.collisions:,}" if self.hottest else "",
            f"{self.hottest:,}" if self.hottest else "",
        )

    def __str__(self) -> str:
        accesses = f"{self.reads:,} reads, {self.writes:,} writes"
        parts = [f"{accesses} in {self.requests:,} requests"]
        if self.sectors:
            parts.append(
                f"{self.sectors:,} sectors ({self.sectors_per_request:.3g} a request)"
            )
            parts.append(f"{self.efficiency:.0%} of the bytes moved were asked for")
        if self.wavefronts:
            parts.append(
                f"{self.wavefronts:,} wavefronts, up to {self.ways}-way bank conflicts"
            )
        if self.hottest:
            hottest = f"up to {self.hottest:,} atomics at one address"
            parts.append(f"{self.collisions:,} collisions of atomics, {hottest}")
        return "; ".join(parts)


def count(
    accesses: Events, requests: Requests, mask: Array, blocks: ChosenBlocks
) -> Counts:
    """Counts of the requests that `mask` selects."""
    picked = np.flatnonzero(mask)
    weight = requests.weight[picked]  # (picked,)
    kind = accesses.log.kinds[requests.site[picked]]  # (picked,)
    lanes = requests.lanes[picked]
    outer = requests.sectors > 0  # (requests,)
    place = accesses.only(requests.order[np.repeat(mask & outer, requests.lanes)]).place
    address = place >> 3
    size = 1 << (place & 7)
    begin = address // SECTOR_BYTES
    end = (address + size - 1) // SECTOR_BYTES
    changing = mask & (accesses.log.kinds == Access.ATOMIC)[requests.site]
    hottest = 0
    if changing.any():
        changed = accesses.only(requests.order[np.repeat(changing, requests.lanes)])
        _, address, atomics = np.unique(
            changed.memory, return_inverse=True, return_counts=True
        )
        hottest = int((atomics * blocks.shares(address, changed.block)).max())

    def total(values: Array | int) -> int:
        return int((values * weight).sum())

    return Counts(
        reads=total(lanes * (kind != Access.STORE)),
        writes=total(lanes * (kind > Access.LOAD)),
        requests=total(1),
        bytes_asked=total(requests.n_bytes[picked]),
        memory_requests=total(outer[picked]),
        sectors=total(requests.sectors[picked]),
        changed=total(requests.sectors[picked] * (kind == Access.ATOMIC)),
        footprint_bytes=SECTOR_BYTES * _distinct(begin, end),
        wavefronts=total(requests.wavefronts[picked]),
        ways=int(requests.ways[picked].max(initial=0)),
        rounds=total(requests.rounds[picked]),
        collisions=total(requests.collisions[picked]),
        hottest=hottest,
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
    """Branches of warps: an `if`, a turn of a `while`, or a `for` entered, by at least
    one lane of a warp.
    """

    total: int
    divergent: int
    """Branches at which lanes of a warp part: some take it and some do not, or they
    loop different numbers of times.
    """

    def __str__(self) -> str:
        return f"{self.divergent:,} of {self.total:,} branches of warps diverge"


def branches(events: Events, sites: Array, blocks: ChosenBlocks) -> Branches:
    """Count branches at the sites that a mask selects."""
    events = events.only(sites[events.site])
    key = events.key
    warp = events.warp
    order = in_order(warp, key)
    value = events.value[order]
    first = starts(key[order], warp[order])
    if not len(first):
        return Branches(0, 0)
    most = np.maximum.reduceat(value, first)  # (branches,)
    least = np.minimum.reduceat(value, first)
    weight = blocks.weights_of(events.block[order[first]])  # (branches,)
    return Branches(int(weight.sum()), int(weight[most != least].sum()))


def operations(events: Events, program: Program, blocks: ChosenBlocks) -> Operations:
    """Operations of all threads together."""
    weight = blocks.weights_of(events.block)
    times = np.zeros(len(program.sites), "i8")
    np.add.at(times, events.site, weight)
    total = Operations()
    for n, site in zip(times.tolist(), program.sites, strict=True):
        total = total.plus(site.operations, n)
    for (threads, *_), run in zip(program.counters, program.counted, strict=True):
        total = total.plus(run, int(threads))
    return total


@dataclass(frozen=True)
class Requests:
    """What warps ask of memory: a request is one instruction of one warp, for all its
    lanes that execute it together.

    Each column has a value for each request: the site, the warp, the number of lanes
    that take part, the bytes that they ask for (a byte counts once) and the sectors of
    memory that these touch, the wavefronts (passes that shared memory needs), the most
    words that one bank has to give (`ways`), the rounds, and the collisions.
    """

    site: Array
    warp: Array
    weight: Array
    """How many blocks of the grid the request's block stands for."""
    first: Array
    lanes: Array
    n_bytes: Array
    sectors: Array
    wavefronts: Array
    ways: Array
    rounds: Array
    """Wavefronts of shared memory; of atomics on global memory the most lanes at one
    address, of constant memory the distinct addresses, of other requests 1.
    """
    collisions: Array
    """Atomics at an address that another lane of the request changes, too: all but one
    at each address.
    """
    order: Array
    """Access numbers, request by request; those of request r start at first[r]."""

    @classmethod
    def of(cls, accesses: Events, blocks: ChosenBlocks) -> Requests:
        """Group accesses of the same warp with the same key."""
        parts = [
            cls._of_part(accesses.only(numbers), numbers, blocks)
            for numbers in _by_blocks(accesses)
        ]
        if len(parts) == 1:
            return parts[0]
        columns = {
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(cls)
        }
        earlier = np.cumsum([0, *(len(part.order) for part in parts[:-1])])
        columns["first"] += np.repeat(earlier, [len(part.first) for part in parts])
        return cls(**columns)

    @classmethod
    def _of_part(
        cls, accesses: Events, numbers: Array, blocks: ChosenBlocks
    ) -> Requests:
        """The requests of some blocks, of which the accesses have these numbers."""
        order = in_order(accesses.warp, accesses.key)
        accesses = accesses.only(order)
        key = accesses.key
        warp = accesses.warp
        first = starts(key, warp)
        key = key[first]
        warp = warp[first]
        lanes = np.diff(np.append(first, len(order)))
        request = np.repeat(np.arange(len(first), dtype="i4"), lanes)
        shared = accesses.shared
        constant = accesses.constant
        atomic = accesses.atomic
        n = len(first)
        n_bytes, sectors = _bytes_and_sectors(
            request[~shared], accesses.only(~shared), n
        )
        wavefronts, ways = _banks(request[shared], accesses.only(shared), n)
        most, distinct = _same_address(request[atomic], accesses.only(atomic), n)
        _, separate = _same_address(request[constant], accesses.only(constant), n)
        at_least_one = (sectors > 0).astype("i4")
        return cls(
            site=(key % SITES).astype("i2"),
            warp=warp,
            weight=blocks.weights_of(accesses.block[first]),
            first=first,
            lanes=lanes,
            n_bytes=n_bytes,
            sectors=sectors,
            wavefronts=wavefronts,
            ways=ways,
            rounds=np.maximum.reduce([wavefronts, most, separate, at_least_one]),
            collisions=np.where(most, lanes - distinct, 0),
            order=numbers[order],
        )


def _by_blocks(accesses: Events) -> Iterator[Array]:
    """The numbers of the accesses of some blocks after another, PART or more at a time,
    so that what counting them needs is small.
    """
    log = accesses.log
    block = log.threads // log.block_size  # (stretches,)
    times = np.bincount(accesses.stretch, minlength=len(block))
    in_blocks = np.argsort(block, kind="stable")
    before = np.cumsum(times[in_blocks]) - times[in_blocks]
    first = starts(block[in_blocks]) if len(block) else block
    part_of_block = before[first] // PART
    part = np.empty(len(block), "i4")  # (stretches,)
    part[in_blocks] = np.repeat(part_of_block, np.diff(first, append=len(block)))
    of_access = part[accesses.stretch]
    for number in np.unique(part_of_block):
        yield np.flatnonzero(of_access == number).astype(accesses.at.dtype)
    if not len(block):
        yield np.zeros(0, accesses.at.dtype)


def _bytes_and_sectors(request: Array, accesses: Events, n: int) -> tuple[Array, Array]:
    """Distinct bytes and distinct sectors of each request to global or
    constant memory.
    """
    places = accesses.place
    line = 8 * LINE_BYTES  # of a place
    if len(places):
        places -= int(places.min()) // line * line
    address_bits = (int(places.max(initial=8 * SECTOR_BYTES)) + line).bit_length() - 3
    places |= request.astype("i8") << address_bits + 3
    places.sort()  # in the order of requests and addresses
    size = 1 << (places & 7)
    places = places >> 3
    # An access reaches up to the next one, which is further off where it belongs to
    # another request.
    n_bytes = np.minimum(size, np.diff(places, append=places[-1:] + size[-1:]))
    distinct_bytes = np.bincount(places >> address_bits, n_bytes, n).astype("i8")
    last = (places + size - 1) // SECTOR_BYTES
    places //= SECTOR_BYTES
    over = last != places  # a misaligned access may touch two sectors
    if over.any():
        places = _unique(np.concatenate([places, last[over]]))
    sectors = places[starts(places)] if len(places) else places
    sector_bits = address_bits - SECTOR_BYTES.bit_length() + 1
    return distinct_bytes, np.bincount(sectors >> sector_bits, minlength=n)


def _same_address(request: Array, accesses: Events, n: int) -> tuple[Array, Array]:
    """The most lanes at one address of each request, and the distinct addresses."""
    most = np.zeros(n, "i4")
    distinct = np.zeros(n, "i4")
    if len(request):
        order = in_order(request, accesses.address - int(accesses.address.min()))
        request = request[order]
        address = accesses.address[order]
        first = starts(request, address)
        np.maximum.at(most, request[first], np.diff(np.append(first, len(request))))
        np.add.at(distinct, request[first], 1)
    return most, distinct


def _banks(request: Array, accesses: Events, n: int) -> tuple[Array, Array]:
    """Wavefronts and the worst bank's words of each request to shared memory.

    A request of 8-byte accesses is served half a warp at a time, of 16-byte ones a
    quarter at a time: each such part takes as many wavefronts as the bank with most
    distinct words has words. A word serves all lanes that load or store it, and the
    atomics of several lanes on it one after another.
    """
    words = np.maximum(accesses.size // BANK_BYTES, 1)  # of 4 bytes, an access
    widest = int(words.max(initial=1))
    atomic = accesses.atomic
    part = request.astype("i8") * 4
    if widest > 1:
        part += accesses.lane * words // WARP
    pair = part << 28 | accesses.address // BANK_BYTES  # of a part and a word
    one_by_one = pair[atomic]
    pair = pair[~atomic]
    words = words[~atomic]
    if widest > 1:
        pair = np.concatenate([(pair + i)[words > i] for i in range(widest)])
    pair = _unique(pair)
    if len(one_by_one):
        pair = np.concatenate([pair, one_by_one])
    bank = (pair >> 28) * BANKS + pair % BANKS  # of each part, for each word
    bank.sort()
    first = starts(bank)
    words_of_bank = np.diff(first, append=len(bank))
    most = np.zeros((n, 4), "i4")  # (requests, parts)
    np.maximum.at(most.reshape(-1), bank[first] // BANKS, words_of_bank)
    return most.sum(axis=1), most.max(axis=1, initial=0)


def _unique(values: Array) -> Array:
    """Sorted distinct values of an array, which is sorted in place: like np.unique,
    without its copies.
    """
    values.sort()
    return values[starts(values)]
