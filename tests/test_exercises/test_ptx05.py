"""The interpreter behind exercises 05.4 and 05.5, on kernels that NVRTC compiled here, against NumPy."""

import numpy as np
import pytest

from exercises.nb05.ptx import EndlessError, OutsideError, Program
from kerneltrace.compiler import compile_cuda

FRAME = """extern "C" __global__ void kernel(const {T}* x, {T}* y, int n)
{{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}"""
X = np.linspace(-3, 3, 37, dtype=np.float32)


def run(body, x=X, capability=(8, 0), options=()):
    kind = {"f4": "float", "f8": "double", "i4": "int", "u4": "unsigned", "i8": "long long"}[x.dtype.str[1:]]
    source = FRAME.format(T=kind, body=body)
    program = Program(compile_cuda(source, compute_capability=capability, options=options).ptx)
    y = np.zeros_like(x)
    written_x, written, _ = program.launch("kernel", [x.copy(), y, len(x)], blocks=3, threads=16)
    assert not written_x
    return y, written


@pytest.mark.parametrize("capability", [(8, 0), pytest.param((9, 0), marks=pytest.mark.complete)])
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
        ("erff(x[i])", [__import__("math").erf(x) for x in X]),
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
def test_float32_is_what_numpy_computes(expression, wanted, options, capability):
    y, written = run(f"if (i < n) y[i] = {expression};", options=options, capability=capability)
    assert written == set(range(37))
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
    np.testing.assert_allclose(run(f"if (i < n) y[i] = {expression};", WIDE)[0], wanted, rtol=1e-12)


WHOLE = np.arange(-2_000_000_000, 2_000_000_000, 111_111_111, dtype=np.int64)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64])
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
    np.testing.assert_array_equal(run(f"if (i < n) y[i] = {expression};", x)[0], wanted(x).astype(dtype))


def test_tanh_as_the_fast_instruction_has_three_digits():
    y, _ = run('if (i < n) asm("tanh.approx.f32 %0, %1;" : "=f"(y[i]) : "f"(x[i]));')
    assert 1e-5 < np.abs(y / np.where(X == 0, 1, np.tanh(X)) - 1)[X != 0].max() <= 2**-11


@pytest.mark.parametrize(
    "body",
    [
        "for (int j = i; j < n; j += gridDim.x * blockDim.x) y[j] = x[j];",
        "if (i < n) { float s = 0; for (int j = 0; j < i; ++j) s += 1; y[i] = x[i] + 0 * s; }",
        "if (4 * i + 3 < n) ((float4*)y)[i] = ((const float4*)x)[i]; else for (int j = 4 * i; j < n; ++j) y[j] = x[j];",
    ],
)
def test_loops_and_vectors_are_run(body):
    y, written = run(body)
    assert written == set(range(37))
    np.testing.assert_array_equal(y, X)


def test_constants_and_arrays_of_a_thread_are_there():
    constants = "__constant__ float twice = 2.0f, more[2] = {1.0f, -3.0f};\n"
    local = (
        "__shared__ float s[16]; volatile float t[3]; s[threadIdx.x] = x[i]; __syncthreads(); t[n % 3] = more[n % 2];"
    )
    program = Program(
        compile_cuda(
            constants
            + FRAME.format(T="float", body=f"if (i < n) {{ {local} y[i] = twice * s[threadIdx.x] + t[n % 3]; }}"),
            compute_capability=(8, 0),
        ).ptx
    )
    y = np.zeros_like(X)
    program.launch("kernel", [X.copy(), y, 37], blocks=3, threads=16)
    np.testing.assert_allclose(y, 2 * X - 3, rtol=1e-6)


def test_threads_that_branch_do_not_write():
    assert run("if (i < n) { if (x[i] > 0.0f) y[i] = x[i]; }")[1] == set(range(19, 37))


def test_without_a_guard_a_thread_goes_behind_the_array():
    with pytest.raises(OutsideError) as raised:
        run("y[i] = x[i];")
    assert (raised.value.argument, raised.value.index) == (0, 37)
    with pytest.raises(OutsideError) as raised:
        run("y[i - 1] = 1.0f;")
    assert (raised.value.argument, raised.value.index) == (1, -1)


def test_a_write_to_x_is_found():
    with pytest.raises(AssertionError):
        run("if (i < n) ((float*)x)[i] = 0.0f;")


def test_a_loop_without_an_end_and_an_unknown_instruction_are_said():
    with pytest.raises(EndlessError):
        run("for (int j = 0; x[j % n] < 9.0f; ++j) y[0] = j;")
    with pytest.raises(NotImplementedError):
        run("y[0] = __shfl_down_sync(0xffffffff, x[0], 1);")
