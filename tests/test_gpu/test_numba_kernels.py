"""The numba kernels, traced on the CPU at awkward sizes: right results, and no race, missing barrier or wild index."""

import numpy as np
import pytest

from labkit.gpu.kernels import numba_kernels
from labkit.gpu.trace import trace


def traced(kernel, grid, block, *arguments):
    run = trace(kernel, grid, block, *arguments)
    assert not run.findings, run.findings
    return arguments[-1]


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@pytest.mark.parametrize("n", [1, 31, 1023])
def test_numba_copy_and_saxpy(n):
    x, y = numbers(n), numbers(2 * n)[n:]
    assert np.array_equal(traced(numba_kernels.copy, 2, 64, x, np.full_like(x, np.nan)), x)
    wanted = 2 * x + y
    np.testing.assert_allclose(traced(numba_kernels.saxpy, 2, 64, np.float32(2), x, y), wanted, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["transpose_naive", "transpose_tiled", "transpose_padded"])
@pytest.mark.parametrize("shape", [(1, 1), (33, 40)], ids=str)
def test_numba_transposes(kernel, shape):
    a, out = numbers(*shape), np.full(shape[::-1], np.nan, np.float32)
    traced(getattr(numba_kernels, kernel), (2, 2), (numba_kernels.TILE, numba_kernels.THREAD_ROWS), a, out)
    assert np.array_equal(out, a.T)


@pytest.mark.parametrize("kernel", ["sum_atomic", "sum_shared", "sum_shuffle"])
@pytest.mark.parametrize("n", [1, 1023])
def test_numba_sums(kernel, n):
    x = np.abs(numbers(n))
    total = traced(getattr(numba_kernels, kernel), 2, numba_kernels.THREADS, x, np.zeros(1, np.float32))
    np.testing.assert_allclose(total[0], x.sum(dtype=float), rtol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "grid", "block"),
    [("matmul_naive", (2, 3), (16, 16)), ("matmul_tiled", (2, 3), (16, 16)), ("matmul_blocked", 1, 256)],
)
def test_numba_matmuls(kernel, grid, block):
    a, b = numbers(33, 20), numbers(20, 18)
    c = traced(getattr(numba_kernels, kernel), grid, block, a, b, np.full((33, 18), np.nan, np.float32))
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
