"""Kernels of tiles with one planted mistake each: a finding has to name its kind, in
the line marked `here`.
"""

import inspect
import linecache

import numpy as np

from kerneltrace.tiles import tl, triton
from test_kerneltrace.tile_kernels import random

FACTOR = 3
N = 100  # no multiple of a tile
PLANTED = {}


def planted(kind, words, *arguments, grid=(2,), **constants):
    """Enter a kernel with the kind of its finding, words of it, and its launch; "x" and
    "out" become new arrays.
    """

    def enter(kernel):
        PLANTED[kernel.fn.__name__] = kernel, kind, words, arguments, grid, constants
        return kernel

    return enter


def launch_of(name):
    """Kernel, grid, arguments and constants of a planted kernel, with new arrays."""
    kernel, _, _, arguments, grid, constants = PLANTED[name]
    new = {
        "x": lambda: random(N),
        "out": lambda: np.zeros(N, np.float32),
        "rows": lambda: random(5, 20),
        "out rows": lambda: np.zeros((5, 20), np.float32),
        "half": lambda: random(32, 32, dtype=np.float16),
        "square": lambda: random(32, 32),
        "out square": lambda: np.zeros((32, 32), np.float32),
        "count": lambda: np.zeros(1, np.int32),
        "unset": lambda: np.full(N, np.nan, np.float32),
        "apart": lambda: np.zeros((N, 2), np.float32)[:, 0],
    }
    args = tuple(new[each]() if isinstance(each, str) else each for each in arguments)
    return kernel, grid, args, constants


def line_of(name):
    """The line of a planted kernel that is marked."""
    lines, first = inspect.getsourcelines(PLANTED[name][0].fn)
    return next(
        first + i for i, line in enumerate(lines) if line.rstrip().endswith("# here")
    )


# -- masks


@planted(
    "outside",
    "loads 28 elements outside of x, the first at 100 of 100",
    "x",
    "out",
    N,
    BLOCK=64,
)
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


@planted(
    "undefined",
    "program 0 stores to out what a masked load left undefined",
    "rows",
    "out",
    20,
    32,
    BLOCK=32,
)
@triton.jit
def no_other_before_a_sum(x, out, columns, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + tl.program_id(0) * columns + at, at < columns))
    tl.store(out + tl.program_id(0), total)  # here


# -- strides and overlap


@planted("outside", "outside of out", "x", "apart", N, BLOCK=64)
@triton.jit
def stride_of_a_view_forgotten(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n), at < n)  # here


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


@planted(
    "race",
    r"program 0 atomics out\[0\]|program 0 loads",
    "x",
    "out",
    "count",
    N,
    BLOCK=64,
)
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
    tl.store(
        out + tl.program_id(0) * columns + at, powers / tl.sum(powers, 0), at < columns
    )


@planted(
    "overflow",
    "a number of type int32 leaves its range",
    "x",
    "out",
    2**30,
    grid=(4,),
    BLOCK=16,
)
@triton.jit
def offsets_of_int32(x, out, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride  # here
    values = tl.load(x + row + tl.arange(0, BLOCK))
    tl.store(out + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), values)


