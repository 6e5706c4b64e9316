"""Checks of notebook 03, the reader's first kernels. Every kernel is traced, and launched where there is a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from exercises.traced_kernels import Array, Case, correct, unwritten, within
from labkit.gpu.trace import Trace
from labkit.gpu.trace.events import SECTOR_BYTES


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.uniform(-1, 1, shape).astype(np.float32)


def _judge_sharing(done: Trace, array: str, kind: str, n: int) -> None:
    """NotYet where one thread does the work of many, or where neighbouring threads don't take neighbouring elements.

    The launch works on n numbers of 4 bytes. Of a grid of t threads none needs more than ceil(n / t) of them, and a
    pass over them moves each sector once.
    """
    counts = done.count(array, kind=kind)
    why = "Few threads do the work of many: let every thread of the grid have its share."
    within(done, f"elements of {array} in one thread", done.busiest(array, kind), -(-n // done.threads), why)
    why = "Let neighbouring threads take neighbouring elements; notebook 04 measures what that gains."
    passes = max(counts.reads, counts.writes, n) / n  # over the numbers
    enough = 2 * -(-4 * round(passes * n) // SECTOR_BYTES)  # twice, for those who start elsewhere
    within(done, f"sectors of {SECTOR_BYTES} bytes of {array}", counts.sectors, enough, why)


def _cases(
    seed: int,
    launches: Iterable[tuple[int, int, int]],
    args: Callable[[np.random.Generator, int], tuple[Any, ...]],
    expected: Callable[..., dict[str, Array]],
) -> list[Case]:
    """A case for each (elements, blocks, threads a block) of a launch, with args(rng, elements) and expected(*args)."""
    rng, cases = np.random.default_rng(seed), []
    for n, grid, block in launches:
        given, drawn = f"{n:,} element{'s' * (n != 1)} and {grid} block{'s' * (grid != 1)} of {block}", args(rng, n)
        cases.append(Case(given, grid, block, drawn, expected(*drawn)))
    return cases


def _one_input(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return _floats(rng, n), unwritten(n)


def double(answer: object) -> str:
    """One thread an element: index by hand, and a guard."""
    launches = ((10, 3, 4), (256, 1, 256), (1023, 4, 256), (1, 1, 64), (0, 1, 32), (37, 9, 5))
    traces = correct(answer, "x, out", _cases(31, launches, _one_input, lambda x, out: {"out": 2 * x}))
    _judge_sharing(traces[2], "out", "store", 1023)
    return "Right for 0 to 1,023 elements, with the last block full, partly empty or completely empty."


def relu(answer: object) -> str:
    """A grid-stride loop: any number of elements with any grid."""
    launches = ((20, 2, 4), (4096, 2, 64), (1023, 2, 64), (1, 2, 32), (0, 1, 32), (100, 4, 256))
    traces = correct(answer, "x, out", _cases(32, launches, _one_input, lambda x, out: {"out": np.maximum(x, 0)}))
    _judge_sharing(traces[1], "x", "load", 4096)
    return "Right for fewer and for more elements than threads, and neighbours work on neighbours."


def saxpy(answer: object) -> str:
    """SAXPY in place, for any grid."""

    def args(rng: np.random.Generator, n: int) -> tuple[np.float32, Array, Array]:
        return np.float32(rng.uniform(1, 3)), _floats(rng, n), _floats(rng, n)

    launches = ((1023, 4, 256), (4096, 2, 64), (1, 1, 32), (0, 1, 32), (1000, 3, 96), (64, 8, 64))
    traces = correct(answer, "a, x, y", _cases(36, launches, args, lambda a, x, y: {"y": a * x + y}))
    _judge_sharing(traces[1], "y", "store", 4096)
    return "Right for 0 to 4,096 elements, with more threads than elements and with fewer."


def histogram(answer: object) -> str:
    """The fixed kernel on values of every kind: many, equal, few, none."""
    rng = np.random.default_rng(33)
    cases = []
    for what, drawn, grid, block in (
        ("1,000 random values", rng.integers(0, 8, 1000), 4, 256),
        ("1,023 random values", rng.integers(0, 8, 1023), 16, 64),
        ("96 equal values", np.full(96, 5), 3, 32),
        ("1 value", np.array([7]), 1, 32),
        ("no value", np.zeros(0), 1, 32),
    ):
        values = drawn.astype(np.int32)
        given = f"{what}, {grid} block{'s' * (grid != 1)} of {block}"
        args = values, np.zeros(8, np.int32)
        cases.append(Case(given, grid, block, args, {"counts": np.bincount(values, minlength=8)}))
    traces = correct(answer, "values, counts", cases)
    _judge_sharing(traces[0], "values", "load", 1000)
    return "All three bugs are fixed: every value is counted once, in whatever order the threads run."


def blur(answer: object) -> str:
    """The mean of the pixels of a 3 x 3 neighbourhood that exist, for images that are not square."""
    rng = np.random.default_rng(37)
    cases = []
    for shape, grid, block in (
        ((16, 32), (2, 1), (16, 16)),
        ((33, 17), (2, 3), (16, 16)),
        ((5, 40), (5, 2), (8, 4)),
        ((1, 1), (1, 1), (8, 8)),
        ((1, 9), (2, 1), (8, 8)),
        ((0, 4), (1, 1), (8, 8)),
    ):
        image = _floats(rng, *shape)
        given = f"{shape[0]} rows, {shape[1]} columns and a grid of {grid} blocks of {block}"
        cases.append(Case(given, grid, block, (image, unwritten(*shape)), {"out": _blurred(image)}))
    traces = correct(answer, "image, out", cases)
    why = "Few threads do the work of many: let every thread have a pixel."
    within(traces[0], "pixels written by one thread", traces[0].busiest("out", "store"), 1, why)
    return "Right for wide, high and tiny images, including corners and edges."


def _blurred(image: Array) -> Array:
    """The mean of each pixel and those of its eight neighbours that exist; (rows, columns), float32."""
    out = np.empty_like(image)
    for row, column in np.ndindex(image.shape):
        out[row, column] = image[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2].mean(dtype=float)
    return out


CHECKS = {
    "03.1": double,
    "03.2": relu,
    "03.5": histogram,
    "03.6": saxpy,
    "03.7": blur,
}
