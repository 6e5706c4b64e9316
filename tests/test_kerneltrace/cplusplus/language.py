"""What C++ brings: structs and unions, templates and lambdas, local arrays, switches, gotos, recursion, pointers."""

import numpy as np

from tests.test_kerneltrace.cplusplus.case import Cases, Flaw, below, random, zeros
from tests.test_kerneltrace.textbook.entry import Want

CASES = Cases()
X = random(64)
N = below(100, 64)
PARAMETERS = np.array([(2.0, 64, 1.5)], [("a", "f4"), ("n", "i4"), ("b", "f8")])
CASES(
    "a struct by value",
    """struct Params { float a; int n; double b; };
__global__ void k(const float* x, float* y, Params p) {
    int i = threadIdx.x;
    if (i < p.n) y[i] = p.a * x[i] + (float)p.b;
}""",
    1, 64, X, zeros(64), PARAMETERS[0], want={1: 2 * X + 1.5},
)  # fmt: skip
CASES(
    "a small vector and an array by value",
    """struct Taps { float w[3]; };
__global__ void k(const float* x, float* y, float4 v, Taps taps, int n) {
    int i = threadIdx.x;
    float sum = v.x + v.w;
    for (int k = 0; k < 3; ++k) if (i + k < n) sum += taps.w[k] * x[i + k];
    y[i] = sum;
}""",
    1, 64, X, zeros(64), (1.0, 2.0, 3.0, 4.0), (0.5, 0.25, 0.125), 64,
    want={1: 5 + 0.5 * X + 0.25 * np.append(X[1:], 0) + 0.125 * np.append(X[2:], [0, 0])},
    flaws=[Flaw("outside", "taps.w[k] * x[i + k]", "if (i + k < n) ", "", "x[64]")],
)  # fmt: skip
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
    "arrays of structs",
    """struct Particle { float x, y, z; int cell; };
__global__ void move(Particle* p, int n, float dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Particle q = p[i];
    q.x += dt * q.y;
    q.cell = (int)floorf(q.x);
    p[i] = q;
}""",
    2, 32, (P := np.stack([X, X, X, 0 * X], 1)).copy(), 64, 2.0, want={},
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
    1, 64, X, zeros(64, dtype=np.int32), (W := (N.astype(np.uint32) * 0x9E3779B1).astype(np.uint32)),
    want={1: (X.view(np.uint32) >> 23).astype(int) + (W & 31).astype(int) * 1000 + (W >> 5 & 2047).astype(int)
          + (W >> 16).astype(np.uint16).view(np.int16)},
)  # fmt: skip
CASES(
    "a template with a functor and a lambda",
    """template <typename T> struct Twice { __device__ T operator()(T v) const { return v + v; } };
template <typename T, class F> __device__ void transform(const T* x, T* y, int n, F f) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = f(x[i]);
}
__global__ void map(const float* x, float* y, int n, float a) {
    transform(x, y, n, Twice<float>());
    __syncthreads();
    transform(y, y, n, [=](float v) { return a * v + 1; });
}""",
    1, 32, X, zeros(64), 64, 3.0, want={1: 6 * X + 1},
)  # fmt: skip
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
    1, 64, X, N, zeros(64, dtype=np.float64), shared_bytes=64 * 16, want={2: (3.0 * X.astype("f8") + N)[::-1]},
    flaws=[
        Flaw("outside", "k[t] = n[t]", "(int*)(f + blockDim.x)", "(int*)(f + blockDim.x + 1)", "raw"),
        Flaw("race", "y[t] = d[o]", "    __syncthreads();\n", ""),
    ],
)  # fmt: skip
CASES(
    "a local array with indices that data give",
    """__global__ void sort8(const int* x, int* y) {
    int a[8], t = threadIdx.x;
    for (int i = 0; i < 8; ++i) a[i] = x[8 * t + i];
    for (int i = 1; i < 8; ++i) {
        int v = a[i], j = i - 1;
        while (j >= 0 && a[j] > v) { a[j + 1] = a[j]; --j; }
        a[j + 1] = v;
    }
    for (int i = 0; i < 8; ++i) y[8 * t + i] = a[i];
}""",
    1, 8, N, zeros(64, dtype=np.int32), want={1: np.sort(N.reshape(8, 8), 1).ravel()},
)  # fmt: skip
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
    1, 4, N % 10, zeros(4, dtype=np.int32), 16,
    want={1: [int(np.bincount(row, minlength=10).argmax()) for row in (N % 10).reshape(4, 16)]},
    flaws=[
        Flaw("unset", "count[x[threadIdx.x * n + i]]++", "int b = 0; b < 10; ++b) count[b] = 0",
             "int b = 0; b < 9; ++b) count[b] = 0",
             "local array"),
        Flaw("outside", "count[x[threadIdx.x * n + i]]++", "int count[10]", "int count[9]"),
    ],
)  # fmt: skip
CASES(
    "a switch",
    """__device__ __noinline__ float apply(int op, float a, float b) {
    switch (op) {
        case 0: return a + b;
        case 1: return a - b;
        case 2: return a * b;
        case 3: return a / b;
        case 4: return fmaxf(a, b);
        case 5: return fminf(a, b);
        case 6: return a * a + sinf(b);
        default: return 0.f;
    }
}
__global__ void k(const int* op, const float* x, float* y) {
    int i = threadIdx.x;
    y[i] = apply(op[i] % 8, x[i], x[63 - i] + 1);
}""",
    1, 64, N, X, zeros(64),
    want={2: [(a + b, a - b, a * b, a / b, max(a, b), min(a, b), a * a + np.sin(b), 0)[o % 8]
              for o, a, b in zip(N, X, X[::-1] + 1, strict=True)]},
)  # fmt: skip
CASES(
    "loops with break, continue and goto",
    """__global__ void k(const int* x, int* y, int n) {
    int i = threadIdx.x, sum = 0, j = 0;
again:
    while (true) {
        if (j >= n) break;
        int v = x[(i + j) & 63];
        ++j;
        if (v % 3 == 0) continue;
        if (v > 90) goto done;
        sum += v;
        if (sum % 7 == 1) { sum += 2; goto again; }
    }
done:
    do { sum -= 11; } while (sum > 50);
    y[i] = sum;
}""",
    1, 64, N, zeros(64, dtype=np.int32), 20, want={1: None},
)  # fmt: skip