@planted(
    "unset",
    "reads 64 elements of out before anything wrote them",
    "x",
    "unset",
    N,
    BLOCK=64,
)
@triton.jit
def adds_to_what_is_empty(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(out + at, at < n, 0.0)  # here
    tl.store(out + at, before + tl.load(x + at, at < n, 0.0), at < n)


# -- what Triton refuses


@planted(
    "refused",
    "powers of two, and 100 is none: use triton.next_power_of_2",
    "x",
    "out",
    BLOCK=100,
)
@triton.jit
def no_power_of_two(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # here
    tl.store(out + at, tl.load(x + at))


@planted("refused", "mark the parameter as tl.constexpr", "x", "out", 64)
@triton.jit
def constant_not_marked(x, out, BLOCK):
    at = tl.arange(0, BLOCK)  # here
    tl.store(out + at, tl.load(x + at))


@planted(
    "refused", "tl.dot takes two tiles of one type", "half", "square", "out square"
)
@triton.jit
def dot_of_two_types(a, b, c):
    at = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    product = tl.dot(tl.load(a + at), tl.load(b + at))  # here
    tl.store(c + at, product)


@planted(
    "refused",
    "total is int32 of shape .. before the loop and float32 of shape .32,. after a"
    " turn",
    "x",
    "out",
)
@triton.jit
def sum_that_begins_as_a_number(x, out):
    total = 0
    for i in range(2):  # here
        total += tl.load(x + i * 32 + tl.arange(0, 32))
    tl.store(out + tl.arange(0, 32), total)


# -- Python that is none of Triton's

STATEMENTS = {
    "other_without_a_mask": (
        "y = tl.load(x + at, other=0.0)",
        "`other` is for lanes that a mask leaves out",
    ),
    "values_larger_than_pointers": (
        "tl.store(out, values)",
        "the pointers' shape counts",
    ),
    "if_on_a_tile": (
        "if values > 0: tl.store(out + at, values)",
        "Python's if, while, and, or, not decide by one number",
    ),
    "and_of_masks": (
        "y = tl.load(x + at, at > 0 and at < 9)",
        "use tl.where, and &, | and ~ for masks",
    ),
    "shapes_that_do_not_fit": (
        "tl.store(out, values + tl.load(x + tl.arange(0, 64)))",
        r"Shapes \(32,\) and \(64,\) don't fit",
    ),
    "offset_of_float": (
        "y = tl.load(x + at * 0.5)",
        "A pointer moves by whole numbers",
    ),
    "len_of_a_tile": (
        "tl.store(out, tl.sum(values) / len(values))",
        "A tile has no len",
    ),
    "slice_with_a_range": (
        "tl.store(out + at, values[0:16])",
        "A tile has no elements to pick",
    ),
    "loop_over_a_tile": (
        "for value in values: tl.store(out, value)",
        "A tile isn't looped over",
    ),
    "index_of_a_pointer": (
        "tl.store(out, x[tl.program_id(0)])",
        "A pointer isn't indexed",
    ),
    "assignment_to_an_element": (
        "values[0] = 1.0",
        "Nothing is assigned to an element of a tile",
    ),
    "number_of_the_module": (
        "tl.store(out + at, values * FACTOR)",
        "FACTOR is a number of the module: write FACTOR = tl.constexpr",
    ),
    "annotation_of_a_variable": ("inside: bool = at < 20", "can't use bool in one"),
}
"""Names of kernels, the statement in each that Triton refuses, and words of the
finding.
"""


def kernel_with(name, statement):
    """A kernel that ends with a statement; its source is kept where IPython keeps its
    cells.
    """
    source = (
        f"def {name}(x, out):\n    at = tl.arange(0, 32)\n    values = tl.load(x +"
        f" at)\n    tl.store(out + at, values)\n    {statement}  # here\n"
    )
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    scope = {"tl": tl, "FACTOR": FACTOR, "__name__": __name__}
    exec(compile(source, file, "exec"), scope)
    return triton.jit(scope[name])


for name, (statement, words) in STATEMENTS.items():
    planted("refused", words, "x", "out")(kernel_with(name, statement))


@planted("refused", "A kernel of Triton has no break", "x", "out")
@triton.jit
def leaves_a_loop(x, out):
    for i in range(3):
        if i == 1:
            break  # here
        tl.store(out + i, tl.load(x + i))


@planted(
    "refused",
    "half has a value already: a tl.constexpr is assigned once",
    "x",
    "out",
    SIZE=32,
)
@triton.jit
def constant_assigned_twice(x, out, SIZE: tl.constexpr):
    half: tl.constexpr = SIZE // 2
    half: tl.constexpr = SIZE // 4  # type: ignore[no-redef]  # here
    tl.store(out + tl.arange(0, half), tl.load(x + tl.arange(0, half)))
