"""Kernels as textbooks and libraries write them, in which there is
nothing to remark.
"""

import math

import numpy as np
from numba import cuda, float32, float64

from test_kerneltrace.reviewed.entry import Planted

N = 4096


def saxpy_grid_stride(a, x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] += a * x[i]


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
    row = cuda.blockIdx.x * 8 + cuda.threadIdx.y
    lane = cuda.threadIdx.x
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


def heat_in_float64(u, v):
    i, j = cuda.grid(2)
    if 0 < i < u.shape[1] - 1 and 0 < j < u.shape[0] - 1:
        v[j, i] = u[j, i] + float64(0.1) * (
            u[j - 1, i] + u[j + 1, i] + u[j, i - 1] + u[j, i + 1] - 4 * u[j, i]
        )


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
GOOD = [
    good(saxpy_grid_stride, 4, 256, lambda: (float32(2), floats(N), floats(N))),
    good(sum_of_a_block, 4, 256, lambda: (floats(N), np.zeros(1, np.float32))),
    good(histogram_in_shared_memory, 4, 256, lambda: (whole(256, N), whole(1, 256))),
    good(softmax_of_a_row, 2, (32, 8), lambda: (floats(16, 128), floats(16, 128))),
    good(
        heat_in_float64,
        (2, 8),
        (32, 8),
        lambda: (floats(64, 64).astype(float), floats(64, 64).astype(float)),
    ),
    good(COPY, 4, 256, lambda: (floats(N), floats(N), 1024)),
    good(SUM, 4, 256, lambda: (floats(N), np.zeros(1, np.float32), N)),
    good(
        DOT,
        4,
        256,
        lambda: (floats(N).astype(float), floats(N).astype(float), np.zeros(4), N),
    ),
]
