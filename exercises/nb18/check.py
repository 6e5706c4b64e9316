"""Checks of notebook 18, programs of tiles: a fused softmax, an order of tiles, online softmax, and attention."""

# mypy: disable-error-code="untyped-decorator"
# ruff: noqa: N803 - kernels write constants in capitals

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exercises.traced_kernels import Case, compare, unwritten, within
from kerneltrace import tiles
from kerneltrace.tiles import tl, triton
from labkit.core.display import brief_repr
from labkit.core.errors import KernelError
from labkit.lesson.checks import NotYet, function, is_open

Array = NDArray[Any]
SIDE = 16  # of the tiles of scores
HALF = 3e-3  # of the largest number: weights are rounded to float16 before they are multiplied


def _jitted(answer: object, parameters: str) -> Any:
    """The answer as a function under @triton.jit with these parameters; Todo for a stub, NotYet for anything else."""
    fn = getattr(answer, "fn", None)
    if not inspect.isfunction(fn):
        raise NotYet(f"Expected a function with @triton.jit above it, got {brief_repr(answer)}. Pass its name alone.")
    if (names := ", ".join(inspect.signature(fn).parameters)) != parameters:
        raise NotYet(f"Expected the parameters ({parameters}), got ({names}).")
    function(fn)
    return answer


def _traced(kernel: Any, case: Case, within: float = 1e-5, advice: str = "", **constants: Any) -> tiles.TileTrace:
    """The trace of a launch that leaves behind what is expected; NotYet, with the advice, for one that doesn't."""
    args = tuple(arg.copy() if isinstance(arg, np.ndarray) else arg for arg in case.args)
    try:
        done = tiles.trace(kernel, case.grid, *args, **constants)
    except KernelError as error:
        returned = " Does it return all that is asked for?" if "unpack" in str(error) else ""
        raise NotYet(f"With {case.given}: {error}{returned}") from error
    if done.findings:
        of_numbers = advice if done.findings[0].kind == "nan" else ""
        raise NotYet(f"With {case.given}: {done.findings[0]} {of_numbers}".rstrip())
    try:
        compare(dict(zip(inspect.signature(kernel.fn).parameters, args, strict=False)), case, "", within=within)
    except NotYet as error:
        raise NotYet(f"{error} {advice}".rstrip()) from None
    return done


def softmax(answer: object) -> str:
    """Rows of several lengths, of large and of very negative numbers; each number is loaded once, by its program."""
    kernel, draw = _jitted(answer, "x, out, columns, BLOCK"), np.random.default_rng(1802)
    masked, large = (
        "Masked lanes must be no row's largest number, and add nothing to its sum.",
        "take the largest away first.",
    )
    rows = {
        "rows as long as the tile": (draw.normal(size=(3, 128)), ""),
        "rows of 100 in tiles of 128": (draw.normal(size=(4, 100)), masked),
        "rows of one number": (draw.normal(size=(3, 1)), ""),
        "rows of numbers about 500": (draw.normal(size=(2, 60)) + 500, f"exp overflows beyond 88: {large}"),
        "rows of numbers about -200": (draw.normal(size=(2, 100)) - 200, f"{masked} And exp(-200) is 0: {large}"),
    }
    for given, (numbers, advice) in rows.items():
        x = numbers.astype(np.float32)
        powers = np.exp(x.astype(float) - x.max(1, keepdims=True))
        expected = {"out": (powers / powers.sum(1, keepdims=True)).astype(np.float32)}
        n_rows, columns = x.shape
        case = Case(given, n_rows, None, (x, unwritten(*x.shape), columns), expected)
        done = _traced(kernel, case, advice=advice, BLOCK=triton.next_power_of_2(columns))
        most = max(int(done.touched("x", program).sum()) for program in range(n_rows))
        within(done, "numbers loaded by one program", most, columns, "A program has one row, and keeps it in a tile.")
    moved = f"{done.count().bytes:,} B for {x.size} numbers"
    return f"Right for five kinds of rows. Each number is loaded once and stored once: {moved}."


