"""The check of exercise 18.6, 2 ** x without exp units: right to the bit that bfloat16
keeps, from 0 down to -inf.
"""

# mypy: disable-error-code="untyped-decorator"
# ruff: noqa: N803 - kernels write constants in capitals

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from exercises.traced_kernels import Array, kernel
from kerneltrace import tiles
from kerneltrace.errors import KernelError
from kerneltrace.tiles import tl, triton
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet

BLOCK = 1024
SMALLEST = 2.0**-126
"""The smallest normal float32: powers below it may become 0."""
EQUAL = 0.98
"""The share of numbers that must be rounded to the same bfloat16 as the exact power."""
BUDGET = 24
"""Operations on floats a number: the solution needs 8."""
_KEPT = 8  # significant bits of a bfloat16, with the leading one


def powers(answer: object) -> str:
    """Numbers between whole ones, whole ones, a wide range, and numbers whose power is
    0; without exp units.
    """
    fn = getattr(answer, "fn", None)
    if not inspect.isfunction(fn):
        raise NotYet(
            f"Expected a function with @triton.jit above it, got {brief_repr(answer)}."
            " Pass its name alone."
        )
    kernel(fn, "x")
    _judge_whole_numbers(answer)
    _judge_fractions(answer)
    wide = np.linspace(-30, 0, 16 * BLOCK)
    equal, error = _judged(answer, "numbers from -30 to 0", wide)
    _judge_tiny(answer)
    return (
        f"Right: {equal:.1%} of {wide.size:,} numbers become the same bfloat16 as the"
        f" exact power, the others its neighbor. Before rounding the largest error is"
        f" {error:.2e}."
    )


def run(answer: Any, label: str, x: Array) -> tuple[Array, tiles.TileTrace]:
    """The powers that the answer gives, as float64 (numbers,), and the trace; NotYet
    where it can't be traced. `label` says what x is.
    """
    power = answer

    @triton.jit
    def powers_of_two(x, out, n, BLOCK: tl.constexpr) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        tl.store(out + at, power(tl.load(x + at, mask=inside, other=0.0)), mask=inside)

    numbers = x.astype(np.float32)
    out = np.full_like(numbers, np.nan)
    programs = -(-len(numbers) // BLOCK)
    try:
        with np.errstate(all="ignore"):
            trace = tiles.trace(
                powers_of_two, programs, numbers, out, len(numbers), BLOCK=BLOCK
            )
    except KernelError as error:
        raise NotYet(f"With {label}: {error}") from error
    if np.isnan(out).any() and np.isfinite(numbers).all():
        raise NotYet(
            f"With {label}: 2 ** {numbers[np.isnan(out)][0]:g} is no number. Does it"
            " return a tile of float32, and read bits with bitcast=True?"
        )
    return out.astype(float), trace


def _judge_whole_numbers(answer: Any) -> None:
    """NotYet for exp units, and unless powers of whole numbers are right."""
    whole = np.arange(-126, 1).astype(float)
    out, trace = run(answer, "whole numbers", whole)
    _judge_work(trace)
    wrong = ~_same_bfloat16(out, whole)
    if wrong.any():
        x = whole[wrong][-1]
        raise NotYet(
            f"2 ** {x:g} is {2**x:.6g}, got {out[wrong][-1]:.6g}. Of a float's bits 23"
            " are its fraction; the exponent stands above them, as a whole number."
        )


def _judge_fractions(answer: Any) -> None:
    """NotYet unless it is right between -1 and 0; where it is right above 0, it rounds
    toward 0.
    """
    label = "numbers from -1 to 0"
    below = np.linspace(-1, 0, 4 * BLOCK)
    try:
        _judged(answer, label, below)
    except NotYet as error:
        above = below[1:-1] + 1
        out, _ = run(answer, label, above)
        if _same_bfloat16(out, above).mean() > EQUAL:
            where = str(error).split(" got ")[0]
            raise NotYet(
                f"{where} got another. Above 0 it is right: round down with tl.floor,"
                " since a cast to int32 rounds toward 0."
            ) from None
        raise


def _judged(answer: Any, label: str, x: Array) -> tuple[float, float]:
    """The share that becomes the right bfloat16, and the largest relative error; NotYet
    where the share is too small or a number is more than one step off.
    """
    out, _ = run(answer, label, x)
    exact = np.exp2(x)
    errors = np.abs(out / exact - 1)
    equal = float(_same_bfloat16(out, x).mean())
    steps = np.abs(_to_bfloat16(out) - _to_bfloat16(exact)) / _step(exact)
    if equal >= EQUAL and steps.max() <= 1:
        return equal, float(errors.max())
    at = int(errors.argmax())
    raise NotYet(
        f"With {label}: {equal:.1%} become the bfloat16 nearest to the exact power;"
        f" {EQUAL:.0%} are needed. Furthest off is 2 ** {x[at]:.4g}: it is"
        f" {exact[at]:.6g}, got {out[at]:.6g}.{_where(x, errors)}"
    )


def _where(x: Array, errors: Array) -> str:
    """A sentence about errors that a polynomial has at one end or in the middle."""
    fraction = x - np.floor(x)
    middle = errors[np.abs(fraction - 0.5) < 0.1].max()
    low = errors[fraction < 0.1].max()
    high = errors[fraction > 0.9].max()
    if high > 4 * max(low, middle):
        return (
            " Just above a whole number it is right, just below the next it is not: a"
            " polynomial's coefficients belong to its interval, here from 0 to 1."
        )
    if errors.max() < 0.1:
        return " One more term, and float32 throughout, make the error much smaller."
    return ""


def _judge_tiny(answer: Any) -> None:
    """NotYet where powers below the smallest float32 aren't near 0."""
    tiny = np.array([-126.5, -127.0, -140.25, -200.0, -1000.0, -1e6, -1e30, -np.inf])
    label = "numbers below -126"
    out, _ = run(answer, label, tiny)
    wrong = ~((out >= 0) & (out <= SMALLEST))
    if wrong.any():
        raise NotYet(
            f"With {label}: 2 ** {tiny[wrong][0]:g} is below 2 ** -126, got"
            f" {out[wrong][0]:.6g}. A masked score is -inf: keep x from falling below"
            " what the exponent's bits can hold."
        )


def _judge_work(trace: tiles.TileTrace) -> None:
    """NotYet for exp units, and for many more operations than needed."""
    numbers = trace.programs * BLOCK
    if trace.special:
        raise NotYet(
            f"It asks the exp units {trace.special / numbers:.0f} times a number."
            " Multiply and add instead, and put the exponent into the bits."
        )
    if trace.flop > BUDGET * numbers:
        raise NotYet(
            f"It takes {trace.flop / numbers:.0f} operations a number, and should take"
            f" at most {BUDGET}: exp units would be faster."
        )


def _same_bfloat16(out: Array, x: Array) -> Array:
    same: Array = _to_bfloat16(out) == _to_bfloat16(np.exp2(x))
    return same


def _to_bfloat16(x: Array) -> Array:
    """Numbers rounded to the nearest that bfloat16 has, as float64."""
    fraction, exponent = np.frexp(x)
    rounded: Array = np.ldexp(np.rint(np.ldexp(fraction, _KEPT)), exponent - _KEPT)
    return rounded


def _step(x: Array) -> Array:
    """The distance of neighbors in bfloat16."""
    _, exponent = np.frexp(x)
    step: Array = np.ldexp(1.0, exponent - _KEPT)
    return step
