"""Kernels of tiles with one planted mistake each: a finding has to name its kind, in the line marked `here`."""

import inspect
from typing import Any

import numpy as np

from kerneltrace.tiles import tl, triton
from tests.test_kerneltrace.tile_kernels import random, softmax_of

FACTOR = 3
N = 100  # no multiple of a tile
PLANTED = {}


def planted(kind, words, *arguments, grid=(2,), **constants):
    """Enter a kernel with the kind of its finding, words of it, and its launch; "x" and "out" become new arrays."""

    def enter(kernel):
        PLANTED[kernel.fn.__name__] = kernel, kind, words, arguments, grid, constants
        return kernel

    return enter


def launch_of(name):
    """Kernel, grid, arguments and constants of a planted kernel, with new arrays."""
    kernel, _, _, arguments, grid, constants = PLANTED[name]
    new = {
        "x": lambda: random(N), "out": lambda: np.zeros(N, np.float32), "rows": lambda: random(5, 20),
        "out rows": lambda: np.zeros((5, 20), np.float32), "half": lambda: random(32, 32, dtype=np.float16),
        "square": lambda: random(32, 32), "out square": lambda: np.zeros((32, 32), np.float32),
        "count": lambda: np.zeros(1, np.int32), "unset": lambda: np.full(N, np.nan, np.float32),
        "apart": lambda: np.zeros((N, 2), np.float32)[:, 0],
    }  # fmt: skip
    args = tuple(new[one]() if isinstance(one, str) else one for one in arguments)
    return kernel, grid, args, constants


def line_of(name):
    """The line of a planted kernel that is marked."""
    lines, first = inspect.getsourcelines(PLANTED[name][0].fn)
    return next(first + i for i, line in enumerate(lines) if line.rstrip().endswith("# here"))


# -- masks


@planted("outside", "loads 28 elements outside of x, the first at 100 of 100", "x", "out", N, BLOCK=64)
@triton.jit
def no_mask_of_a_load(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at)  # here
    tl.store(out + at, values, at < n)


@planted("outside", "stores 28 elements outside of out", "x", "out", N, BLOCK=64)
@triton.jit
def no_mask_of_a_store(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, at < n, 0.0)
    tl.store(out + at, values)  # here


@planted("outside", "loads 1 elements outside of x, the first at 100", "x", "out", N, BLOCK=64)
@triton.jit
def mask_one_too_far(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, at <= n, 0.0)  # here
    tl.store(out + at, values, at < n)


@planted("outside", "the first at -1 of", "x", "out", N, BLOCK=64)
@triton.jit
def one_before_the_first(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at - 1, at < n, 0.0)  # here
    tl.store(out + at, values, at < n)


@planted("undefined", "program 0 stores to out what a masked load left undefined", "rows", "out", 20, 32, BLOCK=32)
@triton.jit
def no_other_before_a_sum(x, out, columns, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + tl.program_id(0) * columns + at, at < columns))
    tl.store(out + tl.program_id(0), total)  # here


@planted("undefined", "give that tl.load other", "half", "half", "out square", grid=(1,), K=24)
@triton.jit
def no_other_along_k(a, b, c, K: tl.constexpr):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    total = tl.dot(tl.load(a + i * 32 + j, j < K), tl.load(b + i * 32 + j, i < K))
    tl.store(c + i * 32 + j, total)  # here


@planted("outside", "stores 12 elements outside", "rows", "out rows", 20, grid=(5,), BLOCK=32)
@triton.jit
def mask_of_columns_missing(x, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    values = tl.load(x + at, at < 5 * 20, 0.0)
    tl.store(out + at, values)  # here


# -- strides and overlap


@planted("outside", "outside of x", "rows", "out", 32, grid=(5,), BLOCK=16)
@triton.jit
def wrong_stride_of_rows(x, out, stride, BLOCK: tl.constexpr):
    values = tl.load(x + tl.program_id(0) * stride + tl.arange(0, BLOCK))  # here
    tl.store(out + tl.program_id(0), tl.sum(values))


@planted("outside", "outside of out", "x", "apart", N, BLOCK=64)
@triton.jit
def stride_of_a_view_forgotten(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n), at < n)  # here


