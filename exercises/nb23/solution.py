"""Solutions of notebook 23, one block a puzzle: what they cost is par."""

# ruff: noqa: F821 - each block runs in the notebook, after the cells above it


# %% 23.1
@cuda.jit
def add_ten(x, out):
    """out[i] = x[i] + 10; as many threads as numbers."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    out[i] = x[i] + 10


# %% 23.2
@cuda.jit
def add(a, b, out):
    """out[i] = a[i] + b[i]; as many threads as numbers."""
    i = cuda.grid(1)
    out[i] = a[i] + b[i]


# %% 23.3
@cuda.jit
def double(x, out):
    """out[i] = 2 * x[i]; at least as many threads as numbers."""
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 2 * x[i]


# %% 23.4
@cuda.jit
def turn_signs(x, out):
    """out[row, column] = -x[row, column]; the grid covers x either way round."""
    column, row = cuda.grid(2)  # neighboring lanes: neighboring columns
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = -x[row, column]


# %% 23.5
@cuda.jit
def outer_sum(a, b, out):
    """out[row, column] = a[row] + b[column]; the grid covers out either way round."""
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = a[row] + b[column]


# %% 23.6
@cuda.jit
def size_of(x, out):
    """out[i] = abs(x[i]); any number of blocks and threads."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = abs(x[i])


# %% 23.7
@cuda.jit
def saxpy(a, x, y):
    """y = a * x + y, element by element of matrices; any number of blocks and threads."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        row = i // x.shape[1]
        column = i % x.shape[1]
        y[row, column] = a * x[row, column] + y[row, column]


# %% 23.8
@cuda.jit
def sum_of_five(x, out):
    """out[i] = x[i-2] + ... + x[i+2], of those that exist; blocks of 64 threads."""
    window = cuda.shared.array(68, float32)  # 64 numbers, and 2 more at each end
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    window[t + 2] = x[i] if i < x.size else float32(0)
    if t < 4:
        j = i - 2 if t < 2 else i + 62
        place = t if t < 2 else t + 64
        window[place] = x[j] if j >= 0 and j < x.size else float32(0)
    cuda.syncthreads()
    if i < x.size:
        out[i] = window[t] + window[t + 1] + window[t + 2] + window[t + 3] + window[t + 4]


# %% 23.9
@cuda.jit
def pool(x, out):
    """out[row, column] = the largest of 2 x 2 numbers of x; a thread a column of x."""
    column, row = cuda.grid(2)
    mine = float32(0)
    if 2 * row + 1 < x.shape[0] and column < x.shape[1]:
        mine = max(x[2 * row, column], x[2 * row + 1, column])
    neighbor = cuda.shfl_down_sync(0xFFFFFFFF, mine, 1)
    if column % 2 == 0 and row < out.shape[0] and column // 2 < out.shape[1]:
        out[row, column // 2] = max(mine, neighbor)


# %% 23.10
@cuda.jit
def transpose(x, out):
    """out = x.T for any shape; blocks of 32 x 32 threads, a grid that covers x."""
    tile = cuda.shared.array((32, 33), float32)  # row i begins in bank i
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + j < x.shape[0] and column + i < x.shape[1]:
        tile[j, i] = x[row + j, column + i]
    cuda.syncthreads()
    if column + j < out.shape[0] and row + i < out.shape[1]:
        out[column + j, row + i] = tile[i, j]


# %% 23.11
@cuda.jit
def dot(a, b, out):
    """out[block] = the sum of a[i] * b[i] over its 128 pairs, one a thread."""
    sums = cuda.shared.array(4, float32)  # one for each warp
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    mine = a[i] * b[i] if i < a.size else float32(0)
    for step in range(5):  # 16, 8, 4, 2, 1 lanes further up
        mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 16 >> step)
    if t % 32 == 0:
        sums[t // 32] = mine
    cuda.syncthreads()
    if t < 32:  # the first warp adds up what all four have
        mine = sums[t % 4]
        mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 2)
        mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 1)
    if t == 0:
        out[cuda.blockIdx.x] = mine


# %% 23.12
@cuda.jit
def running_sum(x, out):
    """out[i] = the sum of x from the block's first number to x[i]; blocks of 32 threads."""
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    mine = x[i] if i < x.size else float32(0)
    for step in range(5):  # from 1, 2, 4, 8, 16 lanes further down
        below = cuda.shfl_up_sync(0xFFFFFFFF, mine, 1 << step)
        if t >= 1 << step:
            mine += below
    if i < x.size:
        out[i] = mine


