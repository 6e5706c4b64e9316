"""Arithmetic: integers and bits, 16-bit floats, doubles, fast math, division of 64
bits, inline PTX.
"""

import numpy as np

from test_kerneltrace.cplusplus.case import Cases, Flaw, random, zeros

CASES = Cases()
X = random(64)
H = (4 * X - 2).astype(np.float16)
HALF = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"


def bf16(x):
    """float32 rounded to bfloat16, as float32."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return (
        ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000)
        .astype(np.uint32)
        .view(np.float32)
    )


CASES(
    "half2 with a loop over pairs",
    HALF
    + """__global__ void k(const __half2* x, __half2* y, int n, float a) {
    __half2 scale = __float2half2_rn(a);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        __half2 v = __hfma2(scale, x[i], __float2half2_rn(1.0f));
        v = __hmax2(v, __float2half2_rn(0.0f));
        y[i] = __hgt2(v, scale).x == __float2half(1.0f) ? v : __hmul2(v, v);
    }
}""",
    1,
    16,
    H,
    zeros(64, dtype=np.float16),
    32,
    2.0,
    rtol=2e-3,
    want={1: None},
)
V = np.maximum(2 * H.astype("f4") + 1, 0).astype("f2")
CASES.found["half2 with a loop over pairs"].want[1] = np.where(
    V[0::2].repeat(2) > 2, V, (V.astype("f4") ** 2).astype("f2")
)
CASES(
    "half, its functions and comparisons",
    HALF
    + """__global__ void k(const half* x, half* y, float* z) {
    int i = threadIdx.x;
    half v = x[i];
    half r = hexp(v) + hsqrt(__habs(v)) - hsin(v);
    if (__hlt(v, __float2half(0.f)) || __hisnan(v)) r = -r;
    y[i] = r;
    z[i] = __half2float(hrcp(__hadd(__habs(v), __float2half(1.f)))) + __half2int_rn(v)
           + __half2float(hlog2(__habs(v) + half(1)));
}""",
    1,
    64,
    H,
    zeros(64, dtype=np.float16),
    zeros(64),
    rtol=1e-2,
    want={
        2: 1 / (np.abs(H.astype("f4")) + 1)
        + np.rint(H)
        + np.log2(np.abs(H.astype("f4")) + 1)
    },
)
CASES(
    "bfloat16 pairs",
    HALF
    + """__global__ void k(const float2* x, __nv_bfloat162* y, float* z) {
    int i = threadIdx.x;
    __nv_bfloat162 v = __float22bfloat162_rn(x[i]);
    v = __hfma2(v, v, v);
    y[i] = v;
    z[i] = __bfloat162float(v.x) + __low2float(v) + __bfloat162float(__hmax(v.x, v.y));
}""",
    1, 32, X, zeros(64, dtype=np.int16), zeros(32), want={2: None},
)  # fmt: skip
F = bf16(bf16(X).astype("f8") ** 2 + bf16(X))
CASES.found["bfloat16 pairs"].want[2] = 2 * F[0::2] + np.maximum(F[0::2], F[1::2])


CASES(
    "inline PTX",
    """__device__ __forceinline__ unsigned lane_id() { unsigned r; asm("mov.u32 %0, %%laneid;" : "=r"(r)); return r; }
__global__ void k(const float* x, float* y, unsigned* z) {
    int i = threadIdx.x;
    float v; unsigned w;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(x + i));
    asm("{\\n .reg .pred p;\\n .reg .f32 t;\\n setp.gt.f32 p, %1, 0f3F000000;\\n mul.f32 t, %1, 0f40000000;\\n"
        " selp.f32 %0, t, %1, p;\\n}" : "=f"(v) : "f"(v));
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(w) : "r"(i), "r"(0xff), "r"(i << 4));
    asm volatile("st.global.f32 [%0], %1;" ::"l"(y + i), "f"(v) : "memory");
    asm("{ .reg .u32 a; bfe.u32 a, %1, 3, 7; mad.lo.u32 %0, a, 2, %1; }" : "=r"(w) : "r"(w));
    z[i] = w + lane_id();
}""",
    1,
    64,
    X,
    zeros(64),
    zeros(64, dtype=np.uint32),
    want={
        1: np.where(X > 0.5, 2 * X, X),
        2: [(w := i ^ 255 ^ i << 4) + 2 * (w >> 3 & 127) + i % 32 for i in range(64)],
    },
    flaws=[
        Flaw("outside", "st.global.f32", '::"l"(y + i)', '::"l"(y + i + 1)', "y[64]")
    ],
)