@planted("race", "programs run in any order", "x", "out", N, BLOCK=64)
@triton.jit
def every_program_the_same_tile(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * 32 + at)
    tl.store(out + at, values)  # here


@planted("race", r"program 0 stores out\[63\]", "x", "out", N, BLOCK=64)
@triton.jit
def tiles_overlap_by_one(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * (BLOCK - 1) + tl.arange(0, BLOCK)
    values = tl.load(x + at, at < n, 0.0)
    tl.store(out + at, values, at < n)  # here


@planted("race", r"program 0 stores out\[0\]", "x", "out", N, BLOCK=64)
@triton.jit
def sum_without_an_atomic(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + at, at < n, 0.0))
    tl.store(out, tl.load(out) + total)  # here


@planted("race", r"program 0 stores x\[63\]", "x", N, BLOCK=64)
@triton.jit
def shift_in_place(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(x + at - 1, (at > 0) & (at < n), 0.0)  # here
    tl.store(x + at, before, at < n)


@planted("race", r"program 0 atomics out\[0\]|program 0 loads", "x", "out", "count", N, BLOCK=64)
@triton.jit
def sum_read_too_early(x, out, count, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + at, at < n, 0.0)), sem="relaxed")
    total = tl.load(out)  # here
    tl.store(out + 1 + tl.program_id(0), total)


