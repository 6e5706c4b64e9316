"""Blocks of a Pallas kernel: which of them move between HBM and VMEM, counted from the
index maps.

On a TPU the steps of a grid run in order, the last axis fastest. A block of an input is
fetched where its index differs from the step's before, and a block of the result is
written once its index changes (JAX's documentation, pallas/tpu/details).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from labkit import plot
from labkit.core.display import brief_repr
from labkit.core.errors import BadArgument
from labkit.plot import Picture

# of a product (m, n) = (m, k) @ (k, n), in the order that index maps return
ARRAYS = ("x", "w", "the result")
ELEMENT_BYTES = 4  # float32
Block = tuple[int, ...]
# blocks of x, w and the result in a step (i, j, k)
BlocksAt = Callable[[int, int, int], Sequence[Block]]


def grid_of(sides: Sequence[int], tile: int) -> tuple[int, ...]:
    """Blocks along each of a product's sides (m, n, k), the last ones not full."""
    return tuple(-(-side // tile) for side in sides)


def transfers(
    blocks_at: BlocksAt, grid: Sequence[int], order: Sequence[int] = (0, 1, 2)
) -> dict[str, int]:
    """How many blocks of each array move, for a grid (rows, columns, sums).

    `order` names the grid's axes from the slowest to the fastest. Raises BadArgument
    for an order that isn't one of the three axes.
    """
    if sorted(order) != [0, 1, 2]:
        raise BadArgument(
            f"Expected an order of the axes 0, 1 and 2, got {brief_repr(order)}."
        )
    moved = dict.fromkeys(ARRAYS, 0)
    before: dict[str, Any] = dict.fromkeys(ARRAYS)
    for turn in itertools.product(*(range(grid[axis]) for axis in order)):
        step = [0, 0, 0]
        for axis, index in zip(order, turn, strict=True):
            step[axis] = index
        for name, block in zip(ARRAYS, blocks_at(*step), strict=True):
            moved[name] += tuple(block) != before[name]
            before[name] = tuple(block)
    return moved


def moved_over_needed(
    blocks_at: BlocksAt, side: int, tile: int, order: Sequence[int] = (0, 1, 2)
) -> float:
    """Bytes that move for a product of two side x side matrices, over those that the
    three matrices have.
    """
    moved = transfers(blocks_at, grid_of((side,) * 3, tile), order)
    return sum(moved.values()) * tile**2 / (len(moved) * side**2)


def picture(blocks_at: BlocksAt, side: int = 1024) -> Picture:
    """MB that move for two side x side matrices of float32, by the side of a block."""
    lines: dict[str, dict[float, float]] = {
        "x and w, read": {},
        "the result, written": {},
        "all three, moved once": {},
    }
    for tile in (64, 128, 256, 512, 1024):
        block_mb = tile**2 * ELEMENT_BYTES / 1e6
        moved = transfers(blocks_at, grid_of((side,) * 3, tile))
        lines["x and w, read"][tile] = (moved["x"] + moved["w"]) * block_mb
        lines["the result, written"][tile] = moved["the result"] * block_mb
        lines["all three, moved once"][tile] = 3 * side**2 * ELEMENT_BYTES / 1e6
    title = f"Two {side:,} x {side:,} matrices (calculated)"
    return plot.scales(
        lines, x="side of a block", y="between HBM and VMEM", unit="MB", title=title
    )
