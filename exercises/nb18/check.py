"""Checks of notebook 18, programs of tiles: a fused softmax, an order of tiles, online
softmax, and attention.
"""

# mypy: disable-error-code="untyped-decorator"
# ruff: noqa: N803 - kernels write constants in capitals

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from exercises.nb18.powers import powers
from exercises.traced_kernels import Array, Case, unwritten, within
from exercises.traced_tiles import jitted, traced
from kerneltrace import tiles
from kerneltrace.tiles import tl, triton
from labkit.lesson.checks import NotYet, is_open

SIDE = 16  # of the tiles of scores
# of the largest number: weights are rounded to float16 before they are multiplied
HALF = 3e-3
# top + log(total) may be off by this much: weights rounded to float16 may be added up
LOG = 1e-3
EPSILON = float(np.finfo(np.float32).eps)


def _weights(scores: Array) -> Array:
    powers = np.exp(scores.astype(float) - scores.max(-1, keepdims=True))
    weights: Array = powers / powers.sum(-1, keepdims=True)
    return weights


def softmax(answer: object) -> str:
    """Rows of several lengths, of large and of very negative numbers; each number is
    loaded once, by its program.
    """
    program = jitted(answer, "x, out, columns, BLOCK")
    draw = np.random.default_rng(1802)
    masked = "Masked lanes must be no row's largest number, and add nothing to its sum."
    large = "take the largest away first."
    rising = np.linspace(0, 600, 60)
    rows = {
        "rows as long as the tile": (
            draw.normal(size=(3, 128)),
            "It is exp(number - largest) over the sum.",
        ),
        "rows of 100 in tiles of 128": (draw.normal(size=(4, 100)), masked),
        "rows of one number": (draw.normal(size=(3, 1)), ""),
        "rows of numbers from 0 to 600": (
            np.stack([rising, rising[::-1]]),
            f"exp overflows beyond 88: {large}",
        ),
        "rows of numbers about -20,000": (
            draw.normal(size=(2, 100)) - 20_000,
            f"{masked} And exp(-20,000) is 0: {large}",
        ),
    }
    for label, (numbers, advice) in rows.items():
        x = numbers.astype(np.float32)
        n_rows, columns = x.shape
        args = x, unwritten(*x.shape), columns
        expected = _weights(x).astype(np.float32)
        case = Case(label, n_rows, None, args, {"out": expected})
        # a number times log2(e) is rounded before the largest is taken away
        rounding = 2 * EPSILON * float(np.abs(x).max())
        trace = traced(
            program,
            case,
            functools.partial(_softmax_advice, expected=expected, otherwise=advice),
            within=1e-5 + rounding,
            BLOCK=triton.next_power_of_2(columns),
        )
        _judge_touches(trace, n_rows, columns)
    moved = f"{trace.count().bytes:,} B for {x.size} numbers"
    return (
        "Right for five kinds of rows. Each number is loaded once and stored once:"
        f" {moved}."
    )


def _softmax_advice(out: Array, expected: Array, otherwise: str) -> str:
    if np.allclose(out, expected, rtol=HALF, atol=0):
        return "Close: is something rounded to float16? x and out are float32."
    return otherwise


def _judge_touches(trace: tiles.TileTrace, n_rows: int, columns: int) -> None:
    """NotYet where a program loads or stores a number of its row again, or loads what
    it has stored.
    """
    again = "Keep what you need again in a tile, and store a row once, at the end."
    for array, kind, most, what, why in (
        ("x", "load", columns, "numbers loaded by one program", _ONE_ROW),
        ("out", "store", columns, "numbers stored by one program", again),
        ("out", "load", 0, "numbers of out loaded back by one program", again),
    ):
        touched = (trace.touched(array, row, kind).sum() for row in range(n_rows))
        within(trace, what, max(touched), most, why)


_ONE_ROW = "A program has one row, and keeps it in a tile."


