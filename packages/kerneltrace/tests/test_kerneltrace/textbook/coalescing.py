"""Kernels on global memory, with counts by hand from the CUDA C++ Best Practices Guide.

"Coalesced Access to Global Memory": the accesses of a warp's 32 lanes become as many
32-byte sectors as they touch; a line is 128 bytes. Most launches are 2 blocks of 128
threads: 8 warps, so 8 requests for each access in the source.
"""

import numpy as np
from numba import cuda

from test_kerneltrace.textbook.entry import Entry, Want

N = 256
# 32 lanes x 4 bytes = 128 bytes: 4 sectors, 1 line
FULL = {"x load": Want(8, 32), "y store": Want(8, 32)}
STORE = {"y store": Want(8, 32)}


def floats(n, dtype=np.float32):
    return np.arange(n).astype(dtype)


def xy(n=N, dtype=np.float32):
    return lambda put: (put(floats(n, dtype)), put(np.zeros(N, dtype)))


def offset(elements):
    return lambda put: (
        put(floats(N + elements))[elements:],
        put(np.zeros(N, np.float32)),
    )


def copy(x, y):
    i = cuda.grid(1)
    y[i] = x[i]


def every_second(x, y):
    i = cuda.grid(1)
    y[i] = x[2 * i]


def every_32nd(x, y):
    i = cuda.grid(1)
    y[i] = x[32 * i]


def first(x, y):
    i = cuda.grid(1)
    y[i] = x[0]


def permuted(x, y):
    i = cuda.grid(1)
    y[i] = x[i ^ 21]


def backwards(x, y):
    i = cuda.grid(1)
    y[i] = x[x.size - 1 - i]


def gather(x, at, y):
    i = cuda.grid(1)
    y[i] = x[at[i]]


def scatter(x, at, y):
    i = cuda.grid(1)
    y[at[i]] += x[i]


def guarded(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i]


def rows(m, y):
    column, row = cuda.grid(2)
    y[row, column] = m[row, column]


def columns(m, y):
    row, column = cuda.grid(2)
    y[row, column] = m[row, column]


def transpose(a, b):
    x, y = cuda.grid(2)
    b[x, y] = a[y, x]


def lengths_of_arrays(x, y, z, length):
    i = cuda.grid(1)
    a = x[i]
    b = y[i]
    c = z[i]
    length[i] = a * a + b * b + c * c


def lengths_of_records(p, length):
    i = cuda.grid(1)
    x = p[i].x
    y = p[i].y
    z = p[i].z
    length[i] = x * x + y * y + z * z


def one_field(p, y):
    i = cuda.grid(1)
    y[i] = p[i].y


def stencil(x, y):
    i = cuda.grid(1)
    if 0 < i < x.size - 1:
        y[i - 1] = (x[i - 1] + x[i] + x[i + 1]) * 0.25


