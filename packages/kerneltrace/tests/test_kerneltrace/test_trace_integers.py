"""Integers of all types in traced kernels, against the code that numba.cuda makes of
the same expression.
"""

import itertools
import linecache
import warnings

import numpy as np
import pytest
from numba import (
    cuda,
    float32,
    float64,
    from_dtype,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from numba.core.errors import NumbaError

from kerneltrace import trace
from kerneltrace.errors import KernelError
from test_kerneltrace.numba_on_cpu import compiled_on_cpu
from test_kerneltrace.places import one_in

pytestmark = pytest.mark.slow  # compiles each expression twice

TYPES = {kind.__name__ if isinstance(kind, type) else str(kind): kind for kind in
         (int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64)}  # fmt: skip
PAIRS = [
    (np.int32, np.int32),
    (np.uint32, np.uint32),
    (np.uint32, np.int32),
    (np.int64, np.int64),
    (np.uint64, np.uint64),
    (np.uint64, np.int64),
    (np.uint8, np.int16),
    (np.int64, np.uint32),
    (np.uint16, np.uint64),
]
EXPRESSIONS = [
    "a - b",
    "(a - b) // 3",
    "(a + b) // 2",
    "a * b >> 3",
    "a * b % 1000",
    "a // b",
    "a % b",
    "-a // 2",
    "~a >> 1",
    "(a ^ b) // 7",
    "a << 40 >> 35",
    "(a << 7) ^ (a >> 9)",
    "a << (b & 63)",
    "a >> (b & 63)",
    "min(a, b) - max(a, b)",
    "a / 3",
    "(a - b) * 0.5",
    "a > b",
    "a - b < 0",
    "a == b",
    "a - b > 5",
    "int32(a * b)",
    "uint32(a - b) >> 4",
    "uint8(a) - uint8(b)",
    "a & -b",
    "(a | b) % 17",
    "a * 2654435761 % 4294967296",
    "(a * a + b * b) // (b | 1)",
    "uint64(a) * uint64(b) >> 32",
    "(a > 2) + (b > 2)",
    "(a > 2) & (b > 2)",
    "~(a > b)",
    "-(a > b)",
    "(a if a > b else b) - 7",
    "int64(a) - uint32(b)",
    "uint32(uint32(a) * uint32(b)) // 3",
    "a - b if a > b else b - a",
    "1 << (a & 31)",
    "(a & 0xFFFFFFFF) * (b & 0xFFFFFFFF) // 3",
    "float64(a - b)",
    "int8(a + b) * 3",
    "a + b * 0.25",
]

FUNCTIONS = {
    "FNV-1a": (
        """def f(a, b):
    h = uint32(2166136261)
    for k in range(4):
        h = uint32((h ^ ((a >> (8 * k)) & 255)) * 16777619)
    return h % 1000 + b * 0
"""
    ),
    "the finaliser of murmur": (
        """def f(a, b):
    h = uint64(a)
    h ^= h >> uint64(33)
    h *= uint64(0xff51afd7ed558ccd)
    h ^= h >> uint64(33)
    h *= uint64(0xc4ceb9fe1a85ec53)
    h ^= h >> uint64(33)
    return h
"""
    ),
    "LCG without casts": (
        """def f(a, b):
    s = a
    for _ in range(6):
        s = s * 6364136223846793005 + 1442695040888963407
    return s >> 33
"""
    ),
    "a digest that only adds": (
        """def f(a, b):
    s = a - b
    for k in range(70):
        s = s + s + k
    return s - 5 if s > 100 else s
"""
    ),
    "a variable of two types": (
        """def f(a, b):
    total = 0
    for k in range(3):
        if k == 1:
            total = a * 0.5
        total += b
    return total
"""
    ),
    "a product of a changing type": (
        """def f(a, b):
    total = 0
    u = a
    for _ in range(3):
        total += u * b if a > b else u
        u -= 1
    return total
"""
    ),
    "swapped and augmented": (
        """def f(a, b):
    a, b = b, a
    a <<= 3
    b //= 3
    a %= 1001
    return a - b
"""
    ),
}


def values(dtype):
    """Small and extreme numbers of a type, and some at random."""
    low = np.iinfo(dtype).min
    high = np.iinfo(dtype).max
    some = np.random.default_rng(0).integers(low, high, 6, dtype, endpoint=True)
    return np.array(
        [0, 1, 2, 5, 100, high, high - 1, high // 2, low, low + 1 if low else 7, *some],
        dtype,
    )


def made(source, name):
    """The function `f` of a source, and a kernel that applies it."""
    scope = {"cuda": cuda, **TYPES}
    for key, text in (
        ("f", source),
        (
            "k",
            "def k(out, xs, ys):\n    i = cuda.grid(1)\n    out[i] = f(xs[i], ys[i])\n",
        ),
    ):
        file = f"<{key} {name}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), scope)
        if key == "f":
            plain = scope["f"]
            scope["f"] = cuda.jit(device=True)(plain)
    return plain, scope["k"]


def compare(source, name, pair):
    plain, kernel = made(source, f"{name} {pair}")
    xs, ys = (grid.ravel() for grid in np.meshgrid(*map(values, pair)))
    try:
        run, result = compiled_on_cpu(plain, *map(from_dtype, map(np.dtype, pair)))
    except NumbaError:  # such as a shift of what became a fraction
        with pytest.raises(KernelError, match="numba can't compile"):
            trace(kernel, 1, len(xs), np.zeros(len(xs)), xs, ys)
        return
    out = np.zeros(len(xs), result)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = trace(kernel, 1, len(xs), out, xs, ys)
    assert {finding.kind for finding in traced.findings} <= {"division"}, (
        traced.findings
    )
    want = np.array([run(int(x), int(y)) for x, y in zip(xs, ys, strict=True)], result)
    wrong = np.flatnonzero((out != want) & ~(np.isnan(out) & np.isnan(want)))
    examples = [(int(xs[i]), int(ys[i]), out[i], want[i]) for i in wrong[:3]]
    assert not len(wrong), (
        f"{source} gives for {len(wrong)} of {len(xs)} pairs (a, b, traced, numba):"
        f" {examples}"
    )


# Four pairs of types for each expression, each pair as often.
CASES = [
    (text, PAIRS[(n + 2 * k) % len(PAIRS)])
    for n, text in enumerate(EXPRESSIONS)
    for k in range(4)
]


@pytest.mark.parametrize(("expression", "pair"), one_in(9, CASES), ids=str)
def test_an_expression_is_what_numba_computes(expression, pair):
    compare(f"def f(a, b):\n    return {expression}\n", expression, pair)


@pytest.mark.parametrize(
    ("name", "pair"),
    one_in(11, itertools.product(FUNCTIONS, PAIRS[:6])),
    ids=str,
)
def test_a_function_computes_what_numba_computes(name, pair):
    compare(FUNCTIONS[name], name, pair)


BEYOND = [np.inf, -np.inf, 3e9, -1.5, 300.7]
CUT = {
    # 8 bits are those of 16
    np.int8: [-1, 0, -1, -1, 44],
    np.uint8: [255, 0, 255, 0, 44],
    np.int16: [2**15 - 1, -(2**15), 2**15 - 1, -1, 300],
    np.int32: [2**31 - 1, -(2**31), 2**31 - 1, -1, 300],
    np.uint32: [2**32 - 1, 0, 3_000_000_000, 0, 300],
    np.int64: [2**63 - 1, -(2**63), 3_000_000_000, -1, 300],
    np.uint64: [2**64 - 1, 0, 3_000_000_000, 0, 300],
}
"""What PTX's cvt makes of them (PTX ISA, "cvt")."""
NAN = {np.uint32: 2**31, np.int64: -(2**63), np.uint64: 2**63}
NAN |= {np.int16: -(2**15), np.int32: -(2**31), np.int8: 0, np.uint8: 0}
"""What it makes of a NaN of 64 bits; 8 bits are the lower ones of 16."""


@pytest.mark.parametrize("copies", [1, 2000])  # single threads, and lockstep first
@pytest.mark.parametrize("source", [np.float64, np.float32])
@pytest.mark.parametrize("kind", CUT)
def test_a_float_in_an_array_of_integers_is_cut_to_their_range(kind, source, copies):
    def k(x, stored, cast):
        i = cuda.grid(1)
        if i < x.size:
            stored[i] = x[i]
            cast[i] = to(x[i])

    to = TYPES[kind.__name__]
    x = np.tile(np.array([*BEYOND, np.nan], source), copies)
    stored, cast = np.zeros((2, len(x)), kind)
    assert trace(k, -(-len(x) // 256), 256, x, stored, cast, blocks="all").ok
    has_64_bits = np.dtype(source).itemsize == 8 or np.dtype(kind).itemsize == 8
    of_nan = NAN[kind] if has_64_bits else 0
    want = np.tile(np.array([*CUT[kind], of_nan], kind), copies)
    np.testing.assert_array_equal(stored, want)
    np.testing.assert_array_equal(cast, want)
