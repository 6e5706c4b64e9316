"""Triton kernels compute the right results without a GPU, and their requests are counted."""

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest

from kerneltrace import trace
from kerneltrace.errors import KernelError

pytestmark = [
    pytest.mark.slow,  # compiles kernels with Triton
    pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is not installed"),
]

if importlib.util.find_spec("triton"):
    triton: Any = importlib.import_module("triton")
    tl: Any = importlib.import_module("triton.language")

    @triton.jit
    def add(x, y, out, n, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)

    @triton.jit
    def gather(x, out, row_stride, column_stride, rows: tl.constexpr, columns: tl.constexpr):
        i, j = tl.arange(0, rows)[:, None], tl.arange(0, columns)[None, :]
        tl.store(out + i * columns + j, tl.load(x + i * row_stride + j * column_stride))

    @triton.jit
    def softmax(out, x, n, block: tl.constexpr):
        at = tl.program_id(0) * n + tl.arange(0, block)
        inside = tl.arange(0, block) < n
        e = tl.exp(tl.load(x + at, inside, -float("inf")) - tl.max(tl.load(x + at, inside, -float("inf")), 0))
        tl.store(out + at, e / tl.sum(e, 0), inside)

    @triton.jit
    def matmul(a, b, c, n, k, tile: tl.constexpr, depth: tl.constexpr):
        row, column = tl.program_id(0) * tile + tl.arange(0, tile), tl.program_id(1) * tile + tl.arange(0, tile)
        inner = tl.arange(0, depth)
        total = tl.zeros((tile, tile), tl.float32)
        for i in range(0, k, depth):
            left = tl.load(a + row[:, None] * k + (i + inner)[None, :])
            right = tl.load(b + (i + inner)[:, None] * n + column[None, :])
            total = tl.dot(left, right, total)
        tl.store(c + row[:, None] * n + column[None, :], total)


def random(*shape):
    return np.random.default_rng(7).random(shape).astype(np.float32)


def test_a_sum_of_vectors():
    x, y, out = random(1008), random(1008) + 1, np.zeros(1008, np.float32)
    done = trace(add, 4, 128, x, y, out, 1008, constants={"block": 256})
    np.testing.assert_array_equal(out, x + y)
    assert done.ok, done
    assert done.count("x").sectors == done.count("out").sectors == 126


def test_a_number_that_is_1_is_a_constant_as_at_a_launch():
    x, out = random(16, 64), np.zeros((16, 64), np.float32)
    done = trace(gather, 1, 64, x, out, 64, 1, constants={"rows": 16, "columns": 64})
    np.testing.assert_array_equal(out, x)
    assert done.ok, done
    # Triton knows that columns are neighbours, and loads four at a time; of a stride of 2 it can't.
    assert done.count("x", kind="load").reads == 256
    apart, out = random(16, 128), np.zeros((16, 64), np.float32)
    done = trace(gather, 1, 64, apart, out, 128, 2, constants={"rows": 16, "columns": 64})
    np.testing.assert_array_equal(out, apart[:, ::2])
    assert done.count("x", kind="load").reads == 1024


def test_a_softmax_of_rows():
    x, out = random(8, 200), np.zeros((8, 200), np.float32)
    done = trace(softmax, 8, 128, out, x, 200, constants={"block": 256})
    np.testing.assert_allclose(out, np.exp(x) / np.exp(x).sum(axis=1, keepdims=True), rtol=1e-5)
    assert done.ok, done
    assert done.shuffles
    assert done.barriers


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 1e-6), (np.float32, 1e-3)])
def test_a_matrix_product_on_tensor_cores(dtype, tolerance):
    a, b, c = random(128, 64).astype(dtype), random(64, 128).astype(dtype), np.zeros((128, 128), np.float32)
    done = trace(matmul, (2, 2), 128, a, b, c, 128, 64, constants={"tile": 64, "depth": 32})
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), rtol=tolerance)
    assert done.ok, done
    assert done.flop >= 2 * 128 * 128 * 64


def test_wrong_launches_are_refused_in_words():
    x = random(16)
    for args, block in (((x, x, x), 128), ((x, x, x, 16), 96)):
        with pytest.raises(KernelError, match=r"add takes x, y, out, n and 32, 64, 128, \.\.\. threads a block"):
            trace(add, 1, block, *args, constants={"block": 16})
    with pytest.raises(KernelError, match="'n' is 'text'"):
        trace(add, 1, 128, x, x, x, "text", constants={"block": 16})
