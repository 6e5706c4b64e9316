"""Kernels of tiles whose times others published, traced in part: a wave of programs,
and few turns of their loops.

The sources tune their tiles and don't print what they chose: a choice stands here that
their lists of configurations have. In a row m, n, k are a matmul's extents; of
attention the sequence, batch times heads, and the head's size.
"""

import math

import numpy as np

from kerneltrace import tiles
from test_kerneltrace import tile_kernels
from test_kerneltrace.places import published

NUMBERS = ("m", "n", "k", "printed", "calculated_ms")


def rows():
    """The rows of the table as dicts, numbers as numbers."""
    return [
        {
            column: float(cell) if column in NUMBERS and cell else cell
            for column, cell in row.items()
        }
        for row in published("tile_times")
    ]


def published_s(row):
    """Seconds that a row prints."""
    return work(row) / row["printed"] / {"GB/s": 1e9, "TFLOP/s": 1e12}[row["unit"]]


def work(row):
    """The bytes or FLOP by which the source divides the time to get what it prints."""
    m = row["m"]
    n = row["n"]
    k = row["k"]
    return {
        "vector add": lambda: 12 * m,
        "matmul": lambda: 2 * m * n * k,
        "attention": lambda: 4 * m * m * n * k,
    }[row["kernel"]]()


def estimated(row):
    """The estimate of a row."""
    return {"vector add": _add, "matmul": _matmul, "attention": _attention}[
        row["kernel"]
    ](row)


def _add(row):
    x, y, out = (np.zeros(64 * 1024, np.float32) for _ in range(3))
    trace = tiles.trace(tile_kernels.add, 64, x, y, out, x.size, BLOCK=1024)
    return trace.estimate(row["device"], grid=int(row["m"]) // 1024)


def _matmul(row):
    m = int(row["m"])
    n = int(row["n"])
    depth = 128
    a = np.zeros((m, depth), np.float16)
    b = np.zeros((depth, n), np.float16)
    c = np.zeros((m, n), np.float16)
    grid = math.ceil(m / 128) * math.ceil(n / 256)
    trace = tiles.trace(
        tile_kernels.matmul, grid, a, b, c, m, n, depth, depth, 1, n, 1, n, 1,
        BM=128, BN=256, BK=64, GROUP=8, num_warps=8, num_stages=3, programs=132,
    )  # fmt: skip
    return trace.estimate(row["device"], grid=grid, longer=row["k"] / depth)


def _attention(row):
    n = int(row["m"])
    keys = 256
    d = int(row["k"])
    sms = 132
    heads = math.ceil(sms * 128 / n)  # that a wave of programs reaches
    q = np.zeros((heads, n, d), np.float16)
    out = np.zeros((heads, n, d), np.float16)
    k = np.zeros((heads, keys, d), np.float16)
    v = np.zeros((heads, keys, d), np.float16)
    trace = tiles.trace(
        tile_kernels.attention, (n // 128, heads), q, k, v, out, n, keys, 0.1,
        D=d, BM=128, BN=64, CAUSAL=False, num_warps=8, num_stages=3, programs=sms,
    )  # fmt: skip
    return trace.estimate(
        row["device"], grid=(n // 128, int(row["n"])), longer=n / keys
    )