def order(answer: object) -> str:
    """Every tile once, in groups of rows, also where the last group is lower than the
    others.
    """
    place = jitted(answer, "program, rows, columns, GROUP")

    @triton.jit
    def places(tile, rows, columns, GROUP: tl.constexpr) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        program = tl.program_id(0)
        row, column = place(program, rows, columns, GROUP)
        tl.store(tile + 2 * program, row)
        tl.store(tile + 2 * program + 1, column)

    for rows, columns, group in (
        (4, 4, 2),
        (4, 6, 1),
        (2, 5, 2),
        (5, 3, 2),
        (5, 3, 3),
        (3, 4, 8),
        (32, 32, 8),
    ):
        label = f"{rows} x {columns} tiles and GROUP {group}"
        expected = np.array(
            [_place(i, rows, columns, group) for i in range(rows * columns)], np.int32
        )
        case = Case(
            label,
            len(expected),
            None,
            (np.full_like(expected, -1), rows, columns),
            {"tile": expected},
        )
        traced(
            places,
            case,
            functools.partial(_order_advice, expected=expected, rows=rows),
            about="refused",
            GROUP=group,
        )
    return (
        "Every tile has one program, group after group, also where the last group is"
        " lower."
    )


def _place(program: int, rows: int, columns: int, group: int) -> tuple[int, int]:
    first = program // (group * columns) * group
    height = min(rows - first, group)
    inside = program % (group * columns)
    return first + inside % height, inside // height


def _order_advice(got: Array, expected: Array, rows: int) -> str:
    if (got == -1).all():
        return "Return two numbers, row and column."
    if (got == expected[:, ::-1]).all():
        return "Row and column are the other way round."
    if got[:, 0].max() >= rows:
        return (
            f"There is no row {got[:, 0].max()}: a group has GROUP * columns"
            " programs; the last may be lower."
        )
    seen: dict[tuple[int, int], int] = {}
    for program, tile in enumerate(map(tuple, got.tolist())):
        if tile in seen:
            return (
                f"Programs {seen[tile]} and {program} have the same tile {tile}, so"
                " another has no program."
            )
        seen[tile] = program
    return (
        "Every tile has a program, in another order: down GROUP rows first, then to the"
        " next column."
    )


def merge(answer: object) -> str:
    """Tiles of scores that rise, fall, are large or masked; the result, and top +
    log(total) for a backward pass.
    """
    step = jitted(answer, "top, total, mixed, scores, values")

    @triton.jit
    def merged(scores, values, out, logs, n, SIDE: tl.constexpr) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        lane = tl.arange(0, SIDE)
        top = tl.full((SIDE,), -float("inf"), tl.float32)
        total = tl.zeros((SIDE,), tl.float32)
        mixed = tl.zeros((SIDE, SIDE), tl.float32)
        for start in range(0, n, SIDE):
            tile = tl.load(scores + lane[:, None] * n + start + lane[None, :])
            rows = tl.load(values + (start + lane[:, None]) * SIDE + lane[None, :])
            top, total, mixed = step(top, total, mixed, tile, rows)
        tl.store(out + lane[:, None] * SIDE + lane[None, :], mixed / total[:, None])
        tl.store(logs + lane, top + tl.log(total))

    for label, tiles_of_scores in _tiles_of_scores().items():
        _merged(merged, label, tiles_of_scores)
    return (
        "Right for tiles that rise, fall or are masked; top + log(total) is what a"
        " backward pass needs."
    )


class _Scores(NamedTuple):
    """What a merge is tried on: scores (queries, keys), what wrong numbers may mean,
    and the type and size of the values.
    """

    scores: Array
    advice: str
    values: type = np.float16
    size: float = 1.0