def order(answer: object) -> str:
    """Every tile once, in groups of rows, also where the last group is lower than the others."""
    place = _jitted(answer, "program, rows, columns, GROUP")

    @triton.jit
    def places(tile: Any, rows: Any, columns: Any, GROUP: tl.constexpr) -> None:
        program = tl.program_id(0)
        row, column = place(program, rows, columns, GROUP)
        tl.store(tile + 2 * program, row)
        tl.store(tile + 2 * program + 1, column)

    for rows, columns, group in ((4, 4, 2), (4, 6, 1), (2, 5, 2), (5, 3, 2), (7, 4, 3), (3, 4, 8), (32, 32, 8)):
        given = f"{rows} x {columns} tiles and GROUP {group}"
        expected = np.array([_place(i, rows, columns, group) for i in range(rows * columns)], np.int32)
        found = np.full_like(expected, -1)
        case = Case(given, len(expected), None, (found, rows, columns), {"tile": expected})
        try:
            _traced(places, case, GROUP=group)
        except NotYet as error:
            if isinstance(error.__cause__, KernelError):
                raise
            tiles.trace(places, case.grid, found, rows, columns, GROUP=group)
            raise NotYet(f"{error} {_order_advice(found, expected, rows)}".rstrip()) from None
    return "Every tile has one program, group after group, also where the last group is lower."


def _place(program: int, rows: int, columns: int, group: int) -> tuple[int, int]:
    first = program // (group * columns) * group
    height, inside = min(rows - first, group), program % (group * columns)
    return first + inside % height, inside // height


def _order_advice(found: Array, expected: Array, rows: int) -> str:
    if (found == -1).all():
        return "Return two numbers, row and column."
    if (found == expected[:, ::-1]).all():
        return "Row and column are the other way round."
    if found[:, 0].max() >= rows:
        return f"There is no row {found[:, 0].max()}: a group has GROUP * columns programs; the last may be lower."
    seen: dict[tuple[int, int], int] = {}
    for program, tile in enumerate(map(tuple, found.tolist())):
        if tile in seen:
            return f"Programs {seen[tile]} and {program} have the same tile {tile}, so another has no program."
        seen[tile] = program
    return "Every tile has a program, in another order: down GROUP rows first, then to the next column."


def merge(answer: object) -> str:
    """Tiles of scores that rise, fall, are large or masked; the result, and top + log(total) for a backward pass."""
    step = _jitted(answer, "top, total, mixed, scores, values")

    @triton.jit
    def merged(scores: Any, values: Any, out: Any, logs: Any, n: Any, SIDE: tl.constexpr) -> None:
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
    first = "Weights are exp(score - top); mixed adds weights × values by tl.dot, undivided until the end."
    cases = {
        "one tile": (scores[:, :SIDE], first),
        "falling scores": (scores[:, ::-1], "What comes later is added to what is there."),
        "rising scores": (scores, "When top rises, what was added up before is too large by exp(top - higher)."),
        "queries whose scores lie far apart": (scores + 20 * np.arange(SIDE)[:, None] % 300 - 150,
                                               "Each query has a top of its own, the largest of its keys' scores."),
        "a tile of masked scores": (masked, "Its weights are exp(-inf), 0, and top stays."),
        "scores about 300": (scores + 300, "exp overflows beyond 88: take the largest away first."),
    }  # fmt: skip
    for given, (tile, advice) in cases.items():
        _merged(merged, given, np.ascontiguousarray(tile, np.float32), draw, advice)
    return "Right for tiles that rise, fall or are masked; top + log(total) is what a backward pass needs."


def _merged(kernel: Any, given: str, scores: Array, draw: np.random.Generator, advice: str) -> None:
    values = draw.normal(size=(scores.shape[1], SIDE)).astype(np.float16)
    top = scores.max(1, keepdims=True).astype(np.float64)
    powers = np.exp(scores - top)
    total = powers.sum(1, keepdims=True)
    expected = {
        "out": (powers @ values / total).astype(np.float32),
        "logs": (top + np.log(total))[:, 0].astype(np.float32),
    }
    args = scores, values, unwritten(SIDE, SIDE), unwritten(SIDE), scores.shape[1]
    _traced(kernel, Case(given, 1, None, args, expected), HALF, advice, SIDE=SIDE)


