"""Triton kernels compute the right results without a GPU, and their requests are
counted.
"""

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest

from gpufacts import find
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

    @triton.jit
    def product(x, y, out):
        i = tl.arange(0, 16)
        at = i[:, None] * 16 + i[None, :]
        tl.store(out + at, tl.dot(tl.load(x + at), tl.load(y + at)))

    @triton.jit
    def histogram(x, y, out):
        i = tl.arange(0, 16)
        tl.store(out + i, tl.histogram(tl.load(x + i).to(tl.int32), 16).to(tl.float32))

    @triton.jit
    def sums(x, y, out):
        i = tl.arange(0, 16)[:, None]
        j = tl.arange(0, 16)[None, :]
        total = tl.sum(tl.load(x + i * 16 + j), 0)
        tl.store(out + j, total[None, :] + tl.cumsum(tl.load(y + j), 1))

    @triton.jit
    def colliding(x, y, out):
        i = tl.arange(0, 128)
        tl.store(out + i % 16, tl.load(x + i))

    @triton.jit
    def printing(x, y, out):
        i = tl.arange(0, 32)
        tl.device_print("value", tl.load(x + i))
        tl.store(out + i, tl.load(y + i))

    configurations = [
        triton.Config({"block": 64}, num_warps=2),
        triton.Config({"block": 128}, num_warps=4),
    ]

    @triton.autotune(configurations, key=["n"])
    @triton.heuristics({"even": lambda args: args["n"] % args["block"] == 0})
    @triton.jit
    def tuned(
        x, out, n, block: tl.constexpr, even: tl.constexpr, factor: tl.constexpr = 2
    ):
        at = tl.program_id(0) * block + tl.arange(0, block)
        if even:
            tl.store(out + at, factor * tl.load(x + at))
        else:
            tl.store(out + at, factor * tl.load(x + at, at < n), at < n)


def random(*shape):
    return np.random.default_rng(7).random(shape).astype(np.float32)


def test_a_number_that_is_1_is_a_constant_as_at_a_launch():
    x = random(16, 64)
    out = np.zeros((16, 64), np.float32)
    traced = trace(gather, 1, 64, x, out, 64, 1, constants={"rows": 16, "columns": 64})
    np.testing.assert_array_equal(out, x)
    assert traced.ok, traced
    # Triton knows that columns are neighbors, and loads four at a time; of a stride of
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
    # the same product without tensor cores: 64 numbers of an SM a clock
    t4 = find("T4")
    options = {"grid": (64, 64)}
    estimate = traced.estimate(t4, **options)
    least_s = 4096 * 4096 * 64 / (64 * t4.sms * t4.boost_hz)
    assert least_s <= estimate.seconds <= 2 * least_s
    assert "tensor cores" not in estimate.parts
    assert traced.review("T4", **options).of("tensor cores")
    assert not traced.review("A100 SXM4 80GB", **options).of("tensor cores")


@pytest.mark.parametrize("threads", [64, 256])
@pytest.mark.parametrize("name", ["product", "histogram", "sums", "colliding"])
def test_warps_that_store_the_same_do_not_race(name, threads):
    traced = trace(globals()[name], 1, threads, *(random(16, 16) for _ in range(3)))
    races = [finding for finding in traced.findings if finding.kind == "race"]
    assert bool(races) == (name == "colliding"), traced


def test_what_a_kernel_prints_is_a_note():
    x = random(32)
    traced = trace(printing, 1, 32, x, x, out := np.zeros(32, np.float32))
    np.testing.assert_array_equal(out, x)
    assert traced.ok, traced
    assert f"pid (0, 0, 0) idx ( 0) value: {x[0]:f}" in str(traced)


@pytest.mark.parametrize(
    ("grid", "threads", "constants"),
    [(3, 64, {}), (2, 128, {}), (2, 64, {"block": 128, "even": False, "factor": 2})],
)
def test_a_tuned_kernel_takes_the_configuration_of_its_threads(
    grid, threads, constants
):
    x = random(160)
    out = np.zeros(160, np.float32)
    traced = trace(tuned, grid, threads, x, out, 160, constants=constants)
    np.testing.assert_array_equal(out, 2 * x)
    assert traced.ok, traced
    with pytest.raises(KernelError, match="even from 'block', which is not passed"):
        trace(tuned.fn, grid, threads, x, out, 160)


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


@pytest.mark.parametrize(
    ("args", "named", "words"),
    [
        ((16,), {"BLOCK": 16}, "trace takes no argument 'BLOCK'"),
        ((16, 16), {}, "add takes x, y, out, n and 32"),
        ((16,), {}, "'block': "),
    ],
)
def test_a_constexpr_in_the_wrong_place_names_constants(args, named, words):
    x = random(16)
    with pytest.raises(
        (TypeError, KernelError), match="constexpr in constants="
    ) as error:
        trace(add, 1, 128, x, x, x, *args, **named)
    assert words in str(error.value)
