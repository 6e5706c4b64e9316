"""The memory that a block loads and stores: its sectors, which of them are its own, in
pieces of which length.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kerneltrace.judge.counts import Requests
from kerneltrace.log.events import SECTOR_BYTES, Events
from kerneltrace.log.grid import Dim3
from kerneltrace.log.traced_memory import Array

PIECE_BYTES = 1024
"""Of memory that is touched together, from which on its DRAM pages are used well: a
page of HBM2 (JESD235).
"""


@dataclass(frozen=True)
class Footprint:
    """The distinct sectors of one array that a block loads or stores, in bytes, and how
    many of them are its own.

    `own` has a share for each axis of the grid: 0 where a block's neighbour along that
    axis touches the same sectors, 1 where it touches others (or where the traced grid
    has no neighbour, so that nothing is known).
    """

    n_bytes: float
    own: tuple[float, float, float]
    is_load: bool
    alone: float = 0.0
    """Bytes that a block moves whatever its neighbours touch: sectors of which it
    stores only a part.
    """
    scattered: bool = False
    """Whether it lies in pieces below PIECE_BYTES, to which the block's neighbours
    along x, which run with it, add none.
    """

    def of_blocks(self, extent: tuple[int, ...]) -> float:
        """Bytes of the distinct sectors of a box of blocks."""
        return self.n_bytes * math.prod(
            1 + own * (n - 1) for own, n in zip(self.own, extent, strict=True)
        )


def footprints(
    grid: Dim3,
    names: Array,
    sectors: Array,
    block: Array,
    kind: Array,
    times: Array,
    owner: Array,
    alone: Array,
) -> tuple[Footprint, ...]:
    """What a block loads, stores and changes of each array; a sector is touched by the
    request that is its `owner`.

    Atomics read and write their sectors. `alone` has for each request the sectors of
    which its block stores a part.
    """
    apart = np.bincount(
        names, SECTOR_BYTES * alone * times, int(names.max(initial=0)) + 1
    ) / math.prod(grid)
    names, block, kind, times = (
        column[owner] for column in (names, block, kind, times)
    )
    # x, y and z of each block: x counts fastest
    places = np.stack(np.unravel_index(block, grid[::-1])[::-1])
    found = []
    for name, what in sorted(set(zip(names.tolist(), kind.tolist(), strict=True))):
        mine = (names == name) & (kind == what)
        total = len(np.unique(packed(block[mine], sectors[mine]))) / math.prod(grid)
        rows = [
            np.unique(sectors[mine & (np.delete(places, axis, 0) == 0).all(axis=0)])
            for axis in range(3)
        ]
        own = [
            min(max((len(row) / total - 1) / (n - 1), 0.0), 1.0) if n > 1 else 1.0
            for row, n in zip(rows, grid, strict=True)
        ]
        n_bytes = (
            SECTOR_BYTES * total * float(times[mine].mean()) * (2 if what == 3 else 1)
        )
        pieces = _pieces(rows[0]), _pieces(np.unique(sectors[mine & (block == 0)]))
        scattered = grid.x > 1 and pieces[0] > max(
            pieces[1], SECTOR_BYTES * len(rows[0]) / PIECE_BYTES
        )
        found.append(
            Footprint(
                n_bytes,
                (own[0], own[1], own[2]),
                what == 1,
                float(apart[name]) * (what == 2),
                scattered,
            )
        )
    return tuple(found)


def _pieces(sectors: Array) -> int:
    """The number of pieces without gaps that sorted distinct sectors make."""
    return int((np.diff(sectors) > 1).sum()) + 1


def stored_in_part(
    requests: Requests, accesses: Events, chosen: Array
) -> tuple[Array, Array]:
    """Of each chosen request the sectors of which it stores a part, and those of them
    that its block never fills.
    """
    mine = np.repeat(chosen, requests.lanes)
    request = np.repeat(np.arange(len(chosen)), requests.lanes)[mine]
    address, size, block = (
        column[mine] for column in (accesses.address, accesses.size, accesses.block)
    )
    sector = address // SECTOR_BYTES
    _, first, which = np.unique(
        packed(request, sector), return_index=True, return_inverse=True
    )
    part = first[np.bincount(which, size) < SECTOR_BYTES]
    once = np.unique(packed(block, address), return_index=True)[1]
    _, opens, of = np.unique(
        packed(block, sector)[once], return_index=True, return_inverse=True
    )
    open_ = once[opens[np.bincount(of, size[once]) < SECTOR_BYTES]]
    return np.bincount(request[part], minlength=len(chosen)), np.bincount(
        request[open_], minlength=len(chosen)
    )


def sectors_of(
    requests: Requests, accesses: Events, chosen: Array
) -> tuple[Array, Array]:
    """The numbers of the chosen requests and of the sectors that they touch, access by
    access.
    """
    mine = np.repeat(chosen, requests.lanes)
    of = np.repeat(np.arange(len(requests.first)), requests.lanes)[mine]
    begin = accesses.address[mine]
    return (
        np.tile(of, 2),
        np.concatenate([begin, begin + accesses.size[mine] - 1]) // SECTOR_BYTES,
    )


def packed(major: Array, minor: Array) -> Array:
    """A number for each pair of non-negative numbers, in their order."""
    return major.astype("i8") << int(minor.max(initial=0)).bit_length() | minor


def pairs(major: Array, minor: Array) -> tuple[Array, Array]:
    """The distinct pairs, sorted."""
    shift = int(minor.max(initial=0)).bit_length()
    both = np.unique(packed(major, minor))
    return both >> shift, both & (1 << shift) - 1
