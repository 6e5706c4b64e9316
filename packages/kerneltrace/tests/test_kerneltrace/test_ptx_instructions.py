"""Each instruction that NVRTC makes of C++ computes what NumPy computes."""

import math

import numpy as np
import pytest

from kerneltrace import compile_cuda, trace
from test_kerneltrace.tracing import not_on_macos

pytestmark = [pytest.mark.slow, not_on_macos]  # compiles kernels

FRAME = """extern "C" __global__ void kernel(const {T}* x, {T}* y, int n)
{{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}"""
X = np.linspace(-3, 3, 37, dtype=np.float32)


def run(body, x=X, options=()):
    kind = {
        "f4": "float",
        "f8": "double",
        "i4": "int",
        "u4": "unsigned",
        "i8": "long long",
    }[x.dtype.str[1:]]
    source = FRAME.format(T=kind, body=body)
    y = np.zeros_like(x)
    built = compile_cuda(source, compute_capability=(8, 0), options=options)
    traced = trace(built, 3, 16, passed := x.copy(), y, len(x))
    assert traced.ok, traced
    np.testing.assert_array_equal(passed, x)
    return y


@pytest.mark.parametrize("options", [(), ("--use_fast_math",)])
@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("2.0f * x[i] - 1.0f", 2 * X - 1),
        ("x[i] > 0.0f ? x[i] : 0.0f", np.maximum(X, 0)),
        ("tanhf(x[i])", np.tanh(X)),
        ("__saturatef(x[i])", np.clip(X, 0, 1)),
        ("expf(x[i])", np.exp(X)),
        ("exp2f(x[i]) + __expf(x[i])", np.exp2(X) + np.exp(X)),
        ("logf(x[i] * x[i] + 1.0f)", np.log(X**2 + 1)),
        ("powf(fabsf(x[i]), 1.5f)", np.abs(X) ** 1.5),
        ("copysignf(2.0f, x[i])", np.copysign(2, X)),
        ("fmaxf(fminf(x[i], 1.0f), -1.0f)", np.clip(X, -1, 1)),
        ("sqrtf(fabsf(x[i])) / 3.0f", np.sqrt(np.abs(X)) / 3),
        ("rsqrtf(x[i] * x[i] + 1.0f)", 1 / np.sqrt(X**2 + 1)),
        ("erff(x[i])", [math.erf(x) for x in X]),
        (
            "floorf(x[i]) + truncf(x[i]) + rintf(x[i]) + ceilf(x[i])",
            np.floor(X) + np.trunc(X) + np.rint(X) + np.ceil(X),
        ),
        ("(float)(int)x[i]", np.trunc(X)),
        ("__int_as_float(__float_as_int(x[i]) & 0x7fffffff)", np.abs(X)),
        ("cbrtf(x[i])", np.cbrt(X)),
        ("sinhf(x[i])", np.sinh(X)),
        ("ldexpf(x[i], 3)", 8 * X),
    ],
)
def test_float32_is_what_numpy_computes(expression, wanted, options):
    y = run(f"if (i < n) y[i] = {expression};", options=options)
    np.testing.assert_allclose(y, wanted, rtol=1e-3 if options else 1e-4, atol=1e-5)


WIDE = np.linspace(0.1, 5, 37)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("pow(x[i], 0.3)", WIDE**0.3),
        ("pow(x[i], 2)", WIDE**2),
        ("hypot(x[i], 3.0)", np.hypot(WIDE, 3)),
        ("exp(x[i])", np.exp(WIDE)),
        ("log(x[i])", np.log(WIDE)),
        ("fma(x[i], x[i], 0)", WIDE**2),
        ("cbrt(x[i])", np.cbrt(WIDE)),
        ("rsqrt(x[i])", WIDE**-0.5),
        ("tanh(x[i])", np.tanh(WIDE)),
        ("(float)x[i]", WIDE.astype(np.float32)),
        ("ldexp(x[i], -2)", WIDE / 4),
    ],
)
def test_float64_is_what_numpy_computes(expression, wanted):
    np.testing.assert_allclose(
        run(f"if (i < n) y[i] = {expression};", WIDE), wanted, rtol=1e-12
    )


