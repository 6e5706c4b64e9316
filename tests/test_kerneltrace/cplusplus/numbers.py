"""Arithmetic: integers and bits, 16-bit floats, doubles, fast math, division of 64 bits, inline PTX."""

import numpy as np

from tests.test_kerneltrace.cplusplus.case import Cases, Flaw, below, random, zeros

CASES = Cases()
X = random(64)
U = below(2**32, 64, dtype=np.uint32)
BIG = below(2**62, 64, dtype=np.int64)
H = (4 * X - 2).astype(np.float16)
HALF = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
P = [int(u) for u in U]


def bf16(x):
    """float32 rounded to bfloat16, as float32."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


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
    1, 16, H, zeros(64, dtype=np.float16), 32, 2.0, rtol=2e-3, want={1: None},
)  # fmt: skip
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
    1, 64, H, zeros(64, dtype=np.float16), zeros(64), rtol=1e-2,
    want={2: 1 / (np.abs(H.astype("f4")) + 1) + np.rint(H) + np.log2(np.abs(H.astype("f4")) + 1)},
)  # fmt: skip
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
    "bits",
    """__global__ void k(const unsigned* x, unsigned* y, int n) {
    unsigned v = x[threadIdx.x], r = 0;
    r += __popc(v) + 3 * __clz(v) + 5 * __ffs(v);
    r ^= __brev(v) + __byte_perm(v, r, 0x2103);
    r += __funnelshift_l(v, r, v) ^ __funnelshift_r(v, r, 9) ^ __funnelshift_rc(v, r, 40);
    r += __umulhi(v, 0x9E3779B9u) + __mulhi((int)v, 77777) + __umul24(v, 3) + __usad(v, 5u, 7u);
    r ^= (unsigned)__dp4a((int)v, 0x01fe03fc, 5) + __dp4a(v, 0x01020304u, 5u);
    r += __vadd4(v, 0x01010101u) ^ __vmaxs2(v, 0x00010002u) ^ __vabsdiffu4(v, 0x10203040u);
    y[threadIdx.x] = r;
}""",
    1, 64, U, zeros(64, dtype=np.uint32), 64, want={1: None},
)  # fmt: skip


def _bits(v):
    m, s = 0xFFFFFFFF, lambda n: n - 2**32 if n >= 2**31 else n
    r = bin(v).count("1") + 3 * (32 - v.bit_length()) + 5 * (v & -v).bit_length()
    both = [v >> 8 * i & 255 for i in range(4)] + [r >> 8 * i & 255 for i in range(4)]
    r ^= (int(f"{v:032b}"[::-1], 2) + sum(both[k] << 8 * i for i, k in enumerate((3, 0, 1, 2)))) & m
    wide = r << 32 | v
    r = (r + (((wide << (v & 31)) >> 32 & m) ^ (wide >> 9 & m) ^ (wide >> 32 & m))) & m
    r += (v * 0x9E3779B9 >> 32) + (s(v) * 77777 >> 32) + (v & 0xFFFFFF) * 3 + abs(v - 5) + 7
    r &= m
    signed = lambda w: [(b ^ 128) - 128 for b in w.to_bytes(4, "little")]  # noqa: E731
    dot = sum(a * b for a, b in zip(signed(v), signed(0x01FE03FC), strict=True)) + 5
    r ^= (dot + sum((v >> 8 * k & 255) * (4 - k) for k in range(4)) + 5) & m
    add4 = sum(((v >> 8 * i) + 1 & 255) << 8 * i for i in range(4))
    low, high = ((v >> 16 * i & 0xFFFF ^ 0x8000) - 0x8000 for i in range(2))
    max2 = (max(low, 2) & 0xFFFF) | (max(high, 1) & 0xFFFF) << 16
    diff4 = sum(abs((v >> 8 * i & 255) - (0x10203040 >> 8 * i & 255)) << 8 * i for i in range(4))
    return (r + (add4 ^ max2 ^ diff4)) & m


CASES.found["bits"].want[1] = [_bits(v) for v in P]
CASES(
    "64 bits: products, quotients, shifts",
    """__global__ void k(const long long* x, long long* y, unsigned long long d) {
    long long v = x[threadIdx.x] - (1LL << 61);
    unsigned long long u = (unsigned long long)x[threadIdx.x];
    y[threadIdx.x] = v / 12345 + v % 1000003 + (long long)(u / d) + (long long)(u % d) + __mul64hi(v, v)
                     + (long long)__umul64hi(u, u) + (v >> 7) + (long long)(u << 3) + __clzll(v) + __popcll(u)
                     + __ffsll(v) + (long long)__brevll(u);
}""",
    1, 64, BIG, zeros(64, dtype=np.int64), 987654321987, want={1: None},
)  # fmt: skip


def _wide(u):
    v, m = u - (1 << 61), 2**64 - 1
    quotient = abs(v) // 12345 * (1 if v >= 0 else -1)
    rest = abs(v) % 1000003 * (1 if v >= 0 else -1)
    total = quotient + rest + u // 987654321987 + u % 987654321987 + (v * v >> 64) + (u * u >> 64) + (v >> 7) + (u << 3)
    w = v & m
    total += 64 - w.bit_length() + bin(u).count("1") + (w & -w).bit_length() + int(f"{u:064b}"[::-1], 2)
    return ((total + 2**63) & m) - 2**63


CASES.found["64 bits: products, quotients, shifts"].want[1] = np.array([_wide(int(u)) for u in BIG])
CASES(
    "fast math and rounding",
    """__global__ void k(const float* x, float* y) {
    float v = x[threadIdx.x] + 0.5f;
    y[threadIdx.x] = __expf(v) + __logf(v) + __sinf(v) + __cosf(v) + __powf(v, 2.5f) + __fdividef(1.f, v)
                     + __frsqrt_rn(v) + __fsqrt_rn(v) + __frcp_rn(v) + __saturatef(v - 1) + __fmaf_rn(v, v, v)
                     + __float2int_rd(v * 10) + __int2float_rn(7) + rintf(v * 4) + __fadd_rz(v, 1.0f)
                     + __tanf(v * 0.5f) + exp10f(v) + fmodf(v * 7, 2.f) + ldexpf(v, 2) + (float)signbit(v);
}""",
    1, 64, X, zeros(64), rtol=1e-4, want={1: None},
)  # fmt: skip
G = X.astype("f8") + 0.5
CASES.found["fast math and rounding"].want[1] = (
    np.exp(G) + np.log(G) + np.sin(G) + np.cos(G) + G**2.5 + 1 / G + G**-0.5 + G**0.5 + 1 / G + np.clip(G - 1, 0, 1)
    + G * G + G + np.floor((X + np.float32(0.5)) * 10) + 7 + np.rint((X + np.float32(0.5)) * 4) + G + 1
    + np.tan(G / 2) + 10**G + np.fmod((X + np.float32(0.5)) * np.float32(7), np.float32(2)) + 4 * G
)  # fmt: skip
CASES(
    "functions of doubles",
    """__global__ void k(const double* x, double* y) {
    double v = x[threadIdx.x] + 0.25;
    y[threadIdx.x] = exp(v) + log(v) + sin(v) + cos(9 * v) + pow(v, 1.7) + sqrt(v) / v + rsqrt(v) + cbrt(v)
                     + atan2(v, 2.0)
                     + erf(v) + tgamma(v + 1) + hypot(v, 3.0) + fmod(v * 7, 2.0) + floor(v * 5) + log1p(v) + expm1(v)
                     + fma(v, v, v) + fmax(v, 0.7) + __double2int_rz(v * 9) + asin(v / 2) + sinh(v) + nearbyint(v * 3);
}""",
    1, 64, random(64, dtype=np.float64), zeros(64, dtype=np.float64), rtol=1e-12, want={1: None},
)  # fmt: skip
D = random(64, dtype=np.float64) + 0.25
MATH = __import__("math")
CASES.found["functions of doubles"].want[1] = [
    MATH.exp(v) + MATH.log(v) + MATH.sin(v) + MATH.cos(9 * v) + v**1.7 + v**0.5 / v + v**-0.5 + np.cbrt(v)
    + MATH.atan2(v, 2) + MATH.erf(v) + MATH.gamma(v + 1) + MATH.hypot(v, 3) + MATH.fmod(v * 7, 2) + MATH.floor(v * 5)
    + MATH.log1p(v) + MATH.expm1(v) + v * v + v + max(v, 0.7) + int(v * 9) + MATH.asin(v / 2) + MATH.sinh(v)
    + np.rint(v * 3) for v in D
]  # fmt: skip
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
    1, 64, X, zeros(64), zeros(64, dtype=np.uint32),
    want={1: np.where(X > 0.5, 2 * X, X),
          2: [(w := i ^ 255 ^ i << 4) + 2 * (w >> 3 & 127) + i % 32 for i in range(64)]},
    flaws=[Flaw("outside", "st.global.f32", '::"l"(y + i)', '::"l"(y + i + 1)', "y[64]")],
)  # fmt: skip
CASES(
    "clocks and sleep",
    """__global__ void k(const float* x, float* y, long long* ticks) {
    long long start = clock64();
    float v = x[threadIdx.x];
    __nanosleep(100);
    y[threadIdx.x] = v * v;
    unsigned int c = clock();
    ticks[threadIdx.x] = clock64() - start + (c == 12345u);
}""",
    1, 64, X, zeros(64), zeros(64, dtype=np.int64), want={1: X * X},
)  # fmt: skip
CASES(
    "complex numbers and a Mandelbrot set",
    """__global__ void mandel(int* out, int w, int h, int limit) {
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= w || py >= h) return;
    float2 c = make_float2(-2.f + 3.f * px / w, -1.f + 2.f * py / h), z = make_float2(0.f, 0.f);
    int n = 0;
    while (n < limit && z.x * z.x + z.y * z.y < 4.f) {
        z = make_float2(z.x * z.x - z.y * z.y + c.x, 2.f * z.x * z.y + c.y);
        ++n;
    }
    out[py * w + px] = n;
}""",
    (2, 2), (8, 8), zeros(16, 16, dtype=np.int32), 16, 16, 30, want={},
)  # fmt: skip
CASES(
    "random numbers of a xorshift, and Monte Carlo",
    """__device__ unsigned int xorshift(unsigned int& s) { s ^= s << 13; s ^= s >> 17; s ^= s << 5; return s; }
__global__ void pi(unsigned int* hits, int n) {
    unsigned int s = blockIdx.x * blockDim.x + threadIdx.x + 1, count = 0;
    for (int i = 0; i < n; ++i) {
        float x = xorshift(s) * 2.3283064e-10f, y = xorshift(s) * 2.3283064e-10f;
        count += (x * x + y * y <= 1.0f);
    }
    atomicAdd(hits, count);
}""",
    2, 32, zeros(1, dtype=np.uint32), 20, want={},
    flaws=[Flaw("race", "*hits += count", "atomicAdd(hits, count)", "*hits += count")],
)  # fmt: skip
