"""What exercise 21.2b asks of a matrix product in Pallas: its index maps, step by step,
and its sums, for sizes that fill their blocks and for others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exercises.nb21.traffic import ARRAYS, grid_of
from labkit.core.arguments import is_whole
from labkit.core.display import brief_repr
from labkit.lesson.answers import parts
from labkit.lesson.checks import NotYet, call

# rows of x, columns of w, columns of x, and the side of a block
SIZES = (
    (8, 8, 8, 8),
    (8, 16, 24, 8),
    (9, 5, 8, 8),
    (8, 8, 20, 8),
    (1, 1, 1, 4),
    (13, 6, 21, 4),
)
_INDEXED_BY = {
    "x": "its rows are cut like the result's, its columns like the sums",
    "w": "its rows are cut like the sums, its columns like the result's",
    "the result": "its rows are those of x, its columns those of w, for every k",
}


def judge_maps(blocks_at: Callable[..., Any]) -> None:
    """Raise NotYet unless the index maps give each step of a grid its blocks."""
    for step in itertools.product(range(2), range(3), range(4)):
        case = f"grid step {step}"
        i, j, k = step
        right = {"x": (i, k), "w": (k, j), "the result": (i, j)}
        answer = call(blocks_at, *step)
        pairs = parts(answer, 3, "the blocks of x, of w and of the result", case)
        for name, pair in zip(ARRAYS, pairs, strict=True):
            block = parts(pair, 2, f"the block of {name} (row, column)", case)
            if not all(map(is_whole, block)):
                raise NotYet(
                    f"For {case}: expected whole numbers for the block of {name}, got"
                    f" {brief_repr(pair)}."
                )
            if tuple(block) != right[name]:
                raise NotYet(
                    f"For {case}: the block of {name} is {tuple(block)}, expected"
                    f" {right[name]}: {_INDEXED_BY[name]}."
                )


def judge_kernel(
    by_blocks: Callable[..., Any], blocks_at: Any, kernel: Callable[..., Any]
) -> None:
    """Raise NotYet unless the kernel's products are NumPy's, for all sizes."""
    draw = np.random.default_rng(2122)
    for rows, columns, depth, tile in SIZES:
        x = draw.normal(size=(rows, depth)).astype(np.float32)
        w = draw.normal(size=(depth, columns)).astype(np.float32)

        def product(x: Any, w: Any, tile: int = tile) -> Any:
            return np.asarray(by_blocks(kernel, blocks_at, x, w, tile))

        product.__name__ = "pallas_call"
        case = f"({rows}, {depth}) @ ({depth}, {columns}) in blocks of {tile} x {tile}"
        got = call(product, x, w)
        if not np.allclose(got, x @ w, rtol=1e-4, atol=1e-4):
            raise NotYet(f"For {case}: {_what_is_wrong(got, x, w, tile)}")


def _what_is_wrong(
    got: NDArray[Any], x: NDArray[Any], w: NDArray[Any], tile: int
) -> str:
    depth = x.shape[1]
    (n_blocks,) = grid_of((depth,), tile)
    last = tile * (n_blocks - 1)
    if np.allclose(got, x[:, last:] @ w[last:], rtol=1e-4, atol=1e-4):
        return (
            "only the last block of each sum is left. The kernel runs once for each k:"
            " it has to add to what is there, and to begin with 0 at k = 0 alone."
        )
    if np.isnan(got).any():
        if depth % tile == 0:
            return (
                "the result is NaN. Its block holds garbage until something is written:"
                " set it to 0 where pl.program_id(2) is 0, then add to out_ref[:]."
            )
        return (
            "the result is NaN. Where `inside` is False, the blocks of x and of w hold"
            " garbage, and NaN times 0 is NaN: replace it by 0 in both."
        )
    return f"the result is off by up to {np.abs(got - x @ w).max():.3g}."