WHOLE = np.arange(-2_000_000_000, 2_000_000_000, 111_111_111, dtype=np.int64)


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("x[i] * 7 - 3", lambda x: x * 7 - 3),
        ("x[i] >> 3", lambda x: x >> 3),
        ("x[i] << 5", lambda x: x << 5),
        ("(x[i] & 255) ^ 85 | 4096", lambda x: x & 255 ^ 85 | 4096),
        ("x[i] / 7", lambda x: np.trunc(x.astype(np.longdouble) / 7)),
        ("x[i] % 9", lambda x: np.fmod(x, 9)),
        ("x[i] < 5 ? 1 : 2", lambda x: np.where(x < 5, 1, 2)),
    ],
)
def test_whole_numbers_are_what_c_computes(expression, wanted, dtype):
    x = WHOLE.astype(dtype)
    np.testing.assert_array_equal(
        run(f"if (i < n) y[i] = {expression};", x), wanted(x).astype(dtype)
    )


def test_tanh_as_the_fast_instruction_has_three_digits():
    y = run('if (i < n) asm("tanh.approx.f32 %0, %1;" : "=f"(y[i]) : "f"(x[i]));')
    assert (
        1e-5 < np.abs(y / np.where(X == 0, 1, np.tanh(X)) - 1)[X != 0].max() <= 2**-11
    )


def test_constants_and_arrays_of_a_thread_are_there():
    constants = "__constant__ float twice = 2.0f, more[2] = {1.0f, -3.0f};\n"
    local = (
        "__shared__ float s[16]; volatile float t[3]; s[threadIdx.x] = x[i];"
        " __syncthreads(); t[n % 3] = more[n % 2];"
    )
    body = f"if (i < n) {{ {local} y[i] = twice * s[threadIdx.x] + t[n % 3]; }}"
    trace(
        constants + FRAME.format(T="float", body=body),
        3,
        16,
        X,
        y := np.zeros_like(X),
        37,
    )
    np.testing.assert_allclose(y, 2 * X - 3, rtol=1e-6)


BITS = np.array(
    [0, 1, 2, 3, 0x80, 0x8000, 0x12345678, 0x80000000, 0xFFFFFFFF] * 4, np.uint32
)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("__popc(x[i])", lambda x: bin(x).count("1")),
        ("__clz(x[i])", lambda x: 32 - x.bit_length()),
        ("__ffs(x[i])", lambda x: (x & -x).bit_length()),
        ("__brev(x[i])", lambda x: int(f"{x:032b}"[::-1], 2)),
        ("__byte_perm(x[i], 0x11223344, 0x5140)", lambda x: x & 255 | 0x4400 | (x >> 8 & 255) << 16 | 0x33000000),
        ("__umulhi(x[i], x[i] + 1)", lambda x: x * ((x + 1) % 2**32) >> 32),
        ("__funnelshift_l(x[i], 7u, 5)", lambda x: (7 << 32 | x) >> 27 & 0xFFFFFFFF),
        ("(x[i] >> 3 & 31) | (x[i] & 7) << 9", lambda x: x >> 3 & 31 | (x & 7) << 9),
        ("__dp4a(x[i], 0x01020304u, 5u)", lambda x: sum((x >> 8 * k & 255) * (4 - k) for k in range(4)) + 5),
        ("(unsigned)(((unsigned long long)x[i] * 0x123456789abcdefull) >> 40)",
         lambda x: (x * 0x123456789ABCDEF % 2**64 >> 40) % 2**32),
        ("(unsigned)__umul64hi((unsigned long long)x[i] << 30, 0x123456789abcdefull)",
         lambda x: ((x << 30) * 0x123456789ABCDEF >> 64) % 2**32),
        ("(x[i] & 0xf0f0) ^ (x[i] | 0xff) & ~i", None),
    ],
)  # fmt: skip
def test_bits_are_what_c_computes(expression, wanted):
    if wanted is None:
        wanted = [
            (x & 0xF0F0) ^ (x | 0xFF) & ~i & 0xFFFFFFFF
            for i, x in enumerate(BITS.tolist())
        ]
    else:
        wanted = [wanted(x) % 2**32 for x in BITS.tolist()]
    assert run(f"if (i < n) y[i] = {expression};", BITS).tolist() == wanted


