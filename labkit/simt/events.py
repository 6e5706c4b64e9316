"""The log of a launch as columns, and how its accesses fall into the requests of warps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from labkit.simt.log import SITES, Log
from labkit.simt.memory import Array
from labkit.simt.program import Site
from labkit.simt.space import CONSTANT, GLOBAL, SHARED_END
from labkit.simt.thread import WARP

KINDS = ("load", "store", "atomic")
SECTOR_BYTES, LINE_BYTES = 32, 128
"""A GPU moves memory in sectors of 32 bytes, four of which share a line of its caches (CUDA C++ Best Practices Guide,
"Coalesced Access to Global Memory"; Nsight Compute's documentation, "Memory Tables")."""
BANKS, BANK_BYTES = 32, 4
"""Shared memory gives one 4-byte word from each of 32 banks at a time (CUDA C++ Programming Guide, "Shared Memory")."""


@dataclass(frozen=True)
class Events:
    """Events in the order in which they were logged: the place in the log, the key, the value, the thread of each."""

    at: Array
    key: Array
    value: Array
    thread: Array
    site: Array

    @classmethod
    def of(cls, log: Log) -> Events:
        """The columns of `log`."""
        words = np.frombuffer(log.words, "i8")
        branch = words < 0
        first = np.ones(len(words), bool)
        first[np.flatnonzero(~branch)[1::2]] = False  # of two words the second
        at = np.flatnonzero(first)
        key = words[at]
        value = np.where(branch[at], -key & 1, words[np.minimum(at + 1, len(words) - 1)])
        key = np.where(branch[at], -key >> 1, key)
        return cls(at, key, value, _spread(log.threads, log.starts, len(words))[at], (key % SITES).astype("i4"))


def _spread(values: Any, starts: Any, n: int) -> Array:
    """Each value repeated from its start to the next."""
    lengths = np.diff(np.append(np.frombuffer(starts, "i8"), n))
    return np.repeat(np.frombuffer(values, "i8")[: len(lengths)].astype("i4"), lengths)


@dataclass(frozen=True)
class Accesses:
    """Accesses to memory. `event` are their numbers among all events; all columns are as long."""

    event: Array
    key: Array
    thread: Array
    site: Array
    address: Array
    size: Array
    warp: Array
    phase: Array
    """Number of the barrier, over the whole launch, since which the access was made."""
    warp_epoch: Array
    write: Array
    atomic: Array

    @classmethod
    def of(cls, log: Log, events: Events, sites: list[Site], block_size: int) -> Accesses:
        """The accesses among `events`."""
        kinds = np.array([KINDS.index(site.kind) if site.kind in KINDS else -1 for site in sites])
        kind = kinds[events.site]
        event = np.flatnonzero(kind >= 0)
        thread, value, at = events.thread[event], events.value[event], events.at[event]
        phase = _spread(np.arange(len(log.phases)), log.phases, len(log.words))[at]
        warp_epoch = _spread(log.warp_epochs, log.starts, len(log.words))[at]
        warps = -(-block_size // WARP)
        warp = thread // block_size * warps + thread % block_size // WARP
        kind = kind[event]
        return cls(
            event, events.key[event], thread, events.site[event], value >> 3,
            (1 << (value & 7)).astype("i4"), warp, phase, warp_epoch, kind > 0, kind == KINDS.index("atomic"),
        )  # fmt: skip

    def only(self, mask: Array) -> Accesses:
        """Those that a mask of truth values, or an array of numbers, picks."""
        return Accesses(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))

    @cached_property
    def shared(self) -> Array:
        """Whether each goes to shared memory."""
        return self.address < SHARED_END

    @cached_property
    def constant(self) -> Array:
        """Whether each goes to constant memory."""
        return (self.address >= CONSTANT) & (self.address < GLOBAL)


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
    def of(cls, accesses: Accesses) -> Requests:
        """Group accesses: same warp and same key."""
        n = len(accesses.key)
        order = np.lexsort((accesses.key, accesses.warp)) if n else np.zeros(0, "i8")
        key, warp = accesses.key[order], accesses.warp[order]
        new = np.ones(n, bool)
        new[1:] = (key[1:] != key[:-1]) | (warp[1:] != warp[:-1])
        first = np.flatnonzero(new)
        request = np.cumsum(new) - 1
        address, size = accesses.address[order], accesses.size[order]
        shared = accesses.shared[order]
        count = len(first)
        sectors, lines = _sectors(request, address, size, ~shared, count)
        wavefronts, ways = _banks(request, address, size, accesses.thread[order] % WARP, shared, count)
        collisions = _collisions(request, address, accesses.atomic[order], count)
        lanes = np.diff(np.append(first, n))
        return cls(
            accesses.site[order][first], warp[first], key[first], first, lanes, sectors, lines, wavefronts, ways,
            collisions, order,
        )  # fmt: skip


def _sectors(request: Array, address: Array, size: Array, mask: Array, count: int) -> tuple[Array, Array]:
    """Distinct sectors and lines of each request to global (or constant) memory."""
    request, address, size = request[mask], address[mask], size[mask]
    origin = int(address.min()) // LINE_BYTES * LINE_BYTES if len(address) else 0
    first, last = (address - origin) // SECTOR_BYTES, (address - origin + size - 1) // SECTOR_BYTES
    bits = int(last.max()).bit_length() + 2 if len(last) else 1
    pairs = (request << bits) | first
    over = last != first
    if over.any():
        pairs = np.concatenate([pairs, (request[over] << bits) | last[over]])
    pairs = _unique(pairs)
    lines = _unique(pairs // (LINE_BYTES // SECTOR_BYTES))
    return np.bincount(pairs >> bits, minlength=count), np.bincount(lines >> (bits - 2), minlength=count)


def _banks(request: Array, address: Array, size: Array, lane: Array, mask: Array, count: int) -> tuple[Array, Array]:
    """Wavefronts and the worst bank's words of each request to shared memory.

    A request of 8-byte accesses is served half a warp at a time, of 16-byte ones a quarter at a time: each such part
    takes as many wavefronts as the bank with most distinct words has words.
    """
    request, address, size, lane = request[mask], address[mask], size[mask], lane[mask]
    part = request * 4 + lane * np.maximum(size // BANK_BYTES, 1) // WARP
    word, words = address // BANK_BYTES, np.maximum(size // BANK_BYTES, 1)
    wide = int(words.max()) if len(words) else 1
    pairs = [((part << 28) | (word + k))[words > k] for k in range(wide)]
    pair = _unique(np.concatenate(pairs) if wide > 1 else pairs[0])
    full = np.bincount((pair >> 28) * BANKS + pair % BANKS) if len(pair) else np.zeros(0, "i8")
    full = np.concatenate([full, np.zeros(count * 4 * BANKS - len(full), "i8")]).reshape(count, 4, BANKS).max(axis=2)
    return full.sum(axis=1), full.max(axis=1, initial=0)


def _collisions(request: Array, address: Array, atomic: Array, count: int) -> Array:
    """Lanes of an atomic request that find another lane at their address, beyond the first at each address."""
    request, address = request[atomic], address[atomic]
    if not len(request):
        return np.zeros(count, "i8")
    order = np.lexsort((address, request))
    same = (np.diff(address[order]) == 0) & (np.diff(request[order]) == 0)
    return np.bincount(request[order][1:][same], minlength=count)


def _unique(values: Array) -> Array:
    """Sorted distinct values. As np.unique, without its detours."""
    values = np.sort(values)
    keep = np.ones(len(values), bool)
    keep[1:] = values[1:] != values[:-1]
    return values[keep]
