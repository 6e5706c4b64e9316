"""The numba kernels, traced on the CPU at awkward sizes: right results, and no race, missing barrier or wild index."""

import numpy as np
import pytest

from exercises.nb04 import numba_kernels
from kerneltrace import trace

pytestmark = pytest.mark.slow  # traces whole multiplications


def traced(kernel, grid, block, *arguments):
    run = trace(kernel, grid, block, *arguments)
    assert not run.findings, run.findings
    return arguments[-1]


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@pytest.mark.parametrize("kernel", ["sum_shared", "sum_shuffle"])
@pytest.mark.parametrize("n", [1, 1023])
def test_numba_sums(kernel, n):
    x = np.abs(numbers(n))
    total = traced(getattr(numba_kernels, kernel), 2, numba_kernels.THREADS, x, np.zeros(1, np.float32))
    np.testing.assert_allclose(total[0], x.sum(dtype=float), rtol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "grid", "block"),
    [("matmul_tiled", (2, 3), (16, 16)), ("matmul_blocked", 1, 256)],
)
def test_numba_matmuls(kernel, grid, block):
    a, b = numbers(33, 20), numbers(20, 18)
    c = traced(getattr(numba_kernels, kernel), grid, block, a, b, np.full((33, 18), np.nan, np.float32))
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