HALVES = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void kernel(const float* x, float* y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { BODY }
}"""


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("y[i] = __half2float(__hadd(__float2half(x[i]), __float2half(1.0f)));",
         (X.astype(np.float16) + np.float16(1)).astype(np.float32)),
        ("__half2 p = __floats2half2_rn(x[i], 2 * x[i]); p = __hfma2(p, p, p); y[i] = __low2float(p);",
         (X.astype(np.float16).astype(np.float32) ** 2 + X.astype(np.float16)).astype(np.float16)),
        ("y[i] = __bfloat162float(__float2bfloat16(x[i]));",
         (X.view(np.uint32) + 0x7FFF + (X.view(np.uint32) >> 16 & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32)),
        ("y[i] = __fadd_rz(x[i], 1e-8f) + __fmul_ru(x[i], 1.0f);", 2 * X),
        ("y[i] = __float2int_rd(x[i]) + __float2int_ru(x[i]) + (float)__float2uint_rz(x[i]);",
         np.floor(X) + np.ceil(X) + np.maximum(np.trunc(X), 0)),
        ("y[i] = isnan(x[i] / 0.0f * 0.0f) + (x[i] != x[i]) + signbit(x[i]);", 1 + np.signbit(X)),
    ],
)  # fmt: skip
def test_short_floats_and_roundings(body, wanted):
    y = np.zeros_like(X)
    trace(HALVES.replace("BODY", body), 3, 16, X, y, 37)
    np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-7)


def test_a_function_that_is_called_runs_in_its_place():
    function = (
        "__device__ __noinline__ float f(float v, int n) { while (n-- > 0 && v < 2) v"
        " *= 1.5f; return v; }\n"
    )
    trace(
        function
        + FRAME.format(T="float", body="if (i < n) y[i] = f(x[i], i % 5) + f(1, 2);"),
        3,
        16,
        X,
        y := np.zeros_like(X),
        37,
    )
    wanted = X.copy()
    for i in range(37):
        for _ in range(i % 5):
            wanted[i] *= np.float32(1.5 if wanted[i] < 2 else 1)
    np.testing.assert_allclose(y, wanted + 2.25, rtol=1e-6)


def test_a_switch_jumps_through_a_table():
    cases = " ".join(
        f"case {k}: y[i] = x[{(7 * k) % 11}] + {k}; break;" for k in range(9)
    )
    y = run(f"if (i < n) switch (i % 10) {{ {cases} default: y[i] = -1; }}")
    assert y.tolist() == [
        X[7 * (i % 10) % 11] + np.float32(i % 10) if i % 10 < 9 else -1
        for i in range(37)
    ]


def test_nan_is_0_among_32_bits_and_the_highest_bit_alone_among_64():
    code = r"""
    __global__ void k(const float* x, int* ints, long long* longs) {
        double wide = x[0];
        ints[0] = (int)x[0];
        ints[1] = (int)wide;
        longs[0] = (long long)x[0];
    }"""
    ints = np.ones(2, np.int32)
    longs = np.ones(1, np.int64)
    trace(code, 1, 1, np.full(1, np.nan, np.float32), ints, longs)
    assert ints.tolist() == [0, -(2**31)]
    assert longs.tolist() == [-(2**63)]
