"""Plausible wrong answers of notebook 18: number -> (answer, words the check must say, misconception)."""

# ruff: noqa: N803 - kernels write constants in capitals

from exercises.nb18.kernels import load_rows, store_rows
from exercises.nb18.wrong_powers import POWERS
from kerneltrace.tiles import tl, triton

# -- 18.2


@triton.jit
def masked_lanes_are_zero(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + column
    row = tl.load(x + here, mask=column < columns, other=0.0)
    weights = tl.exp(row - tl.max(row, 0))
    tl.store(out + here, weights / tl.sum(weights, 0), mask=column < columns)


@triton.jit
def without_other(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + column
    row = tl.load(x + here, mask=column < columns)
    weights = tl.exp(row - tl.max(row, 0))
    tl.store(out + here, weights / tl.sum(weights, 0), mask=column < columns)


@triton.jit
def without_a_mask(x, out, columns, BLOCK: tl.constexpr):
    here = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    row = tl.load(x + here)
    weights = tl.exp(row - tl.max(row, 0))
    tl.store(out + here, weights / tl.sum(weights, 0))


@triton.jit
def stores_the_whole_tile(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + column
    row = tl.load(x + here, mask=column < columns, other=-float("inf"))
    weights = tl.exp(row - tl.max(row, 0))
    tl.store(out + here, weights / tl.sum(weights, 0))


@triton.jit
def without_the_largest(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + column
    weights = tl.exp(tl.load(x + here, mask=column < columns, other=-float("inf")))
    tl.store(out + here, weights / tl.sum(weights, 0), mask=column < columns)


@triton.jit
def rows_as_far_apart_as_tiles(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * BLOCK + column
    row = tl.load(x + here, mask=column < columns, other=-float("inf"))
    weights = tl.exp(row - tl.max(row, 0))
    tl.store(out + here, weights / tl.sum(weights, 0), mask=column < columns)


@triton.jit
def loads_three_times(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + column
    inside = column < columns
    top = tl.max(tl.load(x + here, mask=inside, other=-float("inf")), 0)
    total = tl.sum(tl.exp(tl.load(x + here, mask=inside, other=-float("inf")) - top), 0)
    tl.store(
        out + here,
        tl.exp(tl.load(x + here, mask=inside, other=0.0) - top) / total,
        mask=inside,
    )


@triton.jit
def a_tile_of_the_exact_length(x, out, columns, BLOCK: tl.constexpr):
    here = tl.program_id(0) * columns + tl.arange(0, columns)
    row = tl.load(x + here)
    weights = tl.exp(row - tl.max(row, 0))
    tl.store(out + here, weights / tl.sum(weights, 0))


@triton.jit
def not_divided(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + column
    row = tl.load(x + here, mask=column < columns, other=-float("inf"))
    tl.store(out + here, tl.exp(row - tl.max(row, 0)), mask=column < columns)


@triton.jit
def minus_the_mean(x, out, columns, BLOCK: tl.constexpr):
    """Smaller than the row's numbers, but not small where they lie far apart."""
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + column
    inside = column < columns
    row = tl.load(x + here, mask=inside, other=-float("inf"))
    mean = tl.sum(tl.where(inside, row, 0.0), 0) / columns
    weights = tl.exp(row - mean)
    tl.store(out + here, weights / tl.sum(weights, 0), mask=inside)


@triton.jit
def minus_the_smallest(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + column
    inside = column < columns
    row = tl.load(x + here, mask=inside, other=float("inf"))
    weights = tl.where(inside, tl.exp(row - tl.min(row, 0)), 0.0)
    tl.store(out + here, weights / tl.sum(weights, 0), mask=inside)


@triton.jit
def masked_lanes_are_minus_1000(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + column
    row = tl.load(x + here, mask=column < columns, other=-1000.0)
    weights = tl.exp(row - tl.max(row, 0))
    tl.store(out + here, weights / tl.sum(weights, 0), mask=column < columns)


@triton.jit
def stores_and_reads_back(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + column
    inside = column < columns
    row = tl.load(x + here, mask=inside, other=-float("inf"))
    tl.store(out + here, tl.exp(row - tl.max(row, 0)), mask=inside)
    tl.debug_barrier()
    weights = tl.load(out + here, mask=inside, other=0.0)
    tl.store(out + here, weights / tl.sum(weights, 0), mask=inside)


@triton.jit
def stores_into_x(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + column
    row = tl.load(x + here, mask=column < columns, other=-float("inf"))
    weights = tl.exp(row - tl.max(row, 0))
    tl.store(x + here, weights / tl.sum(weights, 0), mask=column < columns)


@triton.jit
def rounded_to_float16(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + column
    row = tl.load(x + here, mask=column < columns, other=-float("inf"))
    weights = tl.exp(row - tl.max(row, 0))
    result = (weights / tl.sum(weights, 0)).to(tl.float16)
    tl.store(out + here, result, mask=column < columns)


# -- 18.3


@triton.jit
def row_by_row(program, rows, columns, GROUP: tl.constexpr):
    return program // columns, program % columns


@triton.jit
def every_group_is_whole(program, rows, columns, GROUP: tl.constexpr):
    first = program // (GROUP * columns) * GROUP
    inside = program % (GROUP * columns)
    return first + inside % GROUP, inside // GROUP


@triton.jit
def row_and_column_swapped(program, rows, columns, GROUP: tl.constexpr):
    first = program // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    inside = program % (GROUP * columns)
    return inside // height, first + inside % height


@triton.jit
def right_before_down(program, rows, columns, GROUP: tl.constexpr):
    first = program // (GROUP * columns) * GROUP
    inside = program % (GROUP * columns)
    return first + inside // columns, inside % columns


@triton.jit
def group_by_the_rows(program, rows, columns, GROUP: tl.constexpr):
    first = program // (GROUP * rows) * GROUP
    height = min(rows - first, GROUP)
    inside = program % (GROUP * rows)
    return first + inside % height, inside // height


@triton.jit
def the_group_is_forgotten(program, rows, columns, GROUP: tl.constexpr):
    inside = program % (GROUP * columns)
    return inside % GROUP, inside // GROUP


@triton.jit
def counted_from_the_first_program(program, rows, columns, GROUP: tl.constexpr):
    """Right wherever the last group's height divides the programs before it, and in another order elsewhere."""
    first = program // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    return first + program % height, program % (GROUP * columns) // height


@triton.jit
def only_the_row(program, rows, columns, GROUP: tl.constexpr):
    return program // columns


def not_a_kernel(program, rows, columns, GROUP):
    first = program // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    inside = program % (GROUP * columns)
    return first + inside % height, inside // height


# -- 18.4


@triton.jit
def nothing_shrinks(top, total, mixed, scores, values):
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    return (
        higher,
        total + tl.sum(weights, 1),
        tl.dot(weights.to(values.dtype), values, mixed),
    )


@triton.jit
def only_the_total_shrinks(top, total, mixed, scores, values):
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    total = total * tl.exp(top - higher) + tl.sum(weights, 1)
    return higher, total, tl.dot(weights.to(values.dtype), values, mixed)


@triton.jit
def shrinks_the_wrong_way(top, total, mixed, scores, values):
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(tl.maximum(higher - top, 0.0))
    total = tl.where(top == -float("inf"), 0.0, total * shrink) + tl.sum(weights, 1)
    mixed = tl.where((top == -float("inf"))[:, None], 0.0, mixed * shrink[:, None])
    return higher, total, tl.dot(weights.to(values.dtype), values, mixed)


@triton.jit
def the_largest_of_the_tile(top, total, mixed, scores, values):
    higher = tl.max(scores, 1)
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(top - higher)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
    return higher, total * shrink + tl.sum(weights, 1), mixed


@triton.jit
def the_first_top_for_ever(top, total, mixed, scores, values):
    """Needs no scaling, and overflows when later scores are far above the first tile's."""
    higher = tl.where(top == -float("inf"), tl.max(scores, 1), top)
    weights = tl.exp(scores - higher[:, None])
    mixed = tl.dot(weights.to(values.dtype), values, mixed)
    return higher, total + tl.sum(weights, 1), mixed


@triton.jit
def the_newest_top(top, total, mixed, scores, values):
    """Right until a tile's scores are far below those before."""
    newest = tl.max(scores, 1)
    higher = tl.where(newest == -float("inf"), top, newest)
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(top - higher)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
    return higher, total * shrink + tl.sum(weights, 1), mixed


@triton.jit
def the_smallest_as_top(top, total, mixed, scores, values):
    newest = tl.min(scores, 1)
    higher = tl.maximum(top, newest)
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(top - higher)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
    return higher, total * shrink + tl.sum(weights, 1), mixed


@triton.jit
def mixed_in_float16(top, total, mixed, scores, values):
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(top - higher)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
    mixed = mixed.to(tl.float16).to(tl.float32)
    return higher, total * shrink + tl.sum(weights, 1), mixed


@triton.jit
def total_in_float16(top, total, mixed, scores, values):
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(top - higher)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
    total = (total * shrink + tl.sum(weights, 1)).to(tl.float16)
    return higher, total.to(tl.float32), mixed


@triton.jit
def float16_whatever_the_values(top, total, mixed, scores, values):
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(top - higher)
    mixed = tl.dot(weights.to(tl.float16), values, mixed * shrink[:, None])
    return higher, total * shrink + tl.sum(weights, 1), mixed


@triton.jit
def without_a_top(top, total, mixed, scores, values):
    weights = tl.exp(scores)
    return (
        top * 0.0,
        total + tl.sum(weights, 1),
        tl.dot(weights.to(values.dtype), values, mixed),
    )


@triton.jit
def one_top_for_all(top, total, mixed, scores, values):
    higher = tl.maximum(top, tl.max(scores))
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(top - higher)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
    return higher, total * shrink + tl.sum(weights, 1), mixed


@triton.jit
def along_the_queries(top, total, mixed, scores, values):
    higher = tl.maximum(top, tl.max(scores, 0))
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(top - higher)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
    return higher, total * shrink + tl.sum(weights, 1), mixed


@triton.jit
def operands_of_two_types(top, total, mixed, scores, values):
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(top - higher)
    mixed = tl.dot(weights, values, mixed * shrink[:, None])
    return higher, total * shrink + tl.sum(weights, 1), mixed


@triton.jit
def divides_in_every_tile(top, total, mixed, scores, values):
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(top - higher)
    total = total * shrink + tl.sum(weights, 1)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
    return higher, total, mixed / total[:, None]


@triton.jit
def nothing_is_returned(top, total, mixed, scores, values):
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    total = total * tl.exp(top - higher) + tl.sum(weights, 1)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * tl.exp(top - higher)[:, None])


# -- 18.5, and the merge of 18.4


@triton.jit
def merge(top, total, mixed, scores, values):
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(top - higher)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
    return higher, total * shrink + tl.sum(weights, 1), mixed


@triton.jit
def no_tile_is_skipped(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, tokens, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, -float("inf"))
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def without_a_causal_mask(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, tokens, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        scores = tl.where(key[None, :] < tokens, scores, -float("inf"))
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def skips_without_a_mask(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Right up to the tile on the diagonal, where half of the scores belong to later tokens."""
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * TILE, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def one_tile_short(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, tl.program_id(0) * TILE, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def scale_is_forgotten(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * TILE, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH)))
        scores = tl.where(key[None, :] <= query[:, None], scores, -float("inf"))
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def four_tiles_of_keys(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, min(tl.program_id(0) + 1, 4) * TILE, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, -float("inf"))
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def masked_scores_are_minus_100(
    q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr
):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * TILE, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, -100.0)
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def top_begins_with_zero(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = tl.full((TILE,), 0.0, tl.float32), tl.zeros((TILE,), tl.float32)
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * TILE, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, -float("inf"))
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def tiles_of_16(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    query = tl.program_id(0) * 16 + tl.arange(0, 16)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = tl.full((16,), -float("inf"), tl.float32), tl.zeros((16,), tl.float32)
    mixed = tl.zeros((16, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * 16, 16):
        key = start + tl.arange(0, 16)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, -float("inf"))
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def later_keys_count(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(tl.program_id(0) * TILE, tokens, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        seen = (key[None, :] >= query[:, None]) & (key[None, :] < tokens)
        scores = tl.where(seen, scores, -float("inf"))
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def masked_scores_are_zero(
    q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr
):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * TILE, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, 0.0)
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def keys_not_transposed(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * TILE, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, load_rows(k, key, tokens, WIDTH)) * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, -float("inf"))
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def queries_in_every_turn(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * TILE, TILE):
        key = start + tl.arange(0, TILE)
        mine = load_rows(q, query, tokens, WIDTH)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, -float("inf"))
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def steps_as_wide_as_a_head(
    q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr
):
    """Right while a head is as wide as a tile is long."""
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * TILE, WIDTH):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, -float("inf"))
        top, total, mixed = merge(top, total, mixed, scores, load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def keeps_the_newest_top(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """A merge of its own, which overflows where a tile's scores are far below the first's."""
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * TILE, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, -float("inf"))
        newest = tl.max(scores, 1)
        weights = tl.exp(scores - newest[:, None])
        shrink = tl.exp(top - newest)
        total = total * shrink + tl.sum(weights, 1)
        values = load_rows(v, key, tokens, WIDTH)
        mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
        top = newest
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def sums_in_float16(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total = (
        tl.full((TILE,), -float("inf"), tl.float32),
        tl.zeros((TILE,), tl.float32),
    )
    mixed = tl.zeros((TILE, WIDTH), tl.float16)
    for start in range(0, (tl.program_id(0) + 1) * TILE, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, -float("inf"))
        values = load_rows(v, key, tokens, WIDTH)
        top, total, sums = merge(top, total, mixed.to(tl.float32), scores, values)
        mixed = sums.to(tl.float16)
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


@triton.jit
def a_softmax_for_each_tile(
    q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr
):
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * TILE, TILE):
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, -float("inf"))
        weights = tl.exp(scores - tl.max(scores, 1)[:, None])
        weights = weights / tl.sum(weights, 1)[:, None]
        mixed += tl.dot(weights.to(tl.float16), load_rows(v, key, tokens, WIDTH))
    store_rows(out, query, tokens, mixed, WIDTH)


WRONG = {
    "18.2": [
        (masked_lanes_are_zero, "Masked lanes", "masked-lanes-are-absent"),
        (without_other, "left undefined", "masked-lanes-are-absent"),
        (without_a_mask, "program 1 stores it", "missing-guard"),
        (stores_the_whole_tile, "program 1 stores it", "missing-guard"),
        (without_the_largest, "take the largest", "exp-never-overflows"),
        (rows_as_far_apart_as_tiles, "outside of x", "right-for-one-case"),
        (loads_three_times, "numbers loaded by one program", "global-reads-repeated"),
        (a_tile_of_the_exact_length, "takes constants", "kernel-takes-any-python"),
        (not_divided, "expected", "other-formula"),
        (minus_the_mean, "take the largest", "exp-never-overflows"),
        (minus_the_smallest, "take the largest", "exp-never-overflows"),
        (masked_lanes_are_minus_1000, "Masked lanes", "masked-lanes-are-absent"),
        (stores_and_reads_back, "store a row once", "global-reads-repeated"),
        (stores_into_x, "x is an input", "input-is-mine"),
        (rounded_to_float16, "Close: is something rounded", "low-precision-is-enough"),
        (
            lambda x, out, columns, BLOCK: None,
            "@triton.jit above it",
            "result-of-another-kind",
        ),
    ],
    "18.3": [
        (row_by_row, "in another order", "other-formula"),
        (right_before_down, "in another order", "other-formula"),
        (every_group_is_whole, "There is no row 5", "rest-left-out"),
        (group_by_the_rows, "There is no row", "axes-swapped"),
        (row_and_column_swapped, "the other way round", "axes-swapped"),
        (the_group_is_forgotten, "have the same tile", "one-block-is-the-grid"),
        (counted_from_the_first_program, "in another order", "order-is-free"),
        (only_the_row, "two numbers, row and column", "result-of-another-kind"),
        (not_a_kernel, "@triton.jit above it", "result-of-another-kind"),
    ],
    "18.4": [
        (nothing_shrinks, "When top rises", "old-sums-stay-right"),
        (only_the_total_shrinks, "When top rises", "old-sums-stay-right"),
        (shrinks_the_wrong_way, "When top rises", "upside-down"),
        (the_largest_of_the_tile, "and top stays", "old-sums-stay-right"),
        (the_first_top_for_ever, "of all before", "exp-never-overflows"),
        (the_newest_top, "far below it", "old-sums-stay-right"),
        (the_smallest_as_top, "exp overflows", "exp-never-overflows"),
        (mixed_in_float16, "ends at 65,504", "low-precision-is-enough"),
        (total_in_float16, "small beside it", "low-precision-is-enough"),
        (float16_whatever_the_values, "two tiles of one type", "right-for-one-case"),
        (without_a_top, "exp(score - top)", "exp-never-overflows"),
        (one_top_for_all, "a top of its own", "one-scale-fits-all"),
        (along_the_queries, "a top of its own", "axes-swapped"),
        (operands_of_two_types, "two tiles of one type", "kernel-takes-any-python"),
        (nothing_is_returned, "Does it return all", "result-of-another-kind"),
        (divides_in_every_tile, "undivided", "sum-for-mean"),
    ],
    "18.5": [
        (no_tile_is_skipped, "end the loop before it", "padding-is-free"),
        (without_a_causal_mask, "attention without the mask", "edges-are-ordinary"),
        (skips_without_a_mask, "attention without the mask", "edges-are-ordinary"),
        (one_tile_short, "its own token", "off-by-one"),
        (scale_is_forgotten, "multiplied by scale", "other-formula"),
        (later_keys_count, "earlier keys count", "order-is-free"),
        (masked_scores_are_zero, "the weight exp(0)", "masked-lanes-are-absent"),
        (four_tiles_of_keys, "Queries before 64 are right", "right-for-one-case"),
        (masked_scores_are_minus_100, "masked lower still", "masked-lanes-are-absent"),
        (top_begins_with_zero, "top begins with -inf", "memory-starts-at-zero"),
        (tiles_of_16, "Is each row stored", "right-for-one-case"),
        (keys_not_transposed, "keys are transposed", "axes-swapped"),
        (queries_in_every_turn, "before the loop", "global-reads-repeated"),
        (steps_as_wide_as_a_head, "merge takes each tile of keys once", "axes-swapped"),
        (keeps_the_newest_top, "largest score so far", "old-sums-stay-right"),
        (sums_in_float16, "ends at 65,504", "low-precision-is-enough"),
        (a_softmax_for_each_tile, "merge takes each tile", "old-sums-stay-right"),
    ],
    "18.6": POWERS,
}
