"""Device functions, views, records, tuples and small types, with counts by hand.

Each launch has 2 blocks of 128 threads: 8 warps, whose 32 lanes of 4-byte elements side
by side are 4 sectors.
"""

import numpy as np
from numba import cuda, float32

from test_kerneltrace.textbook.entry import Entry, Want

N = 256
LOAD = {"x load": Want(8, 32)}
STORE = {"y store": Want(8, 32)}
FULL = {**LOAD, **STORE}
TABLE = np.arange(8, dtype=np.float32)
XYZ = np.dtype([("x", np.float32), ("y", np.float32), ("z", np.float32)])
MIXED = np.dtype([("tag", np.int16), ("value", np.float64)], align=True)


def to(*shape, dtype=np.float32, order="C"):
    """x of a shape, and y of 256 elements, both of float32 if nothing else is said of
    x.
    """
    return lambda put: (
        put(np.ones(shape, dtype, order=order)),
        put(np.zeros(N, np.float32)),
    )


@cuda.jit(device=True)
def at(x, i):
    return x[i]


@cuda.jit(device=True)
def pair_of(x, i):
    return x[i], x[255 - i]


@cuda.jit(device=True)
def put_at(y, i, value):
    y[i] = value


def through_function(x, y):
    i = cuda.grid(1)
    y[i] = at(x, i) + at(x, 255 - i)


def function_with_two_results(x, y):
    i = cuda.grid(1)
    a, b = pair_of(x, i)
    y[i] = a - b


def store_in_function(x, y):
    i = cuda.grid(1)
    put_at(y, i, x[i])


def row(x, y):
    mine = x[cuda.blockIdx.x]
    y[cuda.grid(1)] = mine[cuda.threadIdx.x]


def column(x, y):
    i = cuda.grid(1)
    y[i] = x[:, 3][i]


def tail(x, y):
    i = cuda.grid(1)
    y[i] = x[32:][i]


def misaligned_tail(x, y):
    i = cuda.grid(1)
    y[i] = x[1:][i]


def reversed_view(x, y):
    i = cuda.grid(1)
    y[i] = x[::-1][i]


def every_second(x, y):
    i = cuda.grid(1)
    y[i] = x[::2][i]


def transposed(x, y):
    i = cuda.grid(1)
    y[i] = x.T[i, 2]


def second_column(x, y):
    i = cuda.grid(1)
    y[i] = x[i, 1]


