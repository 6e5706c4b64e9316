"""Checks of notebook 03, the reader's first kernels. Every kernel is traced, and
launched where there is a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from exercises.traced_kernels import Array, Case, correct, unwritten, within
from kerneltrace import SECTOR_BYTES, WARP, Trace


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.uniform(-1, 1, shape).astype(np.float32)


Launches = Sequence[tuple[int, int, int]]  # (elements, blocks, threads a block) each


def _judge_sharing(
    traces: Sequence[Trace],
    launches: Launches,
    array: str,
    kind: str,
    *,
    apart: bool = False,
) -> None:
    """NotYet where few threads do the work of many, or, unless `apart`, neighbors
    don't take neighboring elements.

    Of t threads none needs more than ceil(n / t) of n elements of 4 bytes, and a pass
    over them moves each sector once. Where threads take several, one more and three
    times the sectors are for those who take them in pairs.
    """
    in_pairs = any(n > blocks * threads for n, blocks, threads in launches)
    for trace, (n, _, block) in zip(traces, launches, strict=True):
        most = -(-n // trace.threads) + in_pairs
        why = (
            f"Few threads do the work of many: with {n:,} elements, let all"
            f" {trace.threads} threads have their share."
        )
        within(
            trace,
            f"elements of {array} in one thread",
            trace.busiest(array, kind),
            most,
            why,
        )
        counts = trace.count(array, kind=kind)
        enough = 3 * max(
            -(-4 * max(counts.reads, counts.writes, n) // SECTOR_BYTES), counts.requests
        )
        why = (
            "Let neighboring threads take neighboring elements; notebook 04 measures"
            " what that gains."
        )
        if not apart and block % WARP == 0:
            within(
                trace,
                f"sectors of {SECTOR_BYTES} bytes of {array}",
                counts.sectors,
                enough,
                why,
            )


def _cases(
    seed: int,
    launches: Launches,
    args: Callable[[np.random.Generator, int], tuple[Any, ...]],
    expected: Callable[..., dict[str, Array]],
) -> list[Case]:
    """A case for each launch, with args(rng, elements) and expected(*args)."""
    rng = np.random.default_rng(seed)
    cases = []
    for n, grid, block in launches:
        label = (
            f"{n:,} element{'s' * (n != 1)} and {grid} block{'s' * (grid != 1)} of"
            f" {block}"
        )
        drawn = args(rng, n)
        cases.append(Case(label, grid, block, drawn, expected(*drawn)))
    return cases


def _one_input(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    x = _floats(rng, n)
    x[n // 2 : n // 2 + 1] = 5e-4
    if n > 1000:  # the others keep small numbers apart
        x[-1] = 100
    return x, unwritten(n)


def double(answer: object) -> str:
    """One thread an element: index by hand, and a guard."""
    launches = (
        (10, 3, 4),
        (256, 1, 256),
        (1023, 4, 256),
        (1, 1, 64),
        (0, 1, 32),
        (37, 9, 5),
    )
    traces = correct(
        answer,
        "x, out",
        _cases(31, launches, _one_input, lambda x, out: {"out": 2 * x}),
    )
    # of which the reader has not heard yet
    _judge_sharing(traces, launches, "out", "store", apart=True)
    return (
        "Right for 0 to 1,023 elements, with the last block full, partly empty or"
        " completely empty."
    )


_ANY_GRID = (
    (20, 2, 4),
    (200, 3, 32),
    (1000, 3, 96),
    (1201, 2, 64),
    (300, 1, 64),
    (4096, 8, 64),
    (1, 2, 32),
    (0, 1, 32),
    (100, 4, 256),
)


def relu(answer: object) -> str:
    """A grid-stride loop: no stride but the whole grid's is right in loops over one,
    two, three and more blocks.
    """
    traces = correct(
        answer,
        "x, out",
        _cases(32, _ANY_GRID, _one_input, lambda x, out: {"out": np.maximum(x, 0)}),
    )
    _judge_sharing(traces, _ANY_GRID, "x", "load")
    return (
        "Right for fewer and for more elements than threads, and neighbors work on"
        " neighbors."
    )


def saxpy(answer: object) -> str:
    """SAXPY in place, for any grid."""

    def args(rng: np.random.Generator, n: int) -> tuple[np.float32, Array, Array]:
        return np.float32(rng.uniform(1, 3)), _floats(rng, n), _floats(rng, n)

    traces = correct(
        answer, "a, x, y", _cases(36, _ANY_GRID, args, lambda a, x, y: {"y": a * x + y})
    )
    _judge_sharing(traces, _ANY_GRID, "y", "store")
    return (
        "Right for 0 to 4,096 elements, with more threads than elements and with fewer."
    )


def histogram(answer: object) -> str:
    """The fixed kernel on values of every kind: many, equal, few, none."""
    launches = ((1000, 4, 256), (1023, 16, 64), (96, 3, 32), (1, 1, 32), (0, 1, 32))

    def args(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        values = np.full(n, 5) if n == 96 else rng.integers(0, 8, n)
        return values.astype(np.int32), rng.integers(0, 9, 8).astype(np.int32)

    cases = _cases(
        33,
        launches,
        args,
        lambda values, counts: {"counts": counts + np.bincount(values, minlength=8)},
    )
    _judge_sharing(
        correct(answer, "values, counts", cases, atomics=True),
        launches,
        "values",
        "load",
    )
    return (
        "All three bugs are fixed: every value is counted once, in whatever order the"
        " threads run."
    )


def blur(answer: object) -> str:
    """The mean of the pixels of a 3 x 3 neighborhood that exist, for images that are
    not square.
    """
    rng = np.random.default_rng(37)
    cases = []
    for shape, grid, block in (
        ((16, 32), (2, 1), (16, 16)),
        ((33, 17), (2, 3), (16, 16)),
        ((5, 40), (5, 2), (8, 4)),
        ((1, 1), (1, 1), (8, 8)),
        ((1, 9), (2, 1), (8, 8)),
        ((9, 1), (1, 2), (8, 8)),
        ((0, 4), (1, 1), (8, 8)),
    ):
        image = _floats(rng, *shape)
        label = (
            f"{shape[0]} rows, {shape[1]} columns and a grid of {grid} blocks of"
            f" {block}"
        )
        cases.append(
            Case(
                label, grid, block, (image, unwritten(*shape)), {"out": _blurred(image)}
            )
        )
    for trace in correct(answer, "image, out", cases):
        why = "Few threads do the work of many: let every thread have a pixel."
        within(
            trace, "pixels written by one thread", trace.busiest("out", "store"), 1, why
        )
    return "Right for wide, high and tiny images, including corners and edges."


def _blurred(image: Array) -> Array:
    """The mean of each pixel and those of its eight neighbors that exist; (rows,
    columns), float32.
    """
    out = np.empty_like(image)
    for row, column in np.ndindex(image.shape):
        out[row, column] = image[
            max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2
        ].mean(dtype=float)
    return out


CHECKS = {"03.1": double, "03.2": relu, "03.5": histogram, "03.6": saxpy, "03.7": blur}
