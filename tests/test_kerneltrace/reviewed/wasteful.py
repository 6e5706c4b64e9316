"""Kernels in Python that each waste one thing, in the line marked `# here`."""

import math

import numpy as np
from numba import cuda, float32

from tests.test_kerneltrace.reviewed.entry import Planted

N = 1024


@cuda.jit(device=True)
def gelu(v):
    return 0.5 * v * (1.0 + math.tanh(0.7978845608 * (v + 0.044715 * v * v * v)))  # here


def activation(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = gelu(x[i])


def twiddles(x, y):
    i = cuda.grid(1)
    angle = 2 * math.pi * i / x.size  # here
    y[i] = x[i] * math.cos(angle)


def four_words_each(x, y):
    words = cuda.shared.array(1024, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    for k in range(4):
        words[4 * t + k] = x[(i + 256 * k) % x.size]  # here
    cuda.syncthreads()
    total = float32(0)
    for k in range(4):
        total += words[t + 256 * k]
    y[i] = total


def product_with_b_transposed(a, b, c):
    left, right = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for first in range(0, a.shape[1], 16):
        left[ty, tx] = a[row, first + tx]
        right[tx, ty] = b[first + ty, column]
        cuda.syncthreads()
        for k in range(16):
            total += left[ty, k] * right[tx, k]  # here
        cuda.syncthreads()
    c[row, column] = total


def first_of_eight(particles, y):
    i = cuda.grid(1)
    y[i] = particles[i, 0] * float32(2)  # here


def a_chunk_each(x, y):
    first = 32 * cuda.grid(1)
    for k in range(32):
        y[first + k] = x[first + k]  # here


def sums_of_rows(x, y):
    i = cuda.grid(1)
    cuda.atomic.add(y, i // 64, x[i])  # here


def four_numbers_once(x, y):
    i = cuda.grid(1)
    total = float32(0)
    for k in range(4):
        total += x[4 * i + k]  # here
    y[i] = total


def few_threads_stride(x, y):
    total = float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        total += x[i]  # here
    y[cuda.grid(1)] = total


def one_number_then_a_barrier(x, y):
    tile = cuda.shared.array(10000, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    for first in range(0, 512, 64):
        tile[t] = x[512 * cuda.blockIdx.x + first + t]  # here
        cuda.syncthreads()
        total += tile[63 - t]
        cuda.syncthreads()
    y[cuda.grid(1)] = total


def arithmetic_of_every_other(x, y):
    i = cuda.grid(1)
    v = x[i]
    if i % 2 == 0:  # here
        for _ in range(64):
            v = v * v + float32(0.5)
    else:
        for _ in range(64):
            v = v * float32(0.25) - v * v
    y[i] = v


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


def shuffles_between_barriers(x, y):
    i = cuda.grid(1)
    v = x[i]
    for d in (16, 8, 4, 2, 1):
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, d)
        cuda.syncthreads()  # here
    if cuda.laneid == 0:
        y[i // 32] = v


def barriers_in_a_row(x, y):
    tile = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    cuda.syncthreads()  # here
    y[cuda.grid(1)] = tile[255 - t]


def floats(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


PYTHON = [
    Planted("float64", activation, 4, 256, lambda: (floats(N), floats(N)), {}, gelu.py_func),
    Planted("float64", twiddles, 4, 256, lambda: (floats(N), floats(N))),
    Planted("bank conflicts", four_words_each, 4, 256, lambda: (floats(N), floats(N))),
    Planted("bank conflicts", product_with_b_transposed, (2, 2), (16, 16), lambda: tuple(floats(3, 32, 32))),
    Planted("uncoalesced", first_of_eight, 4, 256, lambda: (floats(N, 8), floats(N))),
    Planted("uncoalesced", a_chunk_each, 4, 64, lambda: (floats(32 * 256), floats(32 * 256))),
    Planted("atomics", sums_of_rows, 4, 256, lambda: (floats(N), np.zeros(16, np.float32))),
    Planted("narrow loads", four_numbers_once, 4, 256, lambda: (floats(4 * N), floats(N))),
    Planted("bytes in flight", few_threads_stride, 4, 64, lambda: (floats(4 * N), floats(256)), {"grid": 40}),
    Planted("bytes in flight", one_number_then_a_barrier, 4, 64, lambda: (floats(2048), floats(256))),
    Planted("divergence", arithmetic_of_every_other, 4, 256, lambda: (floats(N), floats(N))),
    Planted("divergence", turns_by_lane, 4, 256, lambda: (floats(N), floats(N))),
    Planted("occupancy", whole_columns, 4, 128, lambda: (floats(4096), floats(512)), {"device": "T4"}),
    Planted("barrier", shuffles_between_barriers, 4, 256, lambda: (floats(N), floats(32))),
    Planted("barrier", barriers_in_a_row, 4, 256, lambda: (floats(N), floats(N))),
]  # fmt: skip
