"""The twenty puzzles: on which launches an answer must be right, which of them is
counted, and what is counted there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exercises.traced_kernels import Array, Case, unwritten
from kerneltrace import Trace
from kerneltrace.tiles import TileTrace

HALF = 3e-3  # of the largest number: products of float16, added up in float32
SUMMED = 3e-5  # of numbers that were added up in another order


@dataclass(frozen=True)
class Puzzle:
    """A puzzle: its kernel's parameters, the launches, and what is counted.

    The last of the `cases` is the launch that is counted, on `size`; `counts` are what
    is counted there, of which the first decides. A time is calculated for a launch that
    is `large` enough to fill a GPU: its size in words, its grid, and how many times
    longer the loops are. Of `share` (array, kind of access) a thread touches no more
    elements than its share.
    """

    parameters: str
    counts: tuple[str, ...]
    size: str
    cases: Callable[[], list[Case]]
    large: tuple[str, Any, float]
    share: tuple[str, str] | None = None
    atomics: bool = False
    constants: Callable[[Case], dict[str, int]] | None = None
    """Of a kernel of tiles; None for a kernel of threads."""
    stored: Callable[[dict[str, int]], int] = lambda constants: math.prod(
        constants.values()
    )
    """The most elements that a program stores, from the constants."""
    within: float = 1e-5
    advice: Mapping[str, str] = field(default_factory=dict)
    """What wrong numbers may mean, by the words for the case."""

    def arrays(self) -> list[str]:
        """The parameters that are arrays."""
        names = self.parameters.split(", ")
        values = self.cases()[-1].args  # those of a tile's constants are missing
        return [
            name
            for name, value in zip(names, values, strict=False)
            if isinstance(value, np.ndarray)
        ]


def counted(puzzle: Puzzle, trace: Any) -> dict[str, float]:
    """What a launch costs, by the names of the puzzle's counts."""
    return {name: float(COUNTS[name](trace)) for name in puzzle.counts}


def _sectors(trace: Trace | TileTrace) -> int:
    if isinstance(trace, TileTrace):
        return trace.count().sectors
    return trace.count(space="global").sectors


def _steps(trace: Trace) -> int:
    """Requests of warps, each again for each bank conflict and each lane that changes
    the same number, and shuffles.
    """
    return trace.count().rounds + trace.shuffles


COUNTS: dict[str, Callable[[Any], int]] = {
    "sectors": _sectors,
    "steps": _steps,
    "barriers": lambda trace: trace.barriers,
    "atomics": lambda trace: trace.count(space="global", kind="atomic").writes,
    "bytes": lambda trace: trace.count().bytes,
    "FLOP": lambda trace: sum(trace.dot_flop.values()),
}
"""How each count is taken from a trace."""


# -- numbers that are drawn at random


