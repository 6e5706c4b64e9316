"""Checks of notebook 04, why a kernel waits for memory: sectors, and four kernels with
a budget of counts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from exercises.traced_kernels import Case, correct, times, unremarked, unwritten, within
from kerneltrace import SECTOR_BYTES, Trace
from labkit.lesson.checks import close, over_cases

LANES = 32  # of a warp
TILE = 32  # side of a transpose's block
MATMUL_TILE = 16
THREADS = 256  # of a reduction's block
ROUNDS = 100  # of shared memory and shuffles, in one of its blocks


def sectors(answer: object) -> str:
    """Sectors of one warp's request, for strides, offsets and sizes of elements at
    random and at the edges.
    """
    draw = random.Random(2204)
    cases = [
        (1, 0, 4),
        (8, 0, 4),
        (2, 0, 4),
        (1, 1, 4),
        (1, 8, 4),
        (1, 0, 8),
        (1, 0, 1),
        (0, 0, 4),
        (32, 3, 8),
    ]
    cases += [
        (draw.randrange(1, 12), draw.randrange(0, 40), draw.choice((1, 2, 4, 8)))
        for _ in range(20)
    ]

    def expected(stride: int, offset: int, element_bytes: int) -> int:
        return len(
            {
                (offset + lane * stride) * element_bytes // SECTOR_BYTES
                for lane in range(LANES)
            }
        )

    def hint(value: float, stride: int, offset: int, element_bytes: int) -> str:
        lanes = (
            f"Lane 0 asks for byte {offset * element_bytes}, lane 1 for byte"
            f" {(offset + stride) * element_bytes}"
        )
        return f"{lanes}; sectors begin at multiples of {SECTOR_BYTES}."

    over_cases(answer, cases, expected, close("sectors", rel=0.0, hint=hint))
    return "Right for strides 0 to 32, for offsets, and for elements of 1 to 8 bytes."


def coalesced(answer: object) -> str:
    """A bias added to rows, with a grid that covers x either way round; lanes of a warp
    must read neighbors.
    """
    shapes = [(64, 96), (33, 70), (1, 1), (5, 129, 100)]
    trace = _judged(answer, "x, bias, out", [_bias_case(*s) for s in shapes], "out")
    rows, columns = shapes[0][:2]
    moved = trace.count("x").sectors + trace.count("out").sectors
    why = (
        "Which of the two numbers of cuda.grid(2) counts up from lane to lane? It has"
        " to be the column."
    )
    within(
        trace,
        "sectors of x and out",
        moved,
        2 * rows * columns * 4 // SECTOR_BYTES,
        why,
    )
    right = (
        f"Right for four shapes, and each sector moves once: {moved:,} for {rows} x"
        f" {columns} numbers."
    )
    return right + times(trace, "6,400 x 9,600 numbers", (300, 1200))


def _bias_case(rows: int, columns: int, larger: int = 1) -> Case:
    """Numbers between -1 and 1, but for x's last row, which is `larger` times as
    large.
    """
    draw = np.random.default_rng(rows * columns)
    x = draw.uniform(-1, 1, (rows, columns)).astype(np.float32)
    x[-1] *= larger
    bias = draw.uniform(-1, 1, columns).astype(np.float32)
    longest = max(rows, columns)
    grid = (-(-longest // 32), -(-longest // 8))
    args = x, bias, unwritten(rows, columns)
    return Case(f"x of {rows} x {columns}", grid, (32, 8), args, {"out": x + bias})


def _judged(answer: object, parameters: str, cases: Sequence[Case], out: str) -> Trace:
    """The trace of the first case; NotYet for a wrong result, and where a thread writes
    several numbers of `out`.
    """
    traces = correct(answer, parameters, cases)
    for trace in traces:
        why = "Few threads do the work of many: let each of them write one number."
        within(
            trace,
            f"numbers of {out} written by one thread",
            trace.busiest(out, "store"),
            1,
            why,
        )
    return traces[0]


def transpose(answer: object) -> str:
    """A transpose without bank conflicts whose every sector is used whole."""
    cases = [
        _transpose_case(*shape) for shape in ((64, 64), (33, 150), (1, 1), (129, 2))
    ]
    trace = _judged(answer, "a, out", cases, "out")
    why = (
        "Let neighboring lanes read a row of a, and write a row of out: threadIdx.x"
        " counts along both."
    )
    moved = trace.count(space="global").sectors
    within(trace, "sectors of a and out", moved, 2 * 64 * 64 * 4 // SECTOR_BYTES, why)
    shared = trace.count(space="shared")
    why = (
        "A column of the tile lies in one bank when its rows are 32 floats apart. How"
        " far apart could they be?"
    )
    within(trace, "rounds of shared memory", shared.wavefronts, shared.requests, why)
    right = (
        "Right for four shapes; every byte moved was asked for, and no bank has to give"
        " two words at once."
    )
    return right + times(trace, "8,192 x 8,192 numbers", (256, 256))


def _transpose_case(rows: int, columns: int) -> Case:
    draw = np.random.default_rng(rows * columns)
    a = draw.uniform(-1, 1, (rows, columns)).astype(np.float32)
    grid = (-(-columns // TILE), -(-rows // TILE))
    out = unwritten(columns, rows)
    return Case(f"a of {rows} x {columns}", grid, (TILE, TILE), (a, out), {"out": a.T})


def total(answer: object) -> str:
    """A sum with no race, at most one atomic a block, few divergent branches, and many
    threads that add at a time.

    Of the branches of its 64 warps, 384 diverge with interleaved steps, 48 with halves,
    72 with shuffles. A block takes 45 rounds with halves, 54 with shuffles (96 in
    float64), 150 with interleaved steps, over 256 with one sum for all.
    """
    # small ones first: most mistakes show there, and sooner
    cases = [_sum_case(n) for n in (1, 257, 1000, 2048)]
    trace = correct(answer, "x, total", cases, atomics=True)[-1]
    atomics = trace.count("total", kind="atomic").writes
    blocks = 2048 // THREADS
    why = (
        "Let the threads of a block add up among themselves first, and one of them add"
        " that to total[0]."
    )
    within(trace, "atomic additions to total", atomics, blocks, why)
    why = "Few threads do the work of many: let every thread read a number."
    within(trace, "numbers read by one thread", trace.busiest("x"), 1, why)
    shared = (
        trace.busiest(name)
        for name in trace.arrays
        if trace.count(name, space="shared").reads
    )
    why = (
        "Few threads do the work of many: let half of them add a number each, then half"
        " of those, and so on."
    )
    within(
        trace,
        "numbers of shared memory read by one thread",
        max(shared, default=0),
        LANES,
        why,
    )
    why = (
        "Let neighboring threads branch the same way, so that whole warps at once have"
        " nothing left to add."
    )
    within(trace, "divergent branches", trace.branches().divergent, 128, why)
    rounds = trace.count(space="shared").rounds + trace.shuffles
    why = (
        "Additions to one number, and numbers in one bank, are taken one after another."
    )
    within(trace, "rounds of shared memory and shuffles", rounds, ROUNDS * blocks, why)
    right = (
        f"Right for 1 to 2,048 numbers, with {atomics} atomic additions for {blocks}"
        f" blocks, {rounds:,} rounds of shared memory and shuffles, and"
        f" {trace.barriers:,} barriers."
    )
    return right + times(trace, "2^28 numbers", 2**20)


def _sum_case(n: int) -> Case:
    x = np.random.default_rng(n).random(n, np.float32) - np.float32(0.25)
    x[THREADS : 2 * THREADS] -= 1  # a block with a negative sum
    x[-1] = 100
    before = np.full(1, 3, np.float32)
    label = f"{n:,} number{'s' * (n > 1)} and total[0] = 3"
    return Case(
        label,
        -(-n // THREADS),
        THREADS,
        (x, before),
        {"total": before + x.sum(dtype=np.float64)},
    )


def matmul(answer: object) -> str:
    """A tiled matmul for any size, whose blocks read each number of
    their tiles once.
    """
    sizes = [(32, 48, 32), (20, 70, 13), (1, 1, 1), (16, 5, 33), (3, 0, 4)]
    trace = _judged(answer, "a, b, c", [_matmul_case(*size) for size in sizes], "c")
    rows, depth, columns = sizes[0]
    inputs = trace.count(space="global", kind="load")
    c = trace.count("c")
    why = "Add up in a variable of the thread, a register, and write c once at the end."
    within(trace, "accesses to c", c.reads + c.writes, rows * columns, why)
    most = 2 * rows * columns * depth // MATMUL_TILE
    why = (
        "A number that 16 threads of a block need is read by one of them, into shared"
        " memory, for all."
    )
    within(trace, "reads of a and b", inputs.reads, most, why)
    busiest = max(trace.busiest("a"), trace.busiest("b"))
    why = (
        "Few threads do the work of many: let each thread load a number of each tile,"
        " or two of one."
    )
    within(
        trace,
        "numbers of a matrix read by one thread",
        busiest,
        2 * depth // MATMUL_TILE,
        why,
    )
    why = (
        "Let neighboring threads load neighboring numbers of a row: threadIdx.x"
        " counts along it."
    )
    within(
        trace, "sectors of a and b", inputs.sectors, 2 * most * 4 // SECTOR_BYTES, why
    )
    unremarked(trace, "bank conflicts", "float64")
    right = (
        f"Right for five sizes, with {inputs.reads:,} reads of a and b; one thread an"
        f" element needs {16 * most:,}."
    )
    return right + times(
        trace, "4,096 x 4,096 numbers", (256, 256), longer=4096 / depth
    )


def _matmul_case(rows: int, depth: int, columns: int) -> Case:
    draw = np.random.default_rng(rows + depth + columns)
    a = draw.uniform(-1, 1, (rows, depth)).astype(np.float32)
    b = draw.uniform(-1, 1, (depth, columns)).astype(np.float32)
    grid = (-(-columns // MATMUL_TILE), -(-rows // MATMUL_TILE))
    expected = {"c": (a.astype(np.float64) @ b).astype(np.float32)}
    label = f"a of {rows} x {depth} and b of {depth} x {columns}"
    return Case(
        label,
        grid,
        (MATMUL_TILE, MATMUL_TILE),
        (a, b, unwritten(rows, columns)),
        expected,
    )


CHECKS = {
    "04.1": sectors,
    "04.2": coalesced,
    "04.3": transpose,
    "04.5": total,
    "04.6": matmul,
}
