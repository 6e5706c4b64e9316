"""Floating-point formats from float32 to float8: limits, bits, rounding, and training
in 16 bits where it is simulated.

Rounding is written out here, and not left to casts of NumPy, torch or ml_dtypes: none
of them has tfloat32, and exercises make up formats of their own. Tests hold the results
against torch's casts. torch is loaded only by what takes tensors, so that figures of
formats need none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from labkit.core.arguments import as_array
from labkit.core.display import Shown, Table, brief_repr
from labkit.core.errors import LabError
from labkit.core.parameters import AnyNumber, Array, Count, Size, checked

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Numbers = NDArray[np.float64]


class Bits(NamedTuple):
    """The bits of one number as text of 0 and 1, the highest bit first."""

    sign: str
    exponent: str
    fraction: str

    def __str__(self) -> str:
        return " ".join(self)


class Shares(NamedTuple):
    """What becomes of numbers in a format, as fractions (0 to 1) of those that are
    finite and not zero.

    `flushed` become zero, `subnormal` lose digits, `normal` keep all digits, `overflow`
    become infinite or NaN.
    """

    flushed: float
    subnormal: float
    normal: float
    overflow: float


@checked
@dataclass(frozen=True, repr=False)
class Format(Shown):
    """A binary floating-point format: sign bit, exponent and fraction, with a bias and
    subnormals as in IEEE 754.

    `has_inf` is False where the highest exponent holds numbers too, and only its last
    pattern is NaN, as in e4m3fn. Source of the rules: IEEE 754-2019, sections 3.3, 3.4
    and 4.3.1.
    """

    name: str
    exponent_bits: Count
    fraction_bits: Size
    source: str
    has_inf: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def bias(self) -> int:
        """What the stored exponent is too large by."""
        return int(2 ** (self.exponent_bits - 1) - 1)

    @property
    def max(self) -> float:
        """The largest finite number."""
        if self.has_inf:
            return math.ldexp(2 - self.epsilon, self.bias)
        # all ones is NaN, one below is the largest
        return math.ldexp(2 - 2 * self.epsilon, self.bias + 1)

    @property
    def min_normal(self) -> float:
        """The smallest number above 0 that keeps all its digits."""
        return math.ldexp(1.0, 1 - self.bias)

    @property
    def min_subnormal(self) -> float:
        """The smallest number above 0. Half of it and less is rounded to 0."""
        return self.min_normal * self.epsilon

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger number; rounding changes a normal number
        by half of it at most.
        """
        return math.ldexp(1.0, -self.fraction_bits)

    @overload
    def round(self, x: float) -> float: ...
    @overload
    def round(self, x: Sequence[float] | NDArray[Any]) -> Numbers: ...
    def round(self, x: Any) -> float | Numbers:
        """Round to the nearest number of the format, ties to the one whose last bit is
        0; a float or float64 array.

        Beyond the largest number the result is infinite, or NaN where the format has no
        infinity. Sums, products and quotients of such numbers, taken in float64 and
        rounded here, are those that the format's own arithmetic gives, float32 included
        (S. Figueroa, When is double rounding innocuous?, 1995).
        """
        # the input may hold a signaling NaN
        with np.errstate(invalid="ignore", under="ignore", over="ignore"):
            numbers = np.asarray(x, dtype=np.float64)
            # subnormals share the smallest exponent
            exponent = np.maximum(np.frexp(numbers)[1] - 1, 1 - self.bias)
            last_place = np.where(
                np.isfinite(numbers), exponent - self.fraction_bits, 0
            )
            # rint sends ties to even
            near = np.ldexp(np.rint(np.ldexp(numbers, -last_place)), last_place)
            overflowed = np.copysign(math.inf if self.has_inf else math.nan, near)
            rounded = np.where(np.abs(near) > self.max, overflowed, near)
        return float(rounded) if rounded.ndim == 0 else rounded

    @checked
    def bits(self, x: AnyNumber) -> Bits:
        """Return the bits of `x`, rounded to the format; NaN has the pattern that torch
        and most hardware write.
        """
        near = self.round(float(x))
        sign = "1" if math.copysign(1.0, near) < 0 and not math.isnan(near) else "0"
        exponent, fraction = self._fields(abs(near))
        return Bits(
            sign,
            f"{exponent:0{self.exponent_bits}b}",
            f"{fraction:0{self.fraction_bits}b}",
        )

    def _fields(self, near: float) -> tuple[int, int]:
        """Return exponent and fraction as integers, for a number of the format that is
        not negative.
        """
        top = 2**self.exponent_bits - 1
        if math.isnan(near):
            return top, (
                2 ** (self.fraction_bits - 1)
                if self.has_inf
                else 2**self.fraction_bits - 1
            )
        if math.isinf(near):
            return top, 0
        if near < self.min_normal:
            return 0, round(near / self.min_subnormal)
        # near = mantissa * 2**power, mantissa in 0.5 to 1
        mantissa, power = math.frexp(near)
        return power - 1 + self.bias, round(
            math.ldexp(2 * mantissa - 1, self.fraction_bits)
        )

    @checked
    def value(self, bits: str | Sequence[str]) -> float:
        """Return the number that bits stand for: Bits, or text of 0 and 1 with spaces
        or underscores anywhere.

        Raises LabError for text that has other characters or another number of bits.
        """
        text = re.sub(r"[\s_]", "", "".join(bits))
        width = 1 + self.exponent_bits + self.fraction_bits
        if re.fullmatch(f"[01]{{{width}}}", text) is None:
            parts = (
                f"1 sign, {self.exponent_bits} exponent, {self.fraction_bits} fraction"
            )
            raise LabError(
                f"Expected {width} bits of 0 and 1 for {self.name} ({parts}), got"
                f" {brief_repr(bits)}."
            )
        sign = -1.0 if text[0] == "1" else 1.0
        exponent = int(text[1 : 1 + self.exponent_bits], 2)
        fraction = int(text[1 + self.exponent_bits :], 2)
        if exponent == 2**self.exponent_bits - 1:
            if self.has_inf:
                return math.nan if fraction else sign * math.inf
            if fraction == 2**self.fraction_bits - 1:
                return math.nan
        if exponent == 0:
            return sign * fraction * self.min_subnormal
        return sign * math.ldexp(1 + fraction * self.epsilon, exponent - self.bias)

    @checked
    def shares(self, values: Array) -> Shares:
        """Count what becomes of an array's numbers in this format, without those that
        are already 0, infinite or NaN.

        Raises LabError where no number is left to count.
        """
        with np.errstate(invalid="ignore"):
            magnitudes = np.abs(as_array(values).astype(np.float64).ravel())
        magnitudes = magnitudes[np.isfinite(magnitudes) & (magnitudes > 0)]
        if magnitudes.size == 0:
            raise LabError(
                "Expected at least one finite number other than 0, got none. Was"
                " anything calculated?"
            )
        stored = self.round(magnitudes)
        flushed = stored == 0
        overflow = ~np.isfinite(stored)
        subnormal = ~flushed & (stored < self.min_normal)
        normal = ~(flushed | subnormal | overflow)
        return Shares(
            *(float(np.mean(part)) for part in (flushed, subnormal, normal, overflow))
        )


