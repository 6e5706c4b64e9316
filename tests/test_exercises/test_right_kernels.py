"""Right kernels of other styles than the solutions' of notebooks 03 and 04: each must pass."""

import pytest
from numba import cuda, float32, int32

from tests.helpers import check

# ruff: noqa: SIM102
pytestmark = pytest.mark.slow  # traces each kernel at several sizes


@cuda.jit
def returns_early(x, out):
    where = cuda.threadIdx.x + cuda.blockDim.x * cuda.blockIdx.x
    if where >= x.shape[0]:
        return
    value = x[where]
    out[where] = value + value


@cuda.jit
def loops_over_its_share(x, out):
    for i in range(cuda.grid(1), len(x), cuda.gridsize(1)):
        out[i] = 2 * x[i]


@cuda.jit(device=True)
def clip(v):
    return v if v > float32(0) else float32(0)


@cuda.jit
def through_a_device_function(x, out):
    me = cuda.grid(1)
    while me < x.size:
        out[me] = clip(x[me])
        me += cuda.gridsize(1)


@cuda.jit
def leaves_an_endless_loop(x, out):
    step = cuda.blockDim.x * cuda.gridDim.x
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    while True:
        if i >= x.size:
            break
        out[i] = (x[i] + abs(x[i])) * float32(0.5)
        i += step


@cuda.jit
def counts_down(x, out):
    for i in range(x.size - 1 - cuda.grid(1), -1, -cuda.gridsize(1)):
        out[i] = max(float32(0), x[i])


@cuda.jit
def a_stretch_a_block(x, out):
    per = (x.size + cuda.gridDim.x - 1) // cuda.gridDim.x
    first = cuda.blockIdx.x * per
    for i in range(first + cuda.threadIdx.x, min(first + per, x.size), cuda.blockDim.x):
        out[i] = x[i] * (x[i] > 0)


@cuda.jit
def counts_of_each_block(values, counts):
    mine = cuda.shared.array(8, int32)
    t = cuda.threadIdx.x
    for k in range(t, 8, cuda.blockDim.x):
        mine[k] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(mine, values[i], 1)
    cuda.syncthreads()
    for k in range(t, 8, cuda.blockDim.x):
        if mine[k]:
            cuda.atomic.add(counts, k, mine[k])


