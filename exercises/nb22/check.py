"""Checks of notebook 22, a chip of one's own."""

from __future__ import annotations

import inspect
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from exercises.nb22 import fpga
from exercises.nb22.element import judge_element
from labkit.core.display import brief_repr
from labkit.lesson.answers import array, judge_pair, mistake, parts
from labkit.lesson.checks import (
    NotYet,
    Todo,
    as_number,
    is_open,
    number_close,
    over_cases,
)


def skewed(answer: object) -> str:
    """Rows that enter one clock after each other, for square blocks, wide and narrow
    ones, one row and one column.
    """
    draw = np.random.default_rng(222)
    shapes = (2, 3), (3, 2), (4, 4), (1, 5), (5, 1), (1, 1), (8, 64)
    cases = {
        f"rows of shape {shape}": (draw.integers(-128, 128, shape),) for shape in shapes
    }
    over_cases(answer, cases, fpga.skewed, _judge_feed)
    return (
        "Right for square, wide and narrow blocks, for a single row and a single"
        " column."
    )


def _judge_feed(got: object, right: Any, case: str, rows: Any) -> None:
    feed = array(
        got, f"{len(right)} clocks; each clock needs {len(rows)} numbers", case
    )
    n, k = rows.shape
    if feed.shape != right.shape:
        hints = {
            (k, n): " When is the last row through?",
            right.shape[::-1]: " That is one line a row, not one a clock.",
        }
        raise NotYet(
            f"For {case}: expected {right.shape[0]} clocks of {n} numbers, shape"
            f" {right.shape}, got {feed.shape}." + hints.get(feed.shape, "")
        )
    if not np.array_equal(feed, right):
        clock, i = (int(at) for at in np.argwhere(feed != right)[0])
        raise NotYet(
            f"For {case}: at clock {clock}, row {i} should get"
            f" {_entry(rows, clock, i)}, but gets {feed[clock, i]:g}. Row {i} begins at"
            f" clock {i}, with its first number."
        )


def _entry(rows: Any, clock: int, i: int) -> str:
    return (
        f"rows[{i}, {clock - i}] = {rows[i, clock - i]}"
        if 0 <= clock - i < rows.shape[1]
        else "0"
    )


def quantized(answer: object) -> str:
    """Rows of very different size, for several numbers of bits: whole, in range, half a
    step off at most.
    """
    draw = torch.Generator().manual_seed(223)
    cases = {}
    for classes, inputs, bits in (
        (10, 64, 8),
        (10, 64, 4),
        (3, 7, 3),
        (5, 5, 2),
        (1, 9, 6),
        (4, 1, 8),
    ):
        rows = (
            torch.randn(classes, inputs, generator=draw)
            * torch.logspace(-2, 1, classes)[:, None]
        )
        cases[f"{classes} x {inputs} weights in {bits} bits"] = (rows, bits)
    over_cases(answer, cases, lambda weights, bits: None, _judge_quantized)
    return (
        "Whole, in range, and half a step off at most, for rows of very different size"
        " and 2 to 8 bits."
    )


def _judge_quantized(
    got: object, _: object, case: str, weights: torch.Tensor, bits: int
) -> None:
    whole, scales = (
        torch.as_tensor(part).double()
        for part in parts(got, 2, "(whole, scales)", case)
    )
    most = 2 ** (bits - 1) - 1
    exact = weights.double()
    if whole.shape != weights.shape:
        raise NotYet(
            f"For {case}: whole has shape {tuple(whole.shape)}, not that of the"
            " weights."
        )
    if scales.shape != (len(weights),):
        raise NotYet(
            f"For {case}: expected a scale for each row, shape ({len(weights)},), got"
            f" {tuple(scales.shape)}."
        )
    if not (whole.isfinite().all() and scales.isfinite().all() and (scales > 0).all()):
        raise NotYet(
            f"For {case}: scales must be above 0, and nothing may be infinite or NaN."
        )
    if not torch.equal(whole, whole.round()):
        raise NotYet(
            f"For {case}: {whole[whole != whole.round()][0]:.4g} is not whole."
        )
    if (largest := whole.abs().max()) > most:
        raise NotYet(
            f"For {case}: {largest:.0f} is beyond {most}, the largest number that"
            f" {bits} bits leave here."
        )
    least = exact.abs().amax(dim=1) / most
    row = int((scales / least).argmax())
    if scales[row] > 1.001 * least[row]:
        raise NotYet(
            f"For {case}: row {row}'s scale is {scales[row] / least[row]:.3g} times as"
            " large as its largest weight needs. Does each row have its own, and do"
            " you use all of the range?"
        )
    off = (exact - whole * scales[:, None]).abs() / scales[:, None]
    if off.max() > 0.501:
        raise NotYet(
            f"For {case}: a weight is {off.max():.2f} steps away from whole * scale;"
            " rounding to the nearest leaves half a step at most."
        )


