"""Plausible wrong answers of exercise 18.6: (answer, words the check must say, misconception)."""

# mypy: ignore-errors

from kerneltrace.tiles import tl, triton


@triton.jit
def by_the_exp_units(x):
    return tl.exp2(x)


@triton.jit
def taylor_around_zero(x):
    x = tl.maximum(x, -127.0)
    whole = tl.floor(x)
    f = x - whole
    value = ((0.0555041 * f + 0.2402265) * f + 0.6931472) * f + 1.0
    bits = value.to(tl.int32, bitcast=True) + (whole.to(tl.int32) << 23)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def cast_in_place_of_floor(x):
    x = tl.maximum(x, -127.0)
    whole = x.to(tl.int32)
    f = x - whole
    value = ((0.077119 * f + 0.227564) * f + 0.695146) * f + 1.0
    bits = value.to(tl.int32, bitcast=True) + (whole << 23)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def without_a_floor(x):
    """-inf, and what is far below, leaves the bits of the exponent."""
    whole = tl.floor(x)
    f = x - whole
    value = ((0.077119 * f + 0.227564) * f + 0.695146) * f + 1.0
    bits = value.to(tl.int32, bitcast=True) + (whole.to(tl.int32) << 23)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def kept_above_minus_1000(x):
    x = tl.maximum(x, -1000.0)
    whole = tl.floor(x)
    f = x - whole
    value = ((0.077119 * f + 0.227564) * f + 0.695146) * f + 1.0
    bits = value.to(tl.int32, bitcast=True) + (whole.to(tl.int32) << 23)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def a_term_too_few(x):
    x = tl.maximum(x, -127.0)
    whole = tl.floor(x)
    f = x - whole
    value = (0.330107 * f + 0.665785) * f + 1.0
    bits = value.to(tl.int32, bitcast=True) + (whole.to(tl.int32) << 23)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def a_straight_line(x):
    x = tl.maximum(x, -127.0)
    whole = tl.floor(x)
    value = 1.0 + (x - whole)
    bits = value.to(tl.int32, bitcast=True) + (whole.to(tl.int32) << 23)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def exponent_added_to_the_number(x):
    x = tl.maximum(x, -127.0)
    whole = tl.floor(x)
    f = x - whole
    value = ((0.077119 * f + 0.227564) * f + 0.695146) * f + 1.0
    return value + whole * 8388608.0


@triton.jit
def exponent_not_shifted(x):
    x = tl.maximum(x, -127.0)
    whole = tl.floor(x)
    f = x - whole
    value = ((0.077119 * f + 0.227564) * f + 0.695146) * f + 1.0
    bits = value.to(tl.int32, bitcast=True) + whole.to(tl.int32)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def bits_cast_as_numbers(x):
    x = tl.maximum(x, -127.0)
    whole = tl.floor(x)
    f = x - whole
    value = ((0.077119 * f + 0.227564) * f + 0.695146) * f + 1.0
    bits = value.to(tl.int32) + (whole.to(tl.int32) << 23)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def fraction_in_float16(x):
    x = tl.maximum(x, -127.0)
    whole = tl.floor(x)
    f = (x - whole).to(tl.float16)
    value = (((0.077119 * f + 0.227564) * f + 0.695146) * f + 1.0).to(tl.float32)
    bits = value.to(tl.int32, bitcast=True) + (whole.to(tl.int32) << 23)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def many_terms_of_a_series(x):
    """e ** (x ln 2) by its series: right near 0, and so many terms for nothing far off."""
    x = tl.maximum(x, -127.0) * 0.69314718
    total = 1.0 + x * 0.0
    for n in tl.static_range(30, 0, -1):
        total = total * x / n + 1.0
    return total


@triton.jit
def nothing_is_returned(x):
    tl.maximum(x, -127.0)


def not_a_kernel(x):
    return 2.0**x


POWERS = [
    (by_the_exp_units, "asks the exp units", "does-less-work"),
    (taylor_around_zero, "belong to its interval", "other-formula"),
    (cast_in_place_of_floor, "round down with tl.floor", "rounding-is-cosmetic"),
    (without_a_floor, "what the exponent's bits can hold", "edges-are-ordinary"),
    (kept_above_minus_1000, "what the exponent's bits can hold", "edges-are-ordinary"),
    (a_term_too_few, "One more term", "low-precision-is-enough"),
    (a_straight_line, "One more term", "low-precision-is-enough"),
    (exponent_added_to_the_number, "stands above them", "bits-all-read-alike"),
    (exponent_not_shifted, "stands above them", "bits-all-read-alike"),
    (bits_cast_as_numbers, "bitcast=True", "bits-all-read-alike"),
    (fraction_in_float16, "float32 throughout", "low-precision-is-enough"),
    (many_terms_of_a_series, "operations a number", "other-formula"),
    (nothing_is_returned, "return", "result-of-another-kind"),
    (not_a_kernel, "@triton.jit above it", "result-of-another-kind"),
]