def three_dimensions(x, y):
    t = cuda.threadIdx.x
    y[cuda.grid(1)] = x[cuda.blockIdx.x, t // 32, t % 32]


def first_row(x, y):
    y[cuda.grid(1)] = x[0, cuda.threadIdx.x]


def copy(x, y):
    i = cuda.grid(1)
    y[i] = x[i]


def plane(x, y):
    a, b = cuda.grid(2)
    y[b, a] = x[b, a]


def write_field(p, x):
    i = cuda.grid(1)
    p[i].y = x[i]


def read_value(p, y):
    i = cuda.grid(1)
    y[i] = p[i].value


def read_tag(p, y):
    i = cuda.grid(1)
    y[i] = p[i].tag


def fields_by_name(p, y):
    i = cuda.grid(1)
    y[i] = p[i]["x"] + p[i]["z"]


def arrays_in_a_tuple(pair, y):
    i = cuda.grid(1)
    y[i] = pair[0][i] + pair[1][i]


def numbers_in_a_tuple(x, scale, y):
    i = cuda.grid(1)
    y[i] = scale[0] * x[i] + scale[1]


def local_array(x, y):
    i = cuda.grid(1)
    kept = cuda.local.array(4, float32)
    for k in range(4):
        kept[k] = x[i]
    y[i] = kept[0] + kept[3]


def table(y):
    i = cuda.grid(1)
    y[i] = TABLE[i % 8]


def one_of_table(y):
    y[cuda.grid(1)] = TABLE[cuda.blockIdx.x]


def gather(x, where, y):
    i = cuda.grid(1)
    y[i] = x[where[i]]


def flags(x, y):
    i = cuda.grid(1)
    y[i] = 1.0 if x[i] else 0.0


def scaled(x, y):
    i = cuda.grid(1)
    y[i] = x[i] * 0.5


def pair_sum(x, y):
    i = cuda.grid(1)
    a = x[i, 0]
    b = x[i, 1]
    y[i] = a + b


TWO = {"x load": Want(16, 64), **STORE}
ONLY_Y = {"reads_per_thread": 0}

ENTRIES = (
    # Two calls are two instructions, each of 4 sectors a warp, forwards or backwards.
    Entry(
        "a device function that reads",
        through_function,
        2,
        128,
        to(N),
        TWO,
        flop=N,
        reads_per_thread=2,
    ),
    Entry(
        "a device function with two results",
        function_with_two_results,
        2,
        128,
        to(N),
        TWO,
        flop=N,
        reads_per_thread=2,
    ),
    Entry("a device function that writes", store_in_function, 2, 128, to(N), FULL),
    Entry("a row as a view", row, 2, 128, to(2, 128), FULL),
    # Rows of 32 bytes: every lane has a sector of its own.
    Entry(
        "a column by a slice",
        column,
        2,
        128,
        to(N, 8),
        {"x load": Want(8, 256), **STORE},
    ),
    # Views that begin 128 bytes and 4 bytes after the start: 4 sectors, and 5.
    Entry("a slice, aligned", tail, 2, 128, to(N + 32), FULL),
    Entry(
        "a slice, misaligned",
        misaligned_tail,
        2,
        128,
        to(N + 1),
        {"x load": Want(8, 40), **STORE},
    ),
    Entry("a reversed view", reversed_view, 2, 128, to(N), FULL),
    Entry(
        "a view with a step",
        every_second,
        2,
        128,
        to(2 * N),
        {"x load": Want(8, 64), **STORE},
    ),
    # x.T[i, 2] is x[2, i]: along a row.
    Entry("a transposed view", transposed, 2, 128, to(4, N), FULL),
    # In C order rows of 16 bytes, half a sector each: 16 sectors. In Fortran order
    # columns are side by side.
    Entry(
        "a column, C order",
        second_column,
        2,
        128,
        to(N, 4),
        {"x load": Want(8, 128), **STORE},
    ),
    Entry("a column, Fortran order", second_column, 2, 128, to(N, 4, order="F"), FULL),
    Entry("three dimensions", three_dimensions, 2, 128, to(2, 4, 32), FULL),
    Entry("a row that all blocks read", first_row, 2, 128, to(1, 128), FULL),
    # Passed as one field of records of 12 bytes: a warp spans 384 bytes, 12 sectors.
    Entry(
        "a field as an array",
        copy,
        2,
        128,
        lambda put: (put(np.ones(N, XYZ))["x"], put(np.zeros(N, np.float32))),
        {"x load": Want(8, 96), **STORE},
    ),
    # A warp is two rows of 16, each 64 bytes: 2 sectors and 2.
    Entry(
        "blocks of 16 x 8",
        plane,
        (2, 1),
        (16, 8),
        lambda put: (
            put(np.ones((8, 32), np.float32)),
            put(np.zeros((8, 32), np.float32)),
        ),
        FULL,
    ),
    Entry(
        "a field written",
        write_field,
        2,
        128,
        lambda put: (put(np.zeros(N, XYZ)), put(np.ones(N, np.float32))),
        {**LOAD, "p store": Want(8, 96)},
    ),
    # Records of 16 bytes: 512 bytes a warp, 16 sectors, for fields of 8 bytes and of 2.
    Entry(
        "a field of 8 bytes",
        read_value,
        2,
        128,
        lambda put: (put(np.ones(N, MIXED)), put(np.zeros(N, np.float32))),
        {"p load": Want(8, 128), **STORE},
    ),
    Entry(
        "a field of 2 bytes",
        read_tag,
        2,
        128,
        lambda put: (put(np.ones(N, MIXED)), put(np.zeros(N, np.float32))),
        {"p load": Want(8, 128), **STORE},
    ),
    Entry(
        "fields by name",
        fields_by_name,
        2,
        128,
        lambda put: (put(np.ones(N, XYZ)), put(np.zeros(N, np.float32))),
        {"p load": Want(16, 192), **STORE},
        flop=N,
        reads_per_thread=2,
    ),
    Entry(
        "a tuple of arrays",
        arrays_in_a_tuple,
        2,
        128,
        lambda put: (
            (put(np.ones(N, np.float32)), put(np.ones(N))),
            put(np.zeros(N, np.float32)),
        ),
        {"pair[0] load": Want(8, 32), "pair[1] load": Want(8, 64), **STORE},
        flop=N,
        reads_per_thread=2,
    ),
    Entry(
        "a tuple of numbers",
        numbers_in_a_tuple,
        2,
        128,
        lambda put: (
            put(np.ones(N, np.float32)),
            (2.0, 1),
            put(np.zeros(N, np.float32)),
        ),
        FULL,
        flop=2 * N,
    ),
    # The local array is the thread's own; x is read in each of 4 turns.
    Entry(
        "a local array",
        local_array,
        2,
        128,
        to(N),
        {"x load": Want(32, 128), **STORE},
        (8, 0),
        N,
        4,
    ),
    # Constant memory: 8 elements are one sector, in global memory nothing is read.
    Entry(
        "a table in constant memory",
        table,
        2,
        128,
        lambda put: (put(np.zeros(N, np.float32)),),
        {"TABLE load": Want(8, 8), **STORE},
        **ONLY_Y,
    ),
    Entry(
        "one element of a table",
        one_of_table,
        2,
        128,
        lambda put: (put(np.zeros(N, np.float32)),),
        {"TABLE load": Want(8, 8), **STORE},
        **ONLY_Y,
    ),
    # Indices of 8 bytes, backwards; the elements lie in 4 sectors again.
    Entry(
        "a gather with 64-bit indices",
        gather,
        2,
        128,
        lambda put: (
            put(np.ones(N, np.float32)),
            put(np.arange(N)[::-1].copy()),
            put(np.zeros(N, np.float32)),
        ),
        {**FULL, "where load": Want(8, 64)},
        reads_per_thread=2,
    ),
    # A byte each: a sector a warp.
    Entry(
        "flags of one byte",
        flags,
        2,
        128,
        to(N, dtype=np.bool_),
        {"x load": Want(8, 8), **STORE},
    ),
    Entry(
        "bytes to floats",
        scaled,
        2,
        128,
        to(N, dtype=np.uint8),
        {"x load": Want(8, 8), **STORE},
        flop=N,
    ),
    # Two requests for the same 256 bytes, 8 sectors each.
    Entry(
        "pairs, part by part",
        pair_sum,
        2,
        128,
        to(N, 2),
        {"x load": Want(16, 128), **STORE},
        flop=N,
        reads_per_thread=2,
    ),
)