def pipelined(answer: object) -> str:
    """The element's sums one clock later, and no path through the product to the sum
    without a register.
    """
    if not inspect.isclass(answer) or not hasattr(answer, "accumulate"):
        raise NotYet(
            f"Expected the class of an element, got {brief_repr(answer)}. Pass its name"
            " without brackets."
        )
    if is_open(answer.accumulate):
        raise Todo(f"{answer.__name__}.accumulate has no body yet: replace its dots.")
    judge_element(answer)
    return (
        "The same sums one clock later, and a register between the product and the sum."
    )


def _pipelined(
    steps: int,
    depth: int,
    reads: int,
    ports: int,
    products: int,
    multipliers: int,
    add_clocks: int,
) -> tuple[int, int]:
    interval = max(-(-reads // ports), -(-products // multipliers), add_clocks)
    return interval, depth + (steps - 1) * interval


def pipelined_loop(answer: object) -> str:
    """Loops that memories, multipliers or adders hold up, one step alone, and drawn
    ones.
    """
    cases = [
        (64, 4, 4, 4, 16, 16, 1),
        (64, 7, 4, 1, 16, 16, 1),
        (64, 6, 4, 4, 16, 4, 1),
        (64, 5, 4, 4, 16, 16, 3),
        (1, 5, 4, 4, 16, 16, 3),
        (10, 9, 5, 2, 25, 8, 2),
    ]
    draw = random.Random(2242)
    for _ in range(12):
        side = draw.randrange(1, 12)
        ports = draw.randrange(1, 12)
        multipliers = draw.randrange(1, 60)
        add_clocks = draw.randrange(1, 6)
        interval, _ = _pipelined(1, 1, side, ports, side**2, multipliers, add_clocks)
        depth = interval + draw.randrange(1, 9)
        steps = draw.randrange(2, 200)
        cases.append((steps, depth, side, ports, side**2, multipliers, add_clocks))
    over_cases(answer, cases, _pipelined, _judge_loop)
    return (
        "Right where memories, multipliers or adders hold the loop up, and for one step"
        " alone."
    )


def _judge_loop(
    got: object,
    right: tuple[int, int],
    case: str,
    steps: int,
    depth: int,
    reads: int,
    ports: int,
    products: int,
    multipliers: int,
    add_clocks: int,
) -> None:
    interval, _ = right
    waits = (reads / ports, products / multipliers, float(add_clocks))
    all_at_once = "The three work at the same time: the slowest decides."
    wrong_intervals = {
        float(sum(-(-wait // 1) for wait in waits)): all_at_once,
        float(max(2 * reads / ports // -1 * -1, *waits)): (
            "Each memory has ports of its own."
        ),
        max(waits): "A part of a clock is a whole one: round up.",
        max(1.0, *(wait // 1 for wait in waits)): (
            "A part of a clock is a whole one: round up."
        ),
        max(-(-waits[0] // 1), -(-waits[1] // 1)): (
            "The next step adds to the same sums: it can't add before this one has."
        ),
        float(depth): "A step begins while the one before is still under way.",
    }
    slow = "What holds a step up: reading, multiplying or adding?"
    wrong_clocks = {
        float(steps * interval): "The last step takes its whole depth.",
        float(depth + steps * interval): "Before the last step, steps - 1 have begun.",
        float(steps * depth): "A step begins while the one before is still under way.",
    }
    told = [
        ("clocks between two steps", wrong_intervals, slow),
        ("clocks in all", wrong_clocks, "depth for the last step, and what is before."),
    ]
    judge_pair(got, right, case, "(clocks between two steps, clocks in all)", told)


def best_size(answer: object) -> str:
    """The fastest array that fits, for drawn reports in which the largest is too large,
    too slow, or badly filled.
    """
    draw = random.Random(225)
    fixed = {n: _report(n, 60 * n * n, n * n, 120 - 4 * n) for n in (4, 6, 8, 10, 12)}
    cases = [
        (fixed, 10, 64, 83_640, 156),
        (fixed, 8, 64, 83_640, 156),
        (fixed, 10, 64, 83_640, 80),
    ]
    cases += [
        (fixed, 10, 64, 3_000, 156),
        (fixed, 16, 100, 83_640, 156),
        (fixed, 10, 64, 900, 156),
    ]
    # 8 x 8 fills the chip exactly
    cases += [(fixed, 8, 64, 60 * 8 * 8, 156), (fixed, 8, 64, 83_640, 8 * 8)]
    # their wires are long
    slow = {n: _report(n, 60 * n * n, n * n, 800 / n**1.5) for n in (4, 8, 12)}
    cases += [
        (slow, 4, 64, 83_640, 156),
        (slow, 8, 64, 83_640, 156),
        (slow, 9, 64, 83_640, 156),
    ]
    for _ in range(12):
        sizes = sorted(draw.sample(range(2, 17), 5))
        placed = {
            n: _report(n, draw.randrange(40, 80) * n * n, n * n, draw.uniform(40, 140))
            for n in sizes
        }
        cases.append(
            (
                placed,
                draw.randrange(2, 33),
                draw.randrange(16, 257),
                draw.randrange(2_000, 12_000),
                156,
            )
        )
    described = {_described(*case): case for case in cases}
    over_cases(answer, described, _best, _judge_size)
    return (
        "The fastest that fits, for chips and layers of many sizes, and None where"
        " nothing fits."
    )


def _report(n: int, luts: int, multipliers: int, fmax_mhz: float) -> Any:
    return SimpleNamespace(
        luts=luts, multipliers=multipliers, fmax_mhz=fmax_mhz, flip_flops=100 * n * n
    )


def _described(
    placed: dict[int, Any], classes: int, inputs: int, luts: int, multipliers: int
) -> str:
    arrays = ", ".join(
        f"{n} at {r.fmax_mhz:.0f} MHz with {r.luts} LUTs" for n, r in placed.items()
    )
    return (
        f"{classes} classes, {inputs} inputs, {luts:,} LUTs, {multipliers} multipliers"
        f" and arrays of {arrays}"
    )


def _rate(placed: dict[int, Any], n: int, classes: int, inputs: int) -> float:
    return float(1e6 * placed[n].fmax_mhz * n / (inputs * -(-classes // n)))


def _best(
    placed: dict[int, Any], classes: int, inputs: int, luts: int, multipliers: int
) -> tuple[int, float] | None:
    fit = [
        n for n, r in placed.items() if r.luts <= luts and r.multipliers <= multipliers
    ]
    rates = {n: _rate(placed, n, classes, inputs) for n in fit}
    return max(rates.items(), key=lambda item: item[1]) if rates else None


def _judge_size(
    got: object,
    right: tuple[int, float] | None,
    case: str,
    placed: Any,
    classes: int,
    inputs: int,
    *parts_there: int,
) -> None:
    if right is None:
        if got is not None:
            raise NotYet(
                f"For {case}: nothing fits, so the answer is None, not"
                f" {brief_repr(got)}."
            )
        return
    n, rate = parts(got, 2, "(n, images a second)", case)
    n = int(as_number(n, "rows", case))
    luts, multipliers = parts_there
    if n not in placed or placed[n].luts > luts or placed[n].multipliers > multipliers:
        raise NotYet(f"For {case}: an array of {n} x {n} doesn't fit.")
    if n != right[0]:
        slower = _rate(placed, n, classes, inputs)
        raise NotYet(
            f"For {case}: {n} x {n} gives {slower:,.0f} images a second, {right[0]} x"
            f" {right[0]} gives {right[1]:,.0f}. How often must each group of images"
            f" enter to meet all {classes} classes?"
        )
    value = as_number(rate, "images a second", case)
    wrong = {
        right[1]
        * -(
            -classes // n
        ): "Each group of images enters once for every n classes, or part of n.",
        right[1] / 1e6: "Fmax is in MHz.",
        right[1] / n: "n images enter together.",
        right[1] * n: "n images enter together, not n x n.",
    }
    hint = mistake(value, wrong, "n images take `inputs` clocks a pass.")
    number_close(
        value, right[1], rel=1e-6, unit="images a second", given=case, hint=hint
    )


CHECKS = {
    "22.2": skewed,
    "22.3": quantized,
    "22.4": pipelined,
    "22.4b": pipelined_loop,
    "22.5": best_size,
}