def attention(answer: object) -> str:
    """Causal attention of several lengths and heads; it multiplies only tiles that a query sees."""
    kernel = _jitted(answer, "q, k, v, out, tokens, scale, WIDTH, TILE")
    if is_open(getattr(kernel.fn.__globals__.get("merge"), "fn", None)):
        raise NotYet("It calls merge, which has no body yet: 18.4 comes first.")
    for heads, tokens, scale in ((1, 16, 0.25), (1, 1, 0.25), (2, 64, 0.2), (3, 40, 0.5), (2, 33, 4.0)):
        done = _attended(kernel, heads, tokens, scale)
        programs = -(-tokens // SIDE)
        needed = heads * programs * (programs + 1) // 2
        why = "A tile of keys after all of a program's queries is masked whole: end the loop before it."
        within(done, "FLOP of tl.dot", sum(done.dot_flop.values()), needed * 4 * SIDE**3, why)
        for name in ("q", "k", "v"):
            why = (
                "Load a program's queries once, before the loop." if name == "q" else "A tile is loaded once a program."
            )
            most = 2 * SIDE * heads * tokens if name == "q" else 2 * SIDE * SIDE * needed
            within(done, f"B of {name}", done.count(name, kind="load").bytes, most, why)
    of_all = f"{needed} tiles of {heads * programs**2}"
    return f"Right for five lengths. For {heads} heads of {tokens} tokens it multiplies {of_all}."


def _attended(kernel: Any, heads: int, tokens: int, scale: float) -> tiles.TileTrace:
    draw, given = np.random.default_rng(tokens), f"{heads} x {tokens} tokens"
    q, k, v = draw.normal(size=(3, heads, tokens, SIDE)).astype(np.float16)
    scores = q.astype(float) @ k.astype(float).transpose(0, 2, 1)
    earlier = np.tril(np.ones((tokens, tokens), bool))
    others = {
        "That is attention without the mask: a query sees its own token and earlier ones.": _mixed(scores * scale, v),
        "The scores aren't multiplied by scale.": _mixed(np.where(earlier, scores, -np.inf), v),
        "A masked score of 0 has the weight exp(0): take -inf.": _mixed(np.where(earlier, scores * scale, 0), v),
        "The mask is the other way round: earlier keys count.": _mixed(np.where(earlier.T, scores * scale, -np.inf), v),
    }
    if tokens == SIDE:
        turned = np.where(earlier, q.astype(float) @ k.astype(float) * scale, -np.inf)
        others["Scores are queries × keys, so keys are transposed: tl.trans."] = _mixed(turned, v)
    right = _mixed(np.where(earlier, scores * scale, -np.inf), v)
    out = unwritten(heads, tokens, SIDE)
    grid = (-(-tokens // SIDE), heads)
    case = Case(given, grid, None, (q, k, v, out, tokens, scale), {"out": right})
    try:
        return _traced(kernel, case, HALF, WIDTH=SIDE, TILE=SIDE)
    except NotYet as error:
        raise NotYet(f"{error} {_attention_advice(kernel, case, others)}".rstrip()) from None


def _mixed(scores: Array, values: Array) -> Array:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    mixed: Array = powers @ values.astype(float) / powers.sum(-1, keepdims=True)
    return mixed.astype(np.float32)


def _attention_advice(kernel: Any, case: Case, others: Mapping[str, Array]) -> str:
    try:
        tiles.trace(kernel, case.grid, *case.args, WIDTH=SIDE, TILE=SIDE)
    except KernelError:
        return ""
    out, right = case.args[3], case.expected["out"]
    if np.isnan(out).any():
        return "Has each query seen its own token?"
    known = (words for words, other in others.items() if np.allclose(out, other, atol=1e-2))
    return next(known, "") if not np.allclose(out, right, atol=1e-2) else ""


CHECKS = {"18.2": softmax, "18.3": order, "18.4": merge, "18.5": attention}