_IEEE = "IEEE 754-2019, table 3.5"
_OFP8 = (
    "Micikevicius et al., FP8 formats for deep learning (2022), arXiv:2209.05433; OCP"
    " OFP8 specification 1.0 (2023)"
)
_BFLOAT16 = (
    "Kalamkar et al., A study of bfloat16 for deep learning (2019), arXiv:1905.12322"
)

float32 = Format("float32", 8, 23, _IEEE)
tfloat32 = Format(
    "tfloat32", 8, 10, "NVIDIA A100 Tensor Core GPU architecture (2020), figure 9"
)
bfloat16 = Format("bfloat16", 8, 7, _BFLOAT16)
float16 = Format("float16", 5, 10, _IEEE)
float8_e4m3fn = Format("float8_e4m3fn", 4, 3, _OFP8, has_inf=False)
float8_e5m2 = Format("float8_e5m2", 5, 2, _OFP8)

ALL = (float32, tfloat32, bfloat16, float16, float8_e4m3fn, float8_e5m2)


def table() -> Table:
    """Return bits and limits of the six formats, for a cell to show."""
    headings = (
        "format",
        "sign + exponent + fraction",
        "largest",
        "smallest normal",
        "smallest",
        "epsilon",
    )
    rows = []
    for each in ALL:
        small = (
            f"{number:.3g}"
            for number in (each.min_normal, each.min_subnormal, each.epsilon)
        )
        rows.append(
            (
                each.name,
                f"1 + {each.exponent_bits} + {each.fraction_bits}",
                f"{each.max:.6g}",
                *small,
            )
        )
    return Table(tuple(rows), headings)


@checked
def autocast_forward(model: nn.Module, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Simulate `model(x)` with layers that calculate in `dtype`: float32 arithmetic
    between roundings.

    Input, weights, the output of each layer, and the gradients of all of them are
    rounded to `dtype`; what overflows becomes inf. Sums inside a layer stay in float32,
    as on tensor cores, and so does all that follows the model, such as the loss. The
    speed and memory of a real format are not simulated.
    """
    import torch

    layers = [layer for layer in model.modules() if not list(layer.children())]
    hooks = [
        layer.register_forward_hook(lambda _layer, _args, out: _round(out, dtype))
        for layer in layers
    ]
    try:
        weights = {
            name: _round(weight, dtype) for name, weight in model.named_parameters()
        }
        result: Tensor = torch.func.functional_call(model, weights, (_round(x, dtype),))
    finally:
        for hook in hooks:
            hook.remove()
    return result


def _round(x: Tensor, dtype: torch.dtype) -> Tensor:
    # autograd casts the gradient to and fro as well, so it is rounded too
    return x.to(dtype).to(x.dtype)


@checked
def round_weights(
    optimizer: torch.optim.Optimizer, to: torch.dtype | Callable[[Tensor], Tensor]
) -> None:
    """Round an optimizer's weights and its state in place, to the nearest of a dtype or
    as the function `to` does.

    That is what a step without any number of 32 bits would leave. The optimizer's count
    of steps is not rounded: torch keeps it in float32 for weights of any dtype.
    """
    import torch

    rounded = to if callable(to) else lambda value: value.to(to)
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    state = [
        value
        for entry in optimizer.state.values()
        for key, value in entry.items()
        if key != "step"
    ]
    with torch.no_grad():
        for value in [*weights, *state]:
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                value.copy_(rounded(value))
