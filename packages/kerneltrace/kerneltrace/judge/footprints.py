"""The memory that a block loads and stores: its sectors, which of them are its own, in
pieces of which length.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kerneltrace.judge.counts import Requests
from kerneltrace.machine.chosen_blocks import ChosenBlocks
from kerneltrace.machine.events import SECTOR_BYTES, Access, Events
from kerneltrace.machine.traced_memory import Array

PIECE_BYTES = 1024
"""Of memory that is touched together, from which on its DRAM pages are used well: a
page of HBM2 (JESD235).
"""


@dataclass(frozen=True)
class Footprint:
    """The distinct sectors of one array that a block loads or stores, in bytes, and how
    many of them are its own.

    `own` has a share for each axis of the grid: 0 where a block's neighbor along that
    axis touches the same sectors, 1 where it touches others (or where the traced grid
    has no neighbor, so that nothing is known).
    """

    array: int
    """Its number among the trace's arrays."""
    kind: Access
    n_bytes: float
    own: tuple[float, float, float]
    alone: float = 0.0
    """Bytes that a block moves whatever its neighbors touch: sectors of which it
    stores only a part.
    """
    scattered: bool = False
    """Whether it lies in pieces below PIECE_BYTES, to which the block's neighbors
    along x, which run with it, add none.
    """

    def of_blocks(self, extent: tuple[int, ...]) -> float:
        """Bytes of the distinct sectors of a box of blocks."""
        times = [1 + own * (n - 1) for own, n in zip(self.own, extent, strict=True)]
        return self.n_bytes * math.prod(times)


def footprints(
    chosen_blocks: ChosenBlocks,
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

    Atomics read and write their sectors. `times` has for each request how often the
    grid makes it. `alone` has for each request the sectors of
    which its block stores a part.
    """
    blocks = chosen_blocks.of_grid
    # by array
    alone_bytes = np.bincount(names, SECTOR_BYTES * alone * times) / blocks
    names = names[owner]
    block = block[owner]
    kind = kind[owner]
    times = times[owner]
    weight = chosen_blocks.weights_of(block)  # (pairs,)
    block_rows = chosen_blocks.rows()
    in_row = [np.isin(block, row) for row in block_rows]
    first_block = block_rows[0][0]
    of_arrays = []
    for name, access in sorted(set(zip(names.tolist(), kind.tolist(), strict=True))):
        chosen = (names == name) & (kind == access)
        distinct = packed(block[chosen], sectors[chosen])
        once = np.unique(distinct, return_index=True)[1]
        total = float(weight[chosen][once].sum()) / blocks
        rows = [np.unique(sectors[chosen & mask]) for mask in in_row]
        x, y, z = (
            min(max((len(row) / total - 1) / (n - 1), 0.0), 1.0) if n > 1 else 1.0
            for row, n in zip(rows, map(len, block_rows), strict=True)
        )
        turns = float(times[chosen].sum() / weight[chosen].sum())
        n_bytes = SECTOR_BYTES * total * turns
        if access == Access.ATOMIC:
            n_bytes *= 2
        of_block = _pieces(np.unique(sectors[chosen & (block == first_block)]))
        fewest = max(of_block, SECTOR_BYTES * len(rows[0]) / PIECE_BYTES)
        of_arrays.append(
            Footprint(
                name,
                Access(access),
                n_bytes,
                own=(x, y, z),
                alone=float(alone_bytes[name]) if access == Access.STORE else 0.0,
                scattered=len(block_rows[0]) > 1 and _pieces(rows[0]) > fewest,
            )
        )
    return tuple(of_arrays)


def _pieces(sectors: Array) -> int:
    """The number of pieces without gaps that sorted distinct sectors make."""
    return int((np.diff(sectors) > 1).sum()) + 1


def stored_in_part(
    requests: Requests, accesses: Events, chosen: Array
) -> tuple[Array, Array]:
    """Of each chosen request the sectors of which it stores a part, and those of them
    that its block never fills.
    """
    n = len(chosen)
    mask = np.repeat(chosen, requests.lanes)
    request = np.repeat(np.arange(n), requests.lanes)[mask]
    address = accesses.address[mask]
    size = accesses.size[mask]
    block = accesses.block[mask]
    sector = address // SECTOR_BYTES
    part = _not_full(packed(request, sector), size)
    # of a block, each address counts once
    once = np.unique(packed(block, address), return_index=True)[1]
    open_ = once[_not_full(packed(block, sector)[once], size[once])]
    return (
        np.bincount(request[part], minlength=n),
        np.bincount(request[open_], minlength=n),
    )


def _not_full(sector: Array, size: Array) -> Array:
    """The number of the first access to each sector that accesses of these sizes don't
    fill.
    """
    _, first, which = np.unique(sector, return_index=True, return_inverse=True)
    return first[np.bincount(which, size) < SECTOR_BYTES]


def sectors_of(
    requests: Requests, accesses: Events, chosen: Array
) -> tuple[Array, Array]:
    """The numbers of the chosen requests and of the sectors that they touch, access by
    access.
    """
    mask = np.repeat(chosen, requests.lanes)
    owner = np.repeat(np.arange(len(chosen), dtype="i4"), requests.lanes)[mask]
    chosen_accesses = accesses.only(mask)
    begin = chosen_accesses.address
    end = (begin + chosen_accesses.size - 1) // SECTOR_BYTES
    begin //= SECTOR_BYTES
    over = end != begin
    if not over.any():
        return owner, begin
    return (
        np.concatenate([owner, owner[over]]),
        np.concatenate([begin, end[over]]),
    )


def packed(major: Array, minor: Array) -> Array:
    """A number for each pair of non-negative numbers, in their order."""
    return major.astype("i8") << int(minor.max(initial=0)).bit_length() | minor


def pairs(major: Array, minor: Array) -> tuple[Array, Array]:
    """The distinct pairs, sorted."""
    shift = int(minor.max(initial=0)).bit_length()
    both = np.unique(packed(major, minor))
    return both >> shift, both & (1 << shift) - 1
