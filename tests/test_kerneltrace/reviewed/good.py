"""Kernels as textbooks and libraries write them, in which there is nothing to remark."""

import math

import numpy as np
from numba import cuda, float32, float64

from tests.test_kerneltrace.reviewed.entry import Planted

N = 4096


def relu(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = max(x[i], float32(0))


def saxpy_grid_stride(a, x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] += a * x[i]


def transpose_padded(a, b):
    tile = cuda.shared.array((32, 33), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = 32 * cuda.blockIdx.x + tx, 32 * cuda.blockIdx.y + ty
    for k in range(0, 32, 8):
        tile[ty + k, tx] = a[row + k, column]
    cuda.syncthreads()
    column, row = 32 * cuda.blockIdx.y + tx, 32 * cuda.blockIdx.x + ty
    for k in range(0, 32, 8):
        b[row + k, column] = tile[tx, ty + k]


def product_in_tiles(a, b, c):
    left, right = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for first in range(0, a.shape[1], 16):
        left[ty, tx] = a[row, first + tx]
        right[ty, tx] = b[first + ty, column]
        cuda.syncthreads()
        for k in range(16):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    c[row, column] = total


def sum_of_a_block(x, y):
    sums = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        total += x[i]
    sums[t] = total
    cuda.syncthreads()
    s = 128
    while s > 0:
        if t < s:
            sums[t] += sums[t + s]
        cuda.syncthreads()
        s //= 2
    if t == 0:
        cuda.atomic.add(y, 0, sums[0])


def histogram_in_shared_memory(x, counts):
    mine = cuda.shared.array(256, np.int32)
    t = cuda.threadIdx.x
    mine[t] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(mine, x[i], 1)
    cuda.syncthreads()
    if mine[t] > 0:
        cuda.atomic.add(counts, t, mine[t])


def softmax_of_a_row(x, y):
    row, lane = cuda.blockIdx.x * 8 + cuda.threadIdx.y, cuda.threadIdx.x
    most = float32(-math.inf)
    for k in range(lane, x.shape[1], 32):
        most = max(most, x[row, k])
    for d in (16, 8, 4, 2, 1):
        most = max(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, d))
    total = float32(0)
    for k in range(lane, x.shape[1], 32):
        total += math.exp(x[row, k] - most)
    for d in (16, 8, 4, 2, 1):
        total += cuda.shfl_xor_sync(0xFFFFFFFF, total, d)
    for k in range(lane, x.shape[1], 32):
        y[row, k] = math.exp(x[row, k] - most) / total


def blur_with_a_halo(x, y):
    tile = cuda.shared.array(258, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    tile[t + 1] = x[i]
    if t == 0:
        tile[0] = x[i - 1] if i > 0 else float32(0)
    if t == 255:
        tile[257] = x[i + 1] if i + 1 < x.size else float32(0)
    cuda.syncthreads()
    y[i] = (tile[t] + tile[t + 1] + tile[t + 2]) / float32(3)


def rows_of_a_table(table, tokens, y):
    y[cuda.blockIdx.x, cuda.threadIdx.x] = table[tokens[cuda.blockIdx.x], cuda.threadIdx.x]


def heat_in_float64(u, v):
    i, j = cuda.grid(2)
    if 0 < i < u.shape[1] - 1 and 0 < j < u.shape[0] - 1:
        v[j, i] = u[j, i] + float64(0.1) * (u[j - 1, i] + u[j + 1, i] + u[j, i - 1] + u[j, i + 1] - 4 * u[j, i])


def maxima_of_2_by_2(x, y):
    i, j = cuda.grid(2)
    if i < y.shape[1] and j < y.shape[0]:
        best = x[2 * j, 2 * i]
        best = max(best, x[2 * j, 2 * i + 1])
        best = max(best, x[2 * j + 1, 2 * i])
        y[j, i] = max(best, x[2 * j + 1, 2 * i + 1])


def scan_of_a_block(x, y):
    sums = cuda.shared.array((2, 256), float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    now = 0
    sums[0, t] = x[i]
    cuda.syncthreads()
    d = 1
    while d < 256:
        before = sums[now, t]
        if t >= d:
            before += sums[now, t - d]
        now = 1 - now
        sums[now, t] = before
        cuda.syncthreads()
        d *= 2
    y[i] = sums[now, t]


def floats(*shape):
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def whole(high, n):
    return np.random.default_rng(6).integers(0, high, n).astype(np.int32)


def good(kernel, grid, block, args, **options):
    return Planted("", kernel, grid, block, args, options)


COPY = """__global__ void copy(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}"""
SUM = """__global__ void sum(const float* x, float* y, int n) {
    __shared__ float sums[32];
    float total = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) total += x[i];
    for (int d = 16; d > 0; d /= 2) total += __shfl_down_sync(0xffffffff, total, d);
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    if (lane == 0) sums[warp] = total;
    __syncthreads();
    if (warp == 0) {
        total = lane < blockDim.x / 32 ? sums[lane] : 0.0f;
        for (int d = 16; d > 0; d /= 2) total += __shfl_down_sync(0xffffffff, total, d);
        if (lane == 0) atomicAdd(y, total);
    }
}"""
TRANSPOSE = """__global__ void transpose(const float* a, float* b, int n) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = a[(y + k) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) b[(y + k) * n + x] = tile[threadIdx.x][threadIdx.y + k];
}"""
MATVEC = """__global__ void matvec(const float* a, const float* v, float* y, int n) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    float total = 0.0f;
    for (int k = threadIdx.x; k < n; k += 32) total += a[row * n + k] * v[k];
    for (int d = 16; d > 0; d /= 2) total += __shfl_xor_sync(0xffffffff, total, d);
    if (threadIdx.x == 0) y[row] = total;
}"""
DOT = """__global__ void dot(const double* x, const double* y, double* out, int n) {
    __shared__ double sums[256];
    double total = 0.0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) total += x[i] * y[i];
    sums[threadIdx.x] = total;
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
        if (threadIdx.x < s) sums[threadIdx.x] += sums[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}"""
NORM = """__global__ void norm(const float* x, const float* weight, float* y, int n) {
    __shared__ float sums[8];
    const float* row = x + blockIdx.x * n;
    float squares = 0.0f;
    for (int k = threadIdx.x; k < n; k += blockDim.x) squares += row[k] * row[k];
    for (int d = 16; d > 0; d /= 2) squares += __shfl_xor_sync(0xffffffff, squares, d);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = squares;
    __syncthreads();
    float total = 0.0f;
    for (int w = 0; w < 8; ++w) total += sums[w];
    float scale = rsqrtf(total / n + 1e-6f);
    for (int k = threadIdx.x; k < n; k += blockDim.x) y[blockIdx.x * n + k] = row[k] * scale * weight[k];
}"""
PRODUCT = """__global__ void product(const float* a, const float* b, float* c, int n) {
    __shared__ float left[32][32], right[32][32];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 32 + ty, column = blockIdx.x * 32 + tx;
    float total = 0.0f;
    for (int first = 0; first < n; first += 32) {
        left[ty][tx] = a[row * n + first + tx];
        right[ty][tx] = b[(first + ty) * n + column];
        __syncthreads();
        for (int k = 0; k < 32; ++k) total += left[ty][k] * right[k][tx];
        __syncthreads();
    }
    c[row * n + column] = total;
}"""
GELU = """__global__ void gelu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}"""
GOOD = [
    good(relu, 9, 256, lambda: (floats(2100), floats(2100))),
    good(saxpy_grid_stride, 4, 256, lambda: (float32(2), floats(N), floats(N))),
    good(transpose_padded, (2, 2), (32, 8), lambda: (floats(64, 64), floats(64, 64))),
    good(product_in_tiles, (2, 2), (16, 16), lambda: (floats(32, 64), floats(64, 32), floats(32, 32))),
    good(sum_of_a_block, 4, 256, lambda: (floats(N), np.zeros(1, np.float32))),
    good(histogram_in_shared_memory, 4, 256, lambda: (whole(256, N), whole(1, 256))),
    good(softmax_of_a_row, 2, (32, 8), lambda: (floats(16, 128), floats(16, 128))),
    good(blur_with_a_halo, 4, 256, lambda: (floats(1024), floats(1024))),
    good(rows_of_a_table, 8, 128, lambda: (floats(50, 128), whole(50, 8), floats(8, 128))),
    good(heat_in_float64, (2, 8), (32, 8), lambda: (floats(64, 64).astype(float), floats(64, 64).astype(float))),
    good(maxima_of_2_by_2, (2, 8), (32, 8), lambda: (floats(128, 128), floats(64, 64))),
    good(scan_of_a_block, 4, 256, lambda: (floats(1024), floats(1024))),
    good(COPY, 4, 256, lambda: (floats(N), floats(N), 1024)),
    good(SUM, 4, 256, lambda: (floats(N), np.zeros(1, np.float32), N)),
    good(TRANSPOSE, (2, 2), (32, 8), lambda: (floats(64, 64), floats(64, 64), 64)),
    good(MATVEC, 2, (32, 8), lambda: (floats(16, 256), floats(256), floats(16), 256)),
    good(DOT, 4, 256, lambda: (floats(N).astype(float), floats(N).astype(float), np.zeros(4), N)),
    good(NORM, 4, 256, lambda: (floats(4, 512), floats(512), floats(4, 512), 512)),
    good(PRODUCT, (2, 2), (32, 32), lambda: (floats(64, 64), floats(64, 64), floats(64, 64), 64)),
    good(GELU, 9, 256, lambda: (floats(2100), floats(2100), 2100)),
]
