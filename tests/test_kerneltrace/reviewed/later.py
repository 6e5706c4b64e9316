"""Further kernels, written after what the first ones showed had been mended."""

import math

import numpy as np
from numba import cuda, float32, float64

from tests.test_kerneltrace.reviewed.entry import Planted

N = 2048


def floats(*shape):
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


def whole(high, *shape):
    return np.random.default_rng(8).integers(0, high, shape).astype(np.int32)


def mean_of_rows(x, y):
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k, cuda.grid(1)]  # here
    y[cuda.grid(1)] = total


def scaled_by_the_root_of_a_size(x, y):
    i = cuda.grid(1)
    y[i] = x[i] / math.sqrt(x.size)  # here


def products_added_to_a_double(x, y):
    total, i = 0.0, cuda.grid(1)
    for k in range(8):
        total += x[k, i] * x[k, i]  # here
    y[i] = total


def doubles_by_columns(x, y):
    tile = cuda.shared.array((32, 32), float64)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    tile[j, i] = x[32 * cuda.blockIdx.x + j, i]
    cuda.syncthreads()
    y[32 * cuda.blockIdx.x + j, i] = tile[i, j]  # here


def eight_apart(x, y):
    buffer = cuda.shared.array(2048, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    buffer[8 * t] = x[i]  # here
    cuda.syncthreads()
    y[i] = buffer[8 * (255 - t)]


def channels_last(x, y):
    c, p = cuda.threadIdx.x, cuda.blockIdx.x
    y[p, c] = x[c, p]  # here


def shuffled_by_a_stride(x, y):
    i = cuda.grid(1)
    y[i] = x[17 * i % x.size]  # here


def largest(x, y):
    cuda.atomic.max(y, 0, x[cuda.grid(1)])  # here


def counters_of_its_own(x, y):
    mine = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    mine[t] = float32(0)
    for k in range(8):
        cuda.atomic.add(mine, t, x[256 * k + t])  # here
    y[cuda.grid(1)] = mine[t]


def three_barriers(x, y):
    tile = cuda.shared.array(256, float32)
    t, total = cuda.threadIdx.x, float32(0)
    for first in range(0, x.size, 256):
        tile[t] = x[first + t]
        cuda.syncthreads()
        total += tile[255 - t]
        cuda.syncthreads()
        total *= float32(0.5)
        cuda.syncthreads()  # here
    y[cuda.grid(1)] = total


def by_sign(x, y):
    i = cuda.grid(1)
    v = x[i]
    if v > float32(0):  # here
        for _ in range(40):
            v = math.sin(v) + float32(1)
    else:
        for _ in range(40):
            v = math.exp(-v * v)
    y[i] = v


def escapes(x, y):
    i = cuda.grid(1)
    z, n = abs(x[i]), 0
    while z < float32(10):  # here
        z = z * float32(1.01) + float32(0.01)
        n += 1
    y[i] = n


def all_of_it(x, y):
    tile = cuda.shared.array(0, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    tile[t] = x[i]
    cuda.syncthreads()
    y[i] = tile[127 - t] * float32(2)


def one_block(x, y):
    total = float32(0)
    for i in range(cuda.threadIdx.x, x.size, 256):
        total += x[i]  # here
    y[cuda.threadIdx.x] = total


TENTHS = """__global__ void tenths(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0.0f;
    for (int k = 0; k < 8; ++k)
        s += x[(i + k * 64) % n] * 0.1;  // here
    y[i] = s;
}"""
POINTS = """struct Point { float x, y, z, w, r, g, b, a; };
__global__ void points(const float* data, float* out) {
    const Point* points = (const Point*)data;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = points[i].x * points[i].x;  // here
}"""
QUADS = """__global__ void quads(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0.0f;
    for (int k = 0; k < 4; ++k)
        s += x[4 * i + k] * (k + 1);  // here
    y[i] = s;
}"""
ODD_LANES = """__global__ void odd_lanes(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    if (threadIdx.x % 2) {  // here
        for (int k = 0; k < 60; ++k)
            v = sinf(v) * 0.5f + v;
    }
    y[i] = v;
}"""
TWICE = """__global__ void twice(const float* x, float* y) {
    __shared__ float tile[128];
    int t = threadIdx.x;
    tile[t] = x[blockIdx.x * 128 + t];
    __syncthreads();
    float v = tile[127 - t];
    y[blockIdx.x * 128 + t] = v * v;
    __syncthreads();  // here
}"""
SUM_IN_SHARED = """__global__ void sum_in_shared(const float* x, float* y) {
    __shared__ float total;
    if (threadIdx.x == 0) total = 0.0f;
    __syncthreads();
    atomicAdd(&total, x[blockIdx.x * blockDim.x + threadIdx.x]);  // here
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = total;
}"""
WASTEFUL = [
    Planted("float64", mean_of_rows, 4, 256, lambda: (floats(8, 1024), floats(1024))),
    Planted("float64", scaled_by_the_root_of_a_size, 4, 256, lambda: (floats(1024), floats(1024))),
    Planted("float64", products_added_to_a_double, 4, 256, lambda: (floats(8, 1024), floats(1024))),
    Planted("bank conflicts", doubles_by_columns, 2, (32, 32), lambda: (np.zeros((64, 32)), np.zeros((64, 32)))),
    Planted("bank conflicts", eight_apart, 4, 256, lambda: (floats(1024), floats(1024))),
    Planted("uncoalesced", channels_last, 64, 64, lambda: (floats(64, 64), floats(64, 64))),
    Planted("uncoalesced", shuffled_by_a_stride, 8, 256, lambda: (floats(N), floats(N))),
    Planted("atomics", largest, 4, 256, lambda: (floats(1024), floats(1))),
    Planted("atomics", counters_of_its_own, 4, 256, lambda: (floats(2048), floats(1024))),
    Planted("barrier", three_barriers, 2, 256, lambda: (floats(1024), floats(512))),
    Planted("divergence", by_sign, 4, 256, lambda: (floats(1024), floats(1024))),
    Planted("divergence", escapes, 4, 256, lambda: (floats(1024), floats(1024))),
    Planted("bytes in flight", one_block, 1, 256, lambda: (floats(4096), floats(256)), {"grid": 1}),
    Planted("float64", TENTHS, 4, 256, lambda: (floats(1024), floats(1024), 1024)),
    Planted("uncoalesced", POINTS, 4, 256, lambda: (floats(8192), floats(1024))),
    Planted("narrow loads", QUADS, 4, 256, lambda: (floats(4096), floats(1024))),
    Planted("divergence", ODD_LANES, 4, 256, lambda: (floats(1024), floats(1024))),
    Planted("barrier", TWICE, 4, 128, lambda: (floats(512), floats(512))),
    Planted("atomics", SUM_IN_SHARED, 4, 256, lambda: (floats(1024), floats(4))),
]  # fmt: skip


def convolution(x, weights, y):
    tile, w = cuda.shared.array(264, float32), cuda.shared.array(9, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < 9:
        w[t] = weights[t]
    for k in range(t, 264, 256):
        at = cuda.blockIdx.x * 256 + k - 4
        tile[k] = x[at] if 0 <= at < x.size else float32(0)
    cuda.syncthreads()
    total = float32(0)
    for k in range(9):
        total += w[k] * tile[t + k]
    y[i] = total


def add_matrices(a, b, c):
    i, j = cuda.grid(2)
    if i < c.shape[1] and j < c.shape[0]:
        c[j, i] = a[j, i] + b[j, i]


def gradient_of_a_table(tokens, g, table):
    cuda.atomic.add(table, (tokens[cuda.blockIdx.x], cuda.threadIdx.x), g[cuda.blockIdx.x, cuda.threadIdx.x])


def hashed(seed, y):
    i = cuda.grid(1)
    if i < y.size:
        h = (i ^ seed) * 2654435761 & 0xFFFFFFFF
        y[i] = (h >> 16) & 1


def prefix_of_a_warp(x, y):
    i = cuda.grid(1)
    v, lane = x[i], cuda.laneid
    for d in (1, 2, 4, 8, 16):
        other = cuda.shfl_up_sync(0xFFFFFFFF, v, d)
        if lane >= d:
            v += other
    y[i] = v


def leaky(x, y):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        y[i] = v if v > 0 else float32(0.01) * v


def dropout(x, mask, y, keep):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] / keep if mask[i] else float32(0)


ADAM = """__global__ void adam(float* w, const float* g, float* m, float* v, float rate, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float mi = 0.9f * m[i] + 0.1f * g[i], vi = 0.999f * v[i] + 0.001f * g[i] * g[i];
    m[i] = mi; v[i] = vi;
    w[i] -= rate * mi / (sqrtf(vi) + 1e-8f);
}"""
ROPE = """__global__ void rope(float2* q, const float2* angles) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float2 v = q[i], a = angles[threadIdx.x];
    q[i] = make_float2(v.x * a.x - v.y * a.y, v.x * a.y + v.y * a.x);
}"""
BITONIC = """__global__ void bitonic(float* x) {
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 256 + t];
    for (int k = 2; k <= 256; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            __syncthreads();
            int other = t ^ j;
            float a = s[t], b = s[other];
            bool up = (t & k) == 0;
            __syncthreads();
            s[t] = (t < other) == up ? fminf(a, b) : fmaxf(a, b);
        }
    x[blockIdx.x * 256 + t] = s[t];
}"""
COUNT = """__global__ void count(const float* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned votes = __ballot_sync(0xffffffff, i < n && x[i] > 0.0f);
    if (threadIdx.x % 32 == 0) atomicAdd(y, __popc(votes));
}"""
SOFTMAX = """__global__ void softmax(const float* x, float* y, int n) {
    __shared__ float part[8];
    __shared__ float all;
    const float* row = x + blockIdx.x * n;
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    float most = -3.4e38f;
    for (int k = t; k < n; k += 256) most = fmaxf(most, row[k]);
    for (int d = 16; d; d /= 2) most = fmaxf(most, __shfl_xor_sync(-1, most, d));
    if (lane == 0) part[warp] = most;
    __syncthreads();
    if (warp == 0) {
        most = lane < 8 ? part[lane] : -3.4e38f;
        for (int d = 4; d; d /= 2) most = fmaxf(most, __shfl_xor_sync(-1, most, d));
        if (lane == 0) all = most;
    }
    __syncthreads();
    most = all;
    float total = 0.0f;
    for (int k = t; k < n; k += 256) total += expf(row[k] - most);
    for (int d = 16; d; d /= 2) total += __shfl_xor_sync(-1, total, d);
    if (lane == 0) part[warp] = total;
    __syncthreads();
    total = 0.0f;
    for (int w = 0; w < 8; ++w) total += part[w];
    for (int k = t; k < n; k += 256) y[blockIdx.x * n + k] = expf(row[k] - most) / total;
}"""


def good(kernel, grid, block, args, **options):
    return Planted("", kernel, grid, block, args, options)


GOOD = [
    good(convolution, 4, 256, lambda: (floats(1024), floats(9), floats(1024))),
    good(add_matrices, (2, 9), (32, 8), lambda: (floats(70, 60), floats(70, 60), floats(70, 60))),
    good(gradient_of_a_table, 16, 128, lambda: (whole(1000, 16), floats(16, 128), floats(1000, 128))),
    good(hashed, 9, 256, lambda: (12345, np.zeros(2100, np.int32))),
    good(prefix_of_a_warp, 4, 256, lambda: (floats(1024), floats(1024))),
    good(leaky, 9, 256, lambda: (floats(2100), floats(2100))),
    good(dropout, 4, 256, lambda: (floats(1000), whole(2, 1000), floats(1000), np.float32(0.9))),
    good(ADAM, 9, 256, lambda: (floats(2100), floats(2100), floats(2100), abs(floats(2100)), np.float32(0.1), 2100)),
    good(ROPE, 8, 64, lambda: (floats(1024), floats(128))),
    good(BITONIC, 4, 256, lambda: (floats(1024),)),
    good(COUNT, 4, 256, lambda: (floats(1000), np.zeros(1, np.int32), 1000)),
    good(SOFTMAX, 4, 256, lambda: (floats(4, 1024), floats(4, 1024), 1024)),
]