def _floats(*shape: int) -> Array:
    """Numbers between -1 and 1; small and large ones among many."""
    draw = np.random.default_rng([23, *shape])
    x = draw.uniform(-1, 1, shape).astype(np.float32)
    if x.size > 2:
        x.flat[x.size // 2] = 5e-4
    if x.size > 1000:  # the others keep small numbers apart
        x.flat[-1] = 100
    return x


def _numbers(n: int) -> str:
    return f"{n:,} number{'s' * (n != 1)}"


def _words(n: int, grid: Any, block: Any) -> str:
    blocks = f"{grid} block{'s' * (grid != 1)} of {block}"
    return f"{_numbers(n)} and {blocks}"


# -- launches along one axis


Launch = tuple[int, int, int]  # numbers, blocks, threads a block

EXACT: tuple[Launch, ...] = ((96, 3, 32), (1, 1, 1), (64, 64, 1), (1024, 4, 256))
GUARDED: tuple[Launch, ...] = (
    *((10, 3, 4), (1023, 4, 256), (1, 1, 64), (0, 1, 32), (37, 9, 5), (1000, 4, 256)),
)
ANY_GRID: tuple[Launch, ...] = (
    *((20, 2, 4), (200, 3, 32), (1201, 2, 64), (300, 1, 64), (1, 2, 32), (0, 1, 32)),
    *((100, 4, 256), (4096, 8, 64)),
)


def _along(
    launches: tuple[Launch, ...],
    inputs: int,
    expected: Callable[..., Array],
    out_of: Callable[[Launch], int] = lambda launch: launch[0],
) -> Callable[[], list[Case]]:
    """Cases of `inputs` arrays and one output, which is expected(*arrays, launch)."""

    def cases() -> list[Case]:
        made = []
        for launch in launches:
            n, grid, block = launch
            arrays = [
                _floats(n, number)[:, -1].copy() for number in range(1, inputs + 1)
            ]
            out = expected(*arrays, launch).astype(np.float32)
            args = (*arrays, unwritten(out_of(launch)))
            made.append(Case(_words(*launch), grid, block, args, {"out": out}))
        return made

    return cases


def _window_sums(x: Array, _: Launch) -> Array:
    padded = np.pad(x.astype(float), 2)
    return sum(padded[k : k + len(x)] for k in range(5)) + np.zeros(len(x))


def _in_blocks(x: Array, launch: Launch) -> Array:
    """Numbers block by block, and 0 where a block has more threads; (blocks, block)."""
    _, grid, block = launch
    whole = np.zeros(grid * block)
    whole[: len(x)] = x
    return whole.reshape(grid, block)


def _dots(a: Array, b: Array, launch: Launch) -> Array:
    sums: Array = _in_blocks(a.astype(float) * b, launch).sum(1)
    return sums


def _running_sums(x: Array, launch: Launch) -> Array:
    return _in_blocks(x, launch).cumsum(1).ravel()[: len(x)]


def _histograms() -> list[Case]:
    made = []
    for n, grid, block in (
        (1023, 8, 256),
        (96, 1, 256),
        (1, 2, 256),
        (0, 1, 256),
        (1000, 4, 256),
    ):
        draw = np.random.default_rng([2313, n])
        values = np.full(n, 5) if n == 96 else draw.integers(0, 8, n)
        before = draw.integers(0, 9, 8)
        args = values.astype(np.int32), before.astype(np.int32)
        after = before + np.bincount(values, minlength=8)
        made.append(Case(_words(n, grid, block), grid, block, args, {"counts": after}))
    return made


# -- launches along two axes


SHAPES = ((33, 70), (1, 1), (5, 129), (130, 3), (64, 96))


def _covering(longest: int, block: tuple[int, int]) -> tuple[int, int]:
    return -(-longest // block[0]), -(-longest // block[1])


def _signs() -> list[Case]:
    made = []
    for shape in SHAPES:
        x = _floats(*shape)
        grid = _covering(max(shape), (32, 8))
        label = f"x of {shape[0]} x {shape[1]}"
        args = x, unwritten(*shape)
        made.append(Case(label, grid, (32, 8), args, {"out": -x}))
    return made


def _outer_sums() -> list[Case]:
    made = []
    for rows, columns in SHAPES:
        a = _floats(rows, 2)[:, 1].copy()
        b = _floats(columns, 3)[:, 2].copy()
        grid = _covering(max(rows, columns), (32, 8))
        label = f"{rows} x {columns} numbers of out"
        args = a, b, unwritten(rows, columns)
        made.append(Case(label, grid, (32, 8), args, {"out": a[:, None] + b}))
    return made


def _saxpys() -> list[Case]:
    made = []
    for shape, grid, block in (
        ((3, 5), 2, 4),
        ((33, 70), 3, 64),
        ((1, 1), 1, 32),
        ((0, 4), 1, 32),
        ((129, 3), 1, 64),
        ((2, 300), 8, 128),
        ((64, 96), 4, 128),
    ):
        x = _floats(*shape)
        y = _floats(*shape[::-1]).T.copy()
        label = f"matrices of {shape[0]} x {shape[1]}, {grid} blocks of {block}"
        args = np.float32(1.5), x, y
        expected = {"y": np.float32(1.5) * x + y}
        made.append(Case(label, grid, block, args, expected))
    return made


def _pools() -> list[Case]:
    made = []
    for rows, columns in ((6, 34), (5, 7), (33, 66), (2, 2), (64, 128)):
        x = _floats(rows, columns) - 2  # a 0 from elsewhere would be the largest
        out = x[: rows // 2 * 2, : columns // 2 * 2]
        out = out.reshape(rows // 2, 2, columns // 2, 2).max((1, 3))
        grid = -(-columns // 32), -(-rows // 16)
        label = f"x of {rows} x {columns}"
        args = x, unwritten(*out.shape)
        made.append(Case(label, grid, (32, 8), args, {"out": out}))
    return made


def _transposes() -> list[Case]:
    made = []
    for rows, columns in ((33, 70), (1, 1), (2, 65), (64, 64)):
        x = _floats(rows, columns)
        grid = -(-columns // 32), -(-rows // 32)
        label = f"x of {rows} x {columns}"
        args = x, unwritten(columns, rows)
        made.append(Case(label, grid, (32, 32), args, {"out": x.T}))
    return made


def _product(a: Array, b: Array) -> Array:
    """A product of matrices, added up in float64 and rounded to float32."""
    product: Array = (a.astype(float) @ b.astype(float)).astype(np.float32)
    return product


def _matmuls() -> list[Case]:
    made = []
    for rows, depth, columns in (
        (20, 37, 13),
        (1, 1, 1),
        (16, 5, 33),
        (3, 0, 4),
        (32, 48, 32),
    ):
        a = _floats(rows, depth)
        b = _floats(depth, columns)
        grid = -(-columns // 16), -(-rows // 16)
        label = f"a of {rows} x {depth} and b of {depth} x {columns}"
        args = a, b, unwritten(rows, columns)
        made.append(Case(label, grid, (16, 16), args, {"c": _product(a, b)}))
    return made


# -- launches of tiles


def _tile_squares() -> list[Case]:
    made = []
    for n in (128, 1, 300, 1000):
        x = _floats(n, 1)[:, 0].copy()
        args = x, unwritten(n), n
        made.append(Case(_numbers(n), -(-n // 128), None, args, {"out": x * x}))
    return made


def _rows(
    shapes: tuple[tuple[int, int], ...], expected: Callable[[Array], Array]
) -> Callable[[], list[Case]]:
    """Cases of matrices of which a program has a row."""

    def cases() -> list[Case]:
        made = []
        for rows, columns in shapes:
            x = _floats(rows, columns)
            x[0] += 3  # a mean away from 0
            out = expected(x.astype(float)).astype(np.float32)
            args = x, unwritten(*out.shape), columns
            label = f"{rows} rows of {columns}"
            made.append(Case(label, rows, None, args, {"out": out}))
        return made

    return cases


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    weights: Array = powers / powers.sum(-1, keepdims=True)
    return weights


def _softmaxes() -> list[Case]:
    cases = _rows(((3, 64), (2, 1)), _softmax)()
    x = np.linspace(0, 600, 60, dtype=np.float32)[None]
    out = _softmax(x.astype(float)).astype(np.float32)
    args = x, unwritten(1, 60), 60
    cases.append(Case(LARGE, 1, None, args, {"out": out}))
    x = _floats(4, 100) - np.float32(200)
    out = _softmax(x.astype(float)).astype(np.float32)
    args = x, unwritten(4, 100), 100
    cases.append(Case(NEGATIVE, 4, None, args, {"out": out}))
    return [*cases, *_rows(((32, 100),), _softmax)()]


LARGE = "numbers from 0 to 600"
NEGATIVE = "numbers about -200"


def _layer_norms() -> list[Case]:
    made = []
    for rows, columns in ((3, 64), (2, 1), (5, 33), (32, 100)):
        x = _floats(rows, columns) * np.float32(0.1) + np.float32(3)
        weight = _floats(columns, 2)[:, 1].copy()
        bias = _floats(columns, 3)[:, 2].copy()
        away = x.astype(float) - x.astype(float).mean(1, keepdims=True)
        variance = (away**2).mean(1, keepdims=True)
        out = (away / np.sqrt(variance + 1e-5) * weight + bias).astype(np.float32)
        args = x, weight, bias, unwritten(rows, columns), columns
        label = f"{rows} rows of {columns} about 3"
        made.append(Case(label, rows, None, args, {"out": out}))
    return made


def _tile_matmuls() -> list[Case]:
    made = []
    for rows, depth, columns in ((16, 16, 16), (20, 37, 50), (1, 5, 1), (64, 48, 64)):
        a = _floats(rows, depth).astype(np.float16)
        b = _floats(depth, columns).astype(np.float16)
        grid = -(-rows // 16), -(-columns // 16)
        label = f"a of {rows} x {depth} and b of {depth} x {columns}"
        args = a, b, unwritten(rows, columns), rows, depth, columns
        made.append(Case(label, grid, None, args, {"c": _product(a, b)}))
    return made


STEEP = "33 tokens whose scores rise to 300"


def _attentions() -> list[Case]:
    made = []
    for tokens, width, scale in (
        (16, 16, 0.25),
        (1, 16, 0.25),
        (33, 16, 4.0),
        (80, 32, 0.2),
    ):
        draw = np.random.default_rng([2320, tokens])
        q, k, v = draw.normal(size=(3, tokens, width)).astype(np.float16)
        label = f"{tokens} token{'s' * (tokens != 1)}"
        if tokens == 33:
            label = STEEP
            q = np.ones_like(q)
            rising = np.linspace(-4, 4.5, tokens)[:, None]
            k = (rising + 0 * k).astype(np.float16)
        scores = q.astype(float) @ k.astype(float).T * scale
        out = (_softmax(scores) @ v.astype(float)).astype(np.float32)
        args = q, k, v, unwritten(tokens, width), tokens, scale
        made.append(Case(label, -(-tokens // 16), None, args, {"out": out}))
    return made


def _power_of_two(case: Case) -> dict[str, int]:
    """A BLOCK that holds a row; the columns are the last argument."""
    columns = int(case.args[-1])
    return {"BLOCK": 1 << (columns - 1).bit_length()}


def _width(case: Case) -> dict[str, int]:
    return {"WIDTH": int(case.args[0].shape[1]), "TILE": 16}


_FITS_ROW = "Masked lanes must not count: what do they hold, and is it left out?"
_BIG = 2**24
# A grid that covers 64 x 96 either way round has 12 rows of blocks, 8 of them at work:
# so has this one, which is as large as 8,192 x 8,192 numbers need.
_PARTLY_IDLE = (256, 1536)

PUZZLES: dict[str, Puzzle] = {
    "23.1": Puzzle(
        "x, out",
        ("sectors", "steps"),
        "1,024 numbers",
        _along(EXACT, 1, lambda x, _: x + 10),
        ("16,777,216 numbers", _BIG // 256, 1.0),
        ("out", "store"),
    ),
    "23.2": Puzzle(
        "a, b, out",
        ("sectors", "steps"),
        "1,024 pairs",
        _along(EXACT, 2, lambda a, b, _: a + b),
        ("16,777,216 pairs", _BIG // 256, 1.0),
        ("out", "store"),
    ),
    "23.3": Puzzle(
        "x, out",
        ("sectors", "steps"),
        "1,000 numbers",
        _along(GUARDED, 1, lambda x, _: 2 * x),
        ("16,777,216 numbers", _BIG // 256, 1.0),
        ("out", "store"),
    ),
    "23.4": Puzzle(
        "x, out",
        ("sectors", "steps"),
        "64 x 96 numbers",
        _signs,
        ("8,192 x 8,192 numbers", _PARTLY_IDLE, 1.0),
        ("out", "store"),
    ),
    "23.5": Puzzle(
        "a, b, out",
        ("sectors", "steps"),
        "64 x 96 numbers",
        _outer_sums,
        ("8,192 x 8,192 numbers", _PARTLY_IDLE, 1.0),
        ("out", "store"),
    ),
    "23.6": Puzzle(
        "x, out",
        ("sectors", "steps"),
        "4,096 numbers",
        _along(ANY_GRID, 1, lambda x, _: np.abs(x)),
        ("16,777,216 numbers", _BIG // 512, 1.0),
        ("out", "store"),
    ),
    "23.7": Puzzle(
        "a, x, y",
        ("sectors", "steps"),
        "64 x 96 numbers",
        _saxpys,
        ("4,096 x 4,096 numbers", _BIG // 1536, 1.0),
        ("y", "store"),
    ),
    "23.8": Puzzle(
        "x, out",
        ("sectors", "steps"),
        "1,024 numbers",
        _along(
            ((200, 4, 64), (1, 1, 64), (0, 1, 64), (65, 2, 64), (1024, 16, 64)),
            1,
            _window_sums,
        ),
        ("16,777,216 numbers", _BIG // 64, 1.0),
        ("out", "store"),
        within=SUMMED,
    ),
    "23.9": Puzzle(
        "x, out",
        ("sectors", "steps"),
        "64 x 128 numbers",
        _pools,
        ("8,192 x 8,192 numbers", (256, 512), 1.0),
        ("out", "store"),
    ),
    "23.10": Puzzle(
        "x, out",
        ("sectors", "steps"),
        "64 x 64 numbers",
        _transposes,
        ("8,192 x 8,192 numbers", (256, 256), 1.0),
        ("out", "store"),
    ),
    "23.11": Puzzle(
        "a, b, out",
        ("barriers", "steps"),
        "1,000 pairs",
        _along(
            ((300, 3, 128), (1, 1, 128), (129, 2, 128), (1000, 8, 128)),
            2,
            _dots,
            lambda launch: launch[1],
        ),
        ("16,777,216 pairs", _BIG // 128, 1.0),
        ("a", "load"),
        within=SUMMED,
    ),
    "23.12": Puzzle(
        "x, out",
        ("steps",),
        "1,000 numbers",
        _along(
            ((32, 1, 32), (1, 1, 32), (0, 1, 32), (70, 3, 32), (1000, 32, 32)),
            1,
            _running_sums,
        ),
        ("16,777,216 numbers", _BIG // 32, 1.0),
        ("out", "store"),
        within=SUMMED,
    ),
    "23.13": Puzzle(
        "values, counts",
        ("atomics", "steps"),
        "1,000 values",
        _histograms,
        ("16,777,216 values", _BIG // 256, 1.0),
        ("values", "load"),
        atomics=True,
    ),
    "23.14": Puzzle(
        "a, b, c",
        ("sectors", "steps"),
        "32 x 48 times 48 x 32",
        _matmuls,
        ("4,096 x 4,096 numbers", (256, 256), 4096 / 48),
        ("c", "store"),
        within=SUMMED,
    ),
    "23.15": Puzzle(
        "x, out, n, BLOCK",
        ("bytes", "sectors"),
        "1,000 numbers",
        _tile_squares,
        ("16,777,216 numbers", _BIG // 128, 1.0),
        constants=lambda _: {"BLOCK": 128},
    ),
    "23.16": Puzzle(
        "x, out, columns, BLOCK",
        ("bytes", "sectors"),
        "64 rows of 100",
        _rows(((3, 64), (2, 1), (5, 33), (64, 100)), lambda x: x.sum(1)),
        ("262,144 rows of 100", 2**18, 1.0),
        constants=_power_of_two,
        within=SUMMED,
    ),
    "23.17": Puzzle(
        "x, out, columns, BLOCK",
        ("bytes", "sectors"),
        "32 rows of 100",
        _softmaxes,
        ("262,144 rows of 100", 2**18, 1.0),
        constants=_power_of_two,
        within=1e-4,
        advice={
            LARGE: "exp overflows beyond 88: take the row's largest number away first.",
            NEGATIVE: _FITS_ROW,
        },
    ),
    "23.18": Puzzle(
        "a, b, c, rows, depth, columns, TILE",
        ("bytes", "FLOP"),
        "64 x 48 times 48 x 64",
        _tile_matmuls,
        ("4,096 x 4,096 numbers", (256, 256), 4096 / 48),
        constants=lambda _: {"TILE": 16},
        stored=lambda constants: constants["TILE"] ** 2,
        within=HALF,
    ),
    "23.19": Puzzle(
        "x, weight, bias, out, columns, BLOCK",
        ("bytes", "sectors"),
        "32 rows of 100",
        _layer_norms,
        ("262,144 rows of 100", 2**18, 1.0),
        constants=_power_of_two,
        within=1e-3,
        advice={"5 rows of 33 about 3": _FITS_ROW},
    ),
    "23.20": Puzzle(
        "q, k, v, out, tokens, scale, WIDTH, TILE",
        ("bytes", "FLOP"),
        "80 tokens, 32 wide",
        _attentions,
        ("8,192 tokens, 32 wide", 512, 8192 / 80),
        constants=_width,
        within=HALF,
        advice={
            STEEP: (
                "exp overflows beyond 88: top is the largest score so far, and what was"
                " added up before has to shrink by the factor exp(top - higher)."
            )
        },
    ),
}
"""Number -> puzzle, in the notebook's order."""
