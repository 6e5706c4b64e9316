"""Checks of notebook 18, programs of tiles: a fused softmax, an order of tiles, online
softmax, and attention.
"""

# mypy: disable-error-code="untyped-decorator"
# ruff: noqa: N803 - kernels write constants in capitals

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from exercises.traced_kernels import Array, Case, compare, kernel, unwritten, within
from kerneltrace import tiles
from kerneltrace.errors import KernelError
from kerneltrace.tiles import tl, triton
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, is_open

SIDE = 16  # of the tiles of scores
# of the largest number: weights are rounded to float16 before they are multiplied
HALF = 3e-3


def _jitted(answer: object, parameters: str) -> Any:
    """The answer as a function under @triton.jit with these parameters; Todo for a
    stub, NotYet for anything else.
    """
    fn = getattr(answer, "fn", None)
    if not inspect.isfunction(fn):
        raise NotYet(
            f"Expected a function with @triton.jit above it, got {brief_repr(answer)}."
            " Pass its name alone."
        )
    kernel(fn, parameters)
    return answer


def _traced(
    program: Any,
    case: Case,
    advice: str | Callable[[Array], str] = "",
    *,
    within: float = 1e-5,
    **constants: Any,
) -> tiles.TileTrace:
    """The trace of a launch that leaves behind what is expected; NotYet for one that
    doesn't.

    The advice is for wrong numbers, or made of what is found in place of the first
    array expected.
    """
    args = tuple(
        arg.copy() if isinstance(arg, np.ndarray) else arg for arg in case.args
    )
    results = dict(zip(inspect.signature(program.fn).parameters, args, strict=False))
    try:
        trace = tiles.trace(program, case.grid, *args, **constants)
    except KernelError as error:
        returned = (
            " Does it return all that is asked for?" if "unpack" in str(error) else ""
        )
        raise NotYet(f"With {case.given}: {error}{returned}") from error
    try:
        for finding in trace.findings:
            advice = "" if isinstance(advice, str) and finding.kind != "nan" else advice
            raise NotYet(f"With {case.given}: {finding}")
        compare(results, case, "", within=within)
    except NotYet as error:
        words = (
            advice
            if isinstance(advice, str)
            else advice(results[next(iter(case.expected))])
        )
        raise NotYet(f"{error} {words}".rstrip()) from None
    return trace


def _weights(scores: Array) -> Array:
    powers = np.exp(scores.astype(float) - scores.max(-1, keepdims=True))
    weights: Array = powers / powers.sum(-1, keepdims=True)
    return weights


def softmax(answer: object) -> str:
    """Rows of several lengths, of large and of very negative numbers; each number is
    loaded once, by its program.
    """
    program = _jitted(answer, "x, out, columns, BLOCK")
    draw = np.random.default_rng(1802)
    masked = "Masked lanes must be no row's largest number, and add nothing to its sum."
    large = "take the largest away first."
    rows = {
        "rows as long as the tile": (
            draw.normal(size=(3, 128)),
            "It is exp(number - largest) over the sum.",
        ),
        "rows of 100 in tiles of 128": (draw.normal(size=(4, 100)), masked),
        "rows of one number": (draw.normal(size=(3, 1)), ""),
        "rows of numbers about 500": (
            draw.normal(size=(2, 60)) + 500,
            f"exp overflows beyond 88: {large}",
        ),
        "rows of numbers about -200": (
            draw.normal(size=(2, 100)) - 200,
            f"{masked} And exp(-200) is 0: {large}",
        ),
    }
    for label, (numbers, advice) in rows.items():
        x = numbers.astype(np.float32)
        n_rows, columns = x.shape
        args = x, unwritten(*x.shape), columns
        case = Case(label, n_rows, None, args, {"out": _weights(x).astype(np.float32)})
        trace = _traced(program, case, advice, BLOCK=triton.next_power_of_2(columns))
        most = max(int(trace.touched("x", row).sum()) for row in range(n_rows))
        within(
            trace,
            "numbers loaded by one program",
            most,
            columns,
            "A program has one row, and keeps it in a tile.",
        )
    moved = f"{trace.count().bytes:,} B for {x.size} numbers"
    return (
        "Right for five kinds of rows. Each number is loaded once and stored once:"
        f" {moved}."
    )


