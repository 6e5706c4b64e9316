"""Arithmetic of all kinds: which of it is floating-point work, by the types that numba
gives it, and who executes it.

Each kernel has 2 blocks of 128 threads: 8 warps, and a FLOP a thread is 256. An
operator counts by the type of its result, a function as floating-point work where an
argument or the result is such a number; casts and comparisons count nothing. A complex
product is 6 FLOP, a complex sum 2.
"""

import math
from math import sqrt

import numpy as np
from numba import cuda, float32, uint32

from test_kerneltrace.textbook.entry import Entry, Want

N = 256
LOAD = {"x load": Want(8, 32)}
STORE = {"y store": Want(8, 32)}
FULL = {**LOAD, **STORE}
COEFFICIENTS = (1.0, 2.0, 3.0, 4.0)


def xy(dtype=np.float32, start=0):
    return lambda put: (
        put(np.arange(start, start + N).astype(dtype)),
        put(np.zeros(N, dtype)),
    )


def loads(sites):
    """x read by all threads at several places of the source."""
    return {"x load": Want(8 * sites, 32 * sites)}


@cuda.jit(device=True)
def twice(v):
    return 2 * v


@cuda.jit(device=True)
def norm(a, b):
    return math.sqrt(a * a + b * b)


@cuda.jit(device=True)
def ratio(a, b):
    return norm(a, b) / norm(b, a)


def misleading_names(x, y):
    i = cuda.grid(1)
    intensity = x[i] * 2.0
    integral = intensity + intensity
    y[i] = integral


def generic_function(x, y):
    i = cuda.grid(1)
    y[i] = twice(x[i]) + twice(i)


def nested_functions(x, y):
    i = cuda.grid(1)
    y[i] = ratio(x[i], 1.0)


def ternary(x, y):
    i = cuda.grid(1)
    v = x[i]
    y[i] = v * v if i % 2 else v + v + v


def short_circuit(x, y):
    i = cuda.grid(1)
    v = x[i]
    if v > 100 and v * v > 20000:
        y[i] = 1
    else:
        y[i] = 0


def imported_root(x, y):
    i = cuda.grid(1)
    y[i] = sqrt(x[i])


def functions(x, y):
    i = cuda.grid(1)
    y[i] = math.exp(-x[i]) / (1.0 + math.log(x[i]))


def fused(x, y):
    i = cuda.grid(1)
    v = x[i]
    y[i] = cuda.fma(v, v, v)


def clamp(x, y):
    i = cuda.grid(1)
    y[i] = min(max(x[i], 10.0), 100.0)


def power(x, y):
    i = cuda.grid(1)
    y[i] = abs(x[i]) ** 2


def floor(x, y):
    i = cuda.grid(1)
    y[i] = math.floor(x[i])


def quotient(y):
    i = cuda.grid(1)
    y[i] = i / 3


def index_arithmetic(y):
    i = cuda.grid(1)
    y[i] = (i * 3 + 1) // 2 % 5


def casts(y):
    i = cuda.grid(1)
    y[i] = float32(i) * 2


def polynomial(x, y):
    i = cuda.grid(1)
    v = x[i]
    total = 0.0
    for c in COEFFICIENTS:
        total = total * v + c
    y[i] = total


def product_plus(x, y):
    i = cuda.grid(1)
    y[i] = x[i] * x[i] + x[i]


def double_of(x, y):
    i = cuda.grid(1)
    y[i] = x[i] + x[i]


def sum_from_integer(x, y):
    i = cuda.grid(1)
    total = 0
    for k in range(4):
        total += x[(i + k) % 256]
    y[i] = total


def halving(x, y):
    i = cuda.grid(1)
    v = x[i]
    while v > 1.0:
        v *= 0.5
    y[i] = v


def hash_of(x, y):
    i = cuda.grid(1)
    h = uint32(x[i])
    h = uint32((h ^ 61) ^ (h >> 16))
    h = uint32(h * 9)
    y[i] = h


def compared(x, y):
    i = cuda.grid(1)
    y[i] = 1.0 if x[i] > 3.0 else 0.0


def accumulated(x, y):
    i = cuda.grid(1)
    y[i] += x[i] * 2.0


def negated(x, y):
    i = cuda.grid(1)
    y[i] = -x[i]


def quotient_and_rest(x, y):
    i = cuda.grid(1)
    whole, rest = divmod(x[i], 7)
    y[i] = whole + rest


def early_return(x, y):
    i = cuda.grid(1)
    v = x[i]
    if v < 32:
        y[i] = v
        return
    y[i] = v * v * v


