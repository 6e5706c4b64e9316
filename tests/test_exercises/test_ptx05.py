"""The interpreter behind exercise 05.5, on kernels that NVRTC compiled here."""

import numpy as np
import pytest

from exercises.nb05.ptx import GeluLaunch, WrongArrayError
from labkit.gpu.compiler import compile_cuda

FRAME = """extern "C" __global__ void gelu(const float* x, float* y, int n)
{{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}"""
X = np.linspace(-3, 3, 37, dtype=np.float32)


def run(body):
    return GeluLaunch(compile_cuda(FRAME.format(body=body), compute_capability=(8, 0)).ptx, X, 37, blocks=3, threads=16)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("2.0f * x[i] - 1.0f", 2 * X - 1),
        ("x[i] > 0.0f ? x[i] : 0.0f", np.maximum(X, 0)),
        ("tanhf(x[i])", np.tanh(X)),
        ("fmaxf(x[i], 0.0f / 0.0f)", X),  # a NaN gives way
        ("sqrtf(fabsf(x[i])) / 3.0f", np.sqrt(np.abs(X)) / 3),
    ],
)
def test_it_computes_what_numpy_does(expression, wanted):
    written = run(f"if (i < n) y[i] = {expression};").written
    assert sorted(written) == list(range(37))
    np.testing.assert_allclose([written[i] for i in range(37)], wanted, rtol=1e-5, atol=1e-6)


def test_threads_that_branch_do_not_write():
    assert sorted(run("if (i < n) { if (x[i] > 0.0f) y[i] = x[i]; }").written) == list(range(19, 37))


def test_without_a_guard_threads_go_on_behind_the_array():
    assert max(run("y[i] = x[i];").read) == 47


def test_a_write_to_x_is_found():
    with pytest.raises(WrongArrayError):
        run("if (i < n) ((float*)x)[i] = 0.0f;")


@pytest.mark.parametrize(
    "body",
    [
        "for (int j = 0; j < 100000; j += (i < n)) y[i] = x[i];",
        "__shared__ float s[48]; s[threadIdx.x] = x[i]; __syncthreads(); y[i] = s[47 - threadIdx.x];",
    ],
)
def test_a_loop_or_an_unknown_instruction_is_said(body):
    with pytest.raises(NotImplementedError):
        run(body)
