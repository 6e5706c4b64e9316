"""A matmul in cuTile: tiles by their place in an array, without pointers or masks."""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, D103, N803

import cuda.tile as ct


@ct.kernel
def matmul(a, b, c, TILE: ct.Constant[int], DEPTH: ct.Constant[int]):
    row = ct.bid(0)
    column = ct.bid(1)
    total = ct.full((TILE, TILE), 0, ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(TILE, DEPTH))):
        part_a = ct.load(a, index=(row, k), shape=(TILE, DEPTH))
        part_b = ct.load(b, index=(k, column), shape=(DEPTH, TILE))
        total = ct.mma(part_a, part_b, total)
    ct.store(c, index=(row, column), tile=total.astype(c.dtype))