ENTRIES = (
    Entry(
        "names that begin with int", misleading_names, 2, 128, xy(), FULL, flop=2 * N
    ),
    # 2 * float and the sum; 2 * i is an integer, in the same function.
    Entry(
        "one function for two types", generic_function, 2, 128, xy(), FULL, flop=2 * N
    ),
    # Two norms of 2 products, a sum and a root, and their quotient.
    Entry(
        "functions that call functions",
        nested_functions,
        2,
        128,
        xy(),
        FULL,
        flop=9 * N,
    ),
    # 128 odd threads multiply once, 128 even ones add twice.
    Entry("a ternary", ternary, 2, 128, xy(), FULL, flop=128 + 2 * 128),
    # 155 threads, 101 to 255, come to the product; from 142 on it is large enough,
    # which parts warp 4 (128 to 159). It stores in two parts, 128 to 141 and 142 to
    # 159: 2 and 3 sectors.
    Entry(
        "a condition that is cut short",
        short_circuit,
        2,
        128,
        xy(),
        {**LOAD, "y store": Want(9, 33)},
        (8, 1),
        155,
    ),
    Entry("a root by its own name", imported_root, 2, 128, xy(), FULL, flop=N),
    # The sign, exp, log, sum and quotient.
    Entry(
        "functions of math",
        functions,
        2,
        128,
        xy(start=1),
        {**loads(2), **STORE},
        flop=5 * N,
        reads_per_thread=2,
    ),
    Entry("fma", fused, 2, 128, xy(), FULL, flop=2 * N),
    Entry("min and max", clamp, 2, 128, xy(), FULL, flop=2 * N),
    Entry("absolute value and power", power, 2, 128, xy(), FULL, flop=2 * N),
    Entry("floor, which gives an integer", floor, 2, 128, xy(), FULL, flop=N),
    Entry(
        "a quotient of integers",
        quotient,
        2,
        128,
        lambda put: (put(np.zeros(N, np.float32)),),
        STORE,
        flop=N,
        reads_per_thread=0,
    ),
    Entry(
        "index arithmetic",
        index_arithmetic,
        2,
        128,
        lambda put: (put(np.zeros(N, np.float32)),),
        STORE,
        reads_per_thread=0,
    ),
    # float32 times an integer is a product of float64.
    Entry(
        "a cast, then a product",
        casts,
        2,
        128,
        lambda put: (put(np.zeros(N, np.float32)),),
        STORE,
        flop=N,
        reads_per_thread=0,
    ),
    Entry("polynomial", polynomial, 2, 128, xy(), FULL, (8, 0), 8 * N),
    # 8-byte elements: 8 sectors a request.
    Entry(
        "complex numbers",
        product_plus,
        2,
        128,
        xy(np.complex64),
        {"x load": Want(24, 192), "y store": Want(8, 64)},
        flop=8 * N,
        reads_per_thread=3,
    ),
    # 64 bytes a request.
    Entry(
        "a sum of float16",
        double_of,
        2,
        128,
        xy(np.float16),
        {"x load": Want(16, 32), "y store": Want(8, 16)},
        flop=N,
        reads_per_thread=2,
    ),
    Entry(
        "int32",
        product_plus,
        2,
        128,
        xy(np.int32),
        {**loads(3), **STORE},
        reads_per_thread=3,
    ),
    Entry(
        "uint8",
        double_of,
        2,
        128,
        xy(np.uint8),
        {"x load": Want(16, 16), "y store": Want(8, 8)},
        reads_per_thread=2,
    ),
    # A variable that is 0 and then a sum of floats is a float. x[i + k] begins at
    # elements 0 to 3 of a sector: 4 + 3 x 5 sectors a warp, also where the last warp
    # comes round to element 0.
    Entry(
        "a sum that starts as an integer",
        sum_from_integer,
        2,
        128,
        xy(),
        {"x load": Want(32, 8 * 19), **STORE},
        (8, 0),
        4 * N,
        4,
    ),
    # 8 is halved 3 times, with 4 tests.
    Entry(
        "a loop on floats",
        halving,
        2,
        128,
        lambda put: (put(np.full(N, 8, np.float32)), put(np.zeros(N, np.float32))),
        FULL,
        (32, 0),
        3 * N,
    ),
    Entry("a hash", hash_of, 2, 128, xy(np.uint32), FULL),
    Entry("a comparison", compared, 2, 128, xy(), FULL),
    Entry(
        "an element that is added to",
        accumulated,
        2,
        128,
        xy(),
        {**FULL, "y load": Want(8, 32)},
        flop=2 * N,
        reads_per_thread=2,
    ),
    Entry("a sign", negated, 2, 128, xy(), FULL, flop=N),
    # divmod is one function, and then a sum.
    Entry("divmod of floats", quotient_and_rest, 2, 128, xy(), FULL, flop=2 * N),
    Entry(
        "divmod of integers",
        quotient_and_rest,
        2,
        128,
        xy(np.int64),
        {"x load": Want(8, 64), "y store": Want(8, 64)},
    ),
    # The first warp returns; 224 threads multiply twice.
    Entry("an early return", early_return, 2, 128, xy(), FULL, (8, 0), 2 * 224),
)
