"""Read the log of a run as columns: what each thread accessed, when, and between which
barriers.
"""

# mypy: disable-error-code="no-any-return"
# An indexed NumPy array is Any to mypy, and most properties here index one.

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from kerneltrace.machine.address_space import CONSTANT, GLOBAL, SHARED_END, Region
from kerneltrace.machine.event_log import SITES, EventLog
from kerneltrace.machine.grid import WARP
from kerneltrace.machine.program import Site
from kerneltrace.machine.traced_memory import Array


class Access(IntEnum):
    """How an event accesses memory, as LogColumns has it for each site."""

    NONE = 0
    LOAD = 1
    STORE = 2
    ATOMIC = 3


KINDS = {"load": Access.LOAD, "store": Access.STORE, "atomic": Access.ATOMIC}
"""By the kinds of sites that access memory."""
SECTOR_BYTES = 32
LINE_BYTES = 128
"""A GPU moves memory in sectors of 32 bytes, four of which share a line of its caches
(CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"; Nsight Compute's
documentation, "Memory Tables").
"""
BANKS = 32
BANK_BYTES = 4
"""Shared memory gives one 4-byte word from each of 32 banks at a time (CUDA C++
Programming Guide, "Shared Memory").
"""


@dataclass(frozen=True)
class LogColumns:
    """A finished log, and for each stretch of its words the thread, the phase and the
    warp epoch.
    """

    words: Array
    threads: Array
    warps: Array
    phases: Array
    """A number for each stretch of a block between two barriers, rising with time."""
    warp_epochs: Array
    kinds: Array
    """An Access for each site."""
    block_size: int
    grid_barriers: Array
    """A phase for each barrier of the grid, larger than those before it."""


