"""Floating-point formats of up to 64 bits: their limits, their bits, and rounding to them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from labkit.core.display import Shown, brief_repr
from labkit.core.errors import LabError

Numbers = NDArray[np.float64]


class Bits(NamedTuple):
    """The bits of one number as text of 0 and 1, the highest bit first."""

    sign: str
    exponent: str
    fraction: str

    def __str__(self) -> str:
        return " ".join(self)


class Shares(NamedTuple):
    """What becomes of numbers in a format, as fractions (0 to 1) of those that are finite and not zero.

    `flushed` become zero, `subnormal` keep fewer digits, `normal` keep all, `overflow` become infinite or NaN.
    """

    flushed: float
    subnormal: float
    normal: float
    overflow: float


@dataclass(frozen=True, repr=False)
class Format(Shown):
    """A binary floating-point format: one sign bit, then exponent and fraction, biased and with subnormals as in IEEE.

    `has_inf` is False where the highest exponent holds numbers too and only its last pattern is NaN, as in e4m3fn.
    `stored_bits` is what a number takes in memory: tfloat32 calculates with 19 bits and is stored in 32.
    Source of the rules: IEEE 754-2019, sections 3.3, 3.4 and 4.3.1.
    """

    name: str
    exponent_bits: int
    fraction_bits: int
    stored_bits: int
    source: str
    has_inf: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def bias(self) -> int:
        """What is taken off the exponent's bits."""
        return int(2 ** (self.exponent_bits - 1) - 1)

    @property
    def max(self) -> float:
        """The largest finite number."""
        if self.has_inf:
            return math.ldexp(2 - self.epsilon, self.bias)
        return math.ldexp(2 - 2 * self.epsilon, self.bias + 1)  # all ones is NaN, one below is the largest

    @property
    def min_normal(self) -> float:
        """The smallest number above 0 that has all its digits."""
        return math.ldexp(1.0, 1 - self.bias)

    @property
    def min_subnormal(self) -> float:
        """The smallest number above 0. Half of it and less is rounded to 0."""
        return self.min_normal * self.epsilon

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger number; rounding changes a normal number by half of it at most."""
        return math.ldexp(1.0, -self.fraction_bits)

    def spacing(self, x: float) -> float:
        """Distance between neighbours in the binade of `x`: adding less than half of it to `x` changes nothing.

        `x` is rounded to the format first. NaN for what is not finite there.
        """
        stored = abs(self.round(x))
        if not math.isfinite(stored):
            return math.nan
        return math.ldexp(self.epsilon, max(math.frexp(stored)[1] - 1, 1 - self.bias)) if stored else self.min_subnormal

    @overload
    def round(self, x: float, *, saturate: bool = ...) -> float: ...
    @overload
    def round(self, x: Sequence[float] | NDArray[Any], *, saturate: bool = ...) -> Numbers: ...
    def round(self, x: Any, *, saturate: bool = False) -> float | Numbers:
        """The nearest number of the format, of two equally near the one whose last bit is 0; float or float64 array.

        Beyond the largest it is infinite, or NaN where the format has no infinity; with `saturate` the largest.
        Sums, products and quotients of such numbers, taken in float64 and rounded here, are those that the format's
        own arithmetic gives, float32 included (S. Figueroa, When is double rounding innocuous?, 1995).
        """
        with np.errstate(invalid="ignore", under="ignore", over="ignore"):  # a NaN may be one that signals
            given = np.asarray(x, dtype=np.float64)
            exponent = np.maximum(np.frexp(given)[1] - 1, 1 - self.bias)
            last_place = np.where(np.isfinite(given), exponent - self.fraction_bits, 0)
            near = np.ldexp(np.rint(np.ldexp(given, -last_place)), last_place)  # rint: ties go to the even one
            beyond = np.abs(near) > self.max
            most = self.max if saturate else math.inf if self.has_inf else math.nan
            rounded = np.where(beyond, np.copysign(most, near), near)
        return float(rounded) if rounded.ndim == 0 else rounded

    def bits(self, x: float) -> Bits:
        """The bits of `x`, rounded to the format; NaN as the pattern that torch and most hardware write."""
        near = self.round(float(x))
        sign = "1" if math.copysign(1.0, near) < 0 and not math.isnan(near) else "0"
        exponent, fraction = self._fields(abs(near))
        return Bits(sign, f"{exponent:0{self.exponent_bits}b}", f"{fraction:0{self.fraction_bits}b}")

    def _fields(self, near: float) -> tuple[int, int]:
        """Exponent and fraction as integers of a number of the format that is not negative."""
        top = 2**self.exponent_bits - 1
        if math.isnan(near):
            return top, 2 ** (self.fraction_bits - 1) if self.has_inf else 2**self.fraction_bits - 1
        if math.isinf(near):
            return top, 0
        if near < self.min_normal:
            return 0, round(near / self.min_subnormal)
        mantissa, power = math.frexp(near)  # near = mantissa * 2**power, mantissa in 0.5 to 1
        return power - 1 + self.bias, round(math.ldexp(2 * mantissa - 1, self.fraction_bits))

    def value(self, bits: str | Sequence[str]) -> float:
        """The number that bits stand for: Bits, or text of 0 and 1 with spaces or underscores anywhere.

        LabError for text that has other characters or another number of bits.
        """
        text = bits if isinstance(bits, str) else "".join(map(str, bits))
        text = re.sub(r"[\s_]", "", text)
        width = 1 + self.exponent_bits + self.fraction_bits
        if re.fullmatch(f"[01]{{{width}}}", text) is None:
            parts = f"1 sign, {self.exponent_bits} exponent, {self.fraction_bits} fraction"
            raise LabError(f"Expected {width} bits of 0 and 1 for {self.name} ({parts}), got {brief_repr(bits)}.")
        sign = -1.0 if text[0] == "1" else 1.0
        exponent, fraction = int(text[1 : 1 + self.exponent_bits], 2), int(text[1 + self.exponent_bits :], 2)
        if exponent == 2**self.exponent_bits - 1:
            if self.has_inf:
                return math.nan if fraction else sign * math.inf
            if fraction == 2**self.fraction_bits - 1:
                return math.nan
        if exponent == 0:
            return sign * fraction * self.min_subnormal
        return sign * math.ldexp(1 + fraction * self.epsilon, exponent - self.bias)

    def shares(self, values: Any) -> Shares:
        """What becomes of an array's numbers in this format; those that are 0, infinite or NaN already don't count.

        LabError where none is left to count.
        """
        with np.errstate(invalid="ignore"):
            given = np.abs(np.asarray(values, dtype=np.float64).ravel())
        given = given[np.isfinite(given) & (given > 0)]
        if given.size == 0:
            raise LabError("Expected at least one finite number other than 0, got none. Was anything calculated?")
        stored = self.round(given)
        flushed, overflow = float(np.mean(stored == 0)), float(np.mean(~np.isfinite(stored)))
        subnormal = float(np.mean((stored > 0) & (stored < self.min_normal)))
        return Shares(flushed, subnormal, float(np.mean(np.isfinite(stored) & (stored >= self.min_normal))), overflow)

    def describe(self) -> tuple[str, ...]:
        """A table's row: name, bits, largest, smallest normal, smallest of all, epsilon."""
        width = f"1 + {self.exponent_bits} + {self.fraction_bits}"
        small = (self.min_normal, self.min_subnormal, self.epsilon)
        return self.name, width, f"{self.max:.6g}", *(f"{number:.3g}" for number in small)
