"""Kernels that each waste one thing, in the line marked `here`: most in CUDA C++."""

import math

import numpy as np
from numba import cuda, float32

from test_kerneltrace.reviewed.entry import Planted

N = 1024


@cuda.jit(device=True)
def gelu(v):
    cubed = 0.044715 * v * v * v  # here
    return 0.5 * v * (1.0 + math.tanh(0.7978845608 * (v + cubed)))


def activation(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = gelu(x[i])


def turns_by_lane(x, y):
    i = cuda.grid(1)
    v = x[i]
    for _ in range(4 * (i % 32)):  # here
        v = v * v + float32(0.5)
    y[i] = v


def whole_columns(x, y):
    column = cuda.shared.array(5000, float32)  # here
    t = cuda.threadIdx.x
    for k in range(t, 4096, 128):
        column[k] = x[k]
    cuda.syncthreads()
    total = float32(0)
    for k in range(64):
        total = total * column[(t + k) % 4096] + float32(1)
    y[cuda.grid(1)] = total


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
GRAY = """__global__ void gray(const unsigned char* rgba, unsigned char* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned char* p = rgba + 4 * i;
    out[i] = (p[0] * 77 + p[1] * 151 + p[2] * 28 + p[3] * 0 + 128) >> 8;  // here
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


GAMMA = """__constant__ float table[64] = {1.0f, 0.5f};
__global__ void gamma_of(const int* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float total = 0.0f;
    for (int k = 0; k < 4; ++k) total += table[(x[i] + 11 * k) & 63];  // here
    y[i] = total;
}"""
RANKS = """__global__ void ranks(const int* x, float* y) {
    float seen[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 64; ++k) seen[k] = y[i];  // here
    for (int k = 0; k < 16; ++k) seen[(x[i] + k * x[0]) & 63] += 1.0f;
    y[i] = seen[x[i] & 63];
}"""
PLACES = """__global__ void places(const int* x, int* y, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int at = x[i] + i;
    int total = 0;
    for (int k = 0; k < 8; ++k) {
        total += at % (width + k);  // here
    }
    y[i] = total;
}"""


def floats(*shape):
    return np.random.default_rng(2).normal(size=shape).astype(np.float32)


def whole(high, n):
    return np.random.default_rng(3).integers(0, high, n).astype(np.int32)


WASTEFUL = [
    Planted(
        "float64", activation, 4, 256, lambda: (floats(N), floats(N)), {}, gelu.py_func
    ),
    Planted("divergence", turns_by_lane, 4, 256, lambda: (floats(N), floats(N))),
    Planted(
        "occupancy",
        whole_columns,
        4,
        128,
        lambda: (floats(4096), floats(512)),
        {"device": "T4"},
    ),
    Planted("float64", SIGMOID, 4, 256, lambda: (floats(N), floats(N), N)),
    Planted(
        "bank conflicts",
        COUNTS_OF_ITS_OWN,
        2,
        64,
        lambda: (whole(32, 2048), whole(1, 64)),
    ),
    Planted(
        "uncoalesced",
        A_ROW_EACH,
        2,
        128,
        lambda: (floats(256, 64), floats(64), floats(256), 64),
    ),
    Planted("atomics", HISTOGRAM, 4, 256, lambda: (whole(2, N), whole(1, 16), N)),
    Planted(
        "narrow loads",
        GRAY,
        4,
        256,
        lambda: (np.ones(4 * N, np.uint8), np.zeros(N, np.uint8), N),
    ),
    Planted(
        "occupancy",
        MANY_REGISTERS,
        4,
        256,
        lambda: (floats(N), floats(N)),
        {"registers": 200},
    ),
    Planted("barrier", NO_SHARED, 4, 256, lambda: (floats(N), floats(N))),
    Planted("constant memory", GAMMA, 4, 256, lambda: (whole(64, N), floats(N))),
    Planted("local memory", RANKS, 4, 256, lambda: (whole(64, N), floats(N))),
    Planted(
        "integer division",
        PLACES,
        4,
        256,
        lambda: (whole(N, N), whole(1, N), 40),
    ),
]