@cuda.jit
def swaps_until_it_counts(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        v = values[i]
        old = counts[v]
        while True:
            seen = cuda.atomic.cas(counts, v, old, old + 1)
            if seen == old:
                break
            old = seen


@cuda.jit
def subtracts_minus_one(values, counts):
    i = cuda.grid(1)
    if values.size > i:
        cuda.atomic.sub(counts, values[i], -1)


@cuda.jit
def compares_with_each_count(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        for k in range(counts.size):
            if values[i] == k:
                cuda.atomic.add(counts, k, 1)


@cuda.jit
def fuses(a, x, y):
    n = x.size
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        y[i] = cuda.fma(a, x[i], y[i])


@cuda.jit
def adds_in_place(a, x, y):
    start, stride = (cuda.grid(1), cuda.gridsize(1))
    for i in range(start, y.size, stride):
        y[i] += x[i] * a


@cuda.jit
def nine_offsets(image, out):
    i, j = cuda.grid(2)
    h, w = image.shape
    if i >= w or j >= h:
        return
    s = float32(0)
    n = 0
    for k in range(9):
        r, c = (j + k // 3 - 1, i + k % 3 - 1)
        if r >= 0 and r < h and (c >= 0) and (c < w):
            s += image[r, c]
            n += 1
    out[j, i] = s / n


@cuda.jit
def sides_worked_out_first(image, out):
    row = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    col = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if row < image.shape[0]:
        if col < image.shape[1]:
            top, bottom = (max(0, row - 1), min(image.shape[0] - 1, row + 1))
            left, right_ = (max(0, col - 1), min(image.shape[1] - 1, col + 1))
            acc = 0.0
            for r in range(top, bottom + 1):
                for c in range(left, right_ + 1):
                    acc += image[r, c]
            out[row, col] = acc / ((bottom - top + 1) * (right_ - left + 1))


@cuda.jit
def tile_with_a_halo(image, out):
    tile = cuda.shared.array((18, 18), float32)
    tx, ty = (cuda.threadIdx.x, cuda.threadIdx.y)
    x, y = cuda.grid(2)
    h, w = image.shape
    bx, by = (cuda.blockIdx.x * cuda.blockDim.x, cuda.blockIdx.y * cuda.blockDim.y)
    for r in range(ty, cuda.blockDim.y + 2, cuda.blockDim.y):
        for c in range(tx, cuda.blockDim.x + 2, cuda.blockDim.x):
            gr, gc = (by + r - 1, bx + c - 1)
            tile[r, c] = image[gr, gc] if 0 <= gr < h and 0 <= gc < w else float32(0)
    cuda.syncthreads()
    if y < h and x < w:
        s = float32(0)
        for r in range(3):
            for c in range(3):
                s += tile[ty + r, tx + c]
        rows = min(y + 1, h - 1) - max(y - 1, 0) + 1
        cols = min(x + 1, w - 1) - max(x - 1, 0) + 1
        out[y, x] = s / float32(rows * cols)


@cuda.jit
def a_guard_for_each_axis(x, bias, out):
    c, r = cuda.grid(2)
    rows, cols = x.shape
    if c < cols:
        if r < rows:
            b = bias[c]
            out[r, c] = b + x[r, c]


@cuda.jit
def bias_in_shared_memory(x, bias, out):
    s = cuda.shared.array(32, float32)
    c, r = cuda.grid(2)
    if cuda.threadIdx.y == 0 and c < bias.size:
        s[cuda.threadIdx.x] = bias[c]
    cuda.syncthreads()
    if r < x.shape[0] and c < x.shape[1]:
        out[r, c] = x[r, c] + s[cuda.threadIdx.x]


@cuda.jit
def swizzled(a, out):
    tile = cuda.shared.array((32, 32), float32)
    tx, ty = (cuda.threadIdx.x, cuda.threadIdx.y)
    c, r = cuda.grid(2)
    if r < a.shape[0] and c < a.shape[1]:
        tile[ty, tx ^ ty] = a[r, c]
    cuda.syncthreads()
    c = cuda.blockIdx.y * 32 + tx
    r = cuda.blockIdx.x * 32 + ty
    if r < out.shape[0] and c < out.shape[1]:
        out[r, c] = tile[tx, ty ^ tx]


@cuda.jit
def skewed(a, out):
    tile = cuda.shared.array(32 * 32, float32)
    tx, ty = (cuda.threadIdx.x, cuda.threadIdx.y)
    c, r = cuda.grid(2)
    if r < a.shape[0] and c < a.shape[1]:
        tile[32 * ty + (tx + ty) % 32] = a[r, c]
    cuda.syncthreads()
    c, r = (cuda.blockIdx.y * 32 + tx, cuda.blockIdx.x * 32 + ty)
    if r < out.shape[0] and c < out.shape[1]:
        out[r, c] = tile[32 * tx + (ty + tx) % 32]


@cuda.jit
def padded_35(a, out):
    tile = cuda.shared.array((32, 35), float32)
    tx, ty = (cuda.threadIdx.x, cuda.threadIdx.y)
    c, r = cuda.grid(2)
    if r < a.shape[0] and c < a.shape[1]:
        tile[tx, ty] = a[r, c]
    cuda.syncthreads()
    c, r = (cuda.blockIdx.y * 32 + tx, cuda.blockIdx.x * 32 + ty)
    if r < out.shape[0] and c < out.shape[1]:
        out[r, c] = tile[ty, tx]


@cuda.jit
def halves(x, total):
    s = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    acc = float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        acc += x[i]
    s[t] = acc
    n = 128
    while n:
        cuda.syncthreads()
        if t < n:
            s[t] += s[t + n]
        n >>= 1
    if t == 0:
        cuda.atomic.add(total, 0, s[0])


@cuda.jit
def butterflies(x, total):
    part = cuda.shared.array(8, float32)
    t, i = (cuda.threadIdx.x, cuda.grid(1))
    v = float32(0)
    if i < x.size:
        v = x[i]
    d = 1
    while d < 32:
        v += cuda.shfl_xor_sync(-1, v, d)
        d *= 2
    if cuda.laneid == 0:
        part[t >> 5] = v
    cuda.syncthreads()
    if t < 32:
        v = part[t] if t < 8 else float32(0)
        for d in (4, 2, 1):
            v += cuda.shfl_xor_sync(4294967295, v, d)
        if t == 0:
            cuda.atomic.add(total, 0, v)


@cuda.jit
def halves_then_warp(x, total):
    s = cuda.shared.array(256, float32)
    t, i = (cuda.threadIdx.x, cuda.grid(1))
    s[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    for n in (128, 64, 32):
        if t < n:
            s[t] += s[t + n]
        cuda.syncthreads()
    if t < 32:
        v = s[t]
        for n in (16, 8, 4, 2, 1):
            v += cuda.shfl_down_sync(4294967295, v, n)
        if t == 0:
            cuda.atomic.add(total, 0, v)


@cuda.jit
def padded_tiles(a, b, c):
    tile_a, tile_b = (cuda.shared.array((16, 17), float32), cuda.shared.array((16, 17), float32))
    tx, ty = (cuda.threadIdx.x, cuda.threadIdx.y)
    col, row = cuda.grid(2)
    acc = float32(0)
    for p in range((a.shape[1] + 15) // 16):
        k0 = 16 * p
        if row < a.shape[0] and k0 + tx < a.shape[1]:
            tile_a[ty, tx] = a[row, k0 + tx]
        else:
            tile_a[ty, tx] = 0
        if k0 + ty < b.shape[0] and col < b.shape[1]:
            tile_b[ty, tx] = b[k0 + ty, col]
        else:
            tile_b[ty, tx] = 0
        cuda.syncthreads()
        for k in range(min(16, a.shape[1] - k0)):
            acc = cuda.fma(tile_a[ty, k], tile_b[k, tx], acc)
        cuda.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = acc


@cuda.jit
def double_buffered(a, b, c):
    tile_a, tile_b = (cuda.shared.array((2, 16, 16), float32), cuda.shared.array((2, 16, 16), float32))
    tx, ty = (cuda.threadIdx.x, cuda.threadIdx.y)
    col, row = cuda.grid(2)
    acc = float32(0)
    now = 0
    for k0 in range(0, a.shape[1], 16):
        tile_a[now, ty, tx] = a[row, k0 + tx] if row < a.shape[0] and k0 + tx < a.shape[1] else float32(0)
        tile_b[now, ty, tx] = b[k0 + ty, col] if k0 + ty < b.shape[0] and col < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(16):
            acc += tile_a[now, ty, k] * tile_b[now, k, tx]
        now = 1 - now
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = acc


RIGHT = [
    ("03.1", returns_early),
    ("03.1", loops_over_its_share),
    ("03.2", through_a_device_function),
    ("03.2", leaves_an_endless_loop),
    ("03.2", counts_down),
    ("03.2", a_stretch_a_block),
    ("03.5", counts_of_each_block),
    ("03.5", swaps_until_it_counts),
    ("03.5", subtracts_minus_one),
    ("03.5", compares_with_each_count),
    ("03.6", fuses),
    ("03.6", adds_in_place),
    ("03.7", nine_offsets),
    ("03.7", sides_worked_out_first),
    ("03.7", tile_with_a_halo),
    ("04.2", a_guard_for_each_axis),
    ("04.2", bias_in_shared_memory),
    ("04.3", swizzled),
    ("04.3", skewed),
    ("04.3", padded_35),
    ("04.5", halves),
    ("04.5", butterflies),
    ("04.5", halves_then_warp),
    ("04.6", padded_tiles),
    ("04.6", double_buffered),
]


@pytest.mark.parametrize(("number", "kernel"), RIGHT, ids=lambda value: getattr(value, "__name__", value))
def test_a_right_kernel_of_another_style_passes(number, kernel):
    outcome = check(number, kernel)
    assert outcome.state == "passed", str(outcome)