@dataclass(frozen=True)
class Events:
    """Events in the order in which they were logged: the numbers of their first words,
    and of their stretches.

    Everything else is looked up in the log when asked for, so that an event takes 8
    bytes here.
    """

    log: LogColumns
    at: Array
    stretch: Array
    offset: Array | None = None
    """Bytes from where each access begins to the piece of it that is meant."""

    @classmethod
    def of(cls, event_log: EventLog, sites: list[Site], block_size: int) -> Events:
        """All events of a log."""
        words = np.frombuffer(event_log.words, "i8")
        starts = np.frombuffer(event_log.starts, "i8")
        threads = np.frombuffer(event_log.threads, "i4")[: len(starts)]
        epochs = np.frombuffer(event_log.warp_epochs, "i4")[: len(starts)]
        phases = np.frombuffer(event_log.phases, "i4")[: len(starts)]
        kinds = np.array([KINDS.get(site.kind, Access.NONE) for site in sites], "i1")
        first = np.ones(len(words), bool)
        first[np.flatnonzero(words >= 0)[1::2]] = False  # the second word of an event
        at = np.flatnonzero(first).astype("i4" if len(words) < 2**31 else "i8")
        bounds = np.searchsorted(at, np.append(starts, len(words)))
        stretch = np.repeat(np.arange(len(starts), dtype="i4"), np.diff(bounds))
        warps_a_block = -(-block_size // WARP)
        block, in_block = np.divmod(threads, block_size)
        warps = block * warps_a_block + in_block // WARP
        barriers = np.array(event_log.grid_barriers, "i4")
        log = LogColumns(
            words, threads, warps, phases, epochs, kinds, block_size, barriers
        )
        return cls(log, at, stretch)

    def only(self, mask: Array | slice) -> Events:
        """The events that a boolean mask, an array of numbers, or a slice selects."""
        offset = None if self.offset is None else self.offset[mask]
        return replace(
            self, at=self.at[mask], stretch=self.stretch[mask], offset=offset
        )

    def in_pieces(self, regions: list[Region]) -> Events:
        """The same accesses, cut into pieces no larger than an array's elements and the
        smallest access to it.
        """
        size = self.size
        if not len(size):
            return self
        smallest_item = min((region.array.itemsize for region in regions), default=1)
        if size.min() == size.max() and size.max() <= smallest_item:
            return self
        address = self.address
        piece = size.copy()
        for region in regions:
            low, high = region.span
            inside = (address >= low) & (address < high)
            piece[inside] = min(size[inside].min(initial=1 << 7), region.array.itemsize)
        times = size // piece
        if times.max() == 1:
            return self
        access = np.repeat(np.arange(len(size)), times)  # (pieces,)
        number = np.arange(len(access)) - np.repeat(times.cumsum() - times, times)
        return replace(
            self,
            at=self.at[access],
            stretch=self.stretch[access],
            offset=number * piece[access],
        )

    def reaching(self, region: Region) -> tuple[Events, Array]:
        """The accesses to elements of an array, and the elements' flat numbers."""
        address = self.address
        low, high = region.span
        near = self.only((address >= low) & (address < high))
        element = region.elements(near.address)
        inside = element >= 0  # a column of a matrix spans its other columns too
        return near.only(inside), element[inside]

    def __len__(self) -> int:
        return len(self.at)

    @property
    def key(self) -> Array:
        """Site and context."""
        word = self.log.words[self.at]
        is_branch = word < 0
        return np.where(is_branch, -word >> 1, word) if is_branch.any() else word

    site = property(
        lambda self: (self.key & SITES - 1).astype("i2"),
        doc="Number of the site in the source.",
    )

    @property
    def value(self) -> Array:
        """The second word; for a branch 1 (taken) or 0."""
        words = self.log.words
        word = words[self.at]
        next_word = words[np.minimum(self.at + 1, len(words) - 1)]
        return np.where(word < 0, -word & 1, next_word)

    @property
    def place(self) -> Array:
        """Eight times the address of an access, plus the base-2
        logarithm of its size.
        """
        place = self.log.words[self.at + 1]
        return place if self.offset is None else place + 8 * self.offset

    address = property(
        lambda self: self.place >> 3, doc="Address of an access, in bytes."
    )

    @property
    def memory(self) -> Array:
        """A number for each address that an access can reach: one of shared memory is
        another in each block.
        """
        address = self.address
        shared = self.shared
        address[shared] += self.block[shared].astype("i8") + 1 << 40
        return address

    size = property(
        lambda self: (1 << (self.place & 7)).astype("i4"),
        doc="Size of an access, in bytes.",
    )
    thread = property(
        lambda self: self.log.threads[self.stretch],
        doc="Thread, counted over the whole grid.",
    )
    lane = property(
        lambda self: self.thread % self.log.block_size % WARP,
        doc="Lane in the warp, 0 to 31.",
    )
    warp = property(
        lambda self: self.log.warps[self.stretch],
        doc="Warp, counted over the whole grid.",
    )
    block = property(
        lambda self: self.thread // self.log.block_size,
        doc="Block, counted over the whole grid.",
    )
    phase = property(
        lambda self: self.log.phases[self.stretch],
        doc="A number for the time between two barriers of a block, rising with time.",
    )
    step = property(
        lambda self: self.phase.astype("i8") << 32 | self.log.warp_epochs[self.stretch],
        doc=(
            "A number that rises for the lanes of a warp at each barrier, and at each"
            " syncwarp of the whole warp."
        ),
    )
    write = property(
        lambda self: self.log.kinds[self.site] > Access.LOAD,
        doc="Whether an access writes.",
    )
    atomic = property(
        lambda self: self.log.kinds[self.site] == Access.ATOMIC,
        doc="Whether an access is atomic.",
    )
    shared = property(
        lambda self: self.address < SHARED_END,
        doc="Whether an access goes to shared memory.",
    )

    @property
    def constant(self) -> Array:
        """Whether an access goes to constant memory."""
        address = self.address
        return (address >= CONSTANT) & (address < GLOBAL)


def in_order(major: Array, minor: Array) -> Array:
    """Indices that sort by two columns of non-negative integers, in the order of time
    where both are equal.

    Like np.lexsort, but ten times as fast where both columns and the index fit into one
    word: NumPy sorts numbers with the vector instructions of the CPU, and indices
    without.
    """
    major_bits = int(major.max(initial=0)).bit_length()
    minor_bits = int(minor.max(initial=0)).bit_length()
    shift = len(major).bit_length()
    if major_bits + minor_bits + shift > 63:
        return np.lexsort((minor, major))
    words = (major.astype("i8") << minor_bits | minor) << shift
    words |= np.arange(len(words))
    words.sort()
    words &= (1 << shift) - 1
    return words.astype("i4") if shift < 32 else words


def starts(*columns: Array) -> Array:
    """Where each group of rows with the same values begins, in sorted columns of the
    same length.
    """
    new = np.ones(len(columns[0]), bool)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.flatnonzero(new)


def largest(keys: Array, values: Array) -> Array:
    """The largest of the positive values of each distinct key, in the keys' order."""
    distinct, key = np.unique(keys, return_inverse=True)
    most = np.zeros(len(distinct))
    np.maximum.at(most, key, values)
    return most