def _tiles_of_scores() -> dict[str, _Scores]:
    """What is special about some scores -> the scores.

    Between tiles 100 apart, exp overflows in whatever was taken for top instead.
    """
    draw = np.random.default_rng(1804)
    rising = np.sort(draw.normal(size=(SIDE, 5 * SIDE)), axis=1) * 2
    falling = rising[:, : 3 * SIDE][:, ::-1].copy()
    falling[:, SIDE : 2 * SIDE] = -np.inf
    apart = 20 * np.arange(SIDE)[:, None] % 300 - 150
    steep = np.tile(np.linspace(0, 300, 3 * SIDE), (SIDE, 1))
    one_large = np.full((SIDE, 4 * SIDE), np.log(2.0**-15))
    one_large[:, 0] = 0
    sums = "total and mixed stay float32: a sum in float16 "
    return {
        "one tile": _Scores(
            rising[:, :SIDE],
            "Weights are exp(score - top); mixed adds weights × values by tl.dot,"
            " undivided until the end.",
        ),
        "falling scores, and a tile of masked ones between": _Scores(
            falling,
            "What comes later is added to what is there. Where all are masked, weights"
            " are exp(-inf), 0, and top stays.",
        ),
        "rising scores": _Scores(
            rising,
            "When top rises, what was added up before is too large by exp(top -"
            " higher).",
        ),
        "queries whose scores lie far apart": _Scores(
            rising[:, :SIDE] + apart,
            "Each query has a top of its own, the largest of its keys' scores.",
            np.float32,
        ),
        "scores that rise from 0 to 300": _Scores(
            steep,
            "exp overflows beyond 88: take away the largest score so far, of this tile"
            " and of all before.",
        ),
        "scores that fall from 200 to 0": _Scores(
            steep[:, : 2 * SIDE][:, ::-1],
            "top is the largest score so far: a later tile's may be far below it.",
        ),
        "equal scores and values up to 60,000": _Scores(
            np.zeros((SIDE, SIDE)), f"{sums}ends at 65,504.", size=2e4
        ),
        "one large score and many small ones": _Scores(
            one_large, f"{sums}loses what is small beside it."
        ),
    }


def _merged(program: Any, label: str, given: _Scores) -> None:
    scores = np.ascontiguousarray(given.scores, np.float32)
    draw = np.random.default_rng(scores.shape[1])
    values = draw.uniform(-1, 3, (scores.shape[1], SIDE)) * given.size
    values = values.astype(given.values)
    logs = np.logaddexp.reduce(scores.astype(float), axis=1).astype(np.float32)
    out = (_weights(scores) @ values.astype(float)).astype(np.float32)
    args = scores, values, unwritten(SIDE, SIDE), unwritten(SIDE), scores.shape[1]
    case = Case(label, 1, None, args, {"out": out, "logs": logs})
    off = {"out": HALF, "logs": LOG / float(np.abs(logs).max())}
    traced(program, case, given.advice, within=off, SIDE=SIDE)


