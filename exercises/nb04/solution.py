"""Solutions of notebook 04, one block an exercise."""

# ruff: noqa: F821 - each block runs in the notebook, after the cells above it


# %% 04.1
def sectors(stride, offset, element_bytes):
    """Sectors of 32 bytes that move when 32 lanes read elements offset, offset + stride, ..."""
    return len({(offset + lane * stride) * element_bytes // 32 for lane in range(32)})


# %% 04.2
@cuda.jit
def add_bias(x, bias, out):
    """out[r, c] = x[r, c] + bias[c]; no sector of x or out moves twice."""
    column, row = cuda.grid(2)  # neighboring lanes: neighboring columns
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = x[row, column] + bias[column]


# %% 04.3
@cuda.jit
def padded(a, out):
    """out = a.T for any shape; blocks of 32 x 32 threads, a grid that covers a."""
    tile = cuda.shared.array((32, 33), float32)  # row i begins in bank i
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if row + y < a.shape[0] and column + x < a.shape[1]:
        tile[y, x] = a[row + y, column + x]
    cuda.syncthreads()
    if column + y < out.shape[0] and row + x < out.shape[1]:
        out[column + y, row + x] = tile[x, y]


# %% 04.5
@cuda.jit
def few_atomics(x, total):
    """total[0] += the sum of x; blocks of 256 threads, at least one thread per number."""
    sums = cuda.shared.array(8, float32)  # one for each warp
    i, t = cuda.grid(1), cuda.threadIdx.x
    mine = x[i] if i < x.size else float32(0)
    for step in range(5):  # 16, 8, 4, 2, 1 lanes further up
        mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, 16 >> step)
    if t % 32 == 0:
        sums[t // 32] = mine
    cuda.syncthreads()
    if t == 0:
        for warp in range(1, 8):
            mine += sums[warp]
        cuda.atomic.add(total, 0, mine)


# %% 04.6
@cuda.jit
def tiled_matmul(a, b, c):
    """c = a b for any sizes; blocks of 16 x 16 threads, one thread per element of c."""
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    product = float32(0)
    for first in range(0, a.shape[1], 16):
        in_a = row < a.shape[0] and first + x < a.shape[1]
        in_b = first + y < b.shape[0] and column < b.shape[1]
        tile_a[y, x] = a[row, first + x] if in_a else float32(0)
        tile_b[y, x] = b[first + y, column] if in_b else float32(0)
        cuda.syncthreads()
        for k in range(16):
            product += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = product
