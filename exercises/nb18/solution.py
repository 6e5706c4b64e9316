"""Solutions of notebook 18, one block an exercise."""

# ruff: noqa: F821 - each block runs in the notebook, after the cells above it


# %% 18.2
@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    """out = softmax of each row of x, a program a row; BLOCK is at least the columns."""
    column = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + column
    row = tl.load(x + here, mask=column < columns, other=-float("inf"))
    weights = tl.exp(row - tl.max(row, 0))  # exp(-inf) is 0: what is masked adds nothing
    tl.store(out + here, weights / tl.sum(weights, 0), mask=column < columns)


# %% 18.3
@triton.jit
def grouped(program, rows, columns, GROUP: tl.constexpr):
    """(row, column) of a program's tile: down GROUP rows, then the next column, and so on."""
    first = program // (GROUP * columns) * GROUP  # the group's top row
    height = min(rows - first, GROUP)  # the last group may be lower
    inside = program % (GROUP * columns)
    return first + inside % height, inside // height


# %% 18.4
@triton.jit
def merge(top, total, mixed, scores, values):
    """The state after one more tile of scores (queries, keys) and its values (keys, width)."""
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(top - higher)  # earlier sums are too large by this
    mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
    return higher, total * shrink + tl.sum(weights, 1), mixed


# %% 18.5
@triton.jit
def attention(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Causal attention: a tile of queries a program of axis 0, a head a program of axis 1."""
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top = tl.full((TILE,), -float("inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    mixed = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * TILE, TILE):  # no query sees a later tile
        key = start + tl.arange(0, TILE)
        scores = tl.dot(mine, tl.trans(load_rows(k, key, tokens, WIDTH))) * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, -float("inf"))
        values = load_rows(v, key, tokens, WIDTH)
        top, total, mixed = merge(top, total, mixed, scores, values)
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)


# %% 18.6
@triton.jit
def power(x):
    """2 ** x of a tile of float32, none above 0, by multiply-adds."""
    x = tl.maximum(x, -127.0)  # a masked score is -inf
    whole = tl.floor(x)
    f = x - whole
    value = ((0.077119 * f + 0.227564) * f + 0.695146) * f + 1.0
    bits = value.to(tl.int32, bitcast=True) + (whole.to(tl.int32) << 23)
    return bits.to(tl.float32, bitcast=True)
