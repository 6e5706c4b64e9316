"""Triton kernels compute the right results without a GPU, and their requests are
counted.
"""

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest

from kerneltrace import trace
from kerneltrace.errors import KernelError

has_triton = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not has_triton, reason="Triton is not installed")
pytestmark = [pytest.mark.slow, needs_triton]  # compiles kernels with Triton

if has_triton:
    triton: Any = importlib.import_module("triton")
    tl: Any = importlib.import_module("triton.language")

    @triton.jit
    def add(x, y, out, n, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)

    @triton.jit
    def gather(
        x, out, row_stride, column_stride, rows: tl.constexpr, columns: tl.constexpr
    ):
        i = tl.arange(0, rows)[:, None]
        j = tl.arange(0, columns)[None, :]
        tl.store(out + i * columns + j, tl.load(x + i * row_stride + j * column_stride))

    @triton.jit
    def matmul(a, b, c, n, k, tile: tl.constexpr, depth: tl.constexpr):
        row = tl.program_id(0) * tile + tl.arange(0, tile)
        column = tl.program_id(1) * tile + tl.arange(0, tile)
        inner = tl.arange(0, depth)
        total = tl.zeros((tile, tile), tl.float32)
        for i in range(0, k, depth):
            left = tl.load(a + row[:, None] * k + (i + inner)[None, :])
            right = tl.load(b + (i + inner)[:, None] * n + column[None, :])
            total = tl.dot(left, right, total)
        tl.store(c + row[:, None] * n + column[None, :], total)


def random(*shape):
    return np.random.default_rng(7).random(shape).astype(np.float32)


def test_a_number_that_is_1_is_a_constant_as_at_a_launch():
    x = random(16, 64)
    out = np.zeros((16, 64), np.float32)
    traced = trace(gather, 1, 64, x, out, 64, 1, constants={"rows": 16, "columns": 64})
    np.testing.assert_array_equal(out, x)
    assert traced.ok, traced
    # Triton knows that columns are neighbours, and loads four at a time; of a stride of
    # 2 it can't.
    assert traced.count("x", kind="load").reads == 256
    apart = random(16, 128)
    out = np.zeros((16, 64), np.float32)
    traced = trace(
        gather, 1, 64, apart, out, 128, 2, constants={"rows": 16, "columns": 64}
    )
    np.testing.assert_array_equal(out, apart[:, ::2])
    assert traced.count("x", kind="load").reads == 1024


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float16, 1e-6), (np.float32, 1e-3)]
)
def test_a_matrix_product_on_tensor_cores(dtype, tolerance):
    a = random(128, 64).astype(dtype)
    b = random(64, 128).astype(dtype)
    c = np.zeros((128, 128), np.float32)
    traced = trace(
        matmul, (2, 2), 128, a, b, c, 128, 64, constants={"tile": 64, "depth": 32}
    )
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), rtol=tolerance)
    assert traced.ok, traced
    assert traced.flop >= 2 * 128 * 128 * 64


def test_wrong_launches_are_refused_in_words():
    x = random(16)
    for args, block in (((x, x, x), 128), ((x, x, x, 16), 96)):
        with pytest.raises(
            KernelError,
            match=r"add takes x, y, out, n and 32, 64, 128, \.\.\. threads a block",
        ):
            trace(add, 1, block, *args, constants={"block": 16})
    with pytest.raises(KernelError, match="'n' is 'text'"):
        trace(add, 1, 128, x, x, x, "text", constants={"block": 16})