def grid_stride(x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = 2.0 * x[i]


def even_and_odd(x, y, z):
    i = cuda.grid(1)
    if i % 2 == 0:
        y[i // 2] = x[i]
    else:
        z[i // 2] = x[i]


def by_warp(x, y, z):
    i = cuda.grid(1)
    if i // 32 % 2 == 0:
        y[i // 64 * 32 + i % 32] = x[i]
    else:
        z[i // 64 * 32 + i % 32] = x[i]


def lane_turns(x, y):
    i = cuda.grid(1)
    v = x[i]
    for _ in range(i % 32):
        v = v * v
    y[i] = v


def same_counter(x, y):
    cuda.atomic.add(y, 0, x[cuda.grid(1)])


def histogram(x, y):
    cuda.atomic.add(y, x[cuda.grid(1)], 1)


def matmul(a, b, c):
    x, y = cuda.grid(2)
    total = np.float32(0)
    for k in range(a.shape[1]):
        total += a[y, k] * b[k, x]
    c[y, x] = total


def scattered():
    """Lanes l and l + 16 take two elements of sector 5 l % 16: as 5 and 16 share no
    factor, of all 16 sectors.
    """
    lane = np.arange(N) % 32
    return (8 * (5 * lane % 16) + lane % 8 // 2 * 2 + lane // 16).astype(np.int32)


XYZ = np.dtype([("x", np.float32), ("y", np.float32), ("z", np.float32)])
XYZW = np.dtype(
    [("x", np.float32), ("y", np.float32), ("z", np.float32), ("w", np.float32)]
)


def records(dtype):
    return lambda put: (put(np.ones(N, dtype)), put(np.zeros(N, np.float32)))


def thirds(put):
    return (
        put(floats(N)),
        put(np.zeros(N // 2, np.float32)),
        put(np.zeros(N // 2, np.float32)),
    )


def matrices(*shapes, order="C"):
    return lambda put: tuple(
        put(np.ones(shape, np.float32, order=order)) for shape in shapes
    )


ENTRIES = (
    Entry("stride 1", copy, 2, 128, xy(), FULL),
    # 32 lanes 8 bytes apart span 256 bytes: 8 sectors, 2 lines, half of each unused.
    Entry(
        "stride 2", every_second, 2, 128, xy(2 * N), {"x load": Want(8, 64), **STORE}
    ),
    # 128 bytes apart: every lane has a line, and a sector of it, of its own.
    Entry(
        "stride 32", every_32nd, 2, 128, xy(32 * N), {"x load": Want(8, 256), **STORE}
    ),
    # Bytes 4 to 132 of an aligned line: its 4 sectors and the first of the next line.
    Entry(
        "misaligned by 4 bytes",
        copy,
        2,
        128,
        offset(1),
        {"x load": Want(8, 40), **STORE},
    ),
    # Whole sectors again, but 3 of one line and 1 of the next.
    Entry(
        "misaligned by 32 bytes",
        copy,
        2,
        128,
        offset(8),
        {"x load": Want(8, 32), **STORE},
    ),
    Entry("moved by 128 bytes", copy, 2, 128, offset(32), FULL),
    # 32 x 8 = 256 bytes: 8 sectors, 2 lines. 32 x 2 = 64 bytes: 2 sectors. 32 x 1: 1
    # sector.
    Entry(
        "float64",
        copy,
        2,
        128,
        xy(dtype=np.float64),
        {"x load": Want(8, 64), "y store": Want(8, 64)},
    ),
    Entry(
        "float16",
        copy,
        2,
        128,
        xy(dtype=np.float16),
        {"x load": Want(8, 16), "y store": Want(8, 16)},
    ),
    Entry(
        "int8",
        copy,
        2,
        128,
        xy(dtype=np.int8),
        {"x load": Want(8, 8), "y store": Want(8, 8)},
    ),
    Entry("broadcast", first, 2, 128, xy(), {"x load": Want(8, 8), **STORE}),
    # Which lane takes which word of a line makes no difference.
    Entry("permutation within a line", permuted, 2, 128, xy(), FULL),
    Entry("reverse order", backwards, 2, 128, xy(), FULL),
    # See `scattered`: 16 sectors in 4 lines for each warp, wherever the lanes lie.
    Entry(
        "gather",
        gather,
        2,
        128,
        lambda put: (put(floats(N)), put(scattered()), put(np.zeros(N, np.float32))),
        {"x load": Want(8, 128), "at load": Want(8, 32), **STORE},
        reads_per_thread=2,
    ),
    # One warp, whose lanes read and write places that differ.
    Entry(
        "scatter",
        scatter,
        1,
        32,
        lambda put: (put(floats(N)), put(scattered()), put(np.zeros(N, np.float32))),
        {
            "x load": Want(1, 4),
            "at load": Want(1, 4),
            "y load": Want(1, 16),
            "y store": Want(1, 16),
        },
        flop=32,
        reads_per_thread=3,
    ),
    # 100 of 128 threads: three whole warps, and 4 lanes of the fourth, which part from
    # the other 28: 3 x 4 + 1 sectors.
    Entry(
        "partial last warp",
        guarded,
        1,
        128,
        lambda put: (put(floats(100)), put(np.zeros(100, np.float32))),
        {"x load": Want(4, 13), "y store": Want(4, 13)},
        (4, 1),
        0,
        100 / 128,
        100 / 128,
    ),
    # 32 rows of 64: 64 warps, each with half a row: 128 aligned bytes.
    Entry(
        "2-D, lanes along a row",
        rows,
        (2, 8),
        (32, 4),
        matrices((32, 64), (32, 64)),
        {"m load": Want(64, 256), "y store": Want(64, 256)},
    ),
    # Lanes down a column of 32-float rows: 128 bytes apart, a sector and a line each.
    Entry(
        "2-D, lanes along a column",
        columns,
        (2, 8),
        (32, 4),
        matrices((64, 32), (64, 32)),
        {"m load": Want(64, 2048), "y store": Want(64, 2048)},
    ),
    # In Fortran's order a column is what lies together.
    Entry(
        "2-D, lanes along a column, Fortran order",
        columns,
        (2, 8),
        (32, 4),
        matrices((64, 32), (64, 32), order="F"),
        {"m load": Want(64, 256), "y store": Want(64, 256)},
    ),
    Entry(
        "a column as a view",
        copy,
        2,
        128,
        lambda put: (put(np.ones((N, 32), np.float32))[:, 3], put(floats(N))),
        {"x load": Want(8, 256), **STORE},
    ),
    # 64 x 64, 128 warps. Reads along rows: 4 sectors. Writes down columns of 256-byte
    # rows: 32 sectors and lines.
    Entry(
        "transpose, naive",
        transpose,
        (2, 8),
        (32, 8),
        matrices((64, 64), (64, 64)),
        {"a load": Want(128, 512), "b store": Want(128, 4096)},
    ),
    # Three times stride 1. 3 products and 2 sums a thread.
    Entry(
        "struct of arrays",
        lengths_of_arrays,
        2,
        128,
        lambda put: tuple(put(floats(N)) for _ in range(4)),
        {
            **{f"{name} load": Want(8, 32) for name in "xyz"},
            "length store": Want(8, 32),
        },
        flop=5 * N,
        reads_per_thread=3,
    ),
    # Records of 12 bytes: a field of 32 of them lies over 384 bytes, in all 12 sectors
    # and 3 lines. 3 fields: 24 requests.
    Entry(
        "array of structs",
        lengths_of_records,
        2,
        128,
        records(XYZ),
        {"p load": Want(24, 288), "length store": Want(8, 32)},
        flop=5 * N,
        reads_per_thread=3,
    ),
    # 16 bytes a record: 512 bytes, 16 sectors, 4 lines for 128 bytes asked.
    Entry(
        "one field of a struct",
        one_field,
        2,
        128,
        records(XYZW),
        {"p load": Want(8, 128), **STORE},
    ),
    # x[i]: 4 sectors, 1 line a warp. x[i - 1]: the sector before too, but in warp 0,
    # where lane 0 has no part: 4 + 7 x 5, lines 1 + 7 x 2. x[i + 1]: the same from the
    # other end. Together 32 + 39 + 39 sectors, 8 + 15 + 15 lines. The first and the
    # last warp have a lane without work.
    Entry(
        "stencil of 3",
        stencil,
        2,
        128,
        lambda put: (put(floats(N)), put(np.zeros(N - 2, np.float32))),
        {"x load": Want(24, 110), "y store": Want(8, 39)},
        (8, 2),
        3 * 254,
        3 * 254 / N,
        254 / N,
    ),
    # 1,000 = 3 x 256 + 232: 3 full rounds of 8 warps and one of 7 warps and 8 lanes;
    # 4,000 bytes are 125 sectors. In the last warp 8 lanes loop 4 times, 24 lanes 3
    # times.
    Entry(
        "grid-stride loop",
        grid_stride,
        2,
        128,
        lambda put: (put(floats(1000)), put(np.zeros(1000, np.float32))),
        {"x load": Want(32, 125), "y store": Want(32, 125)},
        (8, 1),
        1000,
        1000 / 256,
        1000 / 256,
    ),
    # Every warp parts. On either side 16 lanes read every other word of 4 sectors, and
    # write 64 bytes, 2 sectors.
    Entry(
        "even and odd lanes",
        even_and_odd,
        2,
        128,
        thirds,
        {"x load": Want(16, 64), "y store": Want(8, 16), "z store": Want(8, 16)},
        (8, 8),
    ),
    # Whole warps go one way or the other: nothing diverges.
    Entry(
        "even and odd warps",
        by_warp,
        2,
        128,
        thirds,
        {"x load": Want(8, 32), "y store": Want(4, 16), "z store": Want(4, 16)},
        (8, 0),
    ),
    # Lane l multiplies l times: 0 + 1 + ... + 31 = 496 a warp.
    Entry(
        "as many turns as the lane's number",
        lane_turns,
        2,
        128,
        xy(),
        FULL,
        (8, 8),
        8 * 496,
    ),
    # 32 lanes at one address: 31 find another there. A sector a request, and a sum of
    # floats an atomic.
    Entry(
        "atomics at one address",
        same_counter,
        2,
        128,
        lambda put: (put(floats(N)), put(np.zeros(1, np.float32))),
        {"x load": Want(8, 32), "y atomic": Want(8, 8, collisions=8 * 31)},
        flop=N,
        reads_per_thread=2,
    ),
    # 32 lanes in 8 bins, 4 in each: 3 of them too many, 24 a warp. 8 bins of 4 bytes
    # are one sector.
    Entry(
        "histogram",
        histogram,
        2,
        128,
        lambda put: (
            put((np.arange(N) % 8).astype(np.int32)),
            put(np.zeros(8, np.int32)),
        ),
        {"x load": Want(8, 32), "y atomic": Want(8, 8, collisions=8 * 24)},
        reads_per_thread=2,
    ),
    # 32 x 32 by 32 x 32: 32 warps, a row of c each. a[y, k] is one address, b[k, x] a
    # row of 128 bytes, for each of 32 k.
    Entry(
        "matmul, naive",
        matmul,
        (1, 4),
        (32, 8),
        matrices((32, 32), (32, 32), (32, 32)),
        {
            "a load": Want(1024, 1024),
            "b load": Want(1024, 4096),
            "c store": Want(32, 128),
        },
        (32, 0),
        2 * 32**3,
        64,
    ),
)
