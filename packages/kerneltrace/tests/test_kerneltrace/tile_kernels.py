"""Correct kernels of tiles, each with a launch and the results that it must leave.

Run as a program with a path, under TRITON_INTERPRET=1, it writes there what Triton's
own interpreter computes.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltrace.tiles import tl, triton

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(
        out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask
    )


@triton.jit
def gelu(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, at < n, 0.0).to(tl.float32)
    result = 0.5 * values * (1 + tl.erf(values * 0.7071067811865476))
    tl.store(out + at, result.to(out.dtype.element_ty), at < n)


@triton.jit
def doubled(values):
    return 2 * values


@triton.jit
def positive(values):
    return tl.maximum(values, 0.0)


@triton.jit
def applied(x, out, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    if FUNCTION is not None:
        values = FUNCTION(values)
    tl.store(out + at, values, mask=at < n)


@triton.jit
def softmax(x, out, rows, columns, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
        at = tl.arange(0, BLOCK)
        values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
        powers = tl.exp(values - tl.max(values, axis=0))
        tl.store(
            out + row * columns + at, powers / tl.sum(powers, axis=0), mask=at < columns
        )


@triton.jit
def transpose(x, out, rows, columns, TILE: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = (i[:, None] < rows) & (j[None, :] < columns)
    tile = tl.load(x + i[:, None] * columns + j[None, :], mask)
    tl.store(out + j[:, None] * rows + i[None, :], tl.trans(tile), tl.trans(mask))


@triton.jit
def matmul(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    down = tl.cdiv(M, BM)
    across = tl.cdiv(N, BN)
    in_group = GROUP * across
    first = program // in_group * GROUP
    high = min(down - first, GROUP)
    pid_m = first + program % in_group % high
    pid_n = program % in_group // high
    rows = (pid_m * BM + tl.arange(0, BM)) % M
    columns = (pid_n * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    left = a + rows[:, None] * stride_am + inner[None, :] * stride_ak
    right = b + inner[:, None] * stride_bk + columns[None, :] * stride_bn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(left, mask=inner[None, :] < K - k * BK, other=0.0)
        y = tl.load(right, mask=inner[:, None] < K - k * BK, other=0.0)
        total = tl.dot(x, y, total)
        left += BK * stride_ak
        right += BK * stride_bk
    rows = pid_m * BM + tl.arange(0, BM)
    columns = pid_n * BN + tl.arange(0, BN)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(
        c + rows[:, None] * stride_cm + columns[None, :] * stride_cn,
        total.to(c.dtype.element_ty),
        mask=mask,
    )


@triton.jit
def _tiles_of(acc, total, most, q, k, v, start, low, high, scale, D: tl.constexpr, BM: tl.constexpr,
              BN: tl.constexpr, DIAGONAL: tl.constexpr):  # fmt: skip
    d = tl.arange(0, D)
    for first in range(low, high, BN):
        keys = first + tl.arange(0, BN)
        scores = tl.dot(q, tl.load(k + keys[None, :] * D + d[:, None])) * scale
        if DIAGONAL:
            rows = start * BM + tl.arange(0, BM)
            scores = tl.where(rows[:, None] >= keys[None, :], scores, -1.0e6)
        new = tl.maximum(most, tl.max(scores, 1))
        p = tl.math.exp2(scores - new[:, None])
        rescale = tl.math.exp2(most - new)
        total = total * rescale + tl.sum(p, 1)
        values = tl.load(v + keys[:, None] * D + d[None, :])
        acc = tl.dot(p.to(values.dtype), values, acc * rescale[:, None])
        most = new
    return acc, total, most


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    n,
    keys,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    start = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64) * n * D
    of_keys = tl.program_id(1).to(tl.int64) * keys * D
    at = (start * BM + tl.arange(0, BM))[:, None] * D + tl.arange(0, D)[None, :]
    queries = tl.load(q + head + at)
    acc = tl.zeros([BM, D], dtype=tl.float32)
    most = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], dtype=tl.float32)
    scale *= LOG2_E
    high = keys
    if CAUSAL:
        high = start * BM
    acc, total, most = _tiles_of(
        acc,
        total,
        most,
        queries,
        k + of_keys,
        v + of_keys,
        start,
        0,
        high,
        scale,
        D,
        BM,
        BN,
        False,
    )
    if CAUSAL:
        acc, total, most = _tiles_of(
            acc,
            total,
            most,
            queries,
            k + of_keys,
            v + of_keys,
            start,
            high,
            high + BM,
            scale,
            D,
            BM,
            BN,
            True,
        )
    tl.store(out + head + at, (acc / total[:, None]).to(out.dtype.element_ty))


@triton.jit
def bins(x, counts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + at, at < n, 0), 1, mask=at < n)


@triton.jit
def scan(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    tl.store(out + row + at, tl.cumsum(tl.load(x + row + at, at < n, 0), 0), at < n)


@triton.jit
def locked_sum(x, total, lock, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + at, at < n, 0.0))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + part)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def last_one_sums(x, parts, done, out, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + at, at < n, 0.0)))
    tl.debug_barrier()
    if tl.atomic_add(done, 1) == PROGRAMS - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, PROGRAMS))))


@triton.jit
def whole_numbers(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n, 1)
    w = (v // 3 - v % 5) * (v >> 1) ^ (v & 12) | ~v
    tl.store(out + at, tl.minimum(w, 1000) + (v < 0).to(tl.int32) - tl.abs(v), at < n)


def random(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@dataclass
class Launch:
    """A launch: a kernel, the grid, arguments, constants, and by position the results
    that must come out.
    """

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    constants: dict[str, Any]
    expected: dict[int, Any]
    tolerance: float = 1e-5


def softmax_of(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _matmul(m, n, k, tile, group, dtype, out, tolerance):
    # columns of b lie one after another
    a = random(m, k, dtype=dtype)
    b = random(n, k, dtype=dtype, seed=1).T
    strides = k, 1, 1, k, n, 1
    args = a, b, np.zeros((m, n), out), m, n, k, *strides
    grid = (-(-m // tile) * -(-n // tile),)
    as_taken = tf32 if dtype == np.float32 else lambda x: x.astype(float)
    exact = as_taken(a) @ as_taken(b)
    return Launch(
        matmul,
        grid,
        args,
        {"BM": tile, "BN": tile, "BK": 32, "GROUP": group},
        {2: exact},
        tolerance,
    )


def tf32(x):
    """float32 with the 10 bits of TF32's fraction, as tensor cores take it (PTX ISA,
    cvt.rna.tf32.f32).
    """
    scale = 2.0 ** (10 - np.floor(np.log2(np.abs(x.astype(float)))))
    return np.trunc(x * scale + np.copysign(0.5, x)) / scale


def _attention(causal):
    heads = 2
    n = 128
    d = 32
    q, k, v = (random(heads, n, d, dtype=np.float16, seed=i) for i in range(3))
    scores = q.astype(float) @ k.astype(float).transpose(0, 2, 1) * d**-0.5
    scores = (
        np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf) if causal else scores
    )
    args = q, k, v, np.zeros_like(q), n, n, d**-0.5
    constants = {"D": d, "BM": 32, "BN": 16, "CAUSAL": causal}
    return Launch(
        attention, (n // 32, heads), args, constants, {3: softmax_of(scores) @ v}, 2e-3
    )


def _gelu(n):
    from math import erf

    x = random(n, dtype=np.float16)
    exact = [0.5 * float(v) * (1 + erf(float(v) * 0.7071067811865476)) for v in x]
    return Launch(
        gelu, (-(-n // 64),), (x, np.zeros_like(x), n), {"BLOCK": 64}, {1: exact}, 2e-3
    )


def _softmax():
    x = random(13, 100)
    args = x, np.zeros_like(x), 13, 100
    return Launch(softmax, (4,), args, {"BLOCK": 128}, {1: softmax_of(x.astype(float))})


def launches() -> dict[str, Callable[[], Launch]]:
    """For each name what makes a launch, with new arrays each time."""
    x = random(1000)
    y = random(1000, seed=1)
    n = 1000
    whole = np.random.default_rng(2).integers(-99, 99, 100).astype(np.int32)
    return {
        "add": lambda: Launch(
            add, (4,), (x, y, np.zeros_like(x), n), {"BLOCK": 256}, {2: x + y}
        ),
        "gelu of float16": lambda: _gelu(200),
        "a function as a constant": lambda: Launch(
            applied,
            (4,),
            (x, np.zeros_like(x), n),
            {"FUNCTION": positive, "BLOCK": 256},
            {1: np.maximum(x, 0)},
        ),
        "another function as a constant": lambda: Launch(
            applied,
            (4,),
            (x, np.zeros_like(x), n),
            {"FUNCTION": doubled, "BLOCK": 256},
            {1: 2 * x},
        ),
        "softmax": _softmax,
        "transpose": lambda: Launch(
            transpose,
            (3, 2),
            (random(40, 25), np.zeros((25, 40), np.float32), 40, 25),
            {"TILE": 16},
            {1: random(40, 25).T},
        ),
        "matmul of float16": lambda: _matmul(
            70, 50, 100, 16, 2, np.float16, np.float32, 1e-3
        ),
        "matmul of float32": lambda: _matmul(
            64, 64, 64, 32, 8, np.float32, np.float32, 1e-4
        ),
        "attention": lambda: _attention(False),
        "causal attention": lambda: _attention(True),
        "bins": lambda: Launch(
            bins,
            (2,),
            (whole % 8, np.zeros(8, np.int32), 100),
            {"BLOCK": 64},
            {1: np.bincount(whole % 8, minlength=8)},
        ),
        "scan": lambda: Launch(
            scan,
            (4,),
            (whole, np.zeros(100, np.int32), 25),
            {"BLOCK": 32},
            {1: whole.reshape(4, 25).cumsum(1).ravel()},
        ),
        "sum under a lock": lambda: Launch(
            locked_sum,
            (8,),
            (x, np.zeros(1, np.float32), np.zeros(1, np.int32), n),
            {"BLOCK": 128},
            {1: [x.sum()]},
            1e-4,
        ),
        "the last program sums": lambda: Launch(
            last_one_sums,
            (8,),
            (
                x,
                np.zeros(8, np.float32),
                np.zeros(1, np.int32),
                np.zeros(1, np.float32),
                n,
            ),
            {"BLOCK": 128, "PROGRAMS": 8},
            {3: [x.sum()]},
            1e-4,
        ),
        "whole numbers": lambda: Launch(
            whole_numbers,
            (1,),
            (whole, np.zeros_like(whole), 100),
            {"BLOCK": 128},
            {1: _whole_numbers(whole)},
        ),
    }


def _whole_numbers(v):
    quotient = np.trunc(v / 3).astype(int)
    w = ((quotient - np.fmod(v, 5)) * (v >> 1)) ^ (v & 12) | ~v
    return np.minimum(w, 1000) + (v < 0) - np.abs(v)


def interpreted(path):
    """Write what Triton's interpreter leaves in the results of each launch."""
    import torch

    actual = {}
    for name, make in launches().items():
        launch = make()
        # torch has no arrays whose columns come first but as views
        if launch.kernel is matmul:
            launch.args = (
                launch.args[0],
                np.asfortranarray(launch.args[1]),
                *launch.args[2:],
            )
        args = [
            torch.from_numpy(arg) if isinstance(arg, np.ndarray) else arg
            for arg in launch.args
        ]
        launch.kernel[launch.grid](*args, **launch.constants)
        actual |= {
            f"{name}/{position}": args[position].numpy() for position in launch.expected
        }
    np.savez(path, **actual)


if __name__ == "__main__":
    interpreted(sys.argv[1])
