"""Atomics, locks and memory order: of all types, by compare-and-swap, with fences,
flags and cuda::atomic.
"""

import numpy as np

from test_kerneltrace.cplusplus.case import Cases, Flaw, below, random, zeros
from test_kerneltrace.textbook.entry import Want

CASES = Cases()
X = random(128)
N = below(1000, 128)
CASES(
    "atomics of all types",
    """#include <cuda_fp16.h>
__global__ void k(const float* x, const int* n, double* d, __half2* h, float* f, int* i, unsigned long long* u) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(d, (double)x[t]);
    atomicAdd(h, __floats2half2_rn(1.0f, 2.0f));
    atomicAdd(f, x[t]);
    atomicMin(i, n[t]);
    atomicMax(i + 1, n[t]);
    atomicAnd(i + 2, ~n[t]);
    atomicOr(i + 3, n[t]);
    atomicXor(i + 4, n[t]);
    atomicSub(i + 5, n[t]);
    atomicInc((unsigned*)i + 6, 9);
    atomicDec((unsigned*)i + 7, 9);
    atomicAdd(u, 1ull << 33);
    atomicMax(u + 1, (unsigned long long)n[t] << 32);
}""",
    2,
    64,
    X,
    N,
    zeros(1, dtype=np.float64),
    zeros(2, dtype=np.float16),
    zeros(1),
    np.array([999, 0, -1, 0, 0, 0, 0, 0], np.int32),
    zeros(2, dtype=np.uint64),
    want={
        2: [X.astype("f8").sum()],
        3: [128, 256],
        4: [X.sum()],
        5: [
            N.min(),
            N.max(),
            np.bitwise_and.reduce(~N),
            np.bitwise_or.reduce(N),
            np.bitwise_xor.reduce(N),
            -N.sum(),
            128 % 10,
            (0 - 128) % 10,
        ],
        6: [128 << 33, int(N.max()) << 32],
    },
    counts={"d atomic": Want(4, 4), "h atomic": Want(4, 4), "u atomic": Want(8, 8)},
)
CASES(
    "a double's sum and a float's maximum by compare-and-swap",
    """__device__ double add(double* address, double val) {
    unsigned long long int* address_as_ull = (unsigned long long int*)address;
    unsigned long long int old = *address_as_ull, assumed;
    do {
        assumed = old;
        old = atomicCAS(address_as_ull, assumed, __double_as_longlong(val + __longlong_as_double(assumed)));
    } while (assumed != old);
    return __longlong_as_double(old);
}
__device__ static float atomicMaxFloat(float* address, float val) {
    int* address_as_i = (int*)address;
    int old = *address_as_i, assumed;
    do {
        assumed = old;
        old = ::atomicCAS(address_as_i, assumed, __float_as_int(::fmaxf(val, __int_as_float(assumed))));
    } while (assumed != old);
    return __int_as_float(old);
}
__global__ void k(const float* x, double* d, float* f) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    add(d, x[t]);
    atomicMaxFloat(f, x[t]);
}""",
    2,
    64,
    X,
    zeros(1, dtype=np.float64),
    zeros(1),
    want={1: [X.astype("f8").sum()], 2: [X.max()]},
    flaws=[Flaw("race", "*d += x[t]", "add(d, x[t])", "*d += x[t]")],
)
CASES(
    "a lock that a thread of each block takes",
    """struct Lock {
    int* mutex;
    __device__ void lock() { while (atomicCAS(mutex, 0, 1) != 0) {} __threadfence(); }
    __device__ void unlock() { __threadfence(); atomicExch(mutex, 0); }
};
__global__ void dot(int* mutex, const float* x, float* y) {
    __shared__ float cache[64];
    int t = threadIdx.x;
    cache[t] = x[blockIdx.x * 64 + t];
    __syncthreads();
    for (int i = 32; i > 0; i /= 2) {
        if (t < i) cache[t] += cache[t + i];
        __syncthreads();
    }
    if (t == 0) {
        Lock lock{mutex};
        lock.lock();
        *y += cache[0];
        lock.unlock();
    }
}""",
    2,
    64,
    zeros(1, dtype=np.int32),
    X,
    zeros(1),
    want={2: [X.sum()]},
    flaws=[
        Flaw(
            "race",
            "*y += cache[0]",
            "        lock.lock();\n        *y += cache[0];\n        lock.unlock();",
            "        *y += cache[0];",
        ),
        Flaw(
            "race",
            "*y += cache[0]",
            "{ __threadfence(); atomicExch(mutex, 0); }",
            "{ atomicExch(mutex, 0); }",
        ),
    ],
)
CASES(
    "cuda::atomic and cuda::atomic_ref",
    """#include <cuda/atomic>
__global__ void k(const int* x, int* sum, unsigned* most, int* out) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    cuda::atomic_ref<int, cuda::thread_scope_device> total(*sum);
    total.fetch_add(x[t], cuda::memory_order_relaxed);
    cuda::atomic_ref<unsigned, cuda::thread_scope_device>(*most).fetch_max(x[t]);
    __shared__ cuda::atomic<int, cuda::thread_scope_block> in_block;
    if (threadIdx.x == 0) in_block.store(0);
    __syncthreads();
    in_block++;
    __syncthreads();
    out[t] = in_block.load(cuda::memory_order_relaxed);
}""",
    2,
    64,
    N,
    zeros(1, dtype=np.int32),
    zeros(1, dtype=np.uint32),
    zeros(128, dtype=np.int32),
    want={1: [N.sum()], 2: [N.max()], 3: np.full(128, 64)},
)
CASES(
    "a message by release and acquire",
    """#include <cuda/atomic>
__global__ void message(const float* x, float* buffer, int* flag, float* y) {
    cuda::atomic_ref<int, cuda::thread_scope_device> ready(*flag);
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        buffer[t] = x[t] * 2;
        __syncthreads();
        if (t == 0) ready.store(1, cuda::memory_order_release);
    } else {
        if (t == 0) while (ready.load(cuda::memory_order_acquire) == 0) {}
        __syncthreads();
        y[t] = buffer[31 - t];
    }
}""",
    2,
    32,
    X[:32].copy(),
    zeros(32),
    zeros(1, dtype=np.int32),
    zeros(32),
    want={3: 2 * X[:32][::-1]},
    flaws=[
        Flaw("race", "y[t] = buffer", "memory_order_release", "memory_order_relaxed"),
        Flaw(
            "race",
            "y[t] = buffer",
            "        if (t == 0) while (ready.load(cuda::memory_order_acquire) == 0) {}\n",
            "",
        ),
    ],
)
