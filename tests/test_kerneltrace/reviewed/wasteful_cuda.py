"""Kernels in CUDA C++ that each waste one thing, in the line marked `// here`."""

import numpy as np

from tests.test_kerneltrace.reviewed.entry import Planted

N = 1024
SIGMOID = """__global__ void sigmoid(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = 1.0 / (1.0 + expf(-x[i]));  // here
    }
}"""
COUNTS_OF_ITS_OWN = """__global__ void counts_of_its_own(const int* x, int* y) {
    __shared__ int bins[64][32];
    int t = threadIdx.x;
    for (int k = 0; k < 32; ++k) bins[t][k] = 0;  // here
    for (int k = 0; k < 16; ++k)
        bins[t][x[blockIdx.x * 1024 + k * 64 + t] & 31] += 1;
    __syncthreads();
    int total = 0;
    if (t < 32) {
        for (int k = 0; k < 64; ++k) total += bins[k][t];
        y[blockIdx.x * 32 + t] = total;
    }
}"""
A_ROW_EACH = """__global__ void a_row_each(const float* a, const float* v, float* y, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float total = 0.0f;
    for (int k = 0; k < n; ++k)
        total += a[row * n + k] * v[k];  // here
    y[row] = total;
}"""
HISTOGRAM = """__global__ void histogram(const int* x, int* counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&counts[x[i]], 1);  // here
}"""
BIAS = """__global__ void bias(const float* x, float* y) {
    int row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    int width = gridDim.x * blockDim.x;
    atomicAdd(&y[row * width + column], 0.5f * x[row * width + column]);  // here
}"""
GREY = """__global__ void grey(const unsigned char* rgba, unsigned char* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned char* p = rgba + 4 * i;
    out[i] = (p[0] * 77 + p[1] * 151 + p[2] * 28 + p[3] * 0 + 128) >> 8;  // here
}"""
CHASE = """__global__ void chase(const int* next, int* last) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 16; ++k)
        at = next[at];  // here
    last[blockIdx.x * blockDim.x + threadIdx.x] = at;
}"""
FOUR_WAYS = """__global__ void four_ways(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    switch (threadIdx.x & 3) {  // here
        case 0: for (int k = 0; k < 50; ++k) v = v * v + 0.1f; break;
        case 1: for (int k = 0; k < 50; ++k) v = v * 0.5f - v * v; break;
        case 2: for (int k = 0; k < 50; ++k) v = (v + 0.3f) * v; break;
        default: for (int k = 0; k < 50; ++k) v = v * v * v + 0.7f;
    }
    y[i] = v;
}"""
BIG_TILE = """__global__ void big_tile(const float* x, float* y) {
    __shared__ float tile[11000];
    int t = threadIdx.x, first = blockIdx.x * 1024;
    for (int k = t; k < 1024; k += 128) tile[k] = x[first + k];  // here
    __syncthreads();
    for (int k = t; k < 1024; k += 128) y[first + k] = tile[1023 - k];
}"""
MANY_REGISTERS = """__global__ void many_registers(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] * 2.0f;
}"""
NO_SHARED = """__global__ void no_shared(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    __syncthreads();  // here
    y[i] = v * 3.0f;
}"""


def floats(*shape):
    return np.random.default_rng(2).normal(size=shape).astype(np.float32)


def whole(high, n):
    return np.random.default_rng(3).integers(0, high, n).astype(np.int32)


CUDA = [
    Planted("float64", SIGMOID, 4, 256, lambda: (floats(N), floats(N), N)),
    Planted("bank conflicts", COUNTS_OF_ITS_OWN, 2, 64, lambda: (whole(32, 2048), whole(1, 64))),
    Planted("uncoalesced", A_ROW_EACH, 2, 128, lambda: (floats(256, 64), floats(64), floats(256), 64)),
    Planted("atomics", HISTOGRAM, 4, 256, lambda: (whole(2, N), whole(1, 16), N)),
    Planted("atomics", BIAS, (2, 2), 256, lambda: (floats(2, 512), floats(2, 512))),
    Planted("narrow loads", GREY, 4, 256, lambda: (np.ones(4 * N, np.uint8), np.zeros(N, np.uint8), N)),
    Planted("bytes in flight", CHASE, 4, 32, lambda: (whole(4096, 4096), whole(1, 128)), {"grid": 40}),
    Planted("divergence", FOUR_WAYS, 4, 256, lambda: (floats(N), floats(N))),
    Planted("occupancy", BIG_TILE, 4, 128, lambda: (floats(4 * N), floats(4 * N)), {"device": "T4"}),
    Planted("occupancy", MANY_REGISTERS, 4, 256, lambda: (floats(N), floats(N)), {"registers": 200}),
    Planted("barrier", NO_SHARED, 4, 256, lambda: (floats(N), floats(N))),
]  # fmt: skip