def order(answer: object) -> str:
    """Every tile once, in groups of rows, also where the last group is lower than the
    others.
    """
    place = _jitted(answer, "program, rows, columns, GROUP")

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
        _traced(
            places,
            case,
            functools.partial(_order_advice, expected=expected, rows=rows),
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
    step = _jitted(answer, "top, total, mixed, scores, values")

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

    draw = np.random.default_rng(1804)
    scores = np.sort(draw.normal(size=(SIDE, 4 * SIDE)), axis=1) * 2
    masked = scores.copy()
    masked[:, 2 * SIDE : 3 * SIDE] = -np.inf
    first = (
        "Weights are exp(score - top); mixed adds weights × values by tl.dot, undivided"
        " until the end."
    )
    cases = {
        "one tile": (scores[:, :SIDE], first),
        "falling scores": (
            scores[:, ::-1],
            "What comes later is added to what is there.",
        ),
        "rising scores": (
            scores,
            (
                "When top rises, what was added up before is too large by exp(top -"
                " higher)."
            ),
        ),
        "queries whose scores lie far apart": (
            scores + 20 * np.arange(SIDE)[:, None] % 300 - 150,
            "Each query has a top of its own, the largest of its keys' scores.",
        ),
        "a tile of masked scores": (
            masked,
            "Its weights are exp(-inf), 0, and top stays.",
        ),
        "scores about 300": (
            scores + 300,
            "exp overflows beyond 88: take the largest away first.",
        ),
    }
    for label, (tile, advice) in cases.items():
        _merged(merged, label, np.ascontiguousarray(tile, np.float32), draw, advice)
    return (
        "Right for tiles that rise, fall or are masked; top + log(total) is what a"
        " backward pass needs."
    )


def _merged(
    program: Any, label: str, scores: Array, draw: np.random.Generator, advice: str
) -> None:
    values = draw.normal(size=(scores.shape[1], SIDE)).astype(np.float16)
    logs = np.logaddexp.reduce(scores.astype(float), axis=1).astype(np.float32)
    expected = {"out": (_weights(scores) @ values).astype(np.float32), "logs": logs}
    args = scores, values, unwritten(SIDE, SIDE), unwritten(SIDE), scores.shape[1]
    _traced(
        program, Case(label, 1, None, args, expected), advice, within=HALF, SIDE=SIDE
    )


def attention(answer: object) -> str:
    """Causal attention of several lengths and heads; it multiplies only tiles that a
    query sees.
    """
    program = _jitted(answer, "q, k, v, out, tokens, scale, WIDTH, TILE")
    if is_open(getattr(program.fn.__globals__.get("merge"), "fn", None)):
        raise NotYet("It calls merge, which has no body yet: 18.4 comes first.")
    cases = (
        (1, 16, 0.25, 16),
        (1, 1, 0.25, 16),
        (2, 64, 0.2, 32),
        (3, 40, 0.5, 16),
        (2, 33, 4.0, 16),
    )
    for heads, tokens, scale, width in cases:
        trace = _attended(program, heads, tokens, scale, width)
        programs = -(-tokens // SIDE)
        needed = heads * programs * (programs + 1) // 2
        why = (
            "A tile of keys after all of a program's queries is masked whole: end the"
            " loop before it."
        )
        within(
            trace,
            "FLOP of tl.dot",
            sum(trace.dot_flop.values()),
            needed * 4 * SIDE**2 * width,
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
            most = 2 * width * SIDE * needed
            why = "A tile is loaded once a program."
            within(
                trace, f"B of {name}", trace.count(name, kind="load").bytes, most, why
            )
    of_all = f"{needed} tiles of {heads * programs**2}"
    return (
        f"Right for five lengths. For {heads} heads of {tokens} tokens it multiplies"
        f" {of_all}."
    )


def _attended(
    program: Any, heads: int, tokens: int, scale: float, width: int
) -> tiles.TileTrace:
    draw = np.random.default_rng(tokens)
    q, k, v = draw.normal(size=(3, heads, tokens, width)).astype(np.float16)
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
        (-(-tokens // SIDE), heads),
        None,
        args,
        {"out": right},
    )
    advice = functools.partial(_attention_advice, right=right, others=others)
    return _traced(program, case, advice, within=HALF, WIDTH=width, TILE=SIDE)


def _attention_advice(out: Array, right: Array, others: Mapping[str, Array]) -> str:
    if np.isnan(out).any():
        return "Has each query seen its own token?"
    matching = (
        words for words, other in others.items() if np.allclose(out, other, atol=1e-2)
    )
    otherwise = (
        "Scores are q kᵀ × scale. top begins with -inf, and merge takes each tile of"
        " keys once."
    )
    if np.allclose(out, right, atol=1e-2):
        return ""
    return next(matching, otherwise)


CHECKS = {"18.2": softmax, "18.3": order, "18.4": merge, "18.5": attention}
