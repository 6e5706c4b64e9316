"""What puzzle 20 is given: rows of a matrix as a tile, and sums of nothing."""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, N803 - Triton evaluates annotations

from kerneltrace.tiles import tl, triton


@triton.jit
def load_rows(x, row, rows, WIDTH: tl.constexpr):
    """The rows `row` of x, which has the shape (rows, WIDTH), and 0 for rows that don't
    exist.
    """
    at = row[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    return tl.load(x + at, mask=row[:, None] < rows, other=0.0)


@triton.jit
def store_rows(x, row, rows, tile, WIDTH: tl.constexpr):
    """Store a tile into the rows `row` of x, as far as they exist."""
    at = row[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(x + at, tile, mask=row[:, None] < rows)


@triton.jit
def nothing_yet(TILE: tl.constexpr, WIDTH: tl.constexpr):
    """The largest score, the sum of weights, and that of weights times values, of TILE
    queries that have met no key.
    """
    top = tl.zeros((TILE,), tl.float32) - float("inf")
    total = tl.zeros((TILE,), tl.float32)
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    return top, total, mixed