def _loops(i):
    total = j = 0
    while j < 20:
        v, j = int(N[(i + j) & 63]), j + 1
        if v % 3 == 0:
            continue
        if v > 90:
            break
        total += v
        total += 2 * (total % 7 == 1)
    total -= 11
    while total > 50:
        total -= 11
    return total


CASES.found["loops with break, continue and goto"].want[1] = [_loops(i) for i in range(64)]
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
    1, 64, X, zeros(64), 64, want={1: 2 * X},
    flaws=[
        Flaw("raised", "assert(", "i < 64 &&", "i < 32 &&", "a thread too many"),
        Flaw("raised", "__trap", "y[i] = 2", "if (x[i] >= 0) __trap(); y[i] = 2", "trap"),
    ],
)  # fmt: skip
CASES(
    "three dimensions, bytes and truth values",
    """__global__ void k(const bool* on, const char* c, unsigned char* out, size_t nx, size_t ny, size_t nz) {
    size_t x = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    size_t y = blockIdx.y * (size_t)blockDim.y + threadIdx.y;
    size_t z = blockIdx.z * (size_t)blockDim.z + threadIdx.z;
    if (x >= nx || y >= ny || z >= nz) return;
    size_t i = (z * ny + y) * nx + x;
    out[i] = on[i] ? c[i] * 2 : (unsigned char)-c[i];
}""",
    (2, 2, 1), (4, 2, 4), (N % 2 == 0)[:60].copy(), N[:60].astype(np.int8), zeros(60, dtype=np.uint8), 5, 3, 4,
    want={2: np.where(N % 2 == 0, 2 * N, -N)[:60].astype(np.uint8)},
    flaws=[Flaw("outside", "out[i] =", "y >= ny || z >= nz", "z >= nz", "on[")],
)  # fmt: skip
CASES(
    "vectors of four and of two",
    """__global__ void k(const float4* __restrict__ a, const int4* b, const short2* c, float4* out) {
    int i = threadIdx.x;
    float4 v = __ldg(a + i);
    int4 w = b[i];
    short2 s = c[i];
    out[i] = make_float4(v.x + w.w, v.y * s.x, v.z - s.y, v.w);
}""",
    1, 16, X, N, N[:32].astype(np.int16), zeros(64),
    want={3: np.stack([X[0::4] + N[3::4], X[1::4] * N[:32:2], X[2::4] - N[1:32:2], X[3::4]], 1).ravel()},
    counts={"a load": Want(1, 8), "out store": Want(1, 8)},
    flaws=[Flaw("outside", "float4 v", "__ldg(a + i)", "__ldg(a + i + 1)", "a[")],
)  # fmt: skip
CASES(
    "memory of its own",
    """__device__ float scratch[64];
__device__ int hits;
__constant__ int shift[4] = {3, 1, 4, 1};
__global__ void k(const float* x, float* y, int* out) {
    int i = threadIdx.x;
    scratch[i] = x[i] + shift[i % 4];
    atomicAdd(&hits, 1);
    __syncthreads();
    y[i] = scratch[63 - i];
    if (i == 0) *out = hits;
}""",
    1, 64, X, zeros(64), zeros(1, dtype=np.int32),
    want={1: (X + np.tile([3, 1, 4, 1], 16))[::-1], 2: [64]},
    flaws=[Flaw("race", "y[i] = scratch", "    __syncthreads();\n", "")],
)  # fmt: skip
CASES(
    "an early return, and barriers for those who stay",
    """__global__ void k(const float* x, float* y, int n) {
    __shared__ float s[64];
    int i = threadIdx.x;
    if (i >= n) return;
    s[i] = x[i];
    __syncthreads();
    y[i] = s[n - 1 - i];
}""",
    1, 64, X, zeros(48), 48, want={1: X[:48][::-1]},
    flaws=[Flaw("unset", "y[i] = s", "s[n - 1 - i]", "s[n - i]", "s[48]")],
)  # fmt: skip
CASES(
    "loops of different lengths, and a matrix in rows (CSR)",
    """__global__ void spmv(int rows, const int* __restrict__ ptr, const int* __restrict__ col,
                     const float* __restrict__ val, const float* __restrict__ x, float* y) {
    int row = blockDim.x * blockIdx.x + threadIdx.x;
    if (row < rows) {
        float dot = 0;
        for (int i = ptr[row]; i < ptr[row + 1]; i++) dot += val[i] * x[col[i]];
        y[row] += dot;
    }
}""",
    1, 32, 16, np.arange(17, dtype=np.int32) * 4, N % 64, X, X, np.ones(16, "f4"),
    want={5: 1 + (X * X[N % 64]).reshape(16, 4).sum(1)},
    flaws=[Flaw("outside", "ptr[row + 1]", "row < rows", "row <= rows", "ptr[17]")],
)  # fmt: skip