@planted("race", "lanes of one tl.store", "x", "out", grid=(1,), BLOCK=64)
@triton.jit
def lanes_at_one_element(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at // 2, tl.load(x + at))  # here


@planted("endless", "loops without end", "count", "out", grid=(2,))
@triton.jit
def waits_for_a_later_program(flag, out):
    if tl.program_id(0) == 0:
        while tl.atomic_add(flag, 0) == 0:  # here
            pass
    else:
        tl.atomic_xchg(flag, 1)


# -- values


@planted("nan", "sub makes NaN", "rows", "out rows", 20, grid=(5,), BLOCK=32)
@triton.jit
def nothing_but_minus_infinity(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * columns + at, at < 0, -float("inf"))
    values = values - tl.max(values, 0)  # here
    powers = tl.exp(values)
    tl.store(out + tl.program_id(0) * columns + at, powers / tl.sum(powers, 0), at < columns)


@planted("nan", "sub makes NaN", "half", "out square", grid=(1,))
@triton.jit
def masked_rows_of_attention(q, out):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    scores = tl.dot(tl.load(q + i * 32 + j), tl.load(q + j * 32 + i))
    scores = tl.where(i > j, scores, -float("inf"))
    p = tl.exp(scores - tl.max(scores, 1)[:, None])  # here
    tl.store(out + i * 32 + j, p / tl.sum(p, 1)[:, None])


@planted("nan", "sqrt makes NaN", "rows", "out", 20, grid=(5,), BLOCK=32)
@triton.jit
def root_of_a_negative_variance(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * columns + at, at < columns, 0.0)
    deviation = tl.sqrt(tl.sum(values, 0) * tl.sum(values, 0) - tl.sum(values * values, 0) * 100)  # here
    tl.store(out + tl.program_id(0), deviation)


@planted("overflow", "a number of type int32 leaves its range", "x", "out", 2**30, grid=(4,), BLOCK=16)
@triton.jit
def offsets_of_int32(x, out, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride  # here
    values = tl.load(x + row + tl.arange(0, BLOCK))
    tl.store(out + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), values)


@planted("unset", "reads 64 elements of out before anything wrote them", "x", "unset", N, BLOCK=64)
@triton.jit
def adds_to_what_is_empty(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(out + at, at < n, 0.0)  # here
    tl.store(out + at, before + tl.load(x + at, at < n, 0.0), at < n)


# -- what Triton refuses


@planted("refused", "powers of two, and 100 is none: use triton.next_power_of_2", "x", "out", BLOCK=100)
@triton.jit
def no_power_of_two(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # here
    tl.store(out + at, tl.load(x + at))


@planted("refused", "mark the parameter as tl.constexpr", "x", "out", 64)
@triton.jit
def constant_not_marked(x, out, BLOCK):
    at = tl.arange(0, BLOCK)  # here
    tl.store(out + at, tl.load(x + at))


@planted("refused", "tl.dot takes two tiles of one type", "half", "square", "out square")
@triton.jit
def dot_of_two_types(a, b, c):
    at = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    product = tl.dot(tl.load(a + at), tl.load(b + at))  # here
    tl.store(c + at, product)


@planted("refused", "inner extent of at least 16 for float16, got 8", "half", "out square")
@triton.jit
def dot_too_small(a, c):
    i, k = tl.arange(0, 32), tl.arange(0, 8)
    left, right = tl.load(a + i[:, None] * 32 + k[None, :]), tl.load(a + k[:, None] * 32 + i[None, :])
    tl.store(c + i[:, None] * 32 + i[None, :], tl.dot(left, right))  # here


@planted("refused", "shapes \\(M, K\\) and \\(K, N\\), got", "half", "out square")
@triton.jit
def dot_of_shapes_that_do_not_fit(a, c):
    i, k = tl.arange(0, 32), tl.arange(0, 16)
    left = tl.load(a + i[:, None] * 32 + k[None, :])
    tl.store(c + i[:, None] * 32 + i[None, :], tl.dot(left, left))  # here


@planted("refused", r"Shapes \(32,\) and \(64,\) don't fit", "x", "out")
@triton.jit
def shapes_that_do_not_fit(x, out):
    total = tl.load(x + tl.arange(0, 32)) + tl.load(x + tl.arange(0, 64))  # here
    tl.store(out + tl.arange(0, 64), total)


@planted("refused", "takes float32 or float64, got float16", "half", "out")
@triton.jit
def exp_of_float16(x, out):
    values = tl.exp(tl.load(x + tl.arange(0, 32)))  # here
    tl.store(out + tl.arange(0, 32), values)


@planted("refused", "total is int32 of shape .. before the loop and float32 of shape .32,. after a turn", "x", "out")
@triton.jit
def sum_that_begins_as_a_number(x, out):
    total = 0
    for i in range(2):  # here
        total += tl.load(x + i * 32 + tl.arange(0, 32))
    tl.store(out + tl.arange(0, 32), total)


@planted("refused", "`other` is for lanes that a mask leaves out", "x", "out")
@triton.jit
def other_without_a_mask(x, out):
    values = tl.load(x + tl.arange(0, 32), other=0.0)  # here
    tl.store(out + tl.arange(0, 32), values)


@planted("refused", "the pointers' shape counts", "x", "out")
@triton.jit
def values_larger_than_pointers(x, out):
    values = tl.load(x + tl.arange(0, 32))
    tl.store(out, values)  # here


@planted("refused", "A pointer moves by whole numbers", "x", "out", 0.5)
@triton.jit
def offset_of_float(x, out, step):
    at = tl.arange(0, 32) * step
    tl.store(out + tl.arange(0, 32), tl.load(x + at))  # here


# -- Python that is none of Triton's


@planted("refused", "Python's if, while, and, or, not decide by one number", "x", "out")
@triton.jit
def if_on_a_tile(x, out):
    values = tl.load(x + tl.arange(0, 32))
    if values > 0:  # here
        tl.store(out + tl.arange(0, 32), values)


@planted("refused", "use tl.where, and &, | and ~ for masks", "x", "out", N)
@triton.jit
def and_of_masks(x, out, n):
    at = tl.arange(0, 32)
    values = tl.load(x + at, at > 0 and at < n, 0.0)  # here
    tl.store(out + at, values)


@planted("refused", "A tile has no len", "x", "out")
@triton.jit
def len_of_a_tile(x, out):
    values = tl.load(x + tl.arange(0, 32))
    tl.store(out, tl.sum(values) / len(values))  # here


@planted("refused", "A tile has no elements to pick", "x", "out")
@triton.jit
def slice_with_a_range(x, out):
    values = tl.load(x + tl.arange(0, 32))
    tl.store(out + tl.arange(0, 16), values[0:16])  # here


@planted("refused", "A tile has no elements to pick", "x", "out")
@triton.jit
def index_of_a_tile(x, out):
    values = tl.load(x + tl.arange(0, 32))
    for i in range(32):
        tl.store(out + i, values[i])  # here


@planted("refused", "A tile isn't looped over", "x", "out")
@triton.jit
def loop_over_a_tile(x, out):
    for value in tl.load(x + tl.arange(0, 32)):  # here
        tl.store(out, value)


@planted("refused", "A pointer isn't indexed", "x", "out")
@triton.jit
def index_of_a_pointer(x, out):
    value = x[tl.program_id(0)]  # here
    tl.store(out + tl.program_id(0), value)


@planted("refused", "Nothing is assigned to an element of a tile", "x", "out")
@triton.jit
def assignment_to_an_element(x, out):
    values = tl.load(x + tl.arange(0, 32))
    values[0] = 1.0  # here
    tl.store(out + tl.arange(0, 32), values)


@planted("refused", "FACTOR is a number of the module: write FACTOR = tl.constexpr", "x", "out")
@triton.jit
def number_of_the_module(x, out):
    at = tl.arange(0, 32)
    tl.store(out + at, tl.load(x + at) * FACTOR)  # here


@planted("refused", "A kernel of Triton has no break", "x", "out")
@triton.jit
def leaves_a_loop(x, out):
    for i in range(3):
        if i == 1:
            break  # here
        tl.store(out + i, tl.load(x + i))


@planted("refused", "can't use Any in one: quote it", "x", "out", FACTOR)
@triton.jit
def annotation_of_typing(x, out, n: Any):  # here
    tl.store(out + tl.arange(0, 32), tl.load(x + tl.arange(0, 32)) * n)


@planted("refused", "can't use bool in one", "x", "out")
@triton.jit
def annotation_of_a_variable(x, out):
    inside: bool = tl.arange(0, 32) < 20  # here
    tl.store(out + tl.arange(0, 32), tl.load(x + tl.arange(0, 32)), inside)


@planted("refused", "half has a value already: a tl.constexpr is assigned once", "x", "out", SIZE=32)
@triton.jit
def constant_assigned_twice(x, out, SIZE: tl.constexpr):
    half: tl.constexpr = SIZE // 2
    half: tl.constexpr = SIZE // 4  # type: ignore[no-redef]  # here
    tl.store(out + tl.arange(0, half), tl.load(x + tl.arange(0, half)))


# -- wrong results that no finding shows: the check of the output has to


@triton.jit
def sum_not_rescaled(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    most, total = tl.full((), -float("inf"), tl.float32), tl.full((), 0.0, tl.float32)
    for start in range(0, columns, BLOCK):
        values = tl.load(x + row + start + tl.arange(0, BLOCK))
        most = tl.maximum(most, tl.max(values, 0))
        total += tl.sum(tl.exp(values - most), 0)
    for start in range(0, columns, BLOCK):
        at = row + start + tl.arange(0, BLOCK)
        tl.store(out + at, tl.exp(tl.load(x + at) - most) / total)


@triton.jit
def loop_one_tile_short(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(columns // BLOCK - 1):
        total += tl.load(x + row + start * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + tl.program_id(0), tl.sum(total))


WRONG = {
    "a sum that is not rescaled": (
        sum_not_rescaled, (random(4, 64), np.zeros((4, 64), np.float32), 64), lambda x: softmax_of(x)
    ),
    "a loop that ends one tile early": (
        loop_one_tile_short, (random(4, 64), np.zeros(4, np.float32), 64), lambda x: x.sum(1)
    ),
}  # fmt: skip
