"""The log of a launch as columns, and how its accesses fall into the requests of warps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from labkit.gpu.trace.log import SITES, Log
from labkit.gpu.trace.program import Site
from labkit.gpu.trace.space import CONSTANT, GLOBAL, SHARED_END, Region
from labkit.gpu.trace.thread import WARP
from labkit.gpu.trace.traced_memory import Array

KINDS = ("load", "store", "atomic")
PIECE = 1 << 18
"""Events that are sorted at once where the blocks allow it, so that sorting needs little memory."""
SECTOR_BYTES, LINE_BYTES = 32, 128
"""A GPU moves memory in sectors of 32 bytes, four of which share a line of its caches (CUDA C++ Best Practices Guide,
"Coalesced Access to Global Memory"; Nsight Compute's documentation, "Memory Tables")."""
BANKS, BANK_BYTES = 32, 4
"""Shared memory gives one 4-byte word from each of 32 banks at a time (CUDA C++ Programming Guide, "Shared Memory")."""


@dataclass(frozen=True)
class View:
    """A finished log and what explains it: for each stretch of words its thread, phase and warp epoch."""

    words: Array
    threads: Array
    warps: Array
    phases: Array
    """Number of the barrier, over the whole launch, since which the stretch runs."""
    warp_epochs: Array
    kinds: Array
    """For each site: 0 for no access, 1 load, 2 store, 3 atomic."""
    block_size: int
    partial_syncs: list[tuple[int, int, int]]
    """Warp operations that put some lanes of a warp in order: warp, mask, and the number of the next word."""


@dataclass(frozen=True)
class Events:
    """Events in the order in which they were logged: the number of their first word, and of their stretch.

    Everything else is looked up in the log when asked for, so that an event takes 8 bytes here.
    """

    view: View
    at: Array
    stretch: Array

    @classmethod
    def of(cls, log: Log, sites: list[Site], block_size: int) -> Events:
        """All events of `log`."""
        words, starts = np.frombuffer(log.words, "i8"), np.frombuffer(log.starts, "i8")
        threads = np.frombuffer(log.threads, "i4")[: len(starts)]
        epochs = np.frombuffer(log.warp_epochs, "i4")[: len(starts)]
        phases = np.searchsorted(np.frombuffer(log.phases, "i8"), starts, side="right").astype("i4")
        kinds = np.array([KINDS.index(site.kind) + 1 if site.kind in KINDS else 0 for site in sites], "i1")
        first = np.ones(len(words), bool)
        first[np.flatnonzero(words >= 0)[1::2]] = False  # of an event's two words the second
        at = np.flatnonzero(first).astype("i4" if len(words) < 2**31 else "i8")
        stretch = np.repeat(
            np.arange(len(starts), dtype="i4"), np.diff(np.searchsorted(at, np.append(starts, len(words))))
        )
        warps = threads // block_size * -(-block_size // WARP) + threads % block_size // WARP
        return cls(View(words, threads, warps, phases, epochs, kinds, block_size, log.partial_syncs), at, stretch)

    def only(self, mask: Array | slice) -> Events:
        """Those that a mask of truth values, an array of numbers, or a slice picks."""
        return Events(self.view, self.at[mask], self.stretch[mask])

    @property
    def accesses(self) -> Events:
        """Those that go to memory."""
        return self.only(self.view.kinds[self.site] > 0)

    def reaching(self, region: Region) -> tuple[Events, Array]:
        """The accesses to elements of an array, and the elements' flat numbers."""
        address, (low, high) = self.address, region.span
        near = self.only((address >= low) & (address < high))
        element = region.elements(near.address)
        inside = element >= 0  # a column of a matrix spans its other columns too
        return near.only(inside), element[inside]

    def pieces(self) -> Iterator[Events]:
        """The same in pieces of whole blocks, of about PIECE events or a single block with more."""
        block = self.block
        ends = np.append(np.flatnonzero(block[1:] != block[:-1]) + 1, len(block))
        begin = 0
        for end in ends[np.append((ends[1:] // PIECE != ends[:-1] // PIECE), True)].tolist():
            if end > begin:
                yield self.only(slice(begin, end))
            begin = end

    def __len__(self) -> int:
        return len(self.at)

    @property
    def key(self) -> Array:
        """Site and context."""
        word = self.view.words[self.at]
        found: Array = np.where(word < 0, -word >> 1, word)
        return found

    @property
    def site(self) -> Array:
        """Number of the place in the source."""
        return (self.key % SITES).astype("i2")

    @property
    def value(self) -> Array:
        """What the second word says; 1 or 0 for a branch."""
        word = self.view.words[self.at]
        return np.where(word < 0, -word & 1, self.view.words[np.minimum(self.at + 1, len(self.view.words) - 1)])

    @property
    def address(self) -> Array:
        """In bytes, of an access."""
        found: Array = self.view.words[self.at + 1] >> 3
        return found

    @property
    def size(self) -> Array:
        """In bytes, of an access."""
        found: Array = (1 << (self.view.words[self.at + 1] & 7)).astype("i4")
        return found

    @property
    def thread(self) -> Array:
        """Counted over the whole grid."""
        found: Array = self.view.threads[self.stretch]
        return found

    @property
    def lane(self) -> Array:
        """Of the warp, 0 to 31."""
        found: Array = self.thread % self.view.block_size % WARP
        return found

    @property
    def warp(self) -> Array:
        """Counted over the whole grid."""
        found: Array = self.view.warps[self.stretch]
        return found

    @property
    def block(self) -> Array:
        """Counted over the whole grid."""
        return self.thread // self.view.block_size

    @property
    def phase(self) -> Array:
        """Number of the barrier, over the whole launch, since which it happened."""
        found: Array = self.view.phases[self.stretch]
        return found

    @property
    def warp_epoch(self) -> Array:
        """Warp operations that the warp did before."""
        found: Array = self.view.warp_epochs[self.stretch]
        return found

    @property
    def write(self) -> Array:
        """Whether an access writes."""
        found: Array = self.view.kinds[self.site] > 1
        return found

    @property
    def atomic(self) -> Array:
        """Whether an access is atomic."""
        found: Array = self.view.kinds[self.site] == 1 + KINDS.index("atomic")
        return found

    @property
    def shared(self) -> Array:
        """Whether an access goes to shared memory."""
        return self.address < SHARED_END

    @property
    def constant(self) -> Array:
        """Whether an access goes to constant memory."""
        address = self.address
        return (address >= CONSTANT) & (address < GLOBAL)


@dataclass(frozen=True)
class Requests:
    """What warps ask of memory: one request is one instruction of one warp, for all its lanes that execute it together.

    Each column has a value a request: the site, the warp, the lanes that take part, the sectors and lines of memory
    touched, the wavefronts (rounds that shared memory needs), the most words that one bank has to
    give (`ways`), and the lanes of an atomic that come to an address where another one is.
    """

    site: Array
    warp: Array
    key: Array
    first: Array
    lanes: Array
    sectors: Array
    lines: Array
    wavefronts: Array
    ways: Array
    collisions: Array
    order: Array
    """Access numbers, request by request; those of request r start at first[r]."""

    @classmethod
    def of(cls, accesses: Events) -> Requests:
        """Group accesses: same warp and same key."""
        order = in_order(accesses.warp, accesses.key)
        accesses = accesses.only(order)
        key, warp = accesses.key, accesses.warp
        first = starts(key, warp)
        key, warp = key[first], warp[first]
        lanes = np.diff(np.append(first, len(order)))
        request = np.repeat(np.arange(len(first), dtype="i4"), lanes)
        shared, atomic = accesses.shared, accesses.atomic
        return cls(
            (key % SITES).astype("i2"), warp, key, first, lanes,
            *_sectors(request[~shared], accesses.only(~shared), len(first)),
            *_banks(request[shared], accesses.only(shared), len(first)),
            _collisions(request[atomic], accesses.only(atomic), len(first)), order,
        )  # fmt: skip


def _sectors(request: Array, accesses: Events, count: int) -> tuple[Array, Array]:
    """Distinct sectors and lines of each request to global (or constant) memory."""
    address = accesses.address
    address -= int(address.min()) // LINE_BYTES * LINE_BYTES if len(address) else 0
    last = (address + accesses.size - 1) // SECTOR_BYTES
    bits = int(last.max()).bit_length() + 2 if len(last) else 2
    over = last != address // SECTOR_BYTES
    rest = (request[over].astype("i8") << bits) | last[over]
    del last
    pairs = _unique(np.concatenate([(request.astype("i8") << bits) | (address // SECTOR_BYTES), rest]))
    lines = _unique(pairs // (LINE_BYTES // SECTOR_BYTES))
    return np.bincount(pairs >> bits, minlength=count), np.bincount(lines >> (bits - 2), minlength=count)


def _banks(request: Array, accesses: Events, count: int) -> tuple[Array, Array]:
    """Wavefronts and the worst bank's words of each request to shared memory.

    A request of 8-byte accesses is served half a warp at a time, of 16-byte ones a quarter at a time: each such part
    takes as many wavefronts as the bank with most distinct words has words.
    """
    words = np.maximum(accesses.size // BANK_BYTES, 1)  # of 4 bytes, an access
    pair = (request.astype("i8") * 4 + accesses.lane * words // WARP) << 28 | (accesses.address // BANK_BYTES)
    wide = int(words.max(initial=1))
    pair = _unique(pair if wide == 1 else np.concatenate([(pair + k)[words > k] for k in range(wide)]))
    part, counts = _runs(np.sort((pair >> 28) * BANKS + pair % BANKS))  # words of each bank, by part of a request
    full = np.zeros(count * 4, "i4")
    np.maximum.at(full, part // BANKS, counts)
    parts = full.reshape(count, 4)
    return parts.sum(axis=1), parts.max(axis=1, initial=0)


def _collisions(request: Array, accesses: Events, count: int) -> Array:
    """Lanes of an atomic request that find another lane at their address, beyond the first at each address."""
    address = accesses.address
    order = np.lexsort((address, request))
    same = (np.diff(address[order]) == 0) & (np.diff(request[order]) == 0)
    return np.bincount(request[order][1:][same], minlength=count)


def in_order(major: Array, minor: Array) -> Array:
    """Numbers that sort by two columns of numbers from 0 on, in the order of time where both are equal.

    Like np.lexsort, with half its memory and time where both columns fit into one word.
    """
    bits = int(minor.max(initial=0)).bit_length()
    if int(major.max(initial=0)).bit_length() + bits < 63:
        order = np.argsort((major.astype("i8") << bits) | minor, kind="stable")
    else:
        order = np.lexsort((minor, major))
    return order.astype("i4" if len(order) < 2**31 else "i8")


def starts(*columns: Array) -> Array:
    """Where the groups of rows begin that have the same values in all of some sorted columns of the same length."""
    new = np.ones(len(columns[0]), bool)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.flatnonzero(new)


def _unique(values: Array) -> Array:
    """Sorted distinct values of an array, which is sorted in place: as np.unique, without its copies."""
    values.sort()
    return values[starts(values)]


def _runs(values: Array) -> tuple[Array, Array]:
    """The distinct values of a sorted array, and how often each is there."""
    first = starts(values)
    return values[first], np.diff(np.append(first, len(values)))
