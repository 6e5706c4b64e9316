"""What C++ brings: structs and unions, templates and lambdas, local arrays, switches,
gotos, recursion, pointers.
"""

import numpy as np

from test_kerneltrace.cplusplus.case import Cases, Flaw, below, random, zeros

CASES = Cases()
X = random(64)
N = below(100, 64)
CASES(
    "a small vector and an array by value",
    """struct Taps { float w[3]; };
__global__ void k(const float* x, float* y, float4 v, Taps taps, int n) {
    int i = threadIdx.x;
    float sum = v.x + v.w;
    for (int k = 0; k < 3; ++k) if (i + k < n) sum += taps.w[k] * x[i + k];
    y[i] = sum;
}""",
    1,
    64,
    X,
    zeros(64),
    (1.0, 2.0, 3.0, 4.0),
    (0.5, 0.25, 0.125),
    64,
    want={
        1: 5 + 0.5 * X + 0.25 * np.append(X[1:], 0) + 0.125 * np.append(X[2:], [0, 0])
    },
    flaws=[Flaw("outside", "taps.w[k] * x[i + k]", "if (i + k < n) ", "", "x[64]")],
)
CASES(
    "pointers in a struct",
    """struct View { const float* data; float* out; int n; };
__global__ void k(View v, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < v.n) v.out[i] = scale * v.data[i];
}""",
    2, 32, (X, zeros(64), 64), 3.0, want={},
    flaws=[Flaw("outside", "v.out[i + 1] =", "if (i < v.n) v.out[i]", "v.out[i + 1]")],
)  # fmt: skip
CASES(
    "a union and bit fields",
    """union Bits { float f; unsigned u; };
struct Packed { unsigned low : 5; unsigned mid : 11; int high : 16; };
__global__ void k(const float* x, int* y, const unsigned* w) {
    int i = threadIdx.x;
    Bits b; b.f = x[i];
    Packed p = *(const Packed*)(w + i);
    y[i] = (int)(b.u >> 23) + p.low * 1000 + p.mid + p.high;
}""",
    1,
    64,
    X,
    zeros(64, dtype=np.int32),
    (W := (N.astype(np.uint32) * 0x9E3779B1).astype(np.uint32)),
    want={
        1: (X.view(np.uint32) >> 23).astype(int)
        + (W & 31).astype(int) * 1000
        + (W >> 5 & 2047).astype(int)
        + (W >> 16).astype(np.uint16).view(np.int16)
    },
)
CASES(
    "dynamic shared memory carved into arrays",
    """__global__ void carve(const float* x, const int* n, double* y) {
    extern __shared__ __align__(8) unsigned char raw[];
    double* d = (double*)raw;
    float* f = (float*)(d + blockDim.x);
    int* k = (int*)(f + blockDim.x);
    int t = threadIdx.x;
    d[t] = 2.0 * x[t]; f[t] = x[t]; k[t] = n[t];
    __syncthreads();
    int o = blockDim.x - 1 - t;
    y[t] = d[o] + f[o] + k[o];
}""",
    1,
    64,
    X,
    N,
    zeros(64, dtype=np.float64),
    shared_bytes=64 * 16,
    want={2: (3.0 * X.astype("f8") + N)[::-1]},
    flaws=[
        Flaw(
            "outside",
            "k[t] = n[t]",
            "(int*)(f + blockDim.x)",
            "(int*)(f + blockDim.x + 1)",
            "raw",
        ),
        Flaw("race", "y[t] = d[o]", "    __syncthreads();\n", ""),
    ],
)
CASES(
    "a counter in local memory",
    """__global__ void mode(const int* x, int* y, int n) {
    int count[10];
    for (int b = 0; b < 10; ++b) count[b] = 0;
    for (int i = 0; i < n; ++i) count[x[threadIdx.x * n + i]]++;
    int best = 0;
    for (int b = 1; b < 10; ++b) if (count[b] > count[best]) best = b;
    y[threadIdx.x] = best;
}""",
    1,
    4,
    N % 10,
    zeros(4, dtype=np.int32),
    16,
    want={
        1: [
            int(np.bincount(row, minlength=10).argmax())
            for row in (N % 10).reshape(4, 16)
        ]
    },
    flaws=[
        Flaw(
            "unset",
            "count[x[threadIdx.x * n + i]]++",
            "int b = 0; b < 10; ++b) count[b] = 0",
            "int b = 0; b < 9; ++b) count[b] = 0",
            "local array",
        ),
        Flaw(
            "outside",
            "count[x[threadIdx.x * n + i]]++",
            "int count[10]",
            "int count[9]",
        ),
    ],
)


CASES(
    "text for people",
    """#include <cstdio>
#include <cassert>
__global__ void k(const float* x, float* y, int n) {
    int i = threadIdx.x;
    assert(i < 64 && "a thread too many");
    if (i == 0) printf("block %d of %u: x[0] = %.3f, %s, %c%%\\n", blockIdx.x, gridDim.x, x[0], "done", 'z');
    y[i] = 2 * x[i];
}""",
    1,
    64,
    X,
    zeros(64),
    64,
    want={1: 2 * X},
    flaws=[
        Flaw("raised", "assert(", "i < 64 &&", "i < 32 &&", "a thread too many"),
        Flaw(
            "raised", "__trap", "y[i] = 2", "if (x[i] >= 0) __trap(); y[i] = 2", "trap"
        ),
    ],
)
