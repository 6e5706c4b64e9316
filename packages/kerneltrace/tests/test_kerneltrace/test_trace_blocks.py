"""Which blocks of a grid run, what the others count for, and what is judged of a part."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from numba import cuda, float32, int32

from kerneltrace import trace
from kerneltrace.errors import TraceTooLarge
from kerneltrace.machine.chosen_blocks import ChosenBlocks, sample
from kerneltrace.machine.grid import Dim3
from test_kerneltrace.tracing import not_on_macos

BLOCK = 32


# -- kernels of which blocks at the same edges of the grid do the same


def copy(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i]


def stencil(x, y):
    i = cuda.grid(1)
    if 0 < i < x.size - 1:
        y[i] = x[i - 1] + x[i] + x[i + 1]


def strided(x, y):
    i = cuda.grid(1)
    total = float32(0)
    for k in range(0, x.size, 8):
        total += x[k]
    if i < y.size:
        y[i] = total


def reversed_in_block(x, y):
    s = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < x.size:
        s[t] = x[i]
    cuda.syncthreads()
    if i < x.size and (cuda.blockIdx.x + 1) * BLOCK <= x.size:
        y[i] = s[BLOCK - 1 - t]


def bank_conflicts(x, y):
    s = cuda.shared.array((BLOCK, BLOCK), float32)
    t = cuda.threadIdx.x
    for k in range(4):
        s[t, k] = k
    cuda.syncthreads()
    y[min(cuda.grid(1), y.size - 1)] = s[t, 0] + x[0]


def summed(x, y):
    s = cuda.shared.array(1, int32)
    if cuda.threadIdx.x == 0:
        s[0] = 0
    cuda.syncthreads()
    cuda.atomic.add(s, 0, 1)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(y, 0, x[0] + s[0])


def shuffled(x, y):
    i = cuda.grid(1)
    v = x[i % x.size]
    v += cuda.shfl_down_sync(0xFFFFFFFF, v, 1)
    if i < y.size:
        y[i] = v


def divergent(x, y):
    i = cuda.grid(1)
    if i < x.size:
        if i % 2:
            y[i] = x[i] / 3
        else:
            y[i] = math.sqrt(x[i])


def first_block_only(x, y):
    i = cuda.grid(1)
    if cuda.blockIdx.x == 0:
        y[i] = x[i]


def ends_only(x, y):
    if cuda.blockIdx.x in (0, cuda.gridDim.x - 1):
        y[cuda.threadIdx.x] = x[cuda.threadIdx.x] if cuda.blockIdx.x else 1


def scaled(a, b):
    j, i = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        b[i, j] = 2 * a[i, j]


def transposed(a, b):
    j, i = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        b[j, i] = a[i, j]


def multiplied(a, b):
    j, i = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        total = float32(0)
        for k in range(8):
            total += a[i, k] * a[i, k + 1]
        b[j, i] = total


def tiled(a, b):
    s = cuda.shared.array((8, 9), float32)
    j, i = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        s[cuda.threadIdx.y, cuda.threadIdx.x] = a[i, j]
    cuda.syncthreads()
    if i < a.shape[0] and j < a.shape[1]:
        b[j, i] = s[cuda.threadIdx.y, cuda.threadIdx.x]


ON_A_LINE = (
    copy,
    stencil,
    strided,
    reversed_in_block,
    bank_conflicts,
    summed,
    shuffled,
    divergent,
    first_block_only,
    ends_only,
)
ON_A_PLANE = scaled, transposed, multiplied, tiled
LINES = list(itertools.product(ON_A_LINE, (5, 6, 9, 20), (32, 17)))
PLANES = list(itertools.product(ON_A_PLANE, ((4, 5), (7, 3), (6, 6), (5, 5), (2, 8))))
SAMPLED_ONLY = "footprint_bytes", "ways"
"""Fields of Counts that are not scaled."""


def both_ways(kernel, blocks, rest):
    """Counts, branches, barriers and the like of a whole trace, and of a sampled one."""
    launch: tuple[object, object]
    if isinstance(blocks, int):
        n = BLOCK * (blocks - 1) + rest
        args = np.ones(n, np.float32), np.zeros(n, np.float32)
        launch = blocks, BLOCK
    else:
        shape = 8 * blocks[1] - 8 + rest, 8 * blocks[0] - 8 + rest
        args = np.ones(shape, np.float32), np.zeros(2 * (max(shape),), np.float32)
        launch = blocks, (8, 8)
    for chosen in ("all", 4 if isinstance(blocks, int) else 9):
        traced = trace(kernel, *launch, *map(np.copy, args), blocks=chosen, schedules=1)
        counts = [
            dataclasses.replace(
                traced.count(array, kind=kind), **dict.fromkeys(SAMPLED_ONLY, 0)
            )
            for array in traced.arrays
            for kind in ("load", "store", "atomic")
        ]
        work = traced.flop, traced.integer_operations, traced.shuffles, traced.barriers
        yield traced, [*counts, traced.branches(), *work]


@pytest.mark.parametrize(
    ("kernel", "blocks", "rest"), [*LINES, *((*plane, 5) for plane in PLANES)]
)
def test_counts_of_a_sample_are_those_of_the_grid(kernel, blocks, rest):
    (whole, expected), (sampled, counts) = both_ways(kernel, blocks, rest)
    assert len(sampled.blocks) < len(whole.blocks)
    assert counts == expected
    assert "blocks were run" in str(sampled)
    assert sampled.notes[0].kind == "sampled"
    assert "blocks were run" not in str(whole)


def test_weights_add_up_to_the_grid():
    rng = np.random.default_rng(0)
    for _ in range(200):
        grid = Dim3(*rng.integers(1, 9, 3).tolist())
        blocks = math.prod(grid)
        numbers = rng.choice(blocks, rng.integers(1, blocks + 1), replace=False)
        chosen = ChosenBlocks(grid, numbers.tolist())
        assert chosen.weights.sum() == blocks
        assert chosen.weights.min() >= 1
        assert len(sample(grid, 12)) <= 12


TRANSPOSE = """
__global__ void transpose(const float* a, float* b, int n) {
  __shared__ float s[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  if (x < n && y < n) s[threadIdx.y][threadIdx.x] = a[y * n + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
  if (x < n && y < n) b[y * n + x] = s[threadIdx.x][threadIdx.y];
}
"""


@not_on_macos
def test_a_sample_of_compiled_blocks_counts_and_takes_as_much():
    a = np.ones((8 * 32 - 8, 8 * 32 - 8), np.float32)
    whole, sampled = (
        trace(TRANSPOSE, (8, 8), (32, 32), a, np.zeros_like(a), len(a), blocks=blocks)
        for blocks in ("all", 9)
    )
    assert len(sampled.blocks) == 9
    assert sampled.ok
    assert sampled.by_array() == whole.by_array()
    assert sampled.branches() == whole.branches()
    assert sampled.barriers == whole.barriers
    times = [traced.estimate("T4").seconds for traced in (whole, sampled)]
    assert times[0] == pytest.approx(times[1], rel=0.02)
    assert sampled.review("T4").grid == (8, 8, 1)
    with pytest.raises(ValueError, match="of a block that was not run"):
        sampled.paths(warp=2 * 32)


# -- who chooses


@pytest.mark.parametrize(
    ("grid", "blocks", "places"),
    [
        (6, "all", [(i, 0, 0) for i in range(6)]),
        (6, 3, [(0, 0, 0), (1, 0, 0), (5, 0, 0)]),
        (6, [4, 2], [(2, 0, 0), (4, 0, 0)]),
        ((4, 4), [(0, 0), (3, 1)], [(0, 0, 0), (3, 1, 0)]),
        ((4, 1, 2), [(3, 0, 1)], [(3, 0, 1)]),
        (2, 9, [(0, 0, 0), (1, 0, 0)]),
        ((9, 9), 3, [(0, 0, 0), (1, 0, 0), (0, 1, 0)]),
    ],
)
def test_blocks_that_a_caller_names_run(grid, blocks, places):
    def k(y):
        y[0] += 1

    y = np.zeros(1)
    assert list(trace(k, grid, 1, y, blocks=blocks, schedules=1).blocks) == places
    assert y[0] == len(places)


@pytest.mark.parametrize(
    ("blocks", "error", "words"),
    [
        (0, ValueError, "Expected blocks to be a whole number of at"),
        ("some", TypeError, 'Expected blocks to be "all"'),
        ([], TypeError, 'Expected blocks to be "all"'),
        ([(9, 0)], ValueError, r"There is no block \(9, 0\) in a grid of \(4, 1, 1\)"),
        ([1.5], TypeError, "Expected a place in blocks"),
    ],
)
def test_blocks_that_a_grid_lacks_are_refused(blocks, error, words):
    with pytest.raises(error, match=words):
        trace(copy, 4, 32, np.ones(9), np.ones(9), blocks=blocks)


def looping(x, y):
    i = cuda.grid(1)
    total = float32(0)
    for k in range(x.size):
        total += x[k]
    if i < y.size:
        y[i] = total


def test_a_large_grid_is_sampled_and_too_large_is_said_after_the_first_blocks():
    x = np.ones(500, np.float32)
    y = np.zeros(1 << 18, np.float32)
    traced = trace(looping, 1 << 12, 64, x, y)
    assert traced.ok
    assert 2 <= len(traced.blocks) <= 64
    assert traced.count("x").reads == 500 << 18
    assert traced.estimate("T4").seconds > 0
    with pytest.raises(TraceTooLarge, match="The first 65 of 4,096 blocks log"):
        trace(looping, 1 << 12, 64, x, y, blocks="all")


def test_a_mistake_of_a_block_in_the_middle_is_found_where_single_threads_sample():
    def k(x, y):
        i = cuda.grid(1)
        total = float32(0)
        for _ in range(8):
            total += x[i]
        y[i + 1 if i == 77_777 else i] = total

    n = 1 << 17
    x = np.arange(n, dtype=np.float32)
    traced = trace(k, n // 256, 256, x, np.zeros(n, np.float32))
    assert [finding.kind for finding in traced.findings] == ["race"]
    assert len(traced.blocks) < n // 256


def test_a_block_that_waits_for_one_without_a_part_makes_all_run():
    def k(flags, y):
        b = cuda.blockIdx.x
        if b > 0:
            while cuda.atomic.add(flags, b - 1, 0) == 0:
                pass
        y[b] = b
        cuda.threadfence()
        cuda.atomic.add(flags, b, 1)

    flags = np.zeros(12, np.int32)
    traced = trace(k, 12, 1, flags, np.zeros(12), blocks=4, max_steps=2000, schedules=1)
    assert traced.ok
    assert len(traced.blocks) == 12


# -- what nobody wrote


def few(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = 2 * x[i]


def rectangle(x, y, rows, columns):
    j, i = cuda.grid(2)
    if i < rows and j < columns:
        y[i, j] = x[i, j]


def every_second(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[2 * i] = x[2 * i]


def numbered(y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = i


def sums(x, y):
    i = cuda.grid(1)
    if i < x.shape[0]:
        total = float32(0)
        for k in range(x.shape[1]):
            total += x[i, k]
        y[i] = total


def like(*shape):
    return np.ones(shape, np.float32), np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("kernel", "grid", "block", "args", "is_mistake"),
    [
        (few, 2, 32, (*like(4096), 4096), False),  # a few blocks of a correct kernel
        (few, 4, 32, (*like(128), 100), False),  # a buffer longer than n
        (few, 3, 32, (*like(100), 100), True),  # the number of blocks rounded down
        (few, 4, 32, (*like(100), 99), False),
        (every_second, 2, 32, (*like(100), 50), False),
        (rectangle, (2, 2), (8, 8), (*like(64, 64), 64, 64), False),
        (rectangle, (4, 4), (8, 8), (*like(32, 32), 20, 30), False),
        (rectangle, (3, 3), (8, 8), (*like(30, 30), 30, 30), True),
        (numbered, 2, 32, (np.zeros(1000),), False),
        (numbered, 3, 32, (np.zeros(100),), True),
        (sums, 1, 32, (np.ones((100, 20)), np.zeros(100)), False),
        (sums, 3, 32, (np.ones((100, 20)), np.zeros(100)), True),
    ],
)
def test_unwritten_is_a_mistake_only_where_threads_should_have_written(
    kernel, grid, block, args, is_mistake
):
    traced = trace(kernel, grid, block, *args)
    findings = traced.findings if is_mistake else traced.notes
    assert [finding.kind for finding in findings] == ["unwritten"]
    assert traced.ok is not is_mistake