def attention(answer: object) -> str:
    """Causal attention of several lengths and heads; it multiplies only tiles that a
    query sees.
    """
    program = jitted(answer, "q, k, v, out, tokens, scale, WIDTH, TILE")
    if is_open(getattr(program.fn.__globals__.get("merge"), "fn", None)):
        raise NotYet("It calls merge, which has no body yet: 18.4 comes first.")
    for task in _ATTENTIONS:
        trace = _attended(program, task)
        heads, tokens, width = task.heads, task.tokens, task.width
        programs = -(-tokens // task.tile)
        needed = heads * programs * (programs + 1) // 2
        why = (
            "A tile of keys after all of a program's queries is masked whole: end the"
            " loop before it."
        )
        within(
            trace,
            "FLOP of tl.dot",
            sum(trace.dot_flop.values()),
            needed * 4 * task.tile**2 * width,
            why,
        )
        once = "Load a program's queries once, before the loop."
        within(
            trace,
            "B of q",
            trace.count("q", kind="load").bytes,
            2 * width * heads * tokens,
            once,
        )
        for name in "kv":
            most = 2 * width * task.tile * needed
            why = "A tile is loaded once a program."
            within(
                trace, f"B of {name}", trace.count(name, kind="load").bytes, most, why
            )
    of_all = f"{needed} tiles of {heads * programs**2}"
    return (
        f"Right for five lengths. For {heads} heads of {tokens} tokens it multiplies"
        f" {of_all}."
    )


class _Attention(NamedTuple):
    """A launch of attention; `apart` is how far queries lie from 0, and keys on its
    other side, so that all scores are negative. Of `large` values a sum overflows in
    float16.
    """

    heads: int
    tokens: int
    scale: float
    width: int
    tile: int = SIDE
    apart: float = 0.0
    large: bool = False


_ATTENTIONS = (
    _Attention(1, 16, 0.25, 16),
    _Attention(1, 1, 0.25, 16),
    _Attention(1, 80, 0.2, 32, large=True),
    _Attention(3, 40, 0.5, 16, tile=32),
    _Attention(2, 33, 4.0, 16, apart=8.0),
)


def _attended(program: Any, task: _Attention) -> tiles.TileTrace:
    heads, tokens, scale, width = task[:4]
    draw = np.random.default_rng(tokens)
    q, k, v = draw.normal(size=(3, heads, tokens, width)).astype(np.float16)
    q += np.float16(task.apart)
    k -= np.float16(task.apart)
    # in head 0 the first score is far above those that follow, and the last above all
    k[0, 0] += np.float16(0.5 * task.apart)
    k[0, -1] += np.float16(0.6 * task.apart)
    if task.large:
        v = np.abs(v) * np.float16(1e4)
    scores = q.astype(float) @ k.astype(float).transpose(0, 2, 1)
    earlier = np.tril(np.ones((tokens, tokens), bool))

    def mixed(
        scores: Array, seen: Array | bool = earlier, hidden: float = -np.inf
    ) -> Array:
        out: Array = _weights(np.where(seen, scores, hidden)) @ v.astype(float)
        return out.astype(np.float32)

    others = {
        (
            "That is attention without the mask: a query sees its own token and earlier"
            " ones."
        ): mixed(scores * scale, True),
        "The scores aren't multiplied by scale.": mixed(scores),
        "A masked score of 0 has the weight exp(0): take -inf.": mixed(
            scores * scale, hidden=0
        ),
        "The mask is the other way round: earlier keys count.": mixed(
            scores * scale, earlier.T
        ),
    }
    if tokens == width:
        turned = q.astype(float) @ k.astype(float) * scale
        others["Scores are queries × keys, so keys are transposed: tl.trans."] = mixed(
            turned
        )
    right = mixed(scores * scale)
    args = (q, k, v, unwritten(heads, tokens, width), tokens, scale)
    case = Case(
        f"{heads} x {tokens} tokens",
        (-(-tokens // task.tile), heads),
        None,
        args,
        {"out": right},
    )
    advice = functools.partial(_attention_advice, right=right, others=others, task=task)
    return traced(program, case, advice, within=HALF, WIDTH=width, TILE=task.tile)


def _attention_advice(
    out: Array, right: Array, others: Mapping[str, Array], task: _Attention
) -> str:
    if np.isnan(out).any() and task.apart:
        return (
            "All scores are below -1,000 here, and far apart: top begins with -inf, and"
            " is each query's largest score so far."
        )
    if np.isnan(out).any():
        return "Is each row stored, and has each query seen its own token?"
    if np.isinf(out).any():
        return "A sum in float16 ends at 65,504: total and mixed are float32."
    largest = float(np.abs(right).max())
    for words, other in others.items():
        if np.allclose(out, other, atol=1e-2 * max(largest, 1.0)):
            return words
    wrong = np.abs(out - right).max(-1) > HALF * largest  # (heads, tokens)
    first = int(wrong.any(0).argmax())
    if task.apart:
        return (
            "All scores are below -1,000 here: is what is masked lower still? Take -inf"
            " for it, and keep scores in float32."
        )
    if not wrong[0].any():
        return "Head 0 is right: has each head queries, keys and values of its own?"
    if first >= task.tile:
        return (
            f"Queries before {first} are right. Later ones have more tiles of keys, and"
            " merge takes each tile of keys once."
        )
    return (
        "Scores are q kᵀ × scale. top begins with -inf, and merge takes each tile of"
        " keys once."
    )


CHECKS = {
    "18.2": softmax,
    "18.3": order,
    "18.4": merge,
    "18.5": attention,
    "18.6": powers,
}
