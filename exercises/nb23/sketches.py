"""What is asked in each puzzle, on a few numbers: the arrays before and after, and what
one or two threads or programs may touch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exercises.traced_kernels import Array

Place = int | tuple[int, ...]


@dataclass(frozen=True)
class Toucher:
    """A thread or program, and the elements that it reads or writes, by array."""

    who: str
    places: Mapping[str, Sequence[Place]]


@dataclass(frozen=True)
class Sketch:
    """Arrays by name, in the order in which they are drawn; the last one is written."""

    sentence: str
    arrays: Mapping[str, Array]
    touchers: tuple[Toucher, ...]


def _thread(thread: Any, block: Any, **places: Sequence[Place]) -> Toucher:
    return Toucher(f"thread {thread} of block {block}", places)


def _program(program: Any, **places: Sequence[Place]) -> Toucher:
    return Toucher(f"program {program}", places)


def _cells(rows: Sequence[int], columns: Sequence[int]) -> list[Place]:
    return [(row, column) for row in rows for column in columns]


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    weights: Array = powers / powers.sum(-1, keepdims=True)
    return weights


_X = np.array([3, 1, 4, 1, 5, 9, 2, 6])
_Y = np.array([2, 7, 1, 8, 2, 8, 1, 8])
_Z = np.array([2, 0, 1, 1, 2, 1, 1, 0])
_M = np.array([[3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5, 8]])
_N = np.array([[2, 7, 1, 8], [2, 8, 1, 8], [2, 8, 4, 5]])
_S = np.array([[1, 0, 2, 1], [0, 1, 1, 0], [2, 1, 0, 1], [1, 1, 0, 2]])
_T = np.array([[1, 2, 0, 1], [0, 1, 1, 0], [1, 0, 1, 2], [2, 1, 0, 1]])
_A = np.array([[1, 2], [3, 1]])
_Q = np.array([[1, 0], [0, 1], [1, 1], [2, 0]])
_WIDE = np.concatenate([_M, _N])[:4, :]  # (4, 4)


def _pooled() -> Array:
    x = np.hstack([_M[:2], _N[:2]])  # (2, 8)
    pooled: Array = x.reshape(1, 2, 4, 2).max((1, 3))
    return pooled


def _normed(x: Array, weight: Array, bias: Array) -> Array:
    away = x - x.mean(1, keepdims=True)
    normed: Array = away / np.sqrt((away**2).mean(1, keepdims=True)) * weight + bias
    return normed


def _window(x: Array) -> Array:
    padded = np.pad(x, 2)
    return np.array([padded[k : k + 5].sum() for k in range(len(x))])


SKETCHES: dict[str, Sketch] = {
    "23.1": Sketch(
        "Two blocks of four threads: each thread reads one number and writes one.",
        {"x": _X, "out": _X + 10},
        (_thread(1, 0, x=[1], out=[1]), _thread(2, 1, x=[6], out=[6])),
    ),
    "23.2": Sketch(
        "Two blocks of four threads: each thread reads a number of both inputs.",
        {"a": _X, "b": _Y, "out": _X + _Y},
        (_thread(1, 0, a=[1], b=[1], out=[1]), _thread(2, 1, a=[6], b=[6], out=[6])),
    ),
    "23.3": Sketch(
        "Two blocks of four threads for six numbers: threads 2 and 3 of block 1 have"
        " none.",
        {"x": _X[:6], "out": 2 * _X[:6]},
        (_thread(1, 0, x=[1], out=[1]), _thread(1, 1, x=[5], out=[5])),
    ),
    "23.4": Sketch(
        "Blocks of 4 x 1 threads: neighbors in threadIdx.x are neighbors in a row.",
        {"x": _M, "out": -_M},
        (
            _thread((1, 0), (0, 1), x=[(1, 1)], out=[(1, 1)]),
            _thread((2, 0), (0, 1), x=[(1, 2)], out=[(1, 2)]),
        ),
    ),
    "23.5": Sketch(
        "Blocks of 4 x 1 threads: all of a row read the same number of a.",
        {"a": _X[:3, None], "b": _Y[None, :4], "out": _X[:3, None] + _Y[:4]},
        (
            _thread((1, 0), (0, 2), a=[(2, 0)], b=[(0, 1)], out=[(2, 1)]),
            _thread((2, 0), (0, 2), a=[(2, 0)], b=[(0, 2)], out=[(2, 2)]),
        ),
    ),
    "23.6": Sketch(
        "One block of three threads for eight numbers: each goes on three further.",
        {"x": _X - 4, "out": np.abs(_X - 4)},
        (
            _thread(0, 0, x=[0, 3, 6], out=[0, 3, 6]),
            _thread(1, 0, x=[1, 4, 7], out=[1, 4, 7]),
        ),
    ),
    "23.7": Sketch(
        "One block of four threads, a = 2: neighbors have neighbors in a row in every"
        " turn.",
        {"x": _M, "y before": _N, "y": 2 * _M + _N},
        (
            _thread(
                1,
                0,
                x=_cells(range(3), [1]),
                **{"y before": _cells(range(3), [1])},
                y=_cells(range(3), [1]),
            ),
            _thread(
                2,
                0,
                x=_cells(range(3), [2]),
                **{"y before": _cells(range(3), [2])},
                y=_cells(range(3), [2]),
            ),
        ),
    ),
    "23.8": Sketch(
        "Each thread adds up five numbers; most of them its neighbors need, too.",
        {"x": _X, "out": _window(_X)},
        (
            _thread(3, 0, x=range(1, 6), out=[3]),
            _thread(3, 1, x=range(5, 8), out=[7]),
        ),
    ),
    "23.9": Sketch(
        "A thread a column of x; of two threads, one writes for both.",
        {"x": np.hstack([_M[:2], _N[:2]]), "out": _pooled()},
        (
            _thread((2, 0), (0, 0), x=_cells([0, 1], [2]), out=[(0, 1)]),
            _thread((3, 0), (0, 0), x=_cells([0, 1], [3])),
        ),
    ),
    "23.10": Sketch(
        "Blocks of 2 x 2 threads: a warp reads along a row of x, and writes along a row"
        " of out.",
        {"x": _WIDE, "out": _WIDE.T},
        (
            _thread((0, 1), (1, 0), x=[(1, 2)], out=[(3, 0)]),
            _thread((1, 1), (1, 0), x=[(1, 3)], out=[(3, 1)]),
        ),
    ),
    "23.11": Sketch(
        "Two blocks of four threads: each block adds up its own products.",
        {"a": _X, "b": _Z, "out": (_X * _Z).reshape(2, 4).sum(1)},
        (
            Toucher("block 0", {"a": range(4), "b": range(4), "out": [0]}),
            Toucher("block 1", {"a": range(4, 8), "b": range(4, 8), "out": [1]}),
        ),
    ),
    "23.12": Sketch(
        "Two blocks of four threads: each block has running sums of its own.",
        {"x": _X, "out": _X.reshape(2, 4).cumsum(1).ravel()},
        (
            _thread(1, 0, x=range(2), out=[1]),
            _thread(2, 1, x=range(4, 7), out=[6]),
        ),
    ),
    "23.13": Sketch(
        "A thread a value v, which makes counts[v] larger by 1.",
        {
            "values": _X % 8,
            "counts": np.bincount(_X % 8, minlength=8),
        },
        (
            _thread(1, 0, values=[1], counts=[1]),
            _thread(3, 0, values=[3], counts=[1]),
        ),
    ),
    "23.14": Sketch(
        "A thread a number of c: a row of a times a column of b.",
        {"a": _A, "b": _T[:2], "c": _A @ _T[:2]},
        (
            _thread(
                (0, 1),
                (1, 0),
                a=_cells([1], range(2)),
                b=_cells(range(2), [2]),
                c=[(1, 2)],
            ),
        ),
    ),
    "23.15": Sketch(
        "Tiles of four: program 1 is in the middle, and the last tile is half empty.",
        {
            "x": np.append(_X, [5, 3]),
            "out": np.append(_X, [5, 3]) ** 2,
        },
        (
            _program(1, x=range(4, 8), out=range(4, 8)),
            _program(2, x=[8, 9], out=[8, 9]),
        ),
    ),
    "23.16": Sketch(
        "A program a row.",
        {"x": _M, "out": _M.sum(1)[:, None]},
        (_program(1, x=_cells([1], range(4)), out=[(1, 0)]),),
    ),
    "23.17": Sketch(
        "A program a row: exp(number - largest) over the sum of these.",
        {"x": _M, "out": _softmax(_M.astype(float))},
        (_program(1, x=_cells([1], range(4)), out=_cells([1], range(4))),),
    ),
    "23.18": Sketch(
        "Tiles of 2 x 2: a program a tile of c.",
        {"a": _A, "b": _T[:2], "c": _A @ _T[:2]},
        (
            _program(
                (0, 1),
                a=_cells([0, 1], range(2)),
                b=_cells(range(2), [2, 3]),
                c=_cells([0, 1], [2, 3]),
            ),
        ),
    ),
    "23.19": Sketch(
        "A program a row; all read the same weights and biases.",
        {
            "x": _M,
            "weight, bias": np.array([[1, 1, 2, 2], [0, 1, 0, 1]]),
            "out": _normed(_M, np.array([1, 1, 2, 2]), np.array([0, 1, 0, 1])),
        },
        (
            _program(
                1,
                x=_cells([1], range(4)),
                **{"weight, bias": _cells([0, 1], range(4))},
                out=_cells([1], range(4)),
            ),
        ),
    ),
    "23.20": Sketch(
        "Three tokens, tiles of two queries, scale 1: each program reads all keys and"
        " values.",
        {
            "q": _Q[:3],
            "k": _Q[1:],
            "v": _S[:3, :2],
            "out": _softmax((_Q[:3] @ _Q[1:].T).astype(float)) @ _S[:3, :2],
        },
        (
            _program(
                0,
                q=_cells([0, 1], [0, 1]),
                k=_cells(range(3), [0, 1]),
                v=_cells(range(3), [0, 1]),
                out=_cells([0, 1], [0, 1]),
            ),
        ),
    ),
}
"""Number -> sketch."""
