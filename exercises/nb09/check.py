"""Checks of notebook 09, how few bits are enough. Those of training steps are in
mixed_precision.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from exercises.nb09 import formats
from exercises.nb09.formats import Format
from exercises.nb09.mixed_precision import master_step, scaled_step
from labkit.core.units import format_si
from labkit.lesson.checks import NotYet, as_number, call, function, over_cases


def decode(answer: object) -> str:
    """The value of a sign, an exponent and a fraction of any width, subnormal numbers
    included.
    """
    draw = random.Random(91)
    unusual = [(3, 4), (6, 9)]
    usual = (formats.float16, formats.bfloat16, formats.float8_e5m2, formats.float32)
    cases = []
    for exponent_bits, fraction_bits in [
        *((f.exponent_bits, f.fraction_bits) for f in usual),
        *unusual,
    ]:
        largest = 2**exponent_bits - 2  # one more stands for inf and NaN
        for power in (
            largest // 2,
            1,
            largest,
            draw.randint(1, largest),
            draw.randint(1, largest),
            0,
        ):
            exponent = f"{power:0{exponent_bits}b}"
            fraction = (
                "".join(draw.choice("01") for _ in range(fraction_bits - 1)) + "1"
            )
            cases += [
                ("0", exponent, fraction),
                ("1", exponent, fraction),
                ("0", exponent, "0" * fraction_bits),
            ]
    over_cases(answer, [*cases, ("1", "00000", "0000000000")], _value, _judge_value)
    return (
        "Right for six formats of 8 to 32 bits: normal, subnormal, negative, and both"
        " zeros."
    )


def _value(sign: str, exponent: str, fraction: str) -> float:
    return Format("", len(exponent), len(fraction), "").value(
        sign + exponent + fraction
    )


def _judge_value(
    got: object, expected: float, case: str, sign: str, exponent: str, _: str
) -> None:
    value = as_number(got, "(no unit)", case)
    if value == expected != 0 or (
        value == 0 == expected and math.copysign(1, value) == math.copysign(1, expected)
    ):
        return
    if value == -expected:
        hint = (
            "The size is right, the sign is not: multiply by the sign at the end, so"
            " that zero has one too."
        )
    elif int(exponent, 2) == 0:
        hint = (
            "An exponent of only zeros is subnormal: no 1 before the point, and the"
            " scale of exponent 1."
        )
    elif value != 0 and math.log2(abs(value / expected)).is_integer():
        hint = (
            "Off by a power of two: the bias follows from the number of exponent bits."
        )
    else:
        hint = (
            "A normal number is 1 plus its fraction, times 2 to the power of the"
            " exponent minus the bias."
        )
    raise NotYet(f"For {case}: {value:.9g}, expected {expected:.9g}. {hint}")


class _Adder:
    """Adds two numbers in a format of few bits, and remembers what it was given and
    what it gave.
    """

    def __init__(self, number_format: Format, numbers: list[float]) -> None:
        self.format = number_format
        self.known = {0.0, *numbers}
        self.calls = 0
        self.foreign: Any = None

    def __call__(self, a: Any, b: Any) -> float:
        # torch's numbers too
        a = float(a)
        b = float(b)
        if self.foreign is None:
            self.foreign = next((x for x in (a, b) if x not in self.known), None)
        self.calls += 1
        result: float = self.format.round(a + b)
        self.known.add(result)
        return result


def total(answer: object) -> str:
    """A sum by an adder of 16 bits, within the error of a tree of additions, with no
    more additions than a loop has.
    """
    fn = function(answer)
    draw = random.Random(92)
    for n in (3, 1024, 1023, 1, 0, 2, 8191, 777):
        each = (
            draw.choice((formats.float16, formats.bfloat16))
            if n not in (1023, 1024)
            else formats.bfloat16
        )
        _judge_total(fn, each, [each.round(draw.uniform(1.0, 1.2)) for _ in range(n)])
    return (
        "Within the error budget for 0 to 8,191 numbers in float16 and bfloat16, with"
        " no addition too many."
    )


def _judge_total(fn: Callable[..., Any], each: Format, numbers: list[float]) -> None:
    n = len(numbers)
    adder = _Adder(each, numbers)
    case = f"{len(numbers)} numbers in {each}"

    def add(a: Any, b: Any) -> float:
        # without the adder's format and its notes
        return adder(a, b)

    value = as_number(call(fn, list(numbers), add), "(no unit)", case)
    if n == 0:
        if value != 0:
            raise NotYet(f"The sum of no numbers is 0, got {value:g}.")
        return
    if adder.calls < n - 1:
        raise NotYet(
            f"For {case}: add was called {format_si(adder.calls, 'times')}, and"
            f" {n - 1} are needed: only add may add."
        )
    if adder.calls > n:
        raise NotYet(
            f"For {case}: add was called {adder.calls} times; {n - 1} are enough, in"
            " any order."
        )
    if adder.foreign is not None:
        raise NotYet(
            f"For {case}: add was given {adder.foreign!r}, which is neither a number"
            " given nor a sum of it."
        )
    if value not in adder.known:
        raise NotYet(f"For {case}: {value:g} is none of the sums that add gave.")
    exact = math.fsum(numbers)
    budget = (math.ceil(math.log2(n)) + 1) * each.epsilon / 2
    error = abs(value / exact - 1)
    if error > budget:
        raise NotYet(
            f"For {case}: {value:g} instead of {exact:.6g}, off by {error:.2%}; a tree"
            f" of additions stays within {budget:.2%}. Once a sum is large, small"
            " numbers no longer change it: add numbers of similar size."
        )


CHECKS = {"09.1": decode, "09.2": total, "09.3": scaled_step, "09.5": master_step}