# %% 23.13
@cuda.jit
def histogram(values, counts):
    """counts[v] += 1 for every v of values, from 0 to 7; blocks of 256, a value a thread."""
    own = cuda.shared.array(8, int32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    if t < 8:
        own[t] = 0
    cuda.syncthreads()
    if i < values.size:
        cuda.atomic.add(own, values[i], 1)
    cuda.syncthreads()
    if t < 8:
        cuda.atomic.add(counts, t, own[t])


# %% 23.14
@cuda.jit
def matmul(a, b, c):
    """c = a b for any sizes; blocks of 16 x 16 threads, a thread an element of c."""
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for first in range(0, a.shape[1], 16):
        in_a = row < a.shape[0] and first + x < a.shape[1]
        in_b = first + y < b.shape[0] and column < b.shape[1]
        tile_a[y, x] = a[row, first + x] if in_a else float32(0)
        tile_b[y, x] = b[first + y, column] if in_b else float32(0)
        cuda.syncthreads()
        for k in range(16):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


# %% 23.15
@triton.jit
def square_tile(x, out, n, BLOCK: tl.constexpr):
    """out = x * x, a tile of BLOCK numbers a program; the last tile may be partly empty."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.store(out + at, values * values, mask=at < n)


# %% 23.16
@triton.jit
def row_sum(x, out, columns, BLOCK: tl.constexpr):
    """out[row] = the sum of that row of x, a program a row; BLOCK is at least the columns."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + column, mask=column < columns, other=0.0)
    tl.store(out + row, tl.sum(values, 0))


# %% 23.17
@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    """out = softmax of each row of x, a program a row; BLOCK is at least the columns."""
    column = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + column
    values = tl.load(x + at, mask=column < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + at, powers / tl.sum(powers, 0), mask=column < columns)


# %% 23.18
@triton.jit
def tile_matmul(a, b, c, rows, depth, columns, TILE: tl.constexpr):
    """c = a b for any sizes, a tile of TILE x TILE numbers of c a program."""
    lane = tl.arange(0, TILE)
    row = tl.program_id(0) * TILE + lane[:, None]
    column = tl.program_id(1) * TILE + lane[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for first in range(0, depth, TILE):
        along_a = first + lane[None, :]
        along_b = first + lane[:, None]
        in_a = (row < rows) & (along_a < depth)
        in_b = (along_b < depth) & (column < columns)
        tile_a = tl.load(a + row * depth + along_a, mask=in_a, other=0.0)
        tile_b = tl.load(b + along_b * columns + column, mask=in_b, other=0.0)
        total = tl.dot(tile_a, tile_b, total)
    tl.store(c + row * columns + column, total, mask=(row < rows) & (column < columns))


# %% 23.19
@triton.jit
def layer_norm(x, weight, bias, out, columns, BLOCK: tl.constexpr):
    """out = (x - mean) / sqrt(variance + 1e-5) * weight + bias, a program a row of x."""
    column = tl.arange(0, BLOCK)
    inside = column < columns
    at = tl.program_id(0) * columns + column
    values = tl.load(x + at, mask=inside, other=0.0)
    away = tl.where(inside, values - tl.sum(values, 0) / columns, 0.0)
    scale = 1 / tl.sqrt(tl.sum(away * away, 0) / columns + 1e-5)
    w = tl.load(weight + column, mask=inside, other=0.0)
    b = tl.load(bias + column, mask=inside, other=0.0)
    tl.store(out + at, away * scale * w + b, mask=inside)


# %% 23.20
@triton.jit
def attention(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """out = softmax(q kᵀ × scale) v of all tokens, a tile of TILE queries a program."""
    query = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mine = load_rows(q, query, tokens, WIDTH)
    top, total, mixed = nothing_yet(TILE, WIDTH)
    for first in range(0, tokens, TILE):
        key = first + tl.arange(0, TILE)
        keys = load_rows(k, key, tokens, WIDTH)
        values = load_rows(v, key, tokens, WIDTH)
        scores = tl.dot(mine, tl.trans(keys)) * scale
        scores = tl.where(key[None, :] < tokens, scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(top - higher)  # of what was added up before
        total = total * shrink + tl.sum(weights, 1)
        mixed = tl.dot(weights.to(tl.float16), values, mixed * shrink[:, None])
        top = higher
    store_rows(out, query, tokens, mixed / total[:, None], WIDTH)
