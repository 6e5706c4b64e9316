"""The Python of a traced kernel: control flow, assignments, and numbers that round and
wrap as numba's do.
"""

import math

import numba
import numpy as np
import pytest
from numba import cuda, float32, int32

from kerneltrace import trace
from test_kerneltrace.tracing import filled, made_in_a_cell, run

# -- control flow


def test_loops_with_else_break_and_continue():
    def k(out):
        i = 0
        while i < 3:
            i += 1
        else:
            out[0] = i
        for j in range(5):
            if j == 2:
                break
        else:
            out[1] = -1
        for j in range(4):
            if j % 2:
                continue
            out[2] += 10 + j
        while True:
            i += 1
            if i < 7:
                continue
            break
        else:
            out[3] = -1
        out[4] = i + j

    assert filled(k, 1, 1, 5) == [3, 0, 22, 0, 10]


def test_conditions_are_evaluated_once_and_only_as_far_as_needed():
    def k(x, out):
        i = cuda.grid(1)
        if i < x.size and x[i] > 0:
            out[i] = 1
        elif 0 < -x[0] < 5:
            out[i] = 2

    out = np.zeros(4, np.int64)
    traced = run(k, 1, 4, np.array([-1, 1]), out)
    assert out.tolist() == [2, 1, 2, 2]
    assert traced.count("x").reads == 2 + 3


def test_a_loop_over_an_array_is_asked_to_count():
    def k(out, x):
        for v in x:
            out[0] += v

    (finding,) = trace(k, 1, 1, np.zeros(1), np.ones(3)).findings
    assert "count with `for i in range(x.size)`" in finding.words


def test_assignments():
    def k(out):
        a = 1
        b, n = (2, 3)
        a, b = b, a
        out[0] = a
        out[1] = b
        out[0], out[1] = out[1], out[0]
        out[2] = out[3] = n
        out[2] += 1
        out[3] **= 2
        n -= 1
        total: float32 = 2.0
        m = n + 5
        if m > 6:
            out[4] = m
        out[5] = total
        shape = out.shape
        out[6] = shape[0]

    assert filled(k, 1, 1, 7) == [1, 2, 4, 9, 7, 2, 7]


def test_math_of_python_and_numpy():
    def k(out, x):
        v = x[cuda.grid(1)]
        out[0], out[1], out[2] = math.sqrt(v), math.exp(-v), math.log(v)
        out[3], out[4], out[5] = math.sin(v), math.pow(v, 2), math.atan2(v, 1.0)
        out[6] = abs(-v)
        out[7] = min(v, 1.0)
        out[8] = max(v, 3.0)
        out[9], out[10], out[11] = math.floor(v), math.ceil(v), int(v)
        out[12], out[13], out[14] = v**0.5, math.erf(v), math.fabs(-v)
        out[15] = round(v)
        out[16] = math.pi
        out[17] = 7 % 4
        out[18], out[19] = math.isnan(v), math.log(v - v)

    v = 2.5
    expected = [
        math.sqrt(v),
        math.exp(-v),
        math.log(v),
        math.sin(v),
        v**2,
        math.atan2(v, 1),
        v,
        1,
        3,
        2,
        3,
        2,
    ]
    expected += [math.sqrt(v), math.erf(v), v, 2, math.pi, 3, 0, -math.inf]
    assert filled(k, 1, 1, 20, np.array([v]), dtype=float) == pytest.approx(
        expected, rel=1e-15
    )


# -- numbers


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.uint32, np.int64])
def test_integers_wrap_when_stored(dtype):
    def k(out, values):
        i = cuda.grid(1)
        out[i] = values[i] * 3 + 100
        out[i] += values[i]

    values = np.array([0, 1, -1, 50, 127, -128, 300, 70_000, -(2**31), 2**33 + 5])
    with np.errstate(over="ignore"):
        expected = ((values * 3 + 100).astype(dtype) + values).astype(dtype)
    assert filled(k, 1, 10, 10, values, dtype=dtype) == expected.tolist()


EXPRESSIONS = {
    "int literal": "x * 3 + y",
    "index": "x * i + y * i",
    "quotient of integers": "(i / 7) * x",
    "constant quotient": "(1 / 3) * x + y",
    "typed index": "int32(i) * x + y",
    "double literal": "x * 0.1 + y",
    "float32 literal": "float32(0.1) * x + y",
    "power": "x ** 2 + y",
    "root": "math.sqrt(x) * y",
    "minimum": "min(x, y) * y",
    "negated": "-x * y",
    "compared": "(x > y) * x",
    "double index": "x / (i + 1)",
}


@pytest.mark.slow
@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_mixed_types_compute_as_numba_does(expression):
    """To float32's rounding: numba computes float32 with int64 in float64, as it does
    the quotient of two integers.
    """
    source = (
        "def k(single, double, xs, ys):\n    i = cuda.grid(1)\n    x, y = xs[i],"
        f" ys[i]\n    single[i] = {expression}\n    double[i] = {expression}\n"
    )
    kernel = made_in_a_cell(source, float32=float32, int32=int32)
    plain = made_in_a_cell(
        source.replace("ys)", "ys, i)").replace("i = cuda.grid(1)", "i += 0"),
        float32=float32,
        int32=int32,
    )
    compiled = numba.njit(plain)
    rng = np.random.default_rng(0)
    xs, ys = (rng.random(64, np.float32) * 10 for _ in range(2))
    got, expected = ((np.zeros(64, np.float32), np.zeros(64)) for _ in range(2))
    trace(kernel, 2, 32, *got, xs, ys)
    for i in range(64):
        compiled(*expected, xs, ys, i)
    for mine, its in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, its, rtol=3e-7)


def test_fma_rounds_once():
    def k(out, x):
        out[0] = cuda.fma(x[0], x[0], x[1])

    x = np.array([1 + 2.0**-12, -1 - 2.0**-11], np.float32)
    assert filled(k, 1, 1, 1, x, dtype=np.float32) == [2.0**-24]


@pytest.mark.parametrize("blocks", [1, 40])
def test_int_of_a_large_fraction_stays_in_its_range(blocks):
    """PTX ISA 9.0, "cvt": the result is cut to the range of the type, and NaN of 64
    bits gives the highest bit.
    """

    def k(x, long, short):
        i = cuda.threadIdx.x
        if cuda.blockIdx.x == 0:
            long[i] = int(x[i])
            short[i] = int32(x[i])

    x = np.array([1e30, -np.inf, np.nan, -2.7, 3e9])
    long = np.zeros(5, np.int64)
    short = np.zeros(5, np.int32)
    run(k, blocks, 5, x, long, short)
    assert long.tolist() == [2**63 - 1, -(2**63), -(2**63), -2, 3_000_000_000]
    assert short.tolist() == [2**31 - 1, -(2**31), -(2**31), -2, 2**31 - 1]


def test_a_negative_power_of_an_integer_is_an_integer():
    def k(a, n, out):
        out[cuda.threadIdx.x] = a[cuda.threadIdx.x] ** n[cuda.threadIdx.x]

    a = np.array([2, 1, -1, -1, 3])
    n = np.array([-1, -5, -3, -2, 2])
    out = np.zeros(5, np.int64)
    run(k, 1, 5, a, n, out)
    assert out.tolist() == [0, 1, -1, 1, 9]
